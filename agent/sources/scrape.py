"""Reads metrics pages of this node over HTTP, in a thread of its own, so that no tick waits for a server.

A page may be slow, endless, compressed, cut or elsewhere: it is given 3 s in all (not for each read), 8 MiB, no
redirect and no compression. Only loopback addresses are read unless the settings say otherwise; a name is resolved
once per reading and the address that was checked is the one that is connected to.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..model import Instant
from .exposition import PageError, PageParser, Series
from .page_url import split_url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_PAGE_BYTES = 8 * 1024 * 1024
TOTAL_SECONDS = 3.0
MIN_EVERY_SECONDS = 10.0
_PIECE = 65536


@dataclass(frozen=True, slots=True)
class Target:
    """One page: its address, the names that are wanted of it, and how often it is read (10 s at the least).

    `locate` is asked, in the thread, for the PIDs that listen on the page's port; it may be slow.
    """

    url: str
    wanted: Collection[str]
    every_seconds: float = MIN_EVERY_SECONDS
    locate: Callable[[int], frozenset[int]] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """What one reading of a target gave. `number` counts readings, so that a page is told from the one before it.

    `fault`: why there are no series. `pids`: who listens there, as far as can be seen.
    """

    number: int
    instant: Instant
    series: tuple[Series, ...] = ()
    fault: PageError | None = None
    pids: frozenset[int] = field(default_factory=frozenset)


def read_page(
    url: str,
    wanted: Collection[str],
    *,
    remote: bool = False,
    max_bytes: int = MAX_PAGE_BYTES,
    total_seconds: float = TOTAL_SECONDS,
    monotonic: Callable[[], float] = time.monotonic,
) -> list[Series]:
    """The wanted series of the page at `url`. Raises PageError, whose reason says what was wrong."""
    deadline = monotonic() + total_seconds
    host, port, path = split_url(url)
    address = _address(host, port, remote)
    wire = _Wire(deadline, monotonic)
    connection = http.client.HTTPConnection(host, port)
    try:
        connection.sock = wire.connect(address)  # type: ignore[assignment]
        connection.request("GET", path, headers={"Accept": "text/plain;version=0.0.4", "Connection": "close"})
        response = connection.getresponse()
        _check(response, max_bytes)
        return _body(response, wanted, max_bytes)
    except TimeoutError:
        raise PageError(
            "page-too-slow", f"The page took longer than {total_seconds:g} s.", "See why its server is slow."
        ) from None
    except ConnectionRefusedError:
        raise PageError("unreachable", f"Nothing listens on port {port} there.", "Start its server.") from None
    except http.client.IncompleteRead:
        raise _cut() from None
    except http.client.HTTPException as error:
        raise PageError(
            "not-http", f"What answers there does not speak HTTP ({type(error).__name__}).", "Mend its address."
        ) from None
    except OSError as error:
        raise PageError(
            "unreachable",
            f"The page cannot be reached ({error.strerror or type(error).__name__}).",
            "Mend its address.",
        ) from None
    finally:
        connection.close()
        wire.shut()


def _address(host: str, port: int, remote: bool) -> tuple[int, tuple[str, int]]:
    name = host
    if name == "localhost":
        name = "127.0.0.1"
    try:
        ip = ipaddress.ip_address(name)
    except ValueError:
        if not remote:
            raise _not_loopback() from None
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise PageError("unreachable", "The host's name is not known.", "Mend its address.") from None
        family, sockaddr = found[0][0], found[0][4]
        return family, (str(sockaddr[0]), port)
    if not remote and not ip.is_loopback:
        raise _not_loopback()
    return socket.AF_INET6 if ip.version == 6 else socket.AF_INET, (str(ip), port)


def _not_loopback() -> PageError:
    return PageError(
        "not-loopback",
        "Only pages of this node (127.0.0.1, ::1, localhost) are read.",
        "Set scrape_remote = true to read pages elsewhere, where nobody between can change them.",
    )


def _check(response: http.client.HTTPResponse, max_bytes: int) -> None:
    if 300 <= response.status < 400:
        raise PageError(
            "redirected", "The page sends elsewhere, and that is not followed.", "Set the address it is at."
        )
    if response.status != 200:
        raise PageError("http-status", f"The page answers with status {response.status}.", "See its server's log.")
    encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise PageError("page-encoded", "The page comes compressed although that was not asked for.", "")
    if response.length is not None and response.length > max_bytes:
        raise _too_large(max_bytes)


def _body(response: http.client.HTTPResponse, wanted: Collection[str], max_bytes: int) -> list[Series]:
    parser = PageParser(wanted)
    announced, got = response.length, 0
    while piece := response.read1(_PIECE):
        got += len(piece)
        if got > max_bytes:
            raise _too_large(max_bytes)
        parser.feed(piece)
    if announced is not None and got < announced:
        raise _cut()
    return parser.finish()


def _cut() -> PageError:
    return PageError("page-cut", "The page is shorter than its server said.", "See the exporter's log.")


def _too_large(max_bytes: int) -> PageError:
    return PageError(
        "page-too-large", f"The page is larger than {max_bytes >> 20} MiB.", "Have its server export less."
    )


class _Wire(io.RawIOBase):
    """A connection on which every wait ends at one and the same deadline. `http.client` takes it for its socket."""

    def __init__(self, deadline: float, monotonic: Callable[[], float]) -> None:
        self._deadline = deadline
        self._monotonic = monotonic
        self._socket: socket.socket | None = None

    def connect(self, address: tuple[int, tuple[str, int]]) -> _Wire:
        self._socket = socket.socket(address[0], socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._timed().connect(address[1])
        return self

    def sendall(self, data: bytes) -> None:
        self._timed().sendall(data)

    def makefile(self, *_: object, **__: object) -> io.BufferedReader:
        return io.BufferedReader(self, _PIECE)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        return self._timed().recv_into(buffer)

    def close(self) -> None:
        """Called by `http.client` for the file and for the socket, which are one here; the socket stays until ours."""

    def shut(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _timed(self) -> socket.socket:
        left = self._deadline - self._monotonic()
        if left <= 0 or self._socket is None:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._socket


class Pages(Protocol):
    """Where sources get their pages from."""

    def start(self, targets: Sequence[Target]) -> None: ...

    def latest(self, url: str) -> Page | None: ...

    def wait(self, urls: Collection[str], timeout_seconds: float) -> bool: ...

    def close(self) -> None: ...


class PageReader:
    """Reads its targets in turn, each at its pace, in one thread that starts with `start` and ends with `close`."""

    def __init__(self, *, remote: bool = False, total_seconds: float = TOTAL_SECONDS) -> None:
        self._remote = remote
        self._total_seconds = total_seconds
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._targets: dict[str, Target] = {}
        self._due: dict[str, float] = {}
        self._pages: dict[str, Page] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self, targets: Sequence[Target]) -> None:
        """Read these targets too from now on. A target of the same address takes the place of the earlier one."""
        with self._news:
            if self._closed:
                return
            for target in targets:
                self._targets[target.url] = target
                self._due.setdefault(target.url, 0.0)
            if self._thread is None and self._targets:
                self._thread = threading.Thread(target=self._run, name="skuwise-pages", daemon=True)
                self._thread.start()
            self._news.notify_all()

    def latest(self, url: str) -> Page | None:
        """The newest page of a target; None while it has not been read. Never waits."""
        return self._pages.get(url)

    def wait(self, urls: Collection[str], timeout_seconds: float) -> bool:
        """Wait until each of `urls` was read once; False where that took too long. Not for a tick."""
        with self._news:
            return self._news.wait_for(lambda: all(url in self._pages for url in urls), timeout_seconds)

    def close(self) -> None:
        """Have the thread end; one that is reading ends with its deadline. Idempotent."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def _run(self) -> None:
        while (target := self._next()) is not None:
            page = self._read(target)
            with self._news:
                self._pages[target.url] = page
                self._news.notify_all()

    def _next(self) -> Target | None:
        """The target whose turn it is, at its time; None at the end."""
        with self._news:
            while not self._closed:
                url = min(self._due, key=lambda key: self._due[key])
                left = self._due[url] - time.monotonic()
                if left <= 0:
                    # From its beginning on, and whatever the reading takes: no two are closer than this.
                    target = self._targets[url]
                    self._due[url] = time.monotonic() + max(MIN_EVERY_SECONDS, target.every_seconds)
                    return target
                self._news.wait(left)
        return None

    def _read(self, target: Target) -> Page:
        before = self._pages.get(target.url)
        number = before.number + 1 if before else 1
        pids: frozenset[int] = frozenset()
        try:
            series = read_page(target.url, target.wanted, remote=self._remote, total_seconds=self._total_seconds)
            if target.locate is not None:
                pids = target.locate(split_url(target.url)[1])
        except PageError as error:
            return Page(number, _now(), fault=error)
        except Exception as error:  # what nobody foresaw must not end the thread
            fault = PageError("source-failed", f"Reading the page failed with {type(error).__name__}.", "Report this.")
            return Page(number, _now(), fault=fault)
        return Page(number, _now(), tuple(series), pids=pids)


def _now() -> Instant:
    return Instant(time.time(), time.monotonic())
