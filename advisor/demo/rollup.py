"""The store's rollup statistics over many minutes or hours at once: numpy twins of agent/store's pure functions.

Every function takes rows of samples, (r, s): r periods of s contiguous seconds, and gives one value a row, NaN where
the store's function gives None. A test holds them equal to the functions of agent/statistics.

`observed` is the time a row stands for. An hour that was made from a window of some minutes stands for all of the hour
that the agent saw: its counts and bins are scaled to that, its means, percentiles and correlations are the window's
own, and a run that fills the window fills the hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...agent.metrics import BIN_EDGES, FABRIC_METRICS, GPU_METRICS, HOST_METRICS, THROTTLE_MASK
from ...agent.model import Period
from ...agent.statistics.rollup_stats import ACTIVE_SM, PERIOD_LAGS, PERIOD_SAMPLES, SILENT_LINK
from ...agent.statistics.signal_stats import FLAT, MIN_PAIRS, PEAK_HEIGHT, PEAK_PROMINENCE, PEAK_SHARE, PEAK_SIGMAS

Rows = npt.NDArray[np.floating]
Columns = dict[str, npt.NDArray[Any]]  # bins are objects where some rows have none

_EDGES = np.asarray(BIN_EDGES)


def statistics(name: str, values: Rows | None, observed: Rows) -> Columns:
    """mean, max, p95 (nearest rank) and n of one measure; None: missing throughout, NaN: missing at that second."""
    if values is None:
        return {f"{name}_n": np.zeros(len(observed))}
    size = values.shape[1]
    known = ~np.isnan(values)
    if not known.all():
        return _statistics_of_known(name, values, known, observed)
    rank = max(1, int(np.ceil(0.95 * size - 1e-9)))
    return {
        f"{name}_mean": values.mean(axis=1, dtype=np.float64),
        f"{name}_max": values.max(axis=1).astype(np.float64),
        f"{name}_p95": np.partition(values, rank - 1, axis=1)[:, rank - 1].astype(np.float64),
        f"{name}_n": np.round(observed),
    }


def _statistics_of_known(name: str, values: Rows, known: npt.NDArray[np.bool_], observed: Rows) -> Columns:
    rows, size = values.shape
    count = known.sum(axis=1)
    some = count > 0
    total = np.where(known, values, 0).sum(axis=1, dtype=np.float64)
    rank = np.ceil(0.95 * count - 1e-9).astype(np.int64).clip(1)
    ranked = np.sort(values, axis=1)[np.arange(rows), np.minimum(rank, size) - 1]  # NaN sorts last
    return {
        f"{name}_mean": np.divide(total, count, out=np.full(rows, np.nan), where=some),
        f"{name}_max": np.where(some, np.where(known, values, -np.inf).max(axis=1), np.nan),
        f"{name}_p95": np.where(some, ranked, np.nan).astype(np.float64),
        f"{name}_n": np.round(observed * count / size),
    }


def bins(ratios: Rows, observed: Rows) -> Rows:
    """Seconds in each bin of BIN_EDGES, (r, bins); seconds whose ratio is NaN are in none."""
    rows, size = ratios.shape
    index = np.clip(np.searchsorted(_EDGES, ratios.ravel(), side="right") - 1, 0, None)
    index += np.repeat(np.arange(rows) * len(_EDGES), size)
    index = index[~np.isnan(ratios.ravel())]
    counts = np.bincount(index, minlength=rows * len(_EDGES)).reshape(rows, len(_EDGES))
    return counts * (observed / size)[:, None]


def _known_bins(ratios: Rows, observed: Rows) -> npt.NDArray[np.object_] | Rows:
    """`bins`, with None for rows in which nothing is known."""
    counts = bins(ratios, observed)
    if counts.any(axis=1).all():
        return counts
    kept = np.empty(len(counts), dtype=object)
    for row, seconds in enumerate(counts.tolist()):
        kept[row] = seconds if any(seconds) else None
    return kept


def longest_run(flags: npt.NDArray[np.bool_], observed: Rows) -> Rows:
    """The longest unbroken run of seconds in which the flag holds; a run that fills the row lasts `observed`."""
    size = flags.shape[1]
    position = np.arange(1, size + 1)
    last_break = np.maximum.accumulate(np.where(flags, 0, position), axis=1)
    longest = (position - last_break).max(axis=1).astype(np.float64)
    return np.where(longest == size, observed, longest)


def variation(values: Rows) -> Rows:
    """Standard deviation over the mean; NaN for a mean of 0."""
    values = values.astype(np.float64)
    mean = values.mean(axis=1)
    return np.divide(values.std(axis=1), mean, out=np.full(len(values), np.nan), where=mean > 0)


def pearson(first: Rows, second: Rows) -> Rows:
    """Correlation of two measures row by row; NaN below MIN_PAIRS, where one is constant and where one is missing."""
    if first.shape[1] < MIN_PAIRS:
        return np.full(len(first), np.nan)
    first, second = first.astype(np.float64), second.astype(np.float64)
    dx = first - first.mean(axis=1, keepdims=True)
    dy = second - second.mean(axis=1, keepdims=True)
    spread_x = np.sqrt((dx * dx).mean(axis=1))
    spread_y = np.sqrt((dy * dy).mean(axis=1))
    known = (spread_x > FLAT * np.abs(first).max(axis=1)) & (spread_y > FLAT * np.abs(second).max(axis=1))
    value = np.divide((dx * dy).mean(axis=1), spread_x * spread_y, out=np.full(len(first), np.nan), where=known)
    return np.clip(value, -1, 1)


def autocorrelation_peak(values: Rows, least: int, most: int) -> tuple[Rows, Rows]:
    """Period (in samples) and height of the autocorrelation's peak at lags least..most; NaN where there is none."""
    rows, size = values.shape
    nothing = np.full(rows, np.nan)
    if size < 2 or most + 1 >= size:
        return nothing, nothing
    values = values.astype(np.float64)
    centred = values - values.mean(axis=1, keepdims=True)
    power = (centred * centred).mean(axis=1)
    known = (power > (FLAT * np.abs(values).max(axis=1)) ** 2) & (power > 0)
    width = 1 << int(np.ceil(np.log2(size + most + 2)))
    spectrum = np.fft.rfft(centred, width, axis=1)
    products = np.fft.irfft(np.abs(spectrum) ** 2, width, axis=1)[:, : most + 2]
    safe = np.where(known, power, 1.0)[:, None]
    curve = np.clip(products / (size - np.arange(most + 2)) / safe, -1, 1)
    return _first_high_peak(curve, known, max(PEAK_HEIGHT, PEAK_SIGMAS / np.sqrt(size)), least, most)


def _first_high_peak(
    curve: Rows, known: npt.NDArray[np.bool_], floor_height: float, least: int, most: int
) -> tuple[Rows, Rows]:
    lags = np.arange(least, most + 1)
    height, left, right = curve[:, lags], curve[:, lags - 1], curve[:, lags + 1]
    # The lowest point before each lag: from lag 1 on, or 1.0 where there is none yet.
    before = np.minimum.accumulate(curve[:, 1 : most + 1], axis=1)
    lowest = before[:, lags - 2] if least >= 2 else np.column_stack([np.ones(len(curve)), before[:, : most - 1]])
    peak = (height >= floor_height) & (height >= left) & (height > right) & (height - lowest >= PEAK_PROMINENCE)
    peak &= known[:, None]
    highest = np.where(peak, height, -np.inf).max(axis=1)
    first = np.argmax(peak & (height >= PEAK_SHARE * highest[:, None]), axis=1)
    row = np.arange(len(curve))
    a, b, c = left[row, first], height[row, first], right[row, first]
    bend = a - 2 * b + c
    shift = np.divide(0.5 * (a - c), bend, out=np.zeros(len(curve)), where=bend < 0)
    found = peak.any(axis=1)
    lag = np.where(found, lags[first] + shift, np.nan)
    return lag, np.where(found, np.minimum(1.0, b - 0.25 * (a - c) * shift), np.nan)


def gpu_columns(
    values: Mapping[str, Rows],
    observed: Rows,
    period: Period,
    *,
    mem_total_bytes: float | Rows,
    power_limit_watts: float,
    nvlink_bytes_per_second: float,
    fabric: Rows | None,
) -> Columns:
    """The columns of ``gpu_minutes`` or ``gpu_hours``; `fabric`: the node's traffic on compute ports, row by row.

    A metric that is left out is missing in all rows, NaN is missing on one device or at one second. One that is known
    at fewer than half of the seconds comes by the page and speaks for the time between pages.
    """
    columns: Columns = {"observed_seconds": observed}
    every_second = {name: _every_second(rows) for name, rows in values.items()}
    seen = {name: rows if every_second[name] else _pages(rows) for name, rows in values.items()}
    for metric in GPU_METRICS:
        if metric.rolled_up:
            columns |= statistics(metric.name, seen.get(metric.name), observed)
            if metric.name in seen and not every_second[metric.name]:
                pages = seen[metric.name].shape[1] / values[metric.name].shape[1]
                columns[f"{metric.name}_n"] = np.round(columns[f"{metric.name}_n"] * pages)
    if "sm_active" in seen:
        columns |= _activity(seen["sm_active"], observed, values["sm_active"].shape[1], every_second["sm_active"])
    # Means over half a minute have no rhythm and no correlation by the second.
    tensor = values["tensor_active"] if every_second.get("tensor_active") else None
    rhythm = values["power_watts"] if tensor is None else tensor
    enough = observed >= PERIOD_SAMPLES[period]
    lag, height = autocorrelation_peak(rhythm, *PERIOD_LAGS[period])
    columns["period_seconds"] = np.where(enough, lag, np.nan)
    columns["period_strength"] = np.where(enough, height, np.nan)
    nvlink = None
    if "nvlink_tx_bytes_per_second" in values:
        nvlink = np.maximum(values["nvlink_tx_bytes_per_second"], values["nvlink_rx_bytes_per_second"])
        if tensor is not None:
            columns["tensor_nvlink_correlation"] = pearson(tensor, nvlink)
    if fabric is not None and tensor is not None:
        columns["tensor_fabric_correlation"] = pearson(tensor, fabric)
    reasons = values["throttle_reasons"]
    slowed = (np.nan_to_num(reasons).astype(np.int64) & THROTTLE_MASK) != 0
    columns["throttled_fraction"] = np.where(np.isnan(reasons[:, 0]), np.nan, slowed.mean(axis=1))
    if period == "hour":
        for name in ("gpu_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active"):
            if name in seen:
                columns[f"{name}_bins"] = _known_bins(seen[name], observed)
        columns["mem_used_bins"] = bins(values["mem_used_bytes"] / np.reshape(mem_total_bytes, (-1, 1)), observed)
        columns["power_bins"] = _known_bins(values["power_watts"] / power_limit_watts, observed)
        if nvlink is not None:
            columns["nvlink_bins"] = bins(nvlink / nvlink_bytes_per_second, observed)
    return columns


_FINE = (
    "duty", "idle_run_seconds", "sm_active_cv", "period_seconds", "period_strength", "tensor_nvlink_correlation",
    "tensor_fabric_correlation",
)  # fmt: skip


def as_scraped(columns: Columns, samples: int) -> Columns:
    """Columns of rows that hold `samples` scrapes each: so many values, and nothing that takes seconds in a row."""
    return {
        name: np.where(np.asarray(values) > 0, float(samples), 0.0) if name.endswith("_n") else values
        for name, values in columns.items()
        if name not in _FINE
    }


def _every_second(rows: Rows) -> bool:
    """Whether a measure comes with the samples, not by the page, in the rows that have it."""
    known = ~np.isnan(rows)
    return bool(2 * known.sum() >= known.any(axis=1).sum() * rows.shape[1])


def _pages(rows: Rows) -> Rows:
    """The seconds at which a page came, which are the same in every row."""
    return rows[:, ~np.isnan(rows).all(axis=0)]


def _activity(active: Rows, observed: Rows, seconds: int, every_second: bool) -> Columns:
    known = ~np.isnan(active[:, 0])
    inactive = active < ACTIVE_SM
    run = longest_run(inactive, observed)
    run = np.where(run < observed, run * seconds / active.shape[1], run)
    columns: Columns = {
        "duty": np.where(known, 1 - inactive.mean(axis=1), np.nan),
        "idle_run_seconds": np.where(known, run, np.nan),
    }
    if every_second:
        columns["sm_active_cv"] = variation(active)
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
