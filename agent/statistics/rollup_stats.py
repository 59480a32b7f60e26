"""One device's samples of a minute or an hour become one row: pure functions over columns in base units.

`<metric>_n` counts the samples that have the value, `_mean` is weighted by the time they speak for, `_p95` is the
nearest rank. A sample belongs to the period that holds its end. An unknown measure is absent from the row. A value that
is on fewer than half the samples (dcgm-exporter's, one in thirty) is the mean since the one before it, so it speaks for
that time.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, sqrt
from operator import mul
from statistics import median
from typing import NamedTuple

from ..metrics import BIN_EDGES, FABRIC_METRICS, GPU_METRICS, HOST_METRICS, THROTTLE_MASK
from ..model import Gpu, Period

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


Values = Sequence[float | None]
Row = dict[str, object]

ACTIVE_SM = 0.05  # an SM share below this is not work: the advisor's idle threshold (docs/metrics.md)
SILENT_LINK = 0.001  # a link below 0.1 % of its line rate carries management traffic at most
# Lags tested for a period, in seconds, and the least samples that may show one.
PERIOD_LAGS: Mapping[Period, tuple[int, int]] = {"minute": (2, 30), "hour": (2, 120)}
PERIOD_SAMPLES: Mapping[Period, int] = {"minute": 50, "hour": 600}


@dataclass(frozen=True, slots=True)
class Samples:
    """One device's samples in order of time. `values` maps a metric to one value a sample (None: missing)."""

    ends: Sequence[float]
    seconds: Sequence[float]
    values: Mapping[str, Values]

    def of(self, name: str) -> Values:
        return self.values.get(name) or [None] * len(self.ends)


class Paced(NamedTuple):
    """One measure at the pace at which it comes: each known value's end, and the seconds that it speaks for."""

    values: Values
    ends: Sequence[float]
    seconds: Sequence[float]
    every_sample: bool


def paced(values: Values, samples: Samples) -> Paced:
    """The measure as it stands where it is on most samples, else its known values with the time between them."""
    value_count = len(values) - values.count(None)
    if value_count < 2 or 2 * value_count >= len(values):
        return Paced(values, samples.ends, samples.seconds, 2 * value_count >= len(values))
    points = [(value, end) for value, end in zip(values, samples.ends, strict=True) if value is not None]
    steps = [after[1] - before[1] for before, after in pairwise(points)]
    usual = median(steps)
    # A page that did not come leaves a hole: the next value does not speak for it.
    seconds = [usual, *(step if 0 < step <= 1.5 * usual else usual for step in steps)]
    return Paced([value for value, _ in points], [end for _, end in points], seconds, False)


def measure_statistics(name: str, values: Values, seconds: Sequence[float], *, amount: bool = False) -> Row:
    """mean, max, p95 and n of one measure. `amount`: a sum over the interval (joules): mean x n is the period's
    total."""
    points = [(value, weight) for value, weight in zip(values, seconds, strict=True) if value is not None]
    if not points:
        return {f"{name}_n": 0}
    numbers, weights = zip(*points, strict=True)
    total = len(numbers) if amount else sum(weights)
    whole = sum(numbers) if amount else sum(map(mul, numbers, weights))
    return {
        f"{name}_mean": whole / total if total > 0 else None,
        f"{name}_max": max(numbers),
        f"{name}_p95": nearest_rank(numbers, 0.95),
        f"{name}_n": len(numbers),
    }


def larger(first: Values, second: Values) -> list[float | None]:
    """The larger of two directions, sample by sample; None where either is missing: silence must be seen on both."""
    return [None if a is None or b is None else max(a, b) for a, b in zip(first, second, strict=True)]


def shares_of_whole(values: Values, whole: float | None) -> list[float | None]:
    """The values as shares of `whole`; all None where it is not known."""
    if not whole:
        return [None] * len(values)
    return [None if value is None else value / whole for value in values]


def below(values: Values, edge: float) -> list[bool | None]:
    """Whether each value lies below the edge; None where it is missing."""
    return [None if value is None else value < edge for value in values]


def roll_gpu(samples: Samples, gpu: Gpu, period: Period, fabric: Values | None = None) -> Row:
    """One GPU's minute or hour. `fabric`: traffic of the node's compute ports at each sample (bytes per second). Where
    sm_active is missing, duty, idle run and dispersion are too: gpu_util is not a proxy. The period is that of
    tensor_active, or of power where that is missing or comes by the page; an hour's is found on its samples."""
    row: Row = {"observed_seconds": sum(samples.seconds)}
    for metric in GPU_METRICS:
        if metric.rolled_up:
            values, _, seconds, _ = paced(samples.of(metric.name), samples)
            row |= measure_statistics(metric.name, values, seconds, amount=metric.name == "energy_joules")

    active = paced(samples.of("sm_active"), samples)
    inactive = below(active.values, ACTIVE_SM)
    idle = share_of_time(inactive, active.seconds)
    row["duty"] = None if idle is None else 1 - idle
    row["idle_run_seconds"] = longest_run_seconds(inactive, active.ends, active.seconds)
    if active.every_sample:
        row["sm_active_cv"] = coefficient_of_variation(second_grid(active.values, active.ends))
    tensor = samples.of("tensor_active")
    if not paced(tensor, samples).every_sample:
        tensor = [None] * len(tensor)  # means over half a minute: no rhythm and no correlation by the second
    rhythm = samples.of("power_watts") if tensor.count(None) == len(tensor) else tensor
    grid, (least, most) = second_grid(rhythm, samples.ends), PERIOD_LAGS[period]
    if len(grid) - grid.count(None) >= PERIOD_SAMPLES[period] and (peak := autocorrelation_peak(grid, least, most)):
        row["period_seconds"], row["period_strength"] = peak
    nvlink = larger(samples.of("nvlink_tx_bytes_per_second"), samples.of("nvlink_rx_bytes_per_second"))
    row["tensor_nvlink_correlation"] = pearson(tensor, nvlink)
    row["tensor_fabric_correlation"] = None if fabric is None else pearson(tensor, fabric)
    reasons = samples.of("throttle_reasons")
    throttled = [None if value is None else bool(int(value) & THROTTLE_MASK) for value in reasons]
    row["throttled_fraction"] = share_of_time(throttled, samples.seconds)
    if period == "hour":
        names = ("gpu_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active")
        ratios = {name: samples.of(name) for name in names}
        ratios["mem_used"] = shares_of_whole(samples.of("mem_used_bytes"), gpu.mem_total_bytes)
        ratios["power"] = shares_of_whole(samples.of("power_watts"), gpu.power_limit_watts)
        ratios["nvlink"] = shares_of_whole(nvlink, gpu.nvlink_bytes_per_second)
        for name, values in ratios.items():
            spaced = paced(values, samples)
            row[f"{name}_bins"] = bin_seconds(spaced.values, spaced.seconds)
    return row


def roll_fabric(samples: Samples, line_rate_bytes_per_second: float | None, period: Period) -> Row:
    """One port's minute or hour. `values` holds, beside the metrics, ``active``: 1 ACTIVE, 0 not, None unknown."""
    seconds = samples.seconds
    row: Row = {"observed_seconds": sum(seconds)}
    traffic = larger(samples.of("tx_bytes_per_second"), samples.of("rx_bytes_per_second"))
    util = shares_of_whole(traffic, line_rate_bytes_per_second)
    row |= measure_statistics("util", util, seconds)
    for metric in FABRIC_METRICS:
        row |= measure_statistics(metric.name, samples.of(metric.name), seconds)
    active = [None if value is None else bool(value) for value in samples.of("active")]
    row["active_fraction"] = share_of_time(active, seconds)
    row["idle_run_seconds"] = longest_run_seconds(below(util, SILENT_LINK), samples.ends, seconds)
    if period == "hour":
        row["util_bins"] = bin_seconds(util, seconds)
    return row


def roll_host(samples: Samples, period: Period) -> Row:
    """One host's minute or hour; mem_total_bytes is the last that was seen."""
    row: Row = {"observed_seconds": sum(samples.seconds)}
    for metric in HOST_METRICS:
        row |= measure_statistics(metric.name, samples.of(metric.name), samples.seconds)
    totals = [value for value in samples.of("mem_total_bytes") if value is not None]
    row["mem_total_bytes"] = totals[-1] if totals else None
    if period == "hour":
        row["cpu_util_bins"] = bin_seconds(samples.of("cpu_util"), samples.seconds)
    return row
