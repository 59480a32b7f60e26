"""How a window is asked for: in days, in smaller pieces where a limit is met, several at once, and what failed is told.

A piece ends where a UTC day ends, so that next week's run finds the same days in the cache. Days that are not there are
asked for together, as far as one answer may hold them: an engine opens each series once a query, and each answer says
all labels again. What all answers together may hold follows from how many series the server counted: one that tells of
many more is not believed.
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
# Values of one answer: a day's hours of a thousand nodes, some 25 bytes of JSON each beside the labels.
MAX_VALUES = 200_000
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
        stretches = stretches_of(pieces_of(whole, series), series)
        self.held.allow(_TIMES_COUNTED * series * whole.count * len(asks))
        with ThreadPoolExecutor(max_workers=self.concurrency, thread_name_prefix="skuwise-prometheus") as pool:
            # So many measures are on their way at once as keep the workers busy, and no more are held in memory.
            ahead = max(1, math.ceil(2 * self.concurrency / len(stretches)))
            waiting: list[tuple[Ask, _Joining, list[Future[None]]]] = []
            try:
                for number, ask in enumerate(asks, start=1):
                    joining = _Joining(whole, max(self.series_anyway, _TIMES_COUNTED * series), self.held)
                    futures = [pool.submit(self._stretch, ask, pieces, joining) for pieces in stretches]
                    waiting.append((ask, joining, futures))
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

    def _stretch(self, ask: Ask, pieces: Sequence[Grid], into: _Joining) -> None:
        """Pieces that follow one another: those of the cache, and together those between."""
        lacking: list[Grid] = []
        for piece in pieces:
            held = None if into.too_many else self.cache.get(ask.query, piece, ask.kept)
            if held is None:
                lacking.append(piece)
                continue
            into.add(piece, held)
            self._asked(ask, lacking, into)
            lacking = []
        self._asked(ask, lacking, into)

    def _asked(self, ask: Ask, pieces: Sequence[Grid], into: _Joining) -> None:
        """Pieces that follow one another, as one question; as several where that is too much for the server."""
        if into.too_many or not pieces:
            return
        grid = Grid(pieces[0].start, pieces[-1].end, pieces[0].step)
        try:
            told = self.client.range(ask.query, grid, ask.kept)
        except TooMuchError as error:
            middle = len(pieces) // 2
            parts = [pieces[:middle], pieces[middle:]] if middle else [[one] for one in halves(grid)]
            if grid.count == 1:
                self._missed(ask, grid, error)
                return
            for part in parts:
                self._asked(ask, part, into)
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
        whole = not told.notes and not told.left_out
        for piece, part in parts_of(told.answer, pieces):
            if whole and piece.end <= self.now - SETTLED_SECONDS:
                self.cache.put(ask.query, piece, ask.kept, part)
            into.add(piece, part)

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


def stretches_of(pieces: Sequence[Grid], series: int) -> list[list[Grid]]:
    """Pieces that follow one another, together as large as one answer may be."""
    most = max(1, MAX_VALUES // max(series, 1))
    found: list[list[Grid]] = []
    count = 0
    for piece in pieces:
        if found and count + piece.count <= most:
            found[-1].append(piece)
            count += piece.count
        else:
            found.append([piece])
            count = piece.count
    return found


def parts_of(answer: SeriesAnswer, pieces: Sequence[Grid]) -> list[tuple[Grid, SeriesAnswer]]:
    """An answer over pieces that follow one another as the answers to each of them: a series that has no value in a
    piece is not in it."""
    if len(pieces) == 1:
        return [(pieces[0], answer)]
    known = ~np.isnan(answer.values)
    # What has values that are no numbers is somewhere: where, the matrix does not tell.
    known |= ~known.any(axis=1, keepdims=True)
    found, first = [], 0
    for piece in pieces:
        own = slice(first, first + piece.count)
        first += piece.count
        rows = np.nonzero(known[:, own].any(axis=1))[0]
        if len(rows) == len(answer.labels):
            found.append((piece, SeriesAnswer(answer.labels, answer.values[:, own])))
        else:
            labels = tuple(answer.labels[row] for row in rows.tolist())
            found.append((piece, SeriesAnswer(labels, answer.values[rows, own])))
    return found


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
        # The same labels are mostly the same object (`LabelBook`), and often the same tuple of them.
        self._known: dict[int, tuple[Labels, int]] = {}
        self._before: tuple[tuple[Labels, ...], npt.NDArray[np.intp]] = (), np.empty(0, dtype=np.intp)
        self._labels: list[Labels] = []
        self._parts: list[tuple[Grid, npt.NDArray[np.intp], Floats]] = []
        self.too_many = ""

    def add(self, grid: Grid, answer: SeriesAnswer) -> None:
        with self._lock:
            if self.too_many:
                return
            before = len(self._labels)
            if answer.labels is not self._before[0]:
                at = np.fromiter(map(self._row, answer.labels), dtype=np.intp, count=len(answer.labels))
                self._before = answer.labels, at
            rows = len(self._labels)
            if rows > self._most_rows:
                self._refuse(f"the server returned at least {rows} time series, far more than it counted.")
            # Once as they came, and once in their place.
            elif not self._held.take(answer.values.size + (rows - before) * self._whole.count):
                self._refuse("the server returned far more time series than it counted.")
            else:
                self._parts.append((grid, self._before[1], answer.values))

    def answer(self) -> SeriesAnswer:
        """All parts as one, in the order of time. Of a series that stands twice the first value counts."""
        parts = sorted(self._parts, key=lambda part: part[0].start)
        # Whichever part came first: rows stand as time has them.
        met = np.concatenate([np.empty(0, dtype=np.intp), *{id(at): at for _, at, _ in parts}.values()])
        order = met[np.sort(np.unique(met, return_index=True)[1])]
        place = np.empty(len(order), dtype=np.intp)
        place[order] = np.arange(len(order))
        values = np.full((len(order), self._whole.count), np.nan)
        for grid, at, told in parts:
            offset = round((grid.start - self._whole.start) / self._whole.step)
            own = values[:, offset : offset + grid.count]
            rows = place[at]
            if len(np.unique(at)) == len(at):
                own[rows] = told
                continue
            for row, one in zip(rows.tolist(), told, strict=True):
                np.copyto(own[row], one, where=np.isnan(own[row]))
        self._held.allow(sum(told.size for _, _, told in parts))
        self._parts.clear()
        return SeriesAnswer(tuple(self._labels[row] for row in order.tolist()), values)

    def _row(self, labels: Labels) -> int:
        known = self._known.get(id(labels))
        if known is not None and known[0] is labels:
            return known[1]
        key = tuple(labels.items())  # in the order of the labels that are kept, so always the same
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self._labels)
            self._labels.append(labels)
        self._known[id(labels)] = labels, row
        return row

    def _refuse(self, why: str) -> None:
        self._held.allow(sum(told.size for _, _, told in self._parts))
        self.too_many = f"{why} Use a narrower --match."
        self._rows.clear()
        self._known.clear()
        self._before = (), np.empty(0, dtype=np.intp)
        self._labels.clear()
        self._parts.clear()
