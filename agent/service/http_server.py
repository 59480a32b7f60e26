"""Serves the page of metrics over HTTP: one thread, two paths, and a limit on everything a client can ask of it.

The loop is never waited for and never waits: the page is made from a copy of the totals, at most once a tick
(`page_cache.py`). Connections are not kept alive. Where there are too many, one of the address that holds the most
gives way to the newest, the one that has dawdled longest over its request, so that nobody can hold all places.

All that clients cause costs at most a share of a core. Once it is used up nobody is refused: for a moment nothing is
accepted, read or sent, and who asks waits in the kernel's queue, first come, first served. So a scrape beside clients
that hammer takes a part of a second longer, where a status 429 or 503 would be a scrape that failed; and refusing costs
nearly as much as answering with a page that is ready.
"""

from __future__ import annotations

import contextlib
import select
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from threading import Lock, Thread

from ..base.address import Address
from ..base.openmetrics import ExpositionFormat
from ..model import Absence
from .answers import accepts_gzip, answer_bytes, negotiate, parse_request
from .cpu_budget import CpuBudget
from .page_cache import PageCache

MAX_REQUEST_BYTES = 8192
MAX_CONNECTIONS = 16
# Whom the kernel lets wait to be accepted: more than are open, because who asks too much waits there; not many more,
# because who has gone again waits there too. Who finds no place asks again after a second (TCP).
WAITING = 32
# What serving may cost; making pages has a share of its own. An answer of 400 kB takes 0.13 ms: some 60 a second.
SHARE = 0.008
RESERVE_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 2.0  # until what a single expensive turn used is earned again
_LONGEST_PAUSE_SECONDS = 0.1
_WORTH_WAKING_SECONDS = 0.0008  # of CPU time: a tenth of a second's share
REQUEST_SECONDS = 5.0  # from connection to the whole request
ANSWER_SECONDS = 10.0  # from the request to the last byte; Prometheus itself waits 10 s by default
BIND_AGAIN_SECONDS = 30.0


class _Connection:
    __slots__ = ("answer", "asked", "deadline", "peer", "received", "sock")

    def __init__(self, sock: socket.socket, peer: str, deadline: float) -> None:
        self.sock = sock
        self.peer = peer
        self.deadline = deadline
        self.received = bytearray()
        self.answer: memoryview | None = None
        self.asked = ""  # what is counted once the answer is out


class MetricsServer:
    """`page` makes the body, given the format and how connections ended so far; `version` says when there is a new one.
    `is_healthy` answers /healthz."""

    def __init__(
        self,
        address: Address,
        *,
        page: Callable[[ExpositionFormat, Mapping[str, int]], str],
        version: Callable[[], object],
        is_healthy: Callable[[], bool],
        monotonic: Callable[[], float] = time.monotonic,
        thread_seconds: Callable[[], float] = time.thread_time,
        bind_again_seconds: float = BIND_AGAIN_SECONDS,
    ) -> None:
        self.address = address
        self._bind_again = bind_again_seconds
        self.fault: Absence | None = None
        self._thread_seconds = thread_seconds
        self._pages = PageCache(page, version, monotonic, thread_seconds)
        self._budget = CpuBudget(SHARE, RESERVE_SECONDS, _LONGEST_WAIT_SECONDS, monotonic())
        self._is_healthy = is_healthy
        self._monotonic = monotonic
        self._ended: Counter[str] = Counter()
        self._open: dict[int, _Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._bind_again_at = 0.0
        # Sockets, not numbers: whichever of the two ends is closed already, no byte reaches a stranger's file.
        self._wake_read, self._wake_write = socket.socketpair()
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
            with contextlib.suppress(OSError):  # the thread has ended by itself
                self._wake_write.send(b"x")
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
                listener.listen(WAITING)
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
            self._wake_read.close()
            self._wake_write.close()

    def _turn(self) -> bool:
        now = self._monotonic()
        pause = self._budget.wait_seconds(now, _WORTH_WAKING_SECONDS)
        if pause > 0:
            return not select.select([self._wake_read], [], [], min(pause, _LONGEST_PAUSE_SECONDS))[0]
        began = self._serving_seconds()
        times = [connection.deadline for connection in self._open.values()]
        if self._listener is None:
            times.append(self._bind_again_at)
        for key, _ in self._selector.select(max(0.0, min(times) - now) if times else None):
            if key.fileobj == self._wake_read:
                return False
            if key.fileobj is self._listener:
                self._accept()
            elif (connection := self._open.get(key.fd)) is not None:
                self._go_on(connection)
            began, spent = (ended := self._serving_seconds()), ended - began
            self._budget.spend(spent, self._monotonic())
            if self._budget.wait_seconds(self._monotonic()) > 0:
                return True  # the others' turn comes after the pause
        now = self._monotonic()
        for connection in [one for one in self._open.values() if one.deadline <= now]:
            self._close(connection, "timed_out")
        if self._listener is None and now >= self._bind_again_at:
            self._bind()
        self._budget.spend(self._serving_seconds() - began, now)
        return True

    def _serving_seconds(self) -> float:
        """CPU time of this thread but for making pages."""
        return self._thread_seconds() - self._pages.cpu_seconds

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            sock, peer = self._listener.accept()
        except OSError:
            self._ended["refused"] += 1  # gone again, or no descriptor left; the others are served first
            return
        sock.setblocking(False)
        if len(self._open) >= MAX_CONNECTIONS:
            self._make_room()
        connection = _Connection(sock, str(peer[0]), self._monotonic() + REQUEST_SECONDS)
        self._open[sock.fileno()] = connection
        self._selector.register(sock, selectors.EVENT_READ)
        self._go_on(connection)  # the request is mostly there by now

    def _make_room(self) -> None:
        reading = [one for one in self._open.values() if one.answer is None] or list(self._open.values())
        held = Counter(one.peer for one in reading)
        self._close(min(reading, key=lambda one: (-held[one.peer], one.deadline)), "refused")

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
        connection.received.clear()
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
            return "bad_request", answer_bytes(431, "The request is too long.\n")
        request = parse_request(head)
        if request is None:
            return "bad_request", answer_bytes(400, "This is not an HTTP request.\n")
        method, path, headers = request
        if path not in ("/metrics", "/healthz"):
            return "bad_request", answer_bytes(404, "There are /metrics and /healthz here.\n")
        if method != "GET":
            return "bad_request", answer_bytes(405, "Only GET is answered.\n", {"Allow": "GET"})
        if path == "/healthz":
            healthy = self._is_healthy()
            text = "sampling\n" if healthy else "no tick was kept of late\n"
            return "health", answer_bytes(200 if healthy else 503, text)
        form = negotiate(headers.get("accept", ""))
        try:
            compressed = accepts_gzip(headers.get("accept-encoding", ""))
            return "scraped", self._pages.answer(form, dict(self._ended), compressed=compressed)
        except Exception as error:  # the page must never end the thread that serves it
            return "failed", answer_bytes(500, f"The page could not be made: {type(error).__name__}.\n")
