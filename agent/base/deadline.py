"""Limits of a network exchange: one of time for the whole of it, kept outside of the reader, and one of
size for the head of an answer.

A timeout of a socket is for one wait: a server that sends a byte now and then is never given up by it, wherever the
byte stands (a status line, a header, a chunk's size, a TLS handshake). So the talk has a clock in its own thread,
which shuts its sockets down when time is up and so ends any wait or loop on one.
"""

from __future__ import annotations

import http.client
import math
import os
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any, cast

# Status line, headers and all that was said before them. Servers commonly allow themselves 8 to 64 KiB.
MAX_HEAD_BYTES = 256 * 1024
SocketAddress = tuple[socket.AddressFamily, tuple[Any, ...]]


class Deadline:
    """A talk may take so many seconds, names and connecting included. A context manager.

    `over`: time was up, and what was read last may have been cut short.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._held: list[socket.socket] = []
        self._done = False
        self.over = False
        self._clock = threading.Timer(seconds, self._cut)
        self._clock.daemon = True

    def __enter__(self) -> Deadline:
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._clock.cancel()
        with self._lock:
            self._done = True
            held, self._held = self._held, []
        for connection in held:
            connection.close()
        self._clock.join()

    def left(self) -> float:
        """Seconds until the end. Raises TimeoutError where there are none."""
        left = self._end - time.monotonic()
        if left <= 0 or self.over:
            raise TimeoutError("no time is left")
        return left

    def guard(self, connection: socket.socket) -> None:
        """Shut this connection down at the end, also where another thread uses or wraps it."""
        # A socket of our own on the same connection: TLS takes the number of the first one away, and closing that one
        # in its own thread must not let ours meet a stranger's.
        duplicate = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            if not self._done:
                self._held.append(duplicate)
                if self.over:
                    _shut(duplicate)
                return
        duplicate.close()

    def connect(self, host: str, port: int, *, most_seconds: float = math.inf) -> socket.socket:
        """A connection over TCP, guarded; each wait on it ends with the deadline. `most_seconds`: for connecting alone.

        Raises what `socket.create_connection` raises.
        """
        until = time.monotonic() + min(most_seconds, self.left())
        failed: OSError | None = None
        for family, address in resolve_host(host, port, until - time.monotonic()):
            connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            try:
                if (left := until - time.monotonic()) <= 0:
                    raise TimeoutError("no time is left to connect")
                connection.settimeout(left)
                connection.connect(address)
                connection.settimeout(self.left())
                self.guard(connection)
            except OSError as error:
                connection.close()
                failed = error
            else:
                return connection
        raise failed or OSError(f"{host} has no address")

    def _cut(self) -> None:
        with self._lock:
            self.over = True
            for connection in self._held:
                _shut(connection)


def resolve_host(host: str, port: int, seconds: float) -> list[SocketAddress]:
    """The addresses of a name. Raises TimeoutError where none arrive in time, OSError where there are none.

    A resolver of libc cannot be stopped, so it is asked in a thread that is left behind where it is late; it ends
    with the resolver's own limit.
    """
    answers: list[list[SocketAddress] | OSError] = []

    def ask() -> None:
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answers.append([(family, address) for family, _, _, _, address in addresses])
        except OSError as error:
            answers.append(error)
        except UnicodeError:
            answers.append(socket.gaierror(socket.EAI_NONAME, "not a name of a host"))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(max(seconds, 0.0))
    if not answers:
        raise TimeoutError("the name was not resolved in time")
    if isinstance(answers[0], OSError):
        raise answers[0]
    return answers[0]


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # closed by the server, or not connected yet
        # Closing it then ends the connection for the server, too, however much it has still to send.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)


class BoundedResponse(http.client.HTTPResponse):
    """Raises HTTPException for a head that is too large, or cut. For `http.client.HTTPConnection.response_class`.

    http.client bounds each line and counts headers, but skips "100 Continue" as often as a server says it, and takes a
    head that was cut for a whole one.
    """

    def begin(self) -> None:
        if getattr(self, "headers", None) is not None:
            return
        whole = self.fp
        self.fp = cast("Any", _Head(whole))
        try:
            super().begin()
        finally:
            # On an error it may be closed and gone already.
            if self.fp is not None:
                self.fp = whole
        # urllib3 would log lines that are no headers, with the address, which may be a secret.
        self.headers.defects.clear()
        self.headers.set_payload("")


class _Head:
    """A connection of which only the lines of a head are read: until they are too many."""

    def __init__(self, whole: Any) -> None:  # noqa: ANN401 - whatever makefile() gives
        self._whole = whole
        self._read = 0

    def readline(self, limit: int = -1) -> bytes:
        line = self._whole.readline(limit)
        if not line and self._read:
            raise http.client.HTTPException("the head was cut")
        self._read += len(line)
        if self._read > MAX_HEAD_BYTES:
            raise http.client.HTTPException(f"the head is larger than {MAX_HEAD_BYTES >> 10} KiB")
        return line

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._whole, name)
