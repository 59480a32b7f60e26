"""How a window is asked for: whole days together, several queries at once, in smaller parts where a limit is met.

Days are those of UTC, which a later run finds in the cache, each under what the server held then. Others are asked
for together: an engine opens each series once a query, and each answer repeats all labels.
"""

import hashlib
import json
import math
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
import orjson

from ....core.cache_folder import CacheFolder
from ....core.coded_text import CodedText, coded
from ....core.frame import Window
from ....core.timestamps import minute
from .client import Client
from .response import AnswerError, Grid, Labels, RefusedError, SeriesAnswer, TooMuchError

DAY = 86400.0
MAX_BYTES, MAX_FILE_BYTES = 512 * 1024 * 1024, 48 * 1024 * 1024  # of all, and of one file
_SUFFIX = ".answer"
_FORM = b"skuwise-answer-5\n"
_REFUSED = "Answers are not cached: other users can write to the folder in prometheus.cache. Remove their permission."


class Cache:
    """Answers in a folder, or nowhere where it is None. `scope`: what an answer depends on beside its query; `refused`:
    why the folder is not used."""

    def __init__(self, folder: Path | None, scope: str) -> None:
        self._scope = scope
        self._held: Mapping[float, str] | None = None
        self._labels: dict[bytes, tuple[Labels, ...]] = {}
        self._folder = CacheFolder(folder, _SUFFIX)
        self.hits = 0
        self.refused = _REFUSED if self._folder.refused else ""

    @property
    def used(self) -> bool:
        return self._folder.path is not None

    def mark_days(self, held: Mapping[float, str], labels: Mapping[str, str]) -> None:
        """`held`: midnight (Unix seconds) -> a digest of what the server held then; `labels`: its external labels."""
        self._held = held
        self._scope += f"\n{sorted(labels.items())}"

    def get(self, query: str, day: Grid, kept: Sequence[str]) -> SeriesAnswer | None:
        """The answer of an earlier run, or None. Days with the same series share their labels."""
        name = self._name(query, day, kept)
        content = None if name is None else self._folder.read(name, _FORM, MAX_FILE_BYTES)
        if content is None:
            return None
        self.hits += 1
        text, _, numbers = zlib.decompress(content).partition(b"\n")
        labels = self._labels.get(text) or self._labels.setdefault(text, tuple(orjson.loads(text)))
        return SeriesAnswer(labels, np.frombuffer(numbers).reshape(len(labels), day.count))

    def put(self, query: str, day: Grid, kept: Sequence[str], answer: SeriesAnswer) -> None:
        name = self._name(query, day, kept)
        if name is not None:
            content = zlib.compress(orjson.dumps(answer.labels) + b"\n" + answer.values.tobytes(), 1)
            if len(content) <= MAX_FILE_BYTES:
                self._folder.write(name, _FORM, content)

    def prune(self, most_bytes: int = MAX_BYTES) -> None:
        self._folder.prune(most_bytes)

    def _name(self, query: str, day: Grid, kept: Sequence[str]) -> str | None:
        """None: the grid is not a whole UTC day, or the server held nothing at its ends."""
        begin = day.start - day.step
        ends = [""] if self._held is None else [self._held.get(begin, ""), self._held.get(day.end, "")]
        if not self.used or day.end % DAY or begin != day.end - DAY or (self._held is not None and not any(ends)):
            return None
        asked = json.dumps([self._scope, ends, query, day.start, day.end, day.step, list(kept)])
        return f"{hashlib.sha256(asked.encode()).hexdigest()[:40]}{_SUFFIX}"


MAX_VALUES = 200_000  # of one answer: some 25 bytes of JSON each beside the labels
SETTLED_SECONDS = 7200.0  # so long after the end of a day its late samples have come
_Part = tuple[Grid, SeriesAnswer]


@dataclass(frozen=True, slots=True)
class Ask:
    """One measure over the window: an expression whose value at a moment is that of the row that ends there. `kept`:
    the labels that are read."""

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
        """Each measure over the whole window, in the order of `asks`: the series that have a value in it. `series`:
        about how many each measure has."""
        whole = wide = Grid(window.start + step, window.end, step)
        if self.cache.used and window.seconds >= 2 * DAY:  # the first day whole, so that a later run finds it
            wide = Grid(math.floor(window.start / DAY) * DAY + step, window.end, step)
        most, days = max(1, MAX_VALUES // max(series, 1)), days_of(wide)
        together = max(1, most // max(day.count for day in days))
        stretches = [days[first : first + together] for first in range(0, len(days), together)]
        with ThreadPoolExecutor(max_workers=self.concurrency, thread_name_prefix="skuwise-prometheus") as pool:
            try:
                pending = deque(
                    (ask, [pool.submit(self._read_days, ask, days, most) for days in stretches]) for ask in asks
                )
                while pending:
                    ask, futures = pending.popleft()
                    self.progress(ask.name)
                    parts = [part for future in futures for part in future.result()]
                    yield ask, part_of(joined(wide, parts), wide, whole)
            finally:
                pool.shutdown(cancel_futures=True)

    def _read_days(self, ask: Ask, days: Sequence[Grid], most: int) -> list[_Part]:
        """Days that follow one another: those of the cache, and together those between. `most`: moments a query."""
        cached = {day: self.cache.get(ask.query, day, ask.kept) for day in days}
        parts = [(day, answer) for day, answer in cached.items() if answer is not None]
        for is_cached, run in groupby(days, key=lambda day: cached[day] is not None):
            missing = [] if is_cached else list(run)
            if missing:
                grid = Grid(missing[0].start, missing[-1].end, missing[0].step)
                fetched = list(self._fetch(ask, grid, most))
                parts.append((grid, joined(grid, fetched)))
                is_whole = not any(answer.notes for _, answer in fetched)
                for day in missing:
                    if is_whole and day.end <= self.now - SETTLED_SECONDS:
                        self.cache.put(ask.query, day, ask.kept, part_of(parts[-1][1], grid, day))
        return parts

    def _fetch(self, ask: Ask, grid: Grid, most: int) -> Iterator[_Part]:
        """The answer over a grid in parts of at most so many moments, fewer where they are too much for the server.
        What is not complete has notes."""
        if grid.count > most:
            for first in range(0, grid.count, most):
                last = min(first + most, grid.count) - 1
                part = Grid(grid.start + first * grid.step, grid.start + last * grid.step, grid.step)
                yield from self._fetch(ask, part, most)
            return
        try:
            answer = self.client.range(ask.query, grid, ask.kept)
        except (RefusedError, AnswerError) as error:
            if isinstance(error, TooMuchError) and grid.count > 1:
                yield from self._fetch(ask, grid, math.ceil(grid.count / 2))
                return
            start = grid.start - grid.step
            text = f"No data for {ask.name} from {minute(start)} to {minute(grid.end)}: {error.message}"
            fields = {"measure": ask.name, "start_ts": start, "end_ts": grid.end, "error": error.message}
            self.log.add(CodedText("measure-missing-for-a-time", text, fields))
            answer = SeriesAnswer((), np.empty((0, grid.count)), (error.message,))
        else:
            text = "The server warns: {warning}. Its answers may be incomplete."
            for note in answer.notes:
                self.log.add(coded("server-warns", text, warning=note.rstrip(".")))
        yield grid, answer


def days_of(whole: Grid) -> list[Grid]:
    moments = [whole.start + number * whole.step for number in range(whole.count)]
    days = [list(day) for _, day in groupby(moments, key=lambda at: math.ceil((at - 0.5) / DAY))]
    return [Grid(day[0], day[-1], whole.step) for day in days]


def part_of(answer: SeriesAnswer, grid: Grid, part: Grid) -> SeriesAnswer:
    """A part of an answer over `grid`: the series that have a value in it."""
    first = round((part.start - grid.start) / grid.step)
    values = answer.values[:, first : first + part.count]
    has_value = ~np.isnan(values).all(axis=1)
    if has_value.all():
        return SeriesAnswer(answer.labels, values)
    return SeriesAnswer(tuple(answer.labels[row] for row in np.nonzero(has_value)[0].tolist()), values[has_value])


def joined(whole: Grid, parts: Sequence[_Part]) -> SeriesAnswer:
    """Parts of a measure as one answer over `whole`: a row for each set of labels, in the order of time. Of series
    with equal labels within a part, which only dropped labels distinguish, the first value counts."""
    index: dict[tuple[tuple[str, str], ...], tuple[int, Labels]] = {}
    ordered = sorted(parts, key=lambda part: part[0].start)
    rows_of = [
        [index.setdefault(tuple(label.items()), (len(index), label))[0] for label in answer.labels]
        for _, answer in ordered
    ]
    values = np.full((len(index), whole.count), np.nan)
    for (grid, answer), rows in zip(ordered, rows_of, strict=True):
        first = round((grid.start - whole.start) / whole.step)
        span = values[:, first : first + grid.count]
        if len(set(rows)) == len(rows):
            span[rows] = answer.values
            continue
        for row, series in zip(rows[::-1], answer.values[::-1], strict=True):
            np.copyto(span[row], series, where=~np.isnan(series))
    return SeriesAnswer(tuple(labels for _, labels in index.values()), values)
