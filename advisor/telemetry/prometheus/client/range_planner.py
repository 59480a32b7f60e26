"""How a window is asked for: in days, in smaller pieces where a limit is met, several at once, and what failed is told.

A piece ends where a UTC day ends, so that next week's run asks for the same days and finds them in the cache. What all
answers together may hold follows from how many series the server counted: one that tells of many more is not believed.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .....rules.base.errors import SkuwiseError
from ....core.coded_text import CodedText, coded
from ....core.frame import Window
from ....core.timestamps import minute
from .cache import Cache
from .client import Client
from .errors import AnswerError, RefusedError, TooMuchError
from .response import MAX_LABEL, Floats, Grid, Labels, SeriesAnswer

DAY = 86400.0
# Values of one answer: some 25 bytes of JSON each, and ten times that while it is read.
MAX_VALUES = 150_000
# What was asked this long after its end does not change any more: late samples have come.
SETTLED_SECONDS = 7200.0
# Series over a window: so many times those that were counted at its end (work comes and goes), or so many in any case.
_TIMES_COUNTED = 20
SERIES_ANYWAY = 50_000
# Values of all measures of a run, beside what those that were counted need; 8 bytes each.
_VALUES_ANYWAY = 48_000_000


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

    notes: list[CodedText] = field(default_factory=list)

    def add(self, note: CodedText) -> None:
        if note not in self.notes:
            self.notes.append(note)


class HeldCells:
    """How many values the answers of a run may hold together, and do, those on their way among them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = _VALUES_ANYWAY

    def allow(self, values: int) -> None:
        """So many are expected, or were let go."""
        with self._lock:
            self._left += values

    def take(self, values: int) -> bool:
        """Count these; False, and they are not, where they are too many."""
        with self._lock:
            if values > self._left:
                return False
            self._left -= values
            return True


@dataclass(frozen=True)
class Runner:
    """Asks a server for measures over a window. `now`: Unix seconds, by which it is told what will not change.
    `series_anyway`: so many series a measure may have, however few were counted."""

    client: Client
    cache: Cache
    log: Log
    concurrency: int
    now: float
    progress: Callable[[str], None] = lambda _: None
    held: HeldCells = field(default_factory=HeldCells)
    series_anyway: int = SERIES_ANYWAY

    def matrices(
        self, asks: Sequence[Ask], window: Window, step: float, series: int
    ) -> Iterator[tuple[Ask, SeriesAnswer]]:
        """Each measure over the whole window, in the order of `asks`; what cannot be had stays missing."""
        whole = Grid(window.start + step, window.end, step)
        pieces = pieces_of(whole, series)
        self.held.allow(_TIMES_COUNTED * series * whole.count * len(asks))
        with ThreadPoolExecutor(max_workers=self.concurrency, thread_name_prefix="skuwise-prometheus") as pool:
            # So many measures are on their way at once as keep the workers busy, and no more are held in memory.
            ahead = max(1, math.ceil(2 * self.concurrency / len(pieces)))
            waiting: list[tuple[Ask, _Joining, list[Future[None]]]] = []
            try:
                for number, ask in enumerate(asks, start=1):
                    joining = _Joining(whole, max(self.series_anyway, _TIMES_COUNTED * series), self.held)
                    waiting.append((ask, joining, [pool.submit(self._piece, ask, piece, joining) for piece in pieces]))
                    while waiting and (len(waiting) > ahead or number == len(asks)):
                        first, parts, futures = waiting.pop(0)
                        self.progress(first.name)
                        for future in futures:
                            future.result()
                        if parts.too_many:
                            self.log.add(
                                coded(
                                    "measure-not-answered", "No data for {measure}: {error}",
                                    measure=first.name, error=str(parts.too_many),
                                )
                            )  # fmt: skip
                        yield first, parts.answer()
            except BaseException:
                for _, _, futures in waiting:
                    for future in futures:
                        future.cancel()
                raise

    def _piece(self, ask: Ask, grid: Grid, into: _Joining) -> None:
        if into.too_many:
            return
        held = self.cache.get(ask.query, grid, ask.kept)
        if held is not None:
            into.add(grid, held)
            return
        try:
            told = self.client.range(ask.query, grid, ask.kept)
        except TooMuchError as error:
            if grid.count > 1:
                for half in halves(grid):
                    self._piece(ask, half, into)
                return
            self._missed(ask, grid, error)
            return
        except (RefusedError, AnswerError) as error:
            self._missed(ask, grid, error)
            return
        for note in told.notes:
            self.log.add(coded("server-warns", "The server warns: {warning}.", warning=note.rstrip(".")))
        if told.left_out:
            self.log.add(
                coded(
                    "labels-too-long",
                    "{measure}: time series with a label of more than {most} characters are ignored.",
                    measure=ask.name, most=MAX_LABEL,
                )
            )  # fmt: skip
        if not told.notes and not told.left_out and grid.end <= self.now - SETTLED_SECONDS:
            self.cache.put(ask.query, grid, ask.kept, told.answer)
        into.add(grid, told.answer)

    def _missed(self, ask: Ask, grid: Grid, error: SkuwiseError) -> None:
        start = grid.start - grid.step
        self.log.add(
            CodedText(
                "measure-missing-for-a-time",
                f"No data for {ask.name} from {minute(start)} to {minute(grid.end)}: {error.message}",
                {"measure": ask.name, "start_ts": start, "end_ts": grid.end, "error": error.message},
            )
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


class _Joining:
    """Parts of a measure on their way to one answer: a row for each set of labels, which are kept once.

    `too_many`: why nothing is kept of it; empty: all is. Usable from several threads at once.
    """

    def __init__(self, whole: Grid, most_rows: int, held: HeldCells) -> None:
        self._whole = whole
        self._most_rows = most_rows
        self._held = held
        self._lock = threading.Lock()
        self._rows: dict[tuple[tuple[str, str], ...], int] = {}
        self._labels: list[Labels] = []
        self._parts: list[tuple[Grid, npt.NDArray[np.intp], Floats]] = []
        self.too_many = ""

    def add(self, grid: Grid, answer: SeriesAnswer) -> None:
        with self._lock:
            if self.too_many:
                return
            before = len(self._labels)
            at = np.fromiter(map(self._row, answer.labels), dtype=np.intp, count=len(answer.labels))
            rows = len(self._labels)
            if rows > self._most_rows:
                self._refuse(f"the server returned at least {rows} time series, far more than it counted.")
            # Once as they came, and once in their place.
            elif not self._held.take(answer.values.size + (rows - before) * self._whole.count):
                self._refuse("the server returned far more time series than it counted.")
            else:
                self._parts.append((grid, at, answer.values))

    def answer(self) -> SeriesAnswer:
        """All parts as one, in the order of time. Of a series that stands twice the first value counts."""
        parts = sorted(self._parts, key=lambda part: part[0].start)
        # Whichever part came first: rows stand as time has them.
        order = list(dict.fromkeys(row for _, at, _ in parts for row in at.tolist()))
        place = np.empty(len(order), dtype=np.intp)
        place[order] = np.arange(len(order))
        values = np.full((len(order), self._whole.count), np.nan)
        for grid, at, told in parts:
            offset = round((grid.start - self._whole.start) / self._whole.step)
            own = values[:, offset : offset + grid.count]
            rows = place[at]
            if len(set(at.tolist())) == len(at):
                own[rows] = told
                continue
            for row, one in zip(rows.tolist(), told, strict=True):
                np.copyto(own[row], one, where=np.isnan(own[row]))
        self._held.allow(sum(told.size for _, _, told in parts))
        self._parts.clear()
        return SeriesAnswer(tuple(self._labels[row] for row in order), values)

    def _row(self, labels: Labels) -> int:
        key = tuple(labels.items())  # in the order of the labels that are kept, so always the same
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self._labels)
            self._labels.append(labels)
        return row

    def _refuse(self, why: str) -> None:
        self._held.allow(sum(told.size for _, _, told in self._parts))
        self.too_many = f"{why} Use a narrower --match, or run advise on shards."
        self._rows.clear()
        self._labels.clear()
        self._parts.clear()
