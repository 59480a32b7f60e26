"""Serves the page of metrics over HTTP: one thread, two paths, and a limit on everything a client can ask of it.

The loop is never waited for and never waits: the page is made from a copy of the totals. Connections are not kept
alive. Where there are too many, the one that has dawdled longest over its request gives way to the newest, so that
nobody can hold all places.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from threading import Lock, Thread

from ..listen import Address
from ..model import Absence
from ..openmetrics import Format, negotiate

MAX_REQUEST_BYTES = 8192
MAX_CONNECTIONS = 16
REQUEST_SECONDS = 5.0  # from connection to the whole request
ANSWER_SECONDS = 10.0  # from the request to the last byte; Prometheus itself waits 10 s by default
BIND_AGAIN_SECONDS = 30.0
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class _Connection:
    __slots__ = ("answer", "asked", "deadline", "received", "sock")

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self.sock = sock
        self.deadline = deadline
        self.received = bytearray()
        self.answer: memoryview | None = None
        self.asked = ""  # what is counted once the answer is out


class Exporter:
    """`page` makes the body, given the format and how connections ended so far; `is_healthy` answers /healthz."""

    def __init__(
        self,
        address: Address,
        page: Callable[[Format, Mapping[str, int]], str],
        is_healthy: Callable[[], bool],
        monotonic: Callable[[], float] = time.monotonic,
        bind_again_seconds: float = BIND_AGAIN_SECONDS,
    ) -> None:
        self.address = address
        self._bind_again = bind_again_seconds
        self.fault: Absence | None = None
        self._page = page
        self._is_healthy = is_healthy
        self._monotonic = monotonic
        self._ended: Counter[str] = Counter()
        self._open: dict[int, _Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._bind_again_at = 0.0
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread: Thread | None = None
        self._lock = Lock()

    def start(self) -> None:
        """Listen, and serve in a thread of its own. What cannot be listened on is tried again; `fault` says why."""
        self._bind()
        self._thread = Thread(target=self._serve, name="skuwise-exporter", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close every connection. Idempotent."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            os.write(self._wake_write, b"x")
            thread.join(timeout=ANSWER_SECONDS)

    def _bind(self) -> None:
        host, port = self.address.host, self.address.port
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, protocol)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(where)
                listener.listen(MAX_CONNECTIONS)
                listener.setblocking(False)
            except OSError:
                listener.close()
                raise
        except OSError as error:
            self._bind_again_at = self._monotonic() + self._bind_again
            why = error.strerror or str(error)
            self.fault = Absence(
                "source", "exporter", "*", "not-listening",
                f"The metrics page cannot listen on {self.address}: {why}.",
                "Give --listen an address of this machine and a free port; it is tried again every 30 s.",
            )  # fmt: skip
            return
        self.fault = None
        self.address = Address(host, listener.getsockname()[1])
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ)

    def _serve(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            for connection in list(self._open.values()):
                self._close(connection, "cut_off")
            if self._listener is not None:
                self._listener.close()
            self._selector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _turn(self) -> bool:
        now = self._monotonic()
        times = [connection.deadline for connection in self._open.values()]
        if self._listener is None:
            times.append(self._bind_again_at)
        events = self._selector.select(max(0.0, min(times) - now) if times else None)
        for key, _ in events:
            if key.fileobj == self._wake_read:
                return False
            if key.fileobj is self._listener:
                self._accept()
            elif (connection := self._open.get(key.fd)) is not None:
                self._go_on(connection)
        now = self._monotonic()
        for connection in [one for one in self._open.values() if one.deadline <= now]:
            self._close(connection, "timed_out")
        if self._listener is None and now >= self._bind_again_at:
            self._bind()
        return True

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            sock, _ = self._listener.accept()
        except OSError:
            self._ended["refused"] += 1  # gone again, or no descriptor left; the others are served first
            return
        sock.setblocking(False)
        if len(self._open) >= MAX_CONNECTIONS:
            reading = [one for one in self._open.values() if one.answer is None] or list(self._open.values())
            self._close(min(reading, key=lambda one: one.deadline), "refused")
        connection = _Connection(sock, self._monotonic() + REQUEST_SECONDS)
        self._open[sock.fileno()] = connection
        self._selector.register(sock, selectors.EVENT_READ)

    def _go_on(self, connection: _Connection) -> None:
        try:
            if connection.answer is None:
                self._receive(connection)
            if connection.answer is not None:
                self._send(connection)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._close(connection, "cut_off")

    def _receive(self, connection: _Connection) -> None:
        piece = connection.sock.recv(MAX_REQUEST_BYTES)
        if not piece:
            self._close(connection, "cut_off")
            return
        connection.received += piece
        end = connection.received.find(b"\r\n\r\n")
        if end < 0 and len(connection.received) < MAX_REQUEST_BYTES:
            return
        head = bytes(connection.received[:end]) if 0 <= end <= MAX_REQUEST_BYTES else None
        connection.asked, answer = self._answer(head)
        connection.answer = memoryview(answer)
        connection.deadline = self._monotonic() + ANSWER_SECONDS
        self._selector.modify(connection.sock, selectors.EVENT_WRITE)

    def _send(self, connection: _Connection) -> None:
        assert connection.answer is not None
        sent = connection.sock.send(connection.answer)
        connection.answer = connection.answer[sent:]
        if not connection.answer:
            self._close(connection, connection.asked)

    def _close(self, connection: _Connection, outcome: str) -> None:
        self._ended[outcome] += 1
        self._open.pop(connection.sock.fileno(), None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_WR)
        connection.sock.close()

    def _answer(self, head: bytes | None) -> tuple[str, bytes]:
        """How the connection is to be counted, and the bytes to send."""
        if head is None:
            return "bad_request", _answer_bytes(431, "The request is too long.\n")
        request = parse_request(head)
        if request is None:
            return "bad_request", _answer_bytes(400, "This is not an HTTP request.\n")
        method, path, headers = request
        if path not in ("/metrics", "/healthz"):
            return "bad_request", _answer_bytes(404, "There are /metrics and /healthz here.\n")
        if method != "GET":
            return "bad_request", _answer_bytes(405, "Only GET is answered.\n", {"Allow": "GET"})
        if path == "/healthz":
            healthy = self._is_healthy()
            text = "sampling\n" if healthy else "no tick was kept of late\n"
            return "health", _answer_bytes(200 if healthy else 503, text)
        form = negotiate(headers.get("accept", ""))
        try:
            body = self._page(form, dict(self._ended))
        except Exception as error:  # the page must never end the thread that serves it
            return "failed", _answer_bytes(500, f"The page could not be made: {type(error).__name__}.\n")
        wants_gzip = _accepts_gzip(headers.get("accept-encoding", ""))
        return "scraped", _answer_bytes(200, body, {"Content-Type": form.content_type}, compress=wants_gzip)


def parse_request(head: bytes) -> tuple[str, str, Mapping[str, str]] | None:
    """Method, path without its query, and headers in lower case; None for what is no HTTP/1 request."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1") or not words[1].startswith("/"):
        return None
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return None
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return words[0], words[1].partition("?")[0], headers


def _accepts_gzip(header: str) -> bool:
    for part in header.lower().split(","):
        name, *parameters = (piece.strip().replace(" ", "") for piece in part.split(";"))
        if name == "gzip":
            return not any(parameter in ("q=0", "q=0.0", "q=0.00", "q=0.000") for parameter in parameters)
    return False


def _answer_bytes(status: int, text: str, headers: Mapping[str, str] | None = None, *, compress: bool = False) -> bytes:
    body = text.encode()
    fields = {"Content-Type": "text/plain; charset=utf-8", **(headers or {})}
    if compress:
        body = gzip.compress(body, 1, mtime=0)
        fields["Content-Encoding"] = "gzip"
    fields |= {
        "Content-Length": str(len(body)),
        "Connection": "close",
        "Cache-Control": "no-store",
        "Vary": "Accept, Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} {_REASONS[status]}\r\n{lines}\r\n".encode() + body
