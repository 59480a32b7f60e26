"""One device's samples of a minute or an hour become one row: pure functions over columns in base units.

`<metric>_n` counts the samples that have the value, `_mean` is weighted by their intervals, `_p95` is the nearest
rank. A sample belongs to the period that holds its end. A measure that cannot be told is absent from the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..model import FABRIC_METRICS, GPU_METRICS, HOST_METRICS, THROTTLE_MASK
from .codec import Period
from .dynamics import (
    autocorrelation_peak,
    bin_seconds,
    coefficient_of_variation,
    longest_run_seconds,
    pearson,
    percentile,
    second_grid,
    share_of_time,
    weighted_mean,
)

Values = Sequence[float | None]
Row = dict[str, object]

ACTIVE_SM = 0.05  # an SM share below this is not work: the advisor's idle threshold (docs/metrics.md)
SILENT_LINK = 0.001  # a link below 0.1 % of its line rate carries management traffic at most
# Lags looked at for a period, in seconds, and the least samples that may tell one.
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


def statistics(name: str, values: Values, seconds: Sequence[float], *, amount: bool = False) -> Row:
    """mean, max, p95 and n of one measure. `amount`: a sum over the interval (joules), whose mean is plain, so that
    mean x n is the period's total."""
    if None in values:
        pairs = [(value, weight) for value, weight in zip(values, seconds, strict=True) if value is not None]
        known = [pair[0] for pair in pairs]
        weights = [pair[1] for pair in pairs]
    else:
        known, weights = [value for value in values if value is not None], list(seconds)
    if not known:
        return {f"{name}_n": 0}
    mean = sum(known) / len(known) if amount else weighted_mean(known, weights)
    return {
        f"{name}_mean": mean,
        f"{name}_max": max(known),
        f"{name}_p95": percentile(known, 0.95),
        f"{name}_n": len(known),
    }


def larger(first: Values, second: Values) -> list[float | None]:
    """The larger of two directions, sample by sample; None where either is missing: silence must be seen on both."""
    return [None if a is None or b is None else max(a, b) for a, b in zip(first, second, strict=True)]


def over(values: Values, whole: float | None) -> list[float | None]:
    """The values as shares of `whole`; all None where it is not known."""
    if not whole:
        return [None] * len(values)
    return [None if value is None else value / whole for value in values]


def below(values: Values, edge: float) -> list[bool | None]:
    """Whether each value lies below the edge; None where it is missing."""
    return [None if value is None else value < edge for value in values]


def roll_gpu(samples: Samples, limits: GpuLimits, period: Period, fabric: Values | None = None) -> Row:
    """One GPU's minute or hour. `fabric`: traffic of the node's compute ports at each sample (bytes per second).

    Where sm_active is missing, duty, idle run and dispersion are too: gpu_util is not a proxy. The period is that of
    tensor_active, or of power where tensor_active is missing; an hour's is found on the hour's own samples, at lags up
    to 120 s (some 0.4 million products a GPU and hour).
    """
    ends, seconds = samples.ends, samples.seconds
    row: Row = {"observed_seconds": sum(seconds)}
    for metric in GPU_METRICS:
        if metric.rolled_up:
            row |= statistics(metric.name, samples.of(metric.name), seconds, amount=metric.name == "energy_joules")

    active = samples.of("sm_active")
    inactive = below(active, ACTIVE_SM)
    idle = share_of_time(inactive, seconds)
    row["duty"] = None if idle is None else 1 - idle
    row["idle_run_seconds"] = longest_run_seconds(inactive, ends, seconds)
    row["sm_active_cv"] = coefficient_of_variation(second_grid(active, ends))

    tensor = samples.of("tensor_active")
    rhythm = tensor if row["tensor_active_n"] else samples.of("power_watts")
    row |= _period(second_grid(rhythm, ends), period)
    nvlink = larger(samples.of("nvlink_tx_bytes_per_second"), samples.of("nvlink_rx_bytes_per_second"))
    row["tensor_nvlink_correlation"] = pearson(tensor, nvlink)
    row["tensor_fabric_correlation"] = None if fabric is None else pearson(tensor, fabric)
    row["throttled_fraction"] = share_of_time(
        [None if value is None else bool(int(value) & THROTTLE_MASK) for value in samples.of("throttle_reasons")],
        seconds,
    )
    if period == "hour":
        ratios = {
            name: samples.of(name) for name in ("gpu_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active")
        }
        ratios["mem_used"] = over(samples.of("mem_used_bytes"), limits.mem_total_bytes)
        ratios["power"] = over(samples.of("power_watts"), limits.power_limit_watts)
        ratios["nvlink"] = over(nvlink, limits.nvlink_bytes_per_second)
        row |= {f"{name}_bins": bin_seconds(values, seconds) for name, values in ratios.items()}
    return row


def roll_fabric(samples: Samples, line_rate_bytes_per_second: float | None, period: Period) -> Row:
    """One port's minute or hour. `values` holds, beside the metrics, ``active``: 1 ACTIVE, 0 not, None unknown."""
    seconds = samples.seconds
    row: Row = {"observed_seconds": sum(seconds)}
    traffic = larger(samples.of("tx_bytes_per_second"), samples.of("rx_bytes_per_second"))
    util = over(traffic, line_rate_bytes_per_second)
    row |= statistics("util", util, seconds)
    for metric in FABRIC_METRICS:
        row |= statistics(metric.name, samples.of(metric.name), seconds)
    row["active_fraction"] = share_of_time(
        [None if value is None else bool(value) for value in samples.of("active")], seconds
    )
    row["idle_run_seconds"] = longest_run_seconds(below(util, SILENT_LINK), samples.ends, seconds)
    if period == "hour":
        row["util_bins"] = bin_seconds(util, seconds)
    return row


def roll_host(samples: Samples, period: Period) -> Row:
    """One host's minute or hour; mem_total_bytes is the last that was seen."""
    row: Row = {"observed_seconds": sum(samples.seconds)}
    for metric in HOST_METRICS:
        row |= statistics(metric.name, samples.of(metric.name), samples.seconds)
    totals = [value for value in samples.of("mem_total_bytes") if value is not None]
    row["mem_total_bytes"] = totals[-1] if totals else None
    if period == "hour":
        row["cpu_util_bins"] = bin_seconds(samples.of("cpu_util"), samples.seconds)
    return row


def _period(grid: Sequence[float | None], period: Period) -> Row:
    least, most = PERIOD_LAGS[period]
    if sum(value is not None for value in grid) < PERIOD_SAMPLES[period]:
        return {}
    peak = autocorrelation_peak(grid, least, most)
    return {} if peak is None else {"period_seconds": peak[0], "period_strength": peak[1]}
