"""The page of metrics as answers that are ready to send: made at most once a tick, and within a share of a core."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Mapping

from ..base.openmetrics import ExpositionFormat
from .answers import answer_bytes
from .cpu_budget import CpuBudget

# Making the page of 8 GPUs takes 3 ms and compressing it 5 ms: one each second stays inside the share. A larger page
# (every GPU in 7 MIG instances) is made as much more seldom while many ask, but is never older than this.
SHARE = 0.01
RESERVE_SECONDS = 0.25
MAX_AGE_SECONDS = 15.0


class PageCache:
    """`render` makes the text, given the format and how connections ended so far. `version` is another one as soon as
    there is something new to tell; a page of the same version is never made twice.

    `cpu_seconds`: what making pages has cost this thread so far. For one thread.
    """

    def __init__(
        self,
        render: Callable[[ExpositionFormat, Mapping[str, int]], str],
        version: Callable[[], object],
        monotonic: Callable[[], float] = time.monotonic,
        thread_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        self._render = render
        self._version = version
        self._monotonic = monotonic
        self._thread_seconds = thread_seconds
        self._budget = CpuBudget(SHARE, RESERVE_SECONDS, MAX_AGE_SECONDS, monotonic())
        self._pages: dict[ExpositionFormat, _Ready] = {}
        self.cpu_seconds = 0.0

    def answer(self, form: ExpositionFormat, ended: Mapping[str, int], *, compressed: bool) -> bytes:
        """Head and body. Raises whatever `render` raises; then nothing is kept."""
        began = self._thread_seconds()
        try:
            return self._page(form, ended).answer(compressed=compressed)
        finally:
            spent = self._thread_seconds() - began
            self.cpu_seconds += spent
            self._budget.spend(spent, self._monotonic())

    def _page(self, form: ExpositionFormat, ended: Mapping[str, int]) -> _Ready:
        version = self._version()
        known = self._pages.get(form)
        if known is not None and (known.version == version or self._budget.wait_seconds(self._monotonic()) > 0):
            return known
        self._pages.pop(form, None)
        page = self._pages[form] = _Ready(version, form, self._render(form, ended).encode())
        return page


class _Ready:
    """One page; the compressed answer is made when somebody wants it, once."""

    __slots__ = ("_body", "_compressed", "_plain", "form", "version")

    def __init__(self, version: object, form: ExpositionFormat, body: bytes) -> None:
        self.version = version
        self.form = form
        self._plain = answer_bytes(200, body, {"Content-Type": form.content_type})
        self._body = len(self._plain) - len(body)  # where it begins
        self._compressed: bytes | None = None

    def answer(self, *, compressed: bool) -> bytes:
        if not compressed:
            return self._plain
        if self._compressed is None:
            body = gzip.compress(memoryview(self._plain)[self._body :], 1, mtime=0)
            headers = {"Content-Type": self.form.content_type, "Content-Encoding": "gzip"}
            self._compressed = answer_bytes(200, body, headers)
        return self._compressed
