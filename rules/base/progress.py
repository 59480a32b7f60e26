"""Progress of long work on stderr: one line updated in place on a terminal, one plain line where there is none."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TextIO

from .sanitize import clean

# Done, and of how many; None: how many there are is unknown.
Steps = Callable[[int, int | None], None]
_EVERY_SECONDS = 0.2
# An estimate from the first moments is worth nothing.
_ESTIMATE_AFTER_SECONDS = 2.0
_CLEAR = "\r\x1b[K"


def no_steps(done: int, total: int | None) -> None:
    """Where nobody watches."""


class Progress:
    """Long work that somebody waits for: ``reading telemetry: 31 of 62 databases, 50 %, 12 s left``.

    `live`: the line is updated in place, and gone at the end; else it is printed once. `clock`: seconds, monotonic.
    """

    def __init__(self, what: str, unit: str, *, stream: TextIO, live: bool, clock: Callable[[], float]) -> None:
        self._what, self._unit, self._stream, self._live, self._clock = what, unit, stream, live, clock
        self._began = clock()
        self._shown: float | None = None

    def __enter__(self) -> Progress:
        if self._live:
            self._show(f"{self._what} ...")
        else:
            print(f"{self._what} ...", file=self._stream, flush=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def step(self, done: int, total: int | None) -> None:
        """So much is done. Raises nothing: where stderr is closed, the work goes on."""
        now = self._clock()
        due = self._shown is None or now - self._shown >= _EVERY_SECONDS or done == total
        if self._live and due:
            self._show(f"{self._what}: {self._words(done, total, now - self._began)}")

    def stage(self, what: str) -> None:
        """Another part of the work begins, whose steps are not counted; on a terminal only."""
        self._what, self._began = what, self._clock()
        if self._live:
            self._show(f"{what} ...")

    def end(self) -> None:
        """Remove the line from the terminal."""
        if self._live and self._shown is not None:
            self._write(_CLEAR)
            self._shown = None

    def _words(self, done: int, total: int | None, elapsed: float) -> str:
        if not total:
            return f"{done} {self._unit}"
        told = f"{done} of {total} {self._unit}, {100 * done // total} %"
        if 0 < done < total and elapsed >= _ESTIMATE_AFTER_SECONDS:
            told += f", {_span(elapsed / done * (total - done))} left"
        return told

    def _show(self, text: str) -> None:
        self._shown = self._clock()
        self._write(f"{_CLEAR}{clean(text)}")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._live = False


def _span(seconds: float) -> str:
    whole = max(round(seconds), 1)
    return f"{whole} s" if whole < 100 else f"{round(whole / 60)} min"


def progress(what: str, unit: str, environ: Mapping[str, str] | None = None) -> Progress:
    """Progress of this process on its stderr, in place where that is a terminal that can and nothing forbids it."""
    stream = sys.stderr
    return Progress(what, unit, stream=stream, live=in_place(stream, environ or os.environ), clock=time.monotonic)


def in_place(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether a line may be updated in place: on a terminal, unless TERM=dumb or SKUWISE_PLAIN (screen readers)."""
    try:
        terminal = stream.isatty()
    except ValueError:
        terminal = False
    return terminal and environ.get("TERM") not in (None, "", "dumb") and not plain(environ)


def plain(environ: Mapping[str, str]) -> bool:
    """Whether SKUWISE_PLAIN asks for output without colors, boxes and lines that change in place."""
    return environ.get("SKUWISE_PLAIN", "") not in ("", "0")
