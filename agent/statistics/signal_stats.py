"""What only fast data can show, as small pure functions: runs, dispersion, periods, correlations, bins.

Plain Python, because the agent carries no numpy. An unknown value is None, never 0. The simulator has a
vectorised twin of these, which is tested against them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil, floor, sqrt
from operator import mul
from statistics import median

from ..metrics import BIN_EDGES

# A local maximum of the autocorrelation counts as a period only where it stands at least this high, and this far
# above the lowest point before it (in units of the correlation); the latter distinguishes a period from a slow trend.
PEAK_HEIGHT = 0.3
PEAK_PROMINENCE = 0.15
# ... and this many times above the noise of a correlation of n points, 1 / sqrt(n): at the longest lags, where half of
# the points overlap, that is three times the noise.
PEAK_SIGMAS = 4.25
# Of several peaks the first counts that is nearly as high as the highest: later ones are its multiples.
PEAK_SHARE = 0.8
# Below this many pairs a correlation is an accident.
MIN_PAIRS = 20
# A spread below this share of the largest value is rounding, not a signal.
FLAT = 1e-9


def bin_seconds(ratios: Iterable[float | None], seconds: Iterable[float]) -> list[float] | None:
    """Seconds in each bin of `BIN_EDGES` (above 1 in the last, below 0 in the first); None where no ratio is known."""
    bins = [0.0] * len(BIN_EDGES)
    points = [(ratio, weight) for ratio, weight in zip(ratios, seconds, strict=True) if ratio is not None]
    for ratio, weight in points:
        bins[max(0, bisect_right(BIN_EDGES, ratio) - 1)] += weight
    return bins if points else None


def nearest_rank(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile: the smallest value that at least `share` (0..1) of the values do not exceed."""
    if not values:
        return None
    # The small term keeps 0.95 x 20 = 19.000000000000004 from being ranked 20.
    rank = max(1, ceil(share * len(values) - 1e-9))
    return sorted(values)[rank - 1]


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float | None:
    """The mean over time; None where there is no value or no time."""
    total = sum(weights)
    return sum(map(mul, values, weights)) / total if total > 0 else None


def share_of_time(flags: Iterable[bool | None], seconds: Iterable[float]) -> float | None:
    """Share (0..1) of the known time in which the flag holds; None where nothing is known."""
    points = [(flag, weight) for flag, weight in zip(flags, seconds, strict=True) if flag is not None]
    whole = sum(weight for _, weight in points)
    return sum(weight for flag, weight in points if flag) / whole if whole > 0 else None


def longest_run_seconds(flags: Iterable[bool | None], ends: Iterable[float], seconds: Iterable[float]) -> float | None:
    """The longest unbroken time in which the flag holds; None where nothing is known. `ends` are the intervals' ends.
    An unknown flag breaks a run, and so does a hole of more than half an interval: what was not seen is not counted."""
    longest = run = 0.0
    is_known = False
    previous_end: float | None = None
    for flag, end, weight in zip(flags, ends, seconds, strict=True):
        is_known = is_known or flag is not None
        if previous_end is not None and end - weight - previous_end > 0.5 * weight:
            run = 0.0
        previous_end = end
        run = run + weight if flag else 0.0
        longest = max(longest, run)
    return longest if is_known else None


def second_grid(values: Sequence[float | None], ends: Sequence[float]) -> list[float | None]:
    """The values on a grid of 1 s from the first sample on, so that a loop's jitter moves none over a second's border:
    means where several fall together, None where none does. Empty where the samples are coarser than 1 s (median
    distance above 1.5 s).
    """
    if len(ends) < 2 or median(b - a for a, b in pairwise(ends)) > 1.5:
        return []
    first = ends[0]
    size = floor(ends[-1] - first + 0.5) + 1
    sums, counts = [0.0] * size, [0] * size
    for value, end in zip(values, ends, strict=True):
        if value is not None:
            slot = floor(end - first + 0.5)
            sums[slot] += value
            counts[slot] += 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def coefficient_of_variation(values: Iterable[float | None]) -> float | None:
    """Standard deviation (of the population) over the mean; None below 2 values or for a mean of 0."""
    present = [value for value in values if value is not None]
    if len(present) < 2 or (mean := sum(present) / len(present)) <= 0:
        return None
    return sqrt(sum((value - mean) ** 2 for value in present) / len(present)) / mean


def autocorrelation(values: Sequence[float | None], max_lag: int) -> list[float] | None:
    """Autocorrelation at lags 0..max_lag, each normalised by its overlap; None for a constant series. Missing values
    are filled with the mean: they say nothing, for or against a period."""
    present = [value for value in values if value is not None]
    if len(present) < 2 or max_lag >= len(values):
        return None
    mean = sum(present) / len(present)
    centred = [0.0 if value is None else value - mean for value in values]
    power = sum(map(mul, centred, centred)) / len(centred)
    largest = max(abs(value) for value in present)
    if power <= (FLAT * largest) ** 2 or power == 0.0:
        return None
    size = len(centred)
    return [
        min(1.0, max(-1.0, sum(map(mul, centred, centred[lag:])) / (size - lag) / power)) for lag in range(max_lag + 1)
    ]


def autocorrelation_peak(values: Sequence[float | None], min_lag: int, max_lag: int) -> tuple[float, float] | None:
    """The period of an evenly spaced series: (lag in samples, height 0..1), or None where it has none. It is a local
    maximum at a lag of min_lag..max_lag above the noise and a dip before it (`PEAK_HEIGHT`, `PEAK_SIGMAS`,
    `PEAK_PROMINENCE`); of several the first that is nearly the highest. Lag and height are refined by a parabola."""
    curve = autocorrelation(values, max_lag + 1)
    if curve is None:
        return None
    floor_height = max(PEAK_HEIGHT, PEAK_SIGMAS / sqrt(len(values)))
    lowest = min(curve[1:min_lag], default=1.0)
    peaks: list[int] = []
    for lag in range(min_lag, max_lag + 1):
        height = curve[lag]
        is_peak = curve[lag - 1] <= height > curve[lag + 1]
        if is_peak and height >= floor_height and height - lowest >= PEAK_PROMINENCE:
            peaks.append(lag)
        lowest = min(lowest, height)
    if not peaks:
        return None
    highest = max(curve[lag] for lag in peaks)
    lag = next(lag for lag in peaks if curve[lag] >= PEAK_SHARE * highest)
    left, middle, right = curve[lag - 1 : lag + 2]
    bend = left - 2 * middle + right
    shift = 0.5 * (left - right) / bend if bend < 0 else 0.0
    return lag + shift, min(1.0, middle - 0.25 * (left - right) * shift)


def pearson(first: Sequence[float | None], second: Sequence[float | None]) -> float | None:
    """Correlation (-1..1) over the pairs where both are known; None below `MIN_PAIRS` or where either is constant."""
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if len(pairs) < MIN_PAIRS:
        return None
    xs, ys = zip(*pairs, strict=True)
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    dx = [x - mean_x for x in xs]
    dy = [y - mean_y for y in ys]
    spread_x = sqrt(sum(map(mul, dx, dx)) / len(dx))
    spread_y = sqrt(sum(map(mul, dy, dy)) / len(dy))
    if spread_x <= FLAT * max(map(abs, xs)) or spread_y <= FLAT * max(map(abs, ys)):
        return None
    value = sum(map(mul, dx, dy)) / len(dx) / (spread_x * spread_y)
    return min(1.0, max(-1.0, value))
