"""Serves a page of metrics over HTTP: two paths, a limit of connections, and the page made at most once a tick.

What clients cost beyond that is bounded by CPUQuota of the unit, or by the container's limit.
"""

import gzip
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest

from ..base.safe_text import NAME_LIMIT, clean_text
from ..base.settings import Address
from ..model import Absence

MAX_CONNECTIONS = 16
REQUEST_SECONDS = 20.0  # from connection to the last byte; Prometheus itself waits 10 s by default
BIND_AGAIN_SECONDS = 30.0
# Every scraper reads it, and writing OpenMetrics costs twice as much.
_PLAIN = "text/plain; version=0.0.4; charset=utf-8"

Labels = dict[str, str]
Samples = Iterable[tuple[Mapping[str, str], float | None]]


class Page:
    """Families in their order. `base`: labels of every sample."""

    def __init__(self, base: Mapping[str, object]) -> None:
        self.families: list[Metric] = []
        self.base = cleaned(base)

    def add(self, name: str, text: str, samples: Samples | float | None, unit: str = "", kind: str = "gauge") -> None:
        """One family, ``skuwise_NAME`` and its unit; labels are clean. None and families without values are left
        out."""
        family = Metric(f"skuwise_{name}", text, kind, unit)
        series = family.name + {"counter": "_total", "info": "_info"}.get(kind, "")
        for labels, value in samples if isinstance(samples, Iterable) else (({}, samples),):
            if value is not None:
                family.add_sample(series, {**self.base, **labels}, value)
        if family.samples:
            self.families.append(family)

    def collect(self) -> Iterator[Metric]:
        return iter(self.families)


MakePage = Callable[[Mapping[str, int]], Page]


class Response(NamedTuple):
    """Of another path than the page's. `headers` come beside the usual ones, or replace them."""

    status: int
    body: bytes
    kind: str
    headers: Mapping[str, str]


# The response to a request by its method, its target and its headers; None: the path is not one of these.
Respond = Callable[[str, str, Mapping[str, str]], Response | None]


def cleaned(labels: Mapping[str, object], limit: int = NAME_LIMIT) -> Labels:
    """Labels from outside: one line, printable, cut. What is None or empty is left out."""
    texts = {name: clean_text(str(value), limit) for name, value in labels.items() if value is not None}
    return {name: text for name, text in texts.items() if text}


class PageServer:
    """`page` is made, given how connections ended so far, when `version` is another one; `is_healthy` answers
    /healthz, `respond` what else is served (None: nothing). `fault`: why it does not listen."""

    def __init__(
        self, address: Address, page: MakePage, *, version: Callable[[], object], is_healthy: Callable[[], bool],
        respond: Respond | None = None,
    ) -> None:  # fmt: skip
        self.address, self.is_healthy, self.respond = address, is_healthy, respond
        self.fault: Absence | None = None
        self.ended: Counter[str] = Counter()
        self._page, self._version = page, version
        self._made_of: object = None
        self._answer = b""
        self._making = threading.Lock()
        self._stopped = threading.Event()
        self._server: _Server | None = None
        self._thread = threading.Thread(target=self._serve, name="metrics-page", daemon=True)

    def start(self) -> None:
        """Listen, and serve in its own thread. What cannot be listened on is tried again; `fault` says why."""
        self._bind()
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def answer(self, *, compressed: bool) -> bytes:
        """The page as text, made at most once for each `version`."""
        with self._making:
            if (version := self._version()) != self._made_of:
                self._answer = generate_latest(self._page(self.ended))  # type: ignore[arg-type] - it collects
                self._made_of = version
            return gzip.compress(self._answer, 1, mtime=0) if compressed else self._answer

    def _bind(self) -> None:
        try:
            self._server = _Server(self)
        except OSError as error:
            self.fault = Absence(
                "source", "exporter", "*", "not-listening",
                f"The metrics page cannot listen on {self.address}: {error.strerror or error}.",
                "Give --listen an address of this machine and a free port; it is tried again every 30 s.",
            )  # fmt: skip
        else:
            self.fault = None
            self.address = Address(self.address.host, self._server.server_address[1])

    def _serve(self) -> None:
        while self._server is None:
            if self._stopped.wait(BIND_AGAIN_SECONDS):
                return
            self._bind()
        with self._server as server:
            while not self._stopped.is_set():
                server.handle_request()
                server.make_room()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 32
    timeout = 0.5  # of a wait for a request, after which a stop is seen

    def __init__(self, page: PageServer) -> None:
        self.page = page
        self._open: dict[socket.socket, float] = {}  # and when its time is up
        host, port = page.address.host, page.address.port
        address_info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = address_info[0]
        super().__init__(address_info[4], _Handler)  # type: ignore[arg-type] - an IPv6 address has four parts

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as socketserver has it
        if len(self._open) >= MAX_CONNECTIONS:
            self.page.ended["refused"] += 1
            self.shutdown_request(request)
            return
        self._open[request] = time.monotonic() + REQUEST_SECONDS
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401
        self._open.pop(request, None)
        super().shutdown_request(request)

    def make_room(self) -> None:
        """Who dawdles is cut off."""
        now = time.monotonic()
        for request in [expired for expired, until in list(self._open.items()) if until <= now]:
            self.page.ended["timed_out"] += 1
            self._open.pop(request, None)
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """A client that went away is counted, not printed."""
        self.page.ended["cut_off"] += 1


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "skuwise", ""

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        page, path, more = self.server.page, self.path.partition("?")[0], {}
        response = page.respond(self.command, self.path, self.headers) if page.respond is not None else None  # type: ignore[arg-type] - a Mapping but for its type
        outcome, status, kind, encoding = "health", 200, "text/plain; charset=utf-8", ""
        if response is not None:
            status, body, kind, more = response
            outcome = "answered" if status < 400 else "bad_request" if status < 500 else "failed"
        elif self.command != "GET":
            self.send_error(501)
            return
        elif path == "/healthz":
            body = b"sampling\n"
            if not page.is_healthy():
                status, body = 503, b"no tick was kept of late\n"
        elif path != "/metrics":
            outcome, status, body = "bad_request", 404, b"There are /metrics and /healthz here.\n"
        else:
            accepted = [part.strip() for part in self.headers.get("Accept-Encoding", "").lower().split(",")]
            encoding = "gzip" if "gzip" in accepted else ""
            outcome, kind = "scraped", _PLAIN
            try:
                body = page.answer(compressed=encoding != "")
            except Exception as error:
                outcome, status, encoding = "failed", 500, ""
                body = f"The page could not be made: {type(error).__name__}.\n".encode()
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), "Content-Encoding": encoding}
        fixed = {"Cache-Control": "no-store", "Vary": "Accept-Encoding", "X-Content-Type-Options": "nosniff"}
        for name, value in {**headers, **fixed, **more}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        page.ended[outcome] += 1

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - names of http.server

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are counted on the page, not written to the log."""
