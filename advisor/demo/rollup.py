"""The store's rollup statistics over many minutes or hours at once: numpy twins of `agent/statistics`. Functions take
rows of samples, (r, s): r periods of s contiguous seconds; NaN is missing. `observed` is the time a row stands for, to
which counts and bins are scaled; a run that fills the row lasts it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...agent.metrics import BIN_EDGES, FABRIC_METRICS, GPU_METRICS, HOST_METRICS, THROTTLE_MASK
from ...agent.model import Period
from ...agent.statistics.rollup_stats import (
    ACTIVE_SM,
    FLAT,
    MIN_PAIRS,
    PEAK_HEIGHT,
    PEAK_PROMINENCE,
    PEAK_SHARE,
    PEAK_SIGMAS,
    PERIOD_LAGS,
    PERIOD_SAMPLES,
    SILENT_LINK,
)

Rows = npt.NDArray[np.floating]
Columns = dict[str, npt.NDArray[Any]]  # bins are objects where some rows have none
BINNED = frozenset({"gpu_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active"})


def statistics(name: str, values: Rows | None, observed: Rows) -> Columns:
    """mean, max, p95 (nearest rank) and n of one measure; None: missing throughout."""
    if values is None:
        return {f"{name}_n": np.zeros(len(observed))}
    size = values.shape[1]
    count = size - np.isnan(values).sum(axis=1)
    rank = np.ceil(0.95 * count - 1e-9).astype(np.int64).clip(1) - 1
    if count.min() == size:
        total, ranked = values.sum(axis=1, dtype=np.float64), np.partition(values, rank[0], axis=1)[:, rank[0]]
    else:
        total = np.nansum(values, axis=1, dtype=np.float64)
        ranked = np.sort(values, axis=1)[np.arange(len(values)), rank]  # NaN sorts last
    return {
        f"{name}_mean": np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0),
        f"{name}_max": np.fmax.reduce(values, axis=1).astype(np.float64),
        f"{name}_p95": ranked.astype(np.float64),
        f"{name}_n": np.round(observed * count / size),
    }


def bins(ratios: Rows, observed: Rows) -> npt.NDArray[Any]:
    """Seconds in each bin of BIN_EDGES, (r, bins), and None for rows in which nothing is known; seconds whose ratio is
    NaN are in none."""
    ratios = ratios.astype(np.float64, copy=False)
    reach = [(ratios >= edge).sum(axis=1) for edge in (-np.inf, *BIN_EDGES[1:], np.inf)]
    reach[-1][:] = 0  # nothing lies beyond the last bin
    counts = -np.diff(reach, axis=0).T * (observed / ratios.shape[1])[:, None]
    if counts.any(axis=1).all():
        return counts
    return np.fromiter((row if any(row) else None for row in counts.tolist()), dtype=object, count=len(counts))


def longest_run(flags: npt.NDArray[np.bool_], observed: Rows) -> Rows:
    """The longest unbroken run of seconds in which the flag holds; a run that fills the row lasts `observed`."""
    position = np.arange(1, flags.shape[1] + 1)
    longest = (position - np.maximum.accumulate(np.where(flags, 0, position), axis=1)).max(axis=1)
    return np.where(longest == flags.shape[1], observed, longest)


def pearson(first: Rows, second: Rows) -> Rows:
    """Correlation of two measures row by row; NaN below MIN_PAIRS, where one is constant and where one is missing."""
    nothing = np.full(len(first), np.nan)
    if first.shape[1] < MIN_PAIRS:
        return nothing
    first, second = first.astype(np.float64), second.astype(np.float64)
    dx, dy = first - first.mean(axis=1, keepdims=True), second - second.mean(axis=1, keepdims=True)
    spread_x, spread_y = np.sqrt((dx * dx).mean(axis=1)), np.sqrt((dy * dy).mean(axis=1))
    valid = (spread_x > FLAT * np.abs(first).max(axis=1)) & (spread_y > FLAT * np.abs(second).max(axis=1))
    return np.clip(np.divide((dx * dy).mean(axis=1), spread_x * spread_y, out=nothing, where=valid), -1, 1)


def autocorrelation_peak(values: Rows, least: int, most: int) -> tuple[Rows, Rows]:
    """Period (in samples) and height of the autocorrelation's peak at lags least (2 or more) to most, else NaN."""
    rows, size = values.shape
    nothing = np.full(rows, np.nan)
    if size < 2 or most + 1 >= size:
        return nothing, nothing
    values = values.astype(np.float64)
    centred = values - values.mean(axis=1, keepdims=True)
    power = (centred * centred).mean(axis=1)
    valid = (power > (FLAT * np.abs(values).max(axis=1)) ** 2) & (power > 0)
    width = 1 << int(np.ceil(np.log2(size + most + 2)))
    spectrum = np.fft.rfft(centred, width, axis=1)
    products = np.fft.irfft(np.abs(spectrum) ** 2, width, axis=1)[:, : most + 2]
    safe = np.where(valid, power, 1.0)[:, None]
    curve = np.clip(products / (size - np.arange(most + 2)) / safe, -1, 1)
    floor_height = max(PEAK_HEIGHT, PEAK_SIGMAS / np.sqrt(size))
    lags = np.arange(least, most + 1)
    height, left, right = curve[:, lags], curve[:, lags - 1], curve[:, lags + 1]
    # The lowest point before each lag, from lag 1 on.
    before = np.minimum.accumulate(curve[:, 1 : most + 1], axis=1)
    lowest = before[:, lags - 2]
    peak = (height >= floor_height) & (height >= left) & (height > right) & (height - lowest >= PEAK_PROMINENCE)
    peak &= valid[:, None]
    highest = np.where(peak, height, -np.inf).max(axis=1)
    first = np.argmax(peak & (height >= PEAK_SHARE * highest[:, None]), axis=1)
    row = np.arange(rows)
    a, b, c = left[row, first], height[row, first], right[row, first]
    bend = a - 2 * b + c
    shift = np.divide(0.5 * (a - c), bend, out=np.zeros(rows), where=bend < 0)
    exists = peak.any(axis=1)
    lag = np.where(exists, lags[first] + shift, np.nan)
    return lag, np.where(exists, np.minimum(1.0, b - 0.25 * (a - c) * shift), np.nan)


def activity(active: Rows, observed: Rows) -> Columns:
    """What `sm_active` says of work and rest: duty and the longest idle run."""
    valid, inactive = ~np.isnan(active[:, 0]), active < ACTIVE_SM
    return {
        "duty": np.where(valid, 1 - inactive.mean(axis=1), np.nan),
        "idle_run_seconds": np.where(valid, longest_run(inactive, observed), np.nan),
    }


def gpu_columns(
    values: Mapping[str, Rows], observed: Rows, period: Period, *, fabric: Rows | None, mem_total_bytes: float | Rows,
    power_limit_watts: float, nvlink_bytes_per_second: float,
) -> Columns:  # fmt: skip
    """The columns of ``gpu_minutes`` or ``gpu_hours``; `fabric`: the node's traffic on compute ports, row by row.

    A metric that is left out is missing in all rows, NaN is missing on one device or at one second.
    """
    columns: Columns = {"observed_seconds": observed}
    for metric in GPU_METRICS:
        if metric.rolled_up:
            columns |= statistics(metric.name, values.get(metric.name), observed)
    if "sm_active" in values:
        columns |= activity(values["sm_active"], observed)
        active = values["sm_active"].astype(np.float64)
        mean = active.mean(axis=1)
        columns["sm_active_cv"] = np.divide(active.std(axis=1), mean, out=np.full(len(mean), np.nan), where=mean > 0)
    tensor = values.get("tensor_active")
    lag, height = autocorrelation_peak(values["power_watts"] if tensor is None else tensor, *PERIOD_LAGS[period])
    enough = observed >= PERIOD_SAMPLES[period]
    columns["period_seconds"], columns["period_strength"] = np.where(enough, [lag, height], np.nan)
    nvlink = None
    if "nvlink_tx_bytes_per_second" in values:
        nvlink = np.maximum(values["nvlink_tx_bytes_per_second"], values["nvlink_rx_bytes_per_second"])
    for name, traffic in (("tensor_nvlink_correlation", nvlink), ("tensor_fabric_correlation", fabric)):
        if tensor is not None and traffic is not None:
            columns[name] = pearson(tensor, traffic)
    reasons = values["throttle_reasons"]
    slowed = (np.nan_to_num(reasons).astype(np.int64) & THROTTLE_MASK) != 0
    columns["throttled_fraction"] = np.where(np.isnan(reasons[:, 0]), np.nan, slowed.mean(axis=1))
    if period == "hour":
        for name in BINNED & values.keys():
            columns[f"{name}_bins"] = bins(values[name], observed)
        columns["mem_used_bins"] = bins(values["mem_used_bytes"] / np.reshape(mem_total_bytes, (-1, 1)), observed)
        columns["power_bins"] = bins(values["power_watts"] / power_limit_watts, observed)
        if nvlink is not None:
            columns["nvlink_bins"] = bins(nvlink / nvlink_bytes_per_second, observed)
    return columns


def fabric_columns(
    values: Mapping[str, Rows], observed: Rows, period: Period, line_rate_bytes_per_second: Rows
) -> Columns:
    """The columns of ``fabric_minutes`` or ``fabric_hours``, of ports that are ACTIVE; the line rate is one a row."""
    columns: Columns = {"observed_seconds": observed}
    traffic = np.maximum(values["tx_bytes_per_second"], values["rx_bytes_per_second"])
    util = traffic / line_rate_bytes_per_second[:, None]
    columns |= statistics("util", util, observed)
    for metric in FABRIC_METRICS:
        columns |= statistics(metric.name, values.get(metric.name), observed)
    columns["active_fraction"] = np.ones(len(observed))
    columns["idle_run_seconds"] = longest_run(util < SILENT_LINK, observed)
    if period == "hour":
        columns["util_bins"] = bins(util, observed)
    return columns


def host_columns(values: Mapping[str, Rows], observed: Rows, period: Period, mem_total_bytes: float) -> Columns:
    """The columns of ``host_minutes`` or ``host_hours``."""
    columns: Columns = {"observed_seconds": observed}
    for metric in HOST_METRICS:
        columns |= statistics(metric.name, values.get(metric.name), observed)
    columns["mem_total_bytes"] = np.full(len(observed), mem_total_bytes)
    if period == "hour":
        columns["cpu_util_bins"] = bins(values["cpu_util"], observed)
    return columns
