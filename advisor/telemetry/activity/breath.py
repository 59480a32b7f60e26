"""How alike two GPUs breathe: the correlation of what remains of use and power when slow changes are taken out.

GPUs of one job wait for one another, so their short pauses, checkpoints and stalls coincide. Replicas of a service
share the hours of the day, which the moving mean takes out, and not the minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .series import Bools, CellGrid, Floats

# Slow changes are those over more than so many cells: a quarter of an hour of minutes, 2.5 minutes of tens of seconds.
SLOW_CELLS = 15
# Residuals beyond so many spreads count as so many: one long pause must not decide alone.
MOST_SPREADS = 8.0
# Below these a residual is the sensor's noise, and says nothing: of use (absolute), of power (of its level). Means of
# many samples tremble less than single readings.
NOISE_USE, NOISE_POWER = 0.02, 0.03
NOISE_OF_MEANS = 0.3
# Fewer cells in common than this tell nothing; as many as `SURE_CELLS` tell all they can.
LEAST_CELLS, SURE_CELLS = 20, 120


@dataclass(frozen=True, slots=True)
class Alike:
    """`r`: the correlation of two breaths, NaN where nothing is told. `moves`: whether both move beyond noise, so that
    a low `r` means that they breathe apart. `sure`: 0..1, by the cells in common, of which there are `cells`."""

    r: float
    moves: bool
    sure: float
    cells: int = 0


# Within one piece of work, where no moving mean reaches beyond its edges, fewer cells tell.
LEAST_WITHIN, SURE_WITHIN = 6, 15

NOTHING = Alike(float("nan"), False, 0.0)


@dataclass(frozen=True)
class Breath:
    """Residuals of use and power, by device and cell."""

    use: Floats
    power: Floats
    level: Floats  # of power, per device
    means: Bools
    slow: int = SLOW_CELLS

    @staticmethod
    def of(grid: CellGrid) -> Breath:
        with np.errstate(invalid="ignore"):
            level = np.array([_mean(row) for row in grid.power])
        return Breath(
            grid.use - _moving(grid.use, SLOW_CELLS), grid.power - _moving(grid.power, SLOW_CELLS), level, grid.means
        )

    @cached_property
    def edge(self) -> int:
        """Cells beside a start or an end that the moving mean blurs."""
        return self.slow // 2 + 1

    def _signals(self, rows: list[int]) -> tuple[tuple[Floats, float], tuple[Floats, float]]:
        share = NOISE_OF_MEANS if self.means[rows].all() else 1.0
        return (self.use, NOISE_USE * share), (self.power, NOISE_POWER * share)

    def alike(self, first: list[int], second: list[int], begin: int, stop: int) -> Alike:
        """Of two groups of devices, over the cells [begin, stop)."""
        best = NOTHING
        for values, floor in self._signals([*first, *second]):
            if stop - begin < LEAST_CELLS:
                return NOTHING
            a, b = _group(values, first, begin, stop), _group(values, second, begin, stop)
            if values is self.power:
                a, b = a / _level(self.level, first), b / _level(self.level, second)
            found = _correlated(a, b, floor)
            if np.isnan(found.r):
                continue
            if np.isnan(best.r) or (found.moves, found.r) > (best.moves, best.r):
                best = found
        return best

    def within(self, grid: CellGrid, first: int, second: int, begin: int, stop: int) -> Alike:
        """Of two devices over the cells [begin, stop) of what may be one piece of work, of which nothing beyond them is
        known: what remains of them there when their own slow changes are taken out."""
        if stop - begin < LEAST_WITHIN:
            return NOTHING
        share = NOISE_OF_MEANS if self.means[[first, second]].all() else 1.0
        best = NOTHING
        for values, floor in ((grid.use, NOISE_USE), (grid.power, NOISE_POWER)):
            part = values[[first, second], begin:stop]
            known = ~np.isnan(part).any(axis=0)
            count = int(known.sum())
            if count < LEAST_WITHIN:
                continue
            rest = part - _moving(part, self.slow)
            if values is grid.power:
                rest /= np.maximum(part[:, known].mean(axis=1, keepdims=True), 1.0)
            a, b = rest[:, known]
            r, moves = _r(a, b, floor * share)
            if not np.isnan(r) and (np.isnan(best.r) or (moves, r) > (best.moves, best.r)):
                best = Alike(r, moves, min(1.0, (count - 3) / (SURE_WITHIN - 3)), count)
        return best

    def all_alike(self, groups: list[list[int]], begin: int, stop: int, reach: int) -> tuple[Floats, Bools, float]:
        """Of every pair of many groups, over the cells [begin, stop): `r`, `moves` and `sure` of `Alike`, as matrices.
        Clocks and scrapes of nodes differ: the best of `reach` cells to either side counts."""
        count = len(groups)
        r, moves = np.full((count, count), np.nan), np.zeros((count, count), dtype=np.bool_)
        if stop - begin < LEAST_CELLS:
            return r, moves, 0.0
        for values, floor in self._signals([row for one in groups for row in one]):
            rows = np.array([_group(values, one, begin, stop) for one in groups])
            if values is self.power:
                rows /= np.array([_level(self.level, one) for one in groups])[:, None]
            own, own_moves = _pairs(rows, floor, reach)
            better = np.isnan(r) | (own_moves & ~moves) | ((own_moves == moves) & (own > r))
            better &= ~np.isnan(own)
            r, moves = np.where(better, own, r), np.where(better, own_moves, moves)
        return r, moves, min(1.0, (stop - begin) / SURE_CELLS)


def _pairs(rows: Floats, floor: float, reach: int) -> tuple[Floats, Bools]:
    """The correlation of every pair of rows, and whether both of a pair move."""
    known = ~np.isnan(rows)
    enough = known.sum(axis=1) >= LEAST_CELLS
    moving = np.array([bool(ok and row[k].std() > floor) for ok, row, k in zip(enough, rows, known, strict=True)])
    flat = np.zeros(rows.shape)
    for n in np.nonzero(enough)[0]:
        flat[n, known[n]] = _bounded(rows[n, known[n]], floor)
        flat[n, known[n]] -= flat[n, known[n]].mean()
    best = np.full((len(rows), len(rows)), np.nan)
    for lag in range(-reach, reach + 1):
        a, b = slice(max(0, -lag), rows.shape[1] - max(0, lag)), slice(max(0, lag), rows.shape[1] - max(0, -lag))
        x, y = flat[:, a], flat[:, b]
        kx, ky = known[:, a].astype(float), known[:, b].astype(float)
        spread = np.sqrt(((x * x) @ ky.T) * (kx @ (y * y).T))
        r = np.divide(x @ y.T, spread, out=np.zeros(spread.shape), where=spread > 0)
        best = np.fmax(best, np.where(kx @ ky.T >= LEAST_CELLS, r, np.nan))
    best[~enough] = np.nan
    best[:, ~enough] = np.nan
    return best, np.logical_and.outer(moving, moving)


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
    r, moves = _r(a, b, floor)
    return Alike(0.0, False, 0.0) if np.isnan(r) else Alike(r, moves, min(1.0, count / SURE_CELLS), count)


def _r(a: Floats, b: Floats, floor: float) -> tuple[float, bool]:
    """The correlation of two residuals, NaN where one does not vary, and whether both move beyond the noise."""
    moves = bool(a.std() > floor and b.std() > floor)
    a, b = _bounded(a, floor), _bounded(b, floor)
    spread = a.std() * b.std()
    return (float(((a - a.mean()) * (b - b.mean())).mean() / spread) if spread > 0 else float("nan")), moves


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
