"""A server on loopback that means its clients ill: each manner is one way never to come to an end.

It speaks in plain bytes; no library smooths anything out. Where a client hangs up, the manner ends. A manner that drips
sends something each `DRIP_SECONDS`: no wait for the next byte ever runs out.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator

DRIP_SECONDS = 0.05
Manner = Callable[[socket.socket], None]

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
VALID = b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[0,"1"]}]}}'


def _heard(talk: socket.socket) -> None:
    """Read the request's head (and what comes with it of its body)."""
    got = b""
    while b"\r\n\r\n" not in got:
        piece = talk.recv(65536)
        if not piece:
            raise ConnectionError
        got += piece


def says(first: bytes, *, then: Iterable[bytes] = (), drips: bool = True, hears: bool = True) -> Manner:
    """Hears the request, says `first`, then each of `then`: dripped, or as fast as it is taken; then stays silent."""

    def manner(talk: socket.socket) -> None:
        if hears:
            _heard(talk)
        talk.sendall(first)
        for piece in then:
            talk.sendall(piece)
            if drips:
                time.sleep(DRIP_SECONDS)
        _silent(talk)

    return manner


def answers(body: bytes, head: bytes = OK) -> Manner:
    """A whole answer at once, after which the connection closes."""

    def manner(talk: socket.socket) -> None:
        _heard(talk)
        talk.sendall(head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        talk.sendall(body)
        # What was not read of a request would have the kernel take back what was sent.
        talk.shutdown(socket.SHUT_WR)
        _silent(talk)

    return manner


def _silent(talk: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while talk.recv(65536):
            pass


def _forever(piece: bytes) -> Iterator[bytes]:
    return itertools.repeat(piece)


def bomb(megabytes: int) -> bytes:
    """As many MB of blanks, compressed: a thousandth of it."""
    return gzip.compress(b" " * (megabytes * 1_000_000))


def _numbered(pattern: bytes) -> Iterator[bytes]:
    for n in itertools.count():
        yield pattern % n


# What never ends, by name. Iterators that never end are made anew for each connection.
MANNERS: dict[str, Callable[[], Manner]] = {
    "hears and says nothing": lambda: says(b""),
    "drips the status line": lambda: says(b"", then=itertools.chain([b"HTTP/1.1 200 "], _forever(b"O"))),
    "drips headers": lambda: says(OK, then=_numbered(b"X-%d: y\r\n")),
    "endless headers": lambda: says(OK, then=_forever(b"X: " + b"y" * 4000 + b"\r\n"), drips=False),
    "drips a body of known length": lambda: says(OK + b"Content-Length: 90000\r\n\r\n", then=_forever(b" ")),
    "drips a chunk's extension": lambda: says(CHUNKED + b"1;", then=_forever(b"x")),
    "chunks of one byte with long extensions": lambda: says(
        CHUNKED, then=_forever(b"1;" + b"x" * 4000 + b"\r\n \r\n"), drips=False
    ),
    "endless trailers": lambda: says(
        CHUNKED + b"%x\r\n%s\r\n0\r\n" % (len(VALID), VALID), then=_forever(b"X: " + b"y" * 4000 + b"\r\n"), drips=False
    ),
    "drips gzip": lambda: says(
        OK + b"Content-Encoding: gzip\r\n\r\n", then=itertools.chain([gzip.compress(b"")[:10]], _forever(b"\x00"))
    ),
}


class HostileServer:
    """`manner` is made anew for each connection. `met`: how many there were; `held`: how many are open now."""

    def __init__(self, manner: Callable[[], Manner]) -> None:
        self._manner = manner
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._server.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.met = 0
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def held(self) -> int:
        return len(self._open)

    def gone(self, seconds: float = 5.0) -> bool:
        """Whether all clients have hung up, by then at the latest."""
        until = time.monotonic() + seconds
        while self._open and time.monotonic() < until:
            time.sleep(0.01)
        return not self._open

    @contextlib.contextmanager
    def running(self) -> Iterator[HostileServer]:
        accepting = threading.Thread(target=self._accept, daemon=True)
        accepting.start()
        try:
            yield self
        finally:
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
            accepting.join()
            for talk in list(self._open):
                with contextlib.suppress(OSError):
                    talk.shutdown(socket.SHUT_RDWR)
            for thread in self._threads:
                thread.join()

    def _accept(self) -> None:
        while True:
            try:
                talk, _ = self._server.accept()
            except OSError:
                return
            self.met += 1
            self._open.add(talk)
            thread = threading.Thread(target=self._serve, args=(talk,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, talk: socket.socket) -> None:
        try:
            with talk, contextlib.suppress(OSError):
                talk.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._manner()(talk)
        finally:
            self._open.discard(talk)
