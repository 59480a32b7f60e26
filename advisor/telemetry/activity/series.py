"""What the detector takes and gives, and the grid of cells on which it works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# Samples closer than this are averaged: jobs start and stop within minutes, and a breath is seen in tens of seconds.
SHORTEST_CELL_SECONDS = 10.0
# So many cells a device at most; a longer record of fast samples is averaged more.
MAX_CELLS = 25_000
# Cells without a sample that are filled from the one before: scrapes that came late, or not at all.
FILLED_CELLS = 2


@dataclass(frozen=True, slots=True)
class DeviceSeries:
    """One GPU or MIG instance over time. `ts`: ends of intervals, Unix seconds, rising; `step_seconds`: how far apart.

    `gpu_util`: share of the time in which it worked, 0..1; `mem_used_bytes`; `power_watts`: each as long as `ts`, NaN
    where missing, None where never measured. `fabric_bytes_per_second`: what the node's compute fabric carried, the
    larger direction (None: not known, which is not silence). `means`: whether values are means over their interval;
    else they are readings at its end, of which those of two nodes meet different moments of a step.
    """

    node: str
    gpu_uuid: str
    ts: Floats
    step_seconds: float
    gpu_util: Floats | None = None
    mem_used_bytes: Floats | None = None
    power_watts: Floats | None = None
    fabric_bytes_per_second: Floats | None = None
    means: bool = False


@dataclass(frozen=True, slots=True)
class Gang:
    """GPUs that did one piece of work together. `start`, `end`: Unix seconds.

    `open_start`: it was there when the data begin, so `start` is not when it started; `open_end` likewise.
    """

    gpus: tuple[tuple[str, str], ...]
    start: float
    end: float
    open_start: bool = False
    open_end: bool = False


@dataclass(frozen=True)
class CellGrid:
    """All series on one grid: matrices of device by cell, NaN where missing. Cell `k` ends at `start + (k+1) * cell`.

    `low_mem`: the least memory within a cell. `known`: whether a device was observed in a cell, by any metric; `first`,
    `last`: the first and last such cell. `means`: whether its values are means over a cell, or one reading in it.
    `samples`: per device the times and memory of its samples, where these are much finer than a cell.
    """

    start: float
    cell: float
    use: Floats
    mem: Floats
    low_mem: Floats
    power: Floats
    fabric: Floats
    known: Bools
    first: npt.NDArray[np.intp]
    last: npt.NDArray[np.intp]
    means: Bools
    samples: Sequence[tuple[Floats, Floats] | None]

    @property
    def count(self) -> int:
        return self.use.shape[1]

    def ends(self, cell: int | float) -> float:
        """When a cell ends, Unix seconds."""
        return self.start + (cell + 1) * self.cell


def grid_of(series: Sequence[DeviceSeries]) -> CellGrid | None:
    """The series on their common grid; None where none has a sample."""
    filled = [one for one in series if len(one.ts)]
    if not filled:
        return None
    first = min(float(one.ts[0]) for one in filled)
    last = max(float(one.ts[-1]) for one in filled)
    cell = max(SHORTEST_CELL_SECONDS, *(one.step_seconds for one in filled))
    while (last - first) / cell > MAX_CELLS:
        cell *= 2
    start = first - cell / 2 - cell * _phase(filled, first - cell / 2, cell)
    count = int(np.ceil((last - start) / cell - 1e-9))
    shape = (len(series), max(count, 1))
    use, mem, low, power, fabric = (np.full(shape, np.nan) for _ in range(5))
    for row, one in enumerate(series):
        at = np.clip(np.ceil((one.ts - start) / cell - 1e-6).astype(np.intp) - 1, 0, shape[1] - 1)
        reach = max(FILLED_CELLS, round(FILLED_CELLS * one.step_seconds / cell))
        for target, values, least, most in (
            (use, one.gpu_util, 0.0, 1.5),
            (mem, one.mem_used_bytes, 0.0, 1e15),
            (power, one.power_watts, 0.0, 1e5),
            (fabric, one.fabric_bytes_per_second, 0.0, 1e15),
        ):
            if values is not None:
                target[row] = _filled(_means(values, at, shape[1], least, most), reach)
        low[row] = (
            mem[row]
            if one.step_seconds >= cell or one.mem_used_bytes is None
            else _filled(_least(one.mem_used_bytes, at, shape[1]), reach)
        )
    known = ~(np.isnan(use) & np.isnan(mem) & np.isnan(power))
    begin = np.where(known.any(axis=1), known.argmax(axis=1), shape[1])
    stop = np.where(known.any(axis=1), shape[1] - 1 - known[:, ::-1].argmax(axis=1), -1)
    means = np.array([one.means or one.step_seconds <= cell / 3 for one in series], dtype=np.bool_)
    samples = [
        (one.ts, one.mem_used_bytes) if one.step_seconds <= cell / 3 and one.mem_used_bytes is not None else None
        for one in series
    ]
    # Cells are laid around the samples; what a row tells ended with its sample.
    return CellGrid(float(start - cell / 2), cell, use, mem, low, power, fabric, known, begin, stop, means, samples)


def _phase(series: Sequence[DeviceSeries], start: float, cell: float) -> float:
    """By how much of a cell the grid has to begin earlier so that most samples lie in the middle of theirs: clocks that
    differ by seconds must not move a node's samples to the next cell."""
    turns = np.concatenate([one.ts[:: max(1, len(one.ts) // 50)] for one in series if one.step_seconds >= cell] or [[]])
    if not len(turns):
        return 0.0
    mean = np.exp(2j * np.pi * (turns - start) / cell).mean()
    return float((0.5 - np.angle(mean) / (2 * np.pi)) % 1.0) if abs(mean) > 0.3 else 0.0


def _means(values: Floats, at: npt.NDArray[np.intp], count: int, least: float, most: float) -> Floats:
    with np.errstate(invalid="ignore"):
        good = (values >= least) & (values <= most)
    total = np.bincount(at[good], values[good], count)
    number = np.bincount(at[good], minlength=count)
    return np.divide(total, number, out=np.full(count, np.nan), where=number > 0)


def _least(values: Floats, at: npt.NDArray[np.intp], count: int) -> Floats:
    out = np.full(count, np.inf)
    good = values >= 0
    np.minimum.at(out, at[good], values[good])
    return np.where(np.isinf(out), np.nan, out)


def _filled(values: Floats, reach: int) -> Floats:
    """Short gaps filled from the cell before."""
    missing = np.isnan(values)
    if not missing.any() or missing.all():
        return values
    place = np.where(missing, -1, np.arange(len(values)))
    source = np.maximum.accumulate(place)
    near = missing & (source >= 0) & (np.arange(len(values)) - source <= reach)
    # What follows the last sample of all is no gap.
    near &= np.arange(len(values)) <= place.max()
    out = values.copy()
    out[near] = values[source[near]]
    return out
