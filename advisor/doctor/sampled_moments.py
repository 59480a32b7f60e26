"""At which moments of a window a server is asked, and what is found there, moment by moment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ...rules.base.errors import NothingToDo, SkuwiseError
from ..core.coded_text import CodedText, coded
from ..core.frame import Window
from ..core.timestamps import minute
from ..telemetry.prometheus.client.client import Client, RefusedError
from ..telemetry.prometheus.client.response import AnswerError, Grid, SeriesAnswer
from .presence import Look

MOMENTS = 24
DAY, HOUR = 86400.0, 3600.0
# How exactly the first moment of telemetry is looked for.
_BEGIN_SECONDS = 1800.0
_HALVINGS = 12


@dataclass
class Asker:
    """Asks one server. What it refuses is nothing, and is noted. `concurrency`: queries at once."""

    client: Client
    matches: tuple[str, ...]
    notes: list[CodedText]
    concurrency: int = 4

    def instant(self, query: str, at: float, kept: Sequence[str]) -> SeriesAnswer:
        try:
            return self.client.instant(query, at, kept).answer
        except (RefusedError, AnswerError) as error:
            self._note(error)
            return SeriesAnswer.nothing(1)

    def over(self, looks: Sequence[Look], grid: Grid) -> list[tuple[Look, SeriesAnswer]]:
        """The answers of queries over all moments, several at once."""
        with ThreadPoolExecutor(max_workers=self.concurrency, thread_name_prefix="skuwise-doctor") as pool:
            return list(zip(looks, pool.map(lambda look: self._range(look, grid), looks), strict=True))

    def _range(self, look: Look, grid: Grid) -> SeriesAnswer:
        try:
            return self.client.range(look.query, grid, look.kept).answer
        except (RefusedError, AnswerError) as error:
            self._note(error)
            return SeriesAnswer.nothing(grid.count)

    def _note(self, error: SkuwiseError) -> None:
        note = coded("doctor-question-refused", "A query failed: {error}", error=error.message)
        if note not in self.notes:
            self.notes.append(note)

    def count(self, query: str, at: float) -> int:
        values = self.instant(query, at, ()).values
        return int(values[0, 0]) if values.size and math.isfinite(values[0, 0]) else 0

    def many(self, asked: Mapping[str, tuple[str, float, Sequence[str]]]) -> dict[str, SeriesAnswer]:
        """Several at once: name -> (query, moment, kept labels)."""
        with ThreadPoolExecutor(max_workers=self.concurrency, thread_name_prefix="skuwise-doctor") as pool:
            futures = {name: pool.submit(self.instant, *one) for name, one in asked.items()}
            return {name: future.result() for name, future in futures.items()}


def newest(asker: Asker, counted: Callable[[str], str], window: Window) -> float:
    """The last moment of a window with telemetry. `counted`: how many series there are within a span before a moment.

    Raises NothingToDo where there is none.
    """
    if asker.count(counted("10m"), window.end):
        return window.end
    end = math.ceil(window.end / HOUR) * HOUR
    while end > window.start:
        start = max(end - 23 * HOUR, math.floor(window.start / HOUR) * HOUR + HOUR)
        hit = _last(asker, counted("1h"), Grid(min(start, end), end, HOUR))
        if hit is not None:
            fine = _last(asker, counted("10m"), Grid(hit - HOUR + 300, hit, 300.0))
            return min(fine if fine is not None else hit, window.end)
        end -= DAY
    raise NothingToDo(
        f"No GPU samples on {asker.client.url} between {minute(window.start)} and {minute(window.end)}.",
        "Choose another window with --since and --until.",
    )


def _last(asker: Asker, query: str, grid: Grid) -> float | None:
    values = asker.client.range(query, grid, ()).answer.values
    known = [n for n in range(grid.count) if len(values) and values[0, n] > 0]
    return grid.start + known[-1] * grid.step if known else None


def first(asker: Asker, counted: str, empty: float, full: float) -> float:
    """Where telemetry begins between a moment without and one with it."""
    for _ in range(_HALVINGS):
        if full - empty <= _BEGIN_SECONDS:
            break
        middle = (empty + full) / 2
        if asker.count(counted, middle):
            full = middle
        else:
            empty = middle
    return full


def spread_moments(begin: float, end: float) -> tuple[float, ...]:
    """`MOMENTS` at equal distances, the last `end`, the first one distance after `begin`; rising."""
    step = (end - begin) / MOMENTS
    return tuple(end - step * n for n in reversed(range(MOMENTS)))
