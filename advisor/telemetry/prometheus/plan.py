"""How a window is asked for: in days, in smaller pieces where a limit is met, several at once, and what failed is told.

A piece ends where a UTC day ends, so that next week's run asks for the same days and finds them in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ....rules.errors import SkuwiseError
from ...frame import Window
from ...moments import minute
from .answers import Answer, AnswerError, Grid, Labels
from .cache import Cache
from .client import Client, RefusedError, TooMuchError

DAY = 86400.0
# Values of one answer: some 25 bytes of JSON each, and ten times that while it is read.
MAX_VALUES = 150_000
# What was asked this long after its end does not change any more: late samples have come.
SETTLED_SECONDS = 7200.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One measure over the window: an expression whose value at a moment tells of the row that ends there.

    `kept`: the labels that are read, the others are dropped.
    """

    name: str
    query: str
    kept: tuple[str, ...]


@dataclass(slots=True)
class Log:
    """What went less well than asked, each thing once."""

    notes: list[str] = field(default_factory=list)

    def add(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True)
class Runner:
    """Asks a server for measures over a window. `now`: Unix seconds, by which it is told what will not change."""

    client: Client
    cache: Cache
    log: Log
    concurrency: int
    now: float
    progress: Callable[[str], None] = lambda _: None

    def matrices(self, asks: Sequence[Ask], window: Window, step: float, series: int) -> Iterator[tuple[Ask, Answer]]:
        """Each measure over the whole window, in the order of `asks`; what cannot be had stays missing."""
        whole = Grid(window.start + step, window.end, step)
        pieces = pieces_of(whole, series)
        with ThreadPoolExecutor(max_workers=self.concurrency, thread_name_prefix="skuwise-prometheus") as pool:
            # So many measures are on their way at once as keep the workers busy, and no more are held in memory.
            ahead = max(1, math.ceil(2 * self.concurrency / len(pieces)))
            waiting: list[tuple[Ask, list[Future[list[tuple[Grid, Answer]]]]]] = []
            try:
                for number, ask in enumerate(asks, start=1):
                    waiting.append((ask, [pool.submit(self._piece, ask, piece) for piece in pieces]))
                    while waiting and (len(waiting) > ahead or number == len(asks)):
                        first, futures = waiting.pop(0)
                        self.progress(first.name)
                        parts = [part for future in futures for part in future.result()]
                        yield first, _joined(parts, whole)
            except BaseException:
                for _, futures in waiting:
                    for future in futures:
                        future.cancel()
                raise

    def _piece(self, ask: Ask, grid: Grid) -> list[tuple[Grid, Answer]]:
        held = self.cache.get(ask.query, grid, ask.kept)
        if held is not None:
            return [(grid, held)]
        try:
            told = self.client.range(ask.query, grid, ask.kept)
        except TooMuchError as error:
            if grid.count > 1:
                return [part for half in halves(grid) for part in self._piece(ask, half)]
            self._missed(ask, grid, error)
            return []
        except (RefusedError, AnswerError) as error:
            self._missed(ask, grid, error)
            return []
        for note in told.notes:
            self.log.add(f"The server warns: {note.rstrip('.')}.")
        if not told.notes and grid.end <= self.now - SETTLED_SECONDS:
            self.cache.put(ask.query, grid, ask.kept, told.answer)
        return [(grid, told.answer)]

    def _missed(self, ask: Ask, grid: Grid, error: SkuwiseError) -> None:
        self.log.add(
            f"{ask.name} is missing from {minute(grid.start - grid.step)} to {minute(grid.end)}: {error.message}"
        )


def pieces_of(whole: Grid, series: int) -> list[Grid]:
    """The grid in pieces that end with UTC days, each small enough for one answer."""
    most = max(1, MAX_VALUES // max(series, 1))
    pieces = []
    start = whole.start
    while start <= whole.end + 0.5:
        day_end = math.ceil((start - 0.5) / DAY) * DAY
        end = min(whole.end, day_end, start + (most - 1) * whole.step)
        end = start + math.floor((end - start) / whole.step + 1e-6) * whole.step
        pieces.append(Grid(start, end, whole.step))
        start = end + whole.step
    return pieces


def halves(grid: Grid) -> tuple[Grid, Grid]:
    """A grid of more than one moment as two."""
    middle = grid.start + (grid.count // 2 - 1) * grid.step
    return Grid(grid.start, middle, grid.step), Grid(middle + grid.step, grid.end, grid.step)


def _joined(parts: Sequence[tuple[Grid, Answer]], whole: Grid) -> Answer:
    """Parts of a measure as one: a row for each set of labels. Of a series that stands twice the first value counts."""
    rows: dict[tuple[tuple[str, str], ...], int] = {}
    labels: list[Labels] = []
    places: list[npt.NDArray[np.intp]] = []
    for _, answer in parts:
        at = []
        for one in answer.labels:
            key = tuple(one.items())  # in the order of the labels that are kept, so always the same
            row = rows.get(key)
            if row is None:
                row = rows[key] = len(labels)
                labels.append(one)
            at.append(row)
        places.append(np.array(at, dtype=np.intp))
    values = np.full((len(labels), whole.count), np.nan)
    for (grid, answer), at in zip(parts, places, strict=True):
        offset = round((grid.start - whole.start) / whole.step)
        columns = slice(offset, offset + grid.count)
        own = values[:, columns]
        if len(set(at.tolist())) == len(at):
            own[at] = answer.values
            continue
        for row, told in zip(at.tolist(), answer.values, strict=True):
            np.copyto(own[row], told, where=np.isnan(own[row]))
    return Answer(tuple(labels), values)
