"""Metrics pages of exporters and inference servers, read over HTTP in one thread, so that no tick waits for a server.

A page is given 3 s in all and 8 MiB, and only loopback addresses are read unless the settings say otherwise. The text
format (Prometheus 0.0.4, OpenMetrics) is read here: `prometheus_client.parser` takes 24 ms for 1,300 lines of vLLM's
page.
"""

import re
import threading
import time
from collections.abc import Callable, Collection, Sequence
from http import HTTPStatus
from math import isfinite
from typing import NamedTuple

from ..base.deadline import Deadline
from ..base.settings import PageError, split_url
from ..model import Instant

TOTAL_SECONDS = 3.0
_FIRST_PAGES_SECONDS = 4.0
_LOOK_SECONDS = 0.25  # between two looks at which page is due
Locate = Callable[[int], frozenset[int]]
MAX_PAGE_BYTES = 8 * 1024 * 1024
# Wanted series and their labels: 16 GPUs with 7 MIG instances, 20 fields and 15 labels are 40,000.
MAX_KEPT = 100_000

_LOOPBACK = re.compile(r"127(?:\.\d{1,3}){3}|::1")
_START = re.compile(rb"([a-zA-Z_:][a-zA-Z0-9_:]*)|\s*(?:#|$)")  # a series' name; None: a comment or nothing
# There is one way alone to match each text: with two, digits before something else would be tried in all their splits.
_LABEL_TEXT = r'\s*{0}[a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"{0}[^"\\]*(?:\\.[^"\\]*)*)"\s*(?:,|(?=\}}))'
_LABEL = re.compile(_LABEL_TEXT.format("("))
# Labels, the value, then perhaps a timestamp and an exemplar (OpenMetrics).
_REST = re.compile(
    r"(?:[ \t]*\{((?:" + _LABEL_TEXT.format("(?:") + r")*)\s*\}[ \t]*|[ \t]+)"
    r"([+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[Ii]nf|NaN))"
    r"(?:[ \t]+-?\d+(?:\.\d+)?)?[ \t]*(?:#.*)?\r?",
    re.ASCII,
)
_ESCAPE = re.compile(r'\\(["\\n])')


class Series(NamedTuple):
    """One line. `number` is the value as it was written, because large integers lose their end as floats; labels are as
    they were sent: clean one before keeping it."""

    name: str
    labels: dict[str, str]
    number: str

    @property
    def value(self) -> float | None:
        """The value; None where it is not a finite number."""
        value = float(self.number)
        return value if isfinite(value) else None


def parse_page(page: bytes, wanted: Collection[str]) -> list[Series]:
    """The series of `wanted` names. Raises PageError: one line that is not of the format refuses the whole page, as
    Prometheus does, because what is left of a broken page is not to be trusted."""
    names = {name.encode() for name in wanted}
    *lines, unfinished = page.split(b"\n")
    series: list[Series] = []
    kept = 0
    for place, line in enumerate(lines, start=1):
        start = _START.match(line)
        if start is not None and start[1] not in names:
            continue
        kept += 1 + line.count(b"=")
        if kept > MAX_KEPT:
            raise PageError("page-too-large", f"The page has more than {MAX_KEPT} series and labels of interest.", "")
        rest = _REST.fullmatch(line[start.end() :].decode("utf-8", "replace")) if start is not None else None
        if start is None or rest is None:
            said = f"Line {place} of the page is not of the text format, so it is no page of metrics."
            raise PageError("page-malformed", said, "See that the address is that of the metrics page.")
        pairs = _LABEL.findall(f"{rest[1] or ''}}}")
        labels = {label: _ESCAPE.sub(lambda match: match[1].replace("n", "\n"), text) for label, text in pairs}
        series.append(Series(start[1].decode(), labels, rest[2]))
    if unfinished:
        raise PageError("page-cut", "The page ends in the middle of a line.", "See its server's log.")
    return series


def fetch_page(url: str, *, remote: bool = False, total_seconds: float = TOTAL_SECONDS) -> bytes:
    """The text of the page at `url`. Raises PageError, whose reason says what was wrong."""
    # Only nodes that read pages pay for it: it takes 6 MB of memory.
    from http.client import HTTPConnection, HTTPException  # noqa: PLC0415

    host, port, path = split_url(url)
    host = "127.0.0.1" if host == "localhost" else host
    if not remote and not _LOOPBACK.fullmatch(host):
        said = "Only pages of this node (127.0.0.1, ::1, localhost) are read."
        raise PageError("not-loopback", said, "On a network you trust, set scrape_remote = true to read others.")
    slow = PageError("page-too-slow", f"The page took longer than {total_seconds:g} s.", "See why its server is slow.")
    connection = HTTPConnection(host, port)
    with Deadline(total_seconds) as deadline:
        try:
            connection.sock = deadline.connect(host, port)
            headers = {"Accept": "text/plain;version=0.0.4", "Connection": "close", "User-Agent": "skuwise"}
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            page = answer.read(MAX_PAGE_BYTES + 1) if answer.status == HTTPStatus.OK else b""
        except HTTPException:
            fault = PageError("not-http", "The server there does not speak HTTP.", "Fix its address.")
            raise (slow if deadline.over else fault) from None
        except OSError as error:
            what = error.strerror or type(error).__name__
            fault = PageError("unreachable", f"The page cannot be read ({what}).", "Start its server.")
            raise (slow if deadline.over or isinstance(error, TimeoutError) else fault) from None
        finally:
            connection.close()
    if deadline.over:  # an answer without a length looks whole wherever it is cut
        raise slow
    if answer.status != HTTPStatus.OK:
        said = f"The page answers with status {answer.status}; redirects are not followed."
        raise PageError("http-status", said, "Set the address that the page is at, or see its server's log.")
    if len(page) > MAX_PAGE_BYTES:
        raise PageError("page-too-large", f"The page is larger than {MAX_PAGE_BYTES >> 20} MiB.", "Export less.")
    if answer.length:
        raise PageError("page-cut", "The page is shorter than its server announced.", "See its server's log.")
    return page


class Target(NamedTuple):
    """A page: its address, the names that are wanted of it, and how often it is read. `locate` is asked, in the thread,
    for the PIDs that listen on its port; it may be slow."""

    url: str
    wanted: Collection[str]
    every_seconds: float
    locate: Locate = lambda _port: frozenset()


class FetchedPage(NamedTuple):
    """What one reading of a target gave. `fault`: why there are no series; `pids`: who listens there, where seen."""

    url: str
    instant: Instant
    series: Sequence[Series] = ()
    fault: PageError | None = None
    pids: frozenset[int] = frozenset()


class PageReader:
    """Reads its targets in turn, each at its pace, in one thread that begins with the first and ends with `close`."""

    def __init__(self, *, remote: bool = False) -> None:
        self._remote = remote
        self._targets: dict[str, Target] = {}
        self._pages: dict[str, FetchedPage] = {}
        self._closed = threading.Event()

    def start(self, targets: Sequence[Target], *, wait: bool = False) -> None:
        """Read these targets too from now on; those that are read already are left as they are. With `wait` it returns
        when each new one was read once, after 4 s at the latest: not for a tick."""
        fresh = {target.url: target for target in targets if target.url not in self._targets}
        if not fresh or self._closed.is_set():
            return
        begun, self._targets = bool(self._targets), self._targets | fresh
        if not begun:
            threading.Thread(target=self._run, name="skuwise-pages", daemon=True).start()
        until = time.monotonic() + _FIRST_PAGES_SECONDS
        while wait and not self._pages.keys() >= fresh.keys() and time.monotonic() < until:
            time.sleep(0.01)

    def latest(self, url: str) -> FetchedPage | None:
        """The newest page of a target; None while it has not been read. Never waits."""
        return self._pages.get(url)

    def close(self) -> None:
        """Have the thread end; one that is reading ends with its deadline. Idempotent."""
        self._closed.set()

    def _run(self) -> None:
        due: dict[str, float] = {}
        while not self._closed.is_set():
            for url, target in self._targets.items():
                began = time.monotonic()
                if began >= due.get(url, 0.0):
                    self._pages[url] = self._read(target)
                    # From its beginning on, whatever the reading takes: no two are closer than this.
                    due[url] = began + target.every_seconds
            self._closed.wait(_LOOK_SECONDS)

    def _read(self, target: Target) -> FetchedPage:
        series, pids, fault = list[Series](), frozenset[int](), None
        try:
            series = parse_page(fetch_page(target.url, remote=self._remote), target.wanted)
            pids = target.locate(split_url(target.url)[1])
        except PageError as error:
            fault = error
        except Exception as error:  # an unforeseen one must not end the thread
            fault = PageError("source-failed", f"Reading the page failed with {type(error).__name__}.", "Report this.")
        now = Instant(time.time(), time.monotonic())
        return FetchedPage(target.url, now, series, fault, pids)
