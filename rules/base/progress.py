"""Progress of long work on stderr: one line updated in place on a terminal, one plain line where there is none."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TextIO

from .sanitize import clean

# Done, and of how many (None: unknown).
Steps = Callable[[int, int | None], None]
_EVERY_SECONDS = 0.2
_ESTIMATE_AFTER_SECONDS = 2.0  # earlier estimates are worthless
_CLEAR = "\r\x1b[K"


def no_steps(done: int, total: int | None) -> None:
    """Ignore progress."""


class Progress:
    """Progress of one task: ``reading telemetry: 31 of 62 databases, 50 %, 12 s left``.

    `live`: the line is updated in place and removed at the end; else it is printed once. `clock`: seconds, monotonic.
    """

    def __init__(self, what: str, unit: str, *, stream: TextIO, live: bool, clock: Callable[[], float]) -> None:
        self._what, self._unit, self._stream, self._live, self._clock = what, unit, stream, live, clock
        self._began = self._shown = clock()

    def __enter__(self) -> Progress:
        if self._live:
            self._show(f"{self._what} ...")
        else:
            print(f"{self._what} ...", file=self._stream, flush=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._show("")

    def step(self, done: int, total: int | None) -> None:
        """Report progress. Raises nothing: with a closed stderr, the work goes on."""
        now = self._clock()
        if done != total and now - self._shown < _EVERY_SECONDS:
            return
        text = f"{done} of {total} {self._unit}, {100 * done // total} %" if total else f"{done} {self._unit}"
        elapsed = now - self._began
        if total and 0 < done < total and elapsed >= _ESTIMATE_AFTER_SECONDS:
            seconds = max(round(elapsed / done * (total - done)), 1)
            text += f", {seconds} s left" if seconds < 100 else f", {round(seconds / 60)} min left"
        self._show(f"{self._what}: {text}")

    def stage(self, what: str) -> None:
        """Begin another part of the work, without counted steps; shown on a terminal only."""
        self._what, self._began = what, self._clock()
        self._show(f"{what} ...")

    def _show(self, text: str) -> None:
        if not self._live:
            return
        self._shown = self._clock()
        try:
            self._stream.write(f"{_CLEAR}{clean(text)}")
            self._stream.flush()
        except (OSError, ValueError):
            self._live = False


def progress(what: str, unit: str) -> Progress:
    """Progress on stderr; in place on a terminal, unless TERM=dumb or SKUWISE_PLAIN (screen readers)."""
    stream = sys.stderr
    live = not stream.closed and stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    return Progress(what, unit, stream=stream, live=live and not plain(os.environ), clock=time.monotonic)


def plain(environ: Mapping[str, str]) -> bool:
    """Whether SKUWISE_PLAIN asks for output without colors, boxes and lines that change in place."""
    return environ.get("SKUWISE_PLAIN", "") not in ("", "0")
