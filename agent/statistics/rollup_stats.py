"""One device's samples of a minute or an hour become one row: pure functions over columns in base units.

`<metric>_n` counts the samples that have the value, `_mean` is weighted by the time they speak for, `_p95` is the
nearest rank. A sample belongs to the period that holds its end. An unknown measure is absent from the row. A value that
is on fewer than half the samples (dcgm-exporter's, one in thirty) is the mean since the one before it, so it speaks for
that time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from ..metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS, THROTTLE_MASK
from ..model import Period
from .signal_stats import (
    autocorrelation_peak,
    bin_seconds,
    coefficient_of_variation,
    longest_run_seconds,
    nearest_rank,
    pearson,
    second_grid,
    share_of_time,
    weighted_mean,
)

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


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """What a GPU's ratios are measured against; None: not known, and then neither is the ratio."""

    mem_total_bytes: float | None = None
    power_limit_watts: float | None = None
    nvlink_bytes_per_second: float | None = None


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
    return {
        f"{name}_mean": sum(numbers) / len(numbers) if amount else weighted_mean(numbers, weights),
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


def roll_gpu(samples: Samples, limits: GpuLimits, period: Period, fabric: Values | None = None) -> Row:
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
        ratios["mem_used"] = shares_of_whole(samples.of("mem_used_bytes"), limits.mem_total_bytes)
        ratios["power"] = shares_of_whole(samples.of("power_watts"), limits.power_limit_watts)
        ratios["nvlink"] = shares_of_whole(nvlink, limits.nvlink_bytes_per_second)
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
