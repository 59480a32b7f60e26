"""How a window is asked for: whole days together, several queries at once, in smaller parts where a limit is met.

Days are those of UTC, so that a later run finds them in the cache. Days that are not there are asked for together, as
far as one answer may hold them: an engine opens each series once a query, and each answer repeats all labels.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby, islice

import numpy as np

from ....core.coded_text import CodedText, coded
from ....core.frame import Window
from ....core.timestamps import minute
from .cache import DAY, Cache
from .client import Client
from .errors import AnswerError, RefusedError, TooMuchError
from .response import Grid, Labels, SeriesAnswer

# Values of one answer: a day's hours of a thousand nodes, some 25 bytes of JSON each beside the labels.
MAX_VALUES = 200_000
# What was asked this long after its end does not change any more: late samples have come.
SETTLED_SECONDS = 7200.0
_Part = tuple[Grid, SeriesAnswer]


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
    """Notes on what was not answered as asked, each once."""

    notes: list[CodedText] = field(default_factory=list)

    def add(self, note: CodedText) -> None:
        if note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True)
class Runner:
    """Asks a server for measures over a window. `now`: Unix seconds, which decides what is settled."""

    client: Client
    cache: Cache
    log: Log
    concurrency: int
    now: float
    progress: Callable[[str], None] = lambda _: None

    def matrices(
        self, asks: Sequence[Ask], window: Window, step: float, series: int
    ) -> Iterator[tuple[Ask, SeriesAnswer]]:
        """Each measure over the whole window, in the order of `asks`; what is not answered stays missing.

        `series`: about how many each measure has.
        """
        whole = wide = Grid(window.start + step, window.end, step)
        if self.cache.used and window.seconds >= 2 * DAY:  # the first day whole, so that a later run finds it
            wide = Grid(math.floor(window.start / DAY) * DAY + step, window.end, step)
        most = max(1, MAX_VALUES // max(series, 1))
        stretches = stretches_of(days_of(wide), most)
        remaining = iter(asks)
        # So many measures are asked ahead as keep the workers busy, and no more are held in memory.
        ahead = max(1, math.ceil(2 * self.concurrency / len(stretches)))
        with ThreadPoolExecutor(max_workers=self.concurrency, thread_name_prefix="skuwise-prometheus") as pool:

            def submitted(count: int) -> list[tuple[Ask, list[Future[list[_Part]]]]]:
                return [
                    (ask, [pool.submit(self._read_days, ask, days, most) for days in stretches])
                    for ask in islice(remaining, count)
                ]

            pending = deque(submitted(ahead + 1))
            try:
                while pending:
                    ask, futures = pending.popleft()
                    self.progress(ask.name)
                    parts = [part for future in futures for part in future.result()]
                    pending.extend(submitted(1))
                    yield ask, part_of(joined(wide, parts), wide, whole)
            finally:
                pool.shutdown(cancel_futures=True)

    def _read_days(self, ask: Ask, days: Sequence[Grid], most: int) -> list[_Part]:
        """Days that follow one another: those of the cache, and together those between. `most`: moments a query."""
        cached = {day: self.cache.get(ask.query, day, ask.kept) for day in days}
        parts = [(day, answer) for day, answer in cached.items() if answer is not None]
        for is_cached, run in groupby(days, key=lambda day: cached[day] is not None):
            if is_cached:
                continue
            missing, incomplete = list(run), list[Grid]()
            grid = Grid(missing[0].start, missing[-1].end, missing[0].step)
            answer = joined(grid, list(self._fetch(ask, grid, most, incomplete)))
            for day in missing:
                if day.end <= self.now - SETTLED_SECONDS and not any(
                    part.start <= day.end and day.start <= part.end for part in incomplete
                ):
                    self.cache.put(ask.query, day, ask.kept, part_of(answer, grid, day))
            parts.append((grid, answer))
        return parts

    def _fetch(self, ask: Ask, grid: Grid, most: int, incomplete: list[Grid]) -> Iterator[_Part]:
        """The answer over a grid, in parts where it is too much for one. `incomplete` is extended by the parts that the
        server did not answer, or only partly."""
        if grid.count > most:
            for half in halves(grid):
                yield from self._fetch(ask, half, most, incomplete)
            return
        try:
            found = self.client.range(ask.query, grid, ask.kept)
        except (RefusedError, AnswerError) as error:
            if isinstance(error, TooMuchError) and grid.count > 1:
                yield from self._fetch(ask, grid, grid.count - 1, incomplete)
                return
            incomplete.append(grid)
            start = grid.start - grid.step
            text = f"No data for {ask.name} from {minute(start)} to {minute(grid.end)}: {error.message}"
            fields = {"measure": ask.name, "start_ts": start, "end_ts": grid.end, "error": error.message}
            self.log.add(CodedText("measure-missing-for-a-time", text, fields))
            return
        if found.notes:
            incomplete.append(grid)
        for note in found.notes:
            text = "The server warns: {warning}. Its answers may be incomplete."
            self.log.add(coded("server-warns", text, warning=note.rstrip(".")))
        yield grid, found.answer


def days_of(whole: Grid) -> list[Grid]:
    """The grid in parts that end with UTC days."""
    moments = [whole.start + number * whole.step for number in range(whole.count)]
    days = [list(day) for _, day in groupby(moments, key=lambda at: math.ceil((at - 0.5) / DAY))]
    return [Grid(day[0], day[-1], whole.step) for day in days]


def stretches_of(days: Sequence[Grid], most: int) -> list[list[Grid]]:
    """Days that follow one another, together of at most so many moments; a longer day by itself."""
    stretches: list[list[Grid]] = []
    count = math.inf
    for day in days:
        if count + day.count > most:
            stretches.append([])
            count = 0
        stretches[-1].append(day)
        count += day.count
    return stretches


def halves(grid: Grid) -> tuple[Grid, Grid]:
    """A grid of more than one moment as two."""
    middle = grid.start + (grid.count // 2 - 1) * grid.step
    return Grid(grid.start, middle, grid.step), Grid(middle + grid.step, grid.end, grid.step)


def part_of(answer: SeriesAnswer, grid: Grid, day: Grid) -> SeriesAnswer:
    """The part of an answer over `grid` for one of its days: the series that have a value on it, or nowhere."""
    if day == grid:
        return answer
    first = round((day.start - grid.start) / grid.step)
    has_value = ~np.isnan(answer.values)
    values = answer.values[:, first : first + day.count]
    rows = np.nonzero(has_value[:, first : first + day.count].any(axis=1) | ~has_value.any(axis=1))[0]
    return SeriesAnswer(tuple(answer.labels[row] for row in rows.tolist()), values[rows])


def joined(whole: Grid, parts: Sequence[_Part]) -> SeriesAnswer:
    """Parts of a measure as one answer over `whole`: a row for each set of labels, in the order of time.

    Of series with equal labels within a part, which dropped labels tell apart, the first value counts.
    """
    index: dict[tuple[tuple[str, str], ...], int] = {}
    labels: list[Labels] = []
    placed = []
    for grid, answer in sorted(parts, key=lambda part: part[0].start):
        rows = np.empty(len(answer.labels), dtype=np.intp)
        for number, label_set in enumerate(answer.labels):
            rows[number] = row = index.setdefault(tuple(label_set.items()), len(labels))
            if row == len(labels):
                labels.append(label_set)
        placed.append((round((grid.start - whole.start) / whole.step), rows, answer.values))
    values = np.full((len(labels), whole.count), np.nan)
    for first, rows, part in placed:
        span = values[:, first : first + part.shape[1]]
        if len(np.unique(rows)) == len(rows):
            span[rows] = part
            continue
        for row, series in zip(rows[::-1].tolist(), part[::-1], strict=True):
            np.copyto(span[row], series, where=~np.isnan(series))
    return SeriesAnswer(tuple(labels), values)
