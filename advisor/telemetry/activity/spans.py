"""When a GPU was held: by the memory that work takes and gives back, or, where memory is unknown, by work and rest.

Memory tells edges best: a process takes it when it starts and frees it when it ends, whatever it does between. Rest
with memory held is part of the work that holds it; a pause to compute nothing is no end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from .series import Bools, CellGrid, Floats

# From this use on a cell counts as work: noise of counters and monitors lies below (advice.md, "Idle").
BUSY_USE = 0.05
# The driver's reserve, a display or a monitor holds up to so much while nothing works; a CUDA context and anything in
# it is more than this beyond what the GPU holds when it is free.
FREE_BYTES_MOST = 1.25 * 2**30
FREE_BYTES_USUAL = 0.6 * 2**30
CONTEXT_BYTES = 0.2 * 2**30
# Memory that nobody was seen to use counts as held by somebody from this size and this time on.
HELD_BYTES, HELD_SECONDS = 2**30, 3600.0
# Without memory: rest up to this long is a pause of the same work (checkpoints, evaluation, a cell that is thought of,
# a service of which readings a minute apart seldom meet a request).
PAUSE_SECONDS = 1800.0
# A gap in the record is bridged up to this long where the memory is the same before and after.
BLIND_SECONDS, BLIND_SAME_SECONDS = 1800.0, 6 * 3600.0
# Shorter spans are left out: a health check, a test that the driver works.
SHORTEST_SECONDS = 300.0
# Without any counter of use, power beyond this over the lowest of the node means work.
POWER_OVER_REST = 1.6
# A CUDA context keeps the clocks up while nothing runs: it draws 1.48 to 2.9 times what the GPU draws without one
# (fleets of V100, A100, H100, L40S: arXiv 2605.23918, ollama issue 8591).
CONTEXT_POWER = 1.3
# A fall of memory to less than this share of its level is the end of a process, even where it never reached zero.
FALL = 0.5
# A step of memory by this much that goes with a step of use or power is another process.
STEP, STEP_USE, STEP_POWER = 0.08, 0.15, 0.1
# A part of a cell's memory tells an edge to this share of the cell.
PART_WITHIN = 0.05
LOADED = 0.97
_AROUND = 8  # cells looked at on each side of a step


@dataclass(slots=True)
class Span:
    """A device (its row) was held in the cells [first, last]. `start`, `end`: Unix seconds; open: the data begin or end
    with it. `level`: middle of the memory held, bytes, NaN where unknown. `start_within`, `end_within`: seconds
    by which they may be wrong, infinite where nothing finer than cells tells."""

    row: int
    first: int
    last: int
    start: float
    end: float
    open_start: bool
    open_end: bool
    level: float
    start_within: float = math.inf
    end_within: float = math.inf


@dataclass(slots=True)
class SpanGroup:
    """Spans of some devices that belong together."""

    spans: list[Span]

    @property
    def rows(self) -> list[int]:
        return [one.row for one in self.spans]

    @property
    def start(self) -> float:
        return float(np.median([one.start for one in self.spans]))

    @property
    def end(self) -> float:
        return float(np.median([one.end for one in self.spans]))

    @property
    def open_start(self) -> bool:
        return any(one.open_start for one in self.spans)

    @property
    def open_end(self) -> bool:
        return any(one.open_end for one in self.spans)

    @property
    def cells(self) -> tuple[int, int]:
        """The cells that all of its spans hold, as a range."""
        return max(one.first for one in self.spans), min(one.last for one in self.spans) + 1

    @property
    def level(self) -> float:
        levels = [one.level for one in self.spans if not np.isnan(one.level)]
        return float(np.median(levels)) if levels else float("nan")

    @property
    def start_within(self) -> float:
        """Seconds by which the start may be wrong; likewise the end."""
        return max(one.start_within for one in self.spans)

    @property
    def end_within(self) -> float:
        return max(one.end_within for one in self.spans)


def held_spans(grid: CellGrid, row: int, rest_watts: float) -> list[Span]:
    """The spans of one device, in order. `rest_watts`: what a GPU of its node draws at rest, NaN where unknown."""
    active = _active(grid, row, rest_watts)
    mem = grid.mem[row]
    by_memory = (~np.isnan(mem)).mean() >= 0.5 * grid.known[row].mean() and not np.isnan(mem).all()
    free = _free(mem, active) if by_memory else 0.0
    if by_memory:
        held = np.nan_to_num(grid.low_mem[row]) > free + CONTEXT_BYTES
        # A span of work with no memory told, or with too little to notice, is work all the same.
        held |= _closed(active & ~held, grid, row, 3)
        held = _bridged(held, grid, row)
    else:
        held = _closed(active, grid, row, max(1, round(PAUSE_SECONDS / grid.cell)))
        held |= _with_context(grid, row, rest_watts, held)
    found: list[Span] = []
    for first, last in runs(held):
        if not _counts(_span(grid, row, first, last, free=free, by_memory=by_memory), active):
            continue
        # Of memory that every second tells, nothing is missed: as long as it is not given back, it is one process.
        cuts = _cuts(grid, row, first, last) if by_memory and grid.samples[row] is None else []
        for a, b in zip([first, *cuts], [*(cut - 1 for cut in cuts), last], strict=True):
            span = _span(grid, row, a, b, free=free, by_memory=by_memory)
            if span.end - span.start >= SHORTEST_SECONDS:
                if by_memory:
                    refine_edges(grid, span, free, starts=a == first, ends=b == last)
                found.append(span)
    return found


def refine_edges(grid: CellGrid, span: Span, free: float, *, starts: bool, ends: bool) -> None:
    """The edges of a span as exactly as its memory tells them. `starts`, `ends`: whether nothing was held beyond."""
    if (samples := grid.samples[span.row]) is not None:
        _to_samples(grid, span, samples, free + CONTEXT_BYTES)
        return
    if starts:
        span.start_within = grid.cell
    if ends:
        span.end_within = grid.cell
    # A minute's mean tells for which part of it the memory of the minute beside it was held. Where memory is read once
    # a minute, a process that loads shows a part of it as well, and the part is the same for all who load together.
    mem = grid.mem[span.row]
    if span.last - span.first < 4:
        return
    if starts and not span.open_start and _is_part(mem[span.first], mem[span.first + 1], free):
        span.start_within = PART_WITHIN * grid.cell
    flat = _still(mem[span.last - 3 : span.last], float(mem[span.last - 1]))
    if ends and flat and not span.open_end and _is_part(mem[span.last], mem[span.last - 1], free):
        span.end_within = PART_WITHIN * grid.cell


def _is_part(value: float, whole: float, free: float) -> bool:
    return bool(0.02 * (whole - free) < value - free < 0.98 * (whole - free))


def _to_samples(grid: CellGrid, span: Span, samples: tuple[Floats, Floats], least: float) -> None:
    """Start and end to the samples between which the memory was taken and given back."""
    ts, mem = samples
    for is_start in (True, False):
        if span.open_start if is_start else span.open_end:
            continue
        cell = span.first if is_start else span.last
        begin, stop = np.searchsorted(ts, [grid.ends(cell - 2) - grid.cell / 2, grid.ends(cell + 1) + grid.cell / 2])
        near, held = ts[begin:stop], mem[begin:stop]
        near, held = near[~np.isnan(held)], held[~np.isnan(held)] > least
        turns = np.nonzero(held[1:] & ~held[:-1] if is_start else held[:-1] & ~held[1:])[0]
        if not len(turns):
            continue
        at = int(turns[0] if is_start else turns[-1])
        within = float(near[at + 1] - near[at])
        if is_start:
            span.start, span.start_within = float(near[at]), within
        else:
            span.end, span.end_within = float(near[at]), within


def loaded_cell(grid: CellGrid, span: Span) -> int:
    """The first cell after what it loads is loaded: what all do at their start tells nothing."""
    loaded = np.nonzero(grid.mem[span.row, span.first : span.last + 1] >= LOADED * span.level)[0]
    return span.first + 1 + (int(loaded[0]) if len(loaded) else 0)


def split(grid: CellGrid, span: Span, at: int) -> tuple[Span, Span]:
    """A span as two, the second from cell `at` on."""
    edge = grid.ends(at - 1)
    first = replace(span, last=at - 1, end=edge, open_end=False, end_within=math.inf)
    second = replace(span, first=at, start=edge, open_start=False, start_within=math.inf)
    for one in (first, second):
        one.level = _middle(grid.mem[one.row, one.first : one.last + 1])
    return first, second


def runs(mask: Bools) -> list[tuple[int, int]]:
    """First and last position of each run of true values."""
    edges = np.diff(np.concatenate(([0], mask.astype(np.int8), [0])))
    return list(zip(np.nonzero(edges == 1)[0].tolist(), (np.nonzero(edges == -1)[0] - 1).tolist(), strict=True))


def _active(grid: CellGrid, row: int, rest_watts: float) -> Bools:
    use, power = grid.use[row], grid.power[row]
    with np.errstate(invalid="ignore"):
        active = use >= BUSY_USE
        if not np.isnan(rest_watts):
            active |= np.isnan(use) & (power >= POWER_OVER_REST * rest_watts)
    return active


def _with_context(grid: CellGrid, row: int, rest_watts: float, held: Bools) -> Bools:
    """The rest beside work in which the power says that its process is still there."""
    out = np.zeros(len(held), dtype=np.bool_)
    if np.isnan(rest_watts):
        return out
    with np.errstate(invalid="ignore"):
        there = held | (grid.power[row] >= CONTEXT_POWER * rest_watts)
    for first, last in runs(there):
        out[first : last + 1] = bool(held[first : last + 1].any())
    return out


def _free(mem: Floats, active: Bools) -> float:
    """What the GPU's memory holds when nobody uses it."""
    with np.errstate(invalid="ignore"):
        low = mem[~active & (mem <= FREE_BYTES_MOST)]
    return float(low.min()) if len(low) else FREE_BYTES_USUAL


def _closed(active: Bools, grid: CellGrid, row: int, cells: int) -> Bools:
    """Activity with pauses up to so many cells filled; cells that nobody observed do not count as rest."""
    found = runs(active)
    out = active.copy()
    seen = np.concatenate(([0], np.cumsum(grid.known[row])))
    for (_, last), (first, _) in pairwise(found):
        rested = seen[first] - seen[last + 1]
        blind = first - last - 1 - rested
        if rested <= cells and blind * grid.cell <= BLIND_SAME_SECONDS:
            out[last + 1 : first] = True
    return out


def _bridged(held: Bools, grid: CellGrid, row: int) -> Bools:
    """Gaps of the record filled where what was held before is held after."""
    mem = grid.mem[row]
    unknown = np.isnan(mem)
    if not unknown.any():
        return held
    found = runs(held)
    out = held.copy()
    for (_, last), (first, _) in pairwise(found):
        if not unknown[last + 1 : first].all():
            continue
        seconds = (first - last - 1) * grid.cell
        same = abs(mem[first] - mem[last]) <= 0.02 * max(mem[first], mem[last], 1.0)
        if seconds <= (BLIND_SAME_SECONDS if same else BLIND_SECONDS):
            out[last + 1 : first] = True
    return out


def _cuts(grid: CellGrid, row: int, first: int, last: int) -> list[int]:
    """Cells of a held span in which another process begins although the memory never looked free."""
    if last - first < 4:
        return []
    mem, low = grid.mem[row, first : last + 1], grid.low_mem[row, first : last + 1]
    fill = np.where(np.isnan(mem), np.nanmedian(mem) if not np.isnan(mem).all() else 0.0, mem)
    least = np.fmin(fill, np.where(np.isnan(low), fill, low))
    before, after = fill[:-1], fill[1:]
    # Where something happens at all: a change by more than the step within one cell, or a dip inside it.
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.abs(after - before) > STEP * np.maximum(before, after)
    dipped = least[1:] < FALL * before
    cuts: list[int] = []
    for at in (np.nonzero(moved | dipped)[0] + 1).tolist():
        # The first and the last cell of a span may be held in part, where cells are means.
        if (cuts and at - cuts[-1] < 3) or at < 2 or at > len(fill) - 3:
            continue
        if _is_cut(grid, row, first, last, first + at, falls=bool(least[at] < FALL * _before(fill, at))):
            cuts.append(at)
    return [first + at for at in cuts]


def _before(fill: Floats, at: int) -> float:
    return float(np.median(fill[max(0, at - 4) : at]))


def _is_cut(grid: CellGrid, row: int, first: int, last: int, at: int, *, falls: bool) -> bool:
    if falls:
        return True
    a, b = slice(max(first, at - _AROUND), at), slice(at + 1, min(last + 1, at + 1 + 2 * _AROUND))
    if a.stop - a.start < 3 or b.stop - b.start < 3:
        return False
    old, new = _middle(grid.mem[row, a]), _middle(grid.mem[row, b])
    if not abs(new - old) > STEP * max(old, new):
        return False
    use = abs(_middle(grid.use[row, b]) - _middle(grid.use[row, a]))
    watts = _middle(grid.power[row, a]), _middle(grid.power[row, b])
    other = use > STEP_USE or abs(watts[1] - watts[0]) > STEP_POWER * max(watts)
    # A process takes its memory once; what grows later is the same one. What loses a part of it is rarely the same.
    loaded_cell = _still(grid.mem[row, a], old)
    return loaded_cell and (other or new < old)


def _still(values: Floats, level: float) -> bool:
    known = values[~np.isnan(values)]
    return len(known) > 0 and bool(np.ptp(known) <= 0.03 * level)


def _middle(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _span(grid: CellGrid, row: int, first: int, last: int, *, free: float, by_memory: bool) -> Span:
    mem = grid.mem[row]
    level = _middle(mem[first : last + 1]) if by_memory else float("nan")
    start, end = grid.ends(first - 1), grid.ends(last)
    open_start, open_end = first <= grid.first[row] + 1, last >= grid.last[row] - 1
    if by_memory and last > first:
        # Where cells are means, the first and last of a span are filled in part.
        if not open_start and mem[first + 1] > free:
            start = grid.ends(first) - grid.cell * float(np.clip((mem[first] - free) / (mem[first + 1] - free), 0, 1))
        if not open_end and mem[last - 1] > free:
            end = grid.ends(last - 1) + grid.cell * float(np.clip((mem[last] - free) / (mem[last - 1] - free), 0, 1))
    if np.isnan(start):
        start = grid.ends(first - 1)
    if np.isnan(end):
        end = grid.ends(last)
    return Span(row, first, last, start, end, open_start, open_end, level)


def _counts(span: Span, active: Bools) -> bool:
    """Whether it is a piece of work: long enough, and either it worked or it held memory for long."""
    if span.end - span.start < SHORTEST_SECONDS:
        return False
    if active[span.first : span.last + 1].any():
        return True
    return span.level >= HELD_BYTES and span.end - span.start >= HELD_SECONDS
