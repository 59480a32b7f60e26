"""How alike two GPUs breathe: the correlation of what remains of use and power when slow changes are taken out.

GPUs of one job wait for one another, so their short pauses, checkpoints and stalls coincide. Replicas of a service share
the hours of the day, which the moving mean takes out, and not the minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .series import Floats, Grid

# Slow changes are those of a quarter of an hour and longer.
SLOW_SECONDS, SLOW_CELLS_LEAST = 900.0, 7
# Residuals beyond so many spreads count as so many: one long pause must not decide alone.
MOST_SPREADS = 8.0
# Below these a residual is the sensor's noise, and says nothing: of use (absolute), of power (of its level).
NOISE_USE, NOISE_POWER = 0.02, 0.03
# Fewer cells in common than this tell nothing; as many as `SURE_CELLS` tell all they can.
LEAST_CELLS, SURE_CELLS = 20, 120


@dataclass(frozen=True, slots=True)
class Alike:
    """`r`: the correlation of two breaths, NaN where nothing is told. `moves`: whether both move beyond noise, so that
    a low `r` means that they breathe apart. `sure`: 0..1, by the cells in common."""

    r: float
    moves: bool
    sure: float


NOTHING = Alike(float("nan"), False, 0.0)


@dataclass(frozen=True)
class Breath:
    """Residuals of use and power, by device and cell."""

    use: Floats
    power: Floats
    level: Floats  # of power, per device
    slow: int

    @staticmethod
    def of(grid: Grid) -> Breath:
        slow = max(SLOW_CELLS_LEAST, round(SLOW_SECONDS / grid.cell) | 1)
        with np.errstate(invalid="ignore"):
            level = np.array([_mean(row) for row in grid.power])
        return Breath(grid.use - _moving(grid.use, slow), grid.power - _moving(grid.power, slow), level, slow)

    @cached_property
    def edge(self) -> int:
        """Cells beside a start or an end that the moving mean blurs."""
        return self.slow // 2 + 1

    def alike(self, first: list[int], second: list[int], begin: int, stop: int) -> Alike:
        """Of two groups of devices, over the cells [begin, stop)."""
        best = NOTHING
        for values, floor in ((self.use, NOISE_USE), (self.power, NOISE_POWER)):
            a, b = _group(values, first, begin, stop), _group(values, second, begin, stop)
            if values is self.power:
                a, b = a / _level(self.level, first), b / _level(self.level, second)
            found = _correlated(a, b, floor)
            if np.isnan(found.r):
                continue
            if np.isnan(best.r) or (found.moves, found.r) > (best.moves, best.r):
                best = found
        return best


def _level(level: Floats, rows: list[int]) -> float:
    known = level[rows]
    known = known[known > 0]
    return float(known.mean()) if len(known) else float("nan")


def _group(values: Floats, rows: list[int], begin: int, stop: int) -> Floats:
    part = values[rows, begin:stop]
    if len(rows) == 1:
        return part[0]
    number = (~np.isnan(part)).sum(axis=0)
    return np.divide(np.nansum(part, axis=0), number, out=np.full(part.shape[1], np.nan), where=number > 0)


def _correlated(a: Floats, b: Floats, floor: float) -> Alike:
    known = ~(np.isnan(a) | np.isnan(b))
    count = int(known.sum())
    if count < LEAST_CELLS:
        return NOTHING
    a, b = a[known], b[known]
    moves = bool(a.std() > floor and b.std() > floor)
    a, b = _bounded(a, floor), _bounded(b, floor)
    spread = a.std() * b.std()
    if not spread > 0:
        return Alike(0.0, False, 0.0)
    r = float(((a - a.mean()) * (b - b.mean())).mean() / spread)
    return Alike(r, moves, min(1.0, count / SURE_CELLS))


def _bounded(values: Floats, floor: float) -> Floats:
    middle = np.median(values)
    spread = 1.4826 * float(np.median(np.abs(values - middle))) + 0.5 * floor
    return np.clip((values - middle) / spread, -MOST_SPREADS, MOST_SPREADS)


def _moving(values: Floats, width: int) -> Floats:
    """The mean of the `width` cells around each, of those that are known."""
    half = width // 2
    known = ~np.isnan(values)
    pad = ((0, 0), (half + 1, half))
    total = np.cumsum(np.pad(np.where(known, values, 0.0), pad), axis=1)
    number = np.cumsum(np.pad(known.astype(float), pad), axis=1)
    total, number = total[:, width:] - total[:, :-width], number[:, width:] - number[:, :-width]
    return np.divide(total, number, out=np.full(values.shape, np.nan), where=number > 0)


def _mean(row: Floats) -> float:
    known = row[~np.isnan(row)]
    return float(known.mean()) if len(known) else float("nan")
