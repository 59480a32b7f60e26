"""Servers that never end: every client leaves them in time, says so in a sentence, and leaves nothing
behind. What must end is given a minute, many times what it may take."""

import contextlib
import gzip
import itertools
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.headerregistry import Address
from typing import Any, Self

import pytest
from skuwise.advisor.notify.routes import ReportSettings
from skuwise.advisor.notify.sending import CarrierDownError, SmtpCarrier, WebhookCarrier
from skuwise.advisor.state.deliveries import Message
from skuwise.advisor.telemetry.prometheus.client.client import Client, PrometheusSettings
from skuwise.advisor.telemetry.prometheus.client.response import UnreachableError
from skuwise.agent.base.deadline import Deadline
from skuwise.agent.base.settings import PageError
from skuwise.agent.config import SlurmImportSettings
from skuwise.agent.slurm_jobs.import_jobs import ask_slurmrestd
from skuwise.agent.sources.pages import fetch_page
from skuwise.rules.base.errors import SkuwiseError

DRIP_SECONDS = 0.05
Manner = Callable[[socket.socket], None]

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED, GZIP = OK + b"Transfer-Encoding: chunked\r\n\r\n", OK + b"Content-Encoding: gzip\r\n\r\n"
LONG_HEADER, LONG_CHUNK = b"X: " + b"y" * 4000 + b"\r\n", b"1;" + b"x" * 4000 + b"\r\n \r\n"
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


# What never ends, by name. Iterators that never end are made for each connection.
MANNERS: dict[str, Callable[[], Manner]] = {
    "hears and says nothing": lambda: says(b""),
    "drips the status line": lambda: says(b"", then=itertools.chain([b"HTTP/1.1 200 "], itertools.repeat(b"O"))),
    "drips headers": lambda: says(OK, then=(b"X-%d: y\r\n" % n for n in itertools.count())),
    "endless headers": lambda: says(OK, then=itertools.repeat(LONG_HEADER), drips=False),
    "drips a body of known length": lambda: says(OK + b"Content-Length: 90000\r\n\r\n", then=itertools.repeat(b" ")),
    "drips a chunk's extension": lambda: says(CHUNKED + b"1;", then=itertools.repeat(b"x")),
    "chunks of one byte with long extensions": lambda: says(CHUNKED, then=itertools.repeat(LONG_CHUNK), drips=False),
    "endless trailers": lambda: says(
        CHUNKED + b"%x\r\n%s\r\n0\r\n" % (len(VALID), VALID), then=itertools.repeat(LONG_HEADER), drips=False
    ),
    "drips gzip": lambda: says(GZIP + gzip.compress(b"")[:10], then=itertools.repeat(b"\x00")),
}


class HostileServer(socketserver.ThreadingTCPServer):
    """`manner` is made for each connection. `held`: those that are open now."""

    request_queue_size = 64

    def __init__(self, manner: Callable[[], Manner]) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.manner, self.held = manner, set[socket.socket]()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def finish_request(self, request: Any, client_address: object) -> None:
        self.held.add(request)
        with contextlib.suppress(OSError):
            request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.manner()(request)
        self.held.discard(request)

    def gone(self) -> bool:
        """Whether all clients have hung up, within some seconds."""
        until = time.monotonic() + 5.0
        while self.held and time.monotonic() < until:
            time.sleep(0.01)
        return not self.held

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield self
        finally:
            self.shutdown()
            for talk in list(self.held):
                with contextlib.suppress(OSError):
                    talk.shutdown(socket.SHUT_RDWR)
            self.server_close()


SECONDS = 0.4
MESSAGE = Message("2026-11-16", "", "webhook", "webhook", "<id>", "s", b"{}")
Ask = Callable[[str], object]


def of_prometheus(url: str, seconds: float = SECONDS, **given: object) -> Client:
    return Client(url, PrometheusSettings(timeout_seconds=seconds), {}, sleep=lambda _: None, **given)  # type: ignore[arg-type]


def ask_prometheus(url: str) -> object:
    with contextlib.closing(of_prometheus(url)) as client:
        return client.scalar("vector(1)", 0.0)


def ask_webhook(url: str) -> object:
    with contextlib.closing(WebhookCarrier({"": url}, timeout_seconds=SECONDS)) as carrier:
        reply = carrier.carry(MESSAGE, lambda: None)
    if reply.result in ("later", "unsure"):
        raise SkuwiseError(reply.text)
    return reply


def ask_slurm(url: str) -> object:
    return ask_slurmrestd(SlurmImportSettings(slurmrestd=url), 0.0, timeout_seconds=SECONDS)


def ask_page(url: str) -> object:
    return fetch_page(f"{url}/metrics", total_seconds=SECONDS)


def left(manner: Callable[[], Manner], ask: Ask) -> object:
    """What came of asking a server of this manner: an answer, or the error. It is asked in a thread, to see it end."""
    reported: list[object] = []

    def go(url: str) -> None:
        try:
            reported.append(ask(url))
        except SkuwiseError as found:
            reported.append(found)

    with HostileServer(manner).running() as server:
        asking = threading.Thread(target=go, args=(server.url,), daemon=True)
        asking.start()
        asking.join(60)
        assert reported, "it is still there"
        assert server.gone(), f"a connection was left behind after {reported}"
    return reported[0]


def nothing_left() -> bool:
    return not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


@pytest.mark.parametrize("ask", [ask_prometheus, ask_webhook, ask_slurm, ask_page])
def test_a_server_that_never_comes_to_an_end_is_left(ask: Ask) -> None:
    with ThreadPoolExecutor(len(MANNERS)) as pool:
        reported = dict(zip(MANNERS, pool.map(lambda name: left(MANNERS[name], ask), MANNERS), strict=True))
    for name, outcome in reported.items():
        # A webhook is content with the head of an answer.
        assert isinstance(outcome, SkuwiseError) or (ask is ask_webhook and "1xx" not in name), (name, outcome)
        assert len(str(outcome)) < 300 and str(outcome).isprintable()
    assert all(isinstance(reported[name], SkuwiseError) for name in ("drips the status line", "endless headers"))
    assert nothing_left()


HANDSHAKE = says(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc", then=itertools.repeat(b"\x03"), hears=False)


@pytest.mark.parametrize("ask", [ask_prometheus, ask_webhook, ask_slurm])
def test_a_handshake_that_never_ends_is_left(ask: Ask) -> None:
    reported = left(lambda: HANDSHAKE, lambda url: ask(url.replace("http:", "https:")))
    assert isinstance(reported, SkuwiseError) and nothing_left()


def ask_mail(url: str) -> object:
    settings = ReportSettings(
        sender=Address("", addr_spec="gpus@example.org"), smtp_host="127.0.0.1", smtp_port=int(url.rpartition(":")[2]),
        smtp_security="none", smtp_timeout_seconds=0.1,
    )  # fmt: skip
    with contextlib.closing(SmtpCarrier(settings, "")) as carrier:
        carrier.ready()
    return None


def test_a_mail_server_that_says_nothing_is_left() -> None:
    reported = left(lambda: says(b"", hears=False), ask_mail)
    assert isinstance(reported, CarrierDownError) and "cannot be reached" in str(reported), reported
    assert nothing_left()


def test_a_closed_port_and_an_unknown_name_are_errors() -> None:
    with Deadline(30.0) as deadline, pytest.raises(OSError):
        deadline.connect("127.0.0.1", 1)
    with pytest.raises(PageError):
        fetch_page("http://no-such-host.invalid/metrics", remote=True, total_seconds=0.01)


def test_a_redirect_is_neither_read_nor_taken_apart() -> None:
    compressed = b"HTTP/1.1 302 no\r\nContent-Encoding: gzip\r\nLocation: %s\r\n"
    body = gzip.compress(b" " * 60_000_000)
    for where in (b"http://[", b"http://elsewhere.example/", b"\xff"):
        with HostileServer(lambda where=where: answers(body, compressed % where)).running() as server:
            with pytest.raises(UnreachableError, match=r"redirected the request \(HTTP 302\)"):
                of_prometheus(server.url, 60.0).scalar("vector(1)", 0.0)
            with contextlib.closing(WebhookCarrier({"": server.url}, timeout_seconds=60.0)) as hook:
                assert hook.carry(MESSAGE, lambda: None).text.startswith("302")
