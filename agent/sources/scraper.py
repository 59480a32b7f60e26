"""Reads metrics pages in a thread of its own, so that no tick waits for a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..base.page_url import PageError, split_url
from ..model import Instant
from .http_fetch import TOTAL_SECONDS, read_page
from .prometheus_text import Series

MIN_EVERY_SECONDS = 10.0


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
class FetchedPage:
    """What one reading of a target gave. `number` counts readings, so that a page is told from the one before it.

    `fault`: why there are no series. `pids`: who listens there, as far as can be seen.
    """

    number: int
    instant: Instant
    series: tuple[Series, ...] = ()
    fault: PageError | None = None
    pids: frozenset[int] = field(default_factory=frozenset)


class Pages(Protocol):
    """Where sources get their pages from."""

    def start(self, targets: Sequence[Target]) -> None: ...

    def latest(self, url: str) -> FetchedPage | None: ...

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
        self._pages: dict[str, FetchedPage] = {}
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

    def latest(self, url: str) -> FetchedPage | None:
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

    def _read(self, target: Target) -> FetchedPage:
        before = self._pages.get(target.url)
        number = before.number + 1 if before else 1
        pids: frozenset[int] = frozenset()
        try:
            series = read_page(target.url, target.wanted, remote=self._remote, total_seconds=self._total_seconds)
            if target.locate is not None:
                pids = target.locate(split_url(target.url)[1])
        except PageError as error:
            return FetchedPage(number, _now(), fault=error)
        except Exception as error:  # what nobody foresaw must not end the thread
            fault = PageError("source-failed", f"Reading the page failed with {type(error).__name__}.", "Report this.")
            return FetchedPage(number, _now(), fault=fault)
        return FetchedPage(number, _now(), tuple(series), pids=pids)


def _now() -> Instant:
    return Instant(time.time(), time.monotonic())
