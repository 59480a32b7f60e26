"""From rows of a database to the frame's tables: numbers, bins, and samples folded into minute rows.

A value out of its range becomes missing; it is not cut to the range, because the true value is unknown. A row with an
impossible time or coverage is left out. Both are counted.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd

from ...agent.metrics import THROTTLE_MASK
from ...agent.store.reader import decoded
from ..core.column_rows import WIDTH, BinsArray
from .queries import Query

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
MAX_NUMBER = 1e18  # no measure in base units comes near
LAST_DAY = 253_370_764_800.0  # begin of the last year that can be written
_STATISTICS = ("_mean", "_p95", "_max")
# Lowest, highest, and the columns, without a statistic. Others are not negative.
_RANGES = (
    (0.0, LAST_DAY, "ts first_seen last_seen ts_start ts_end valid_from valid_to since until last_active_ts first_ts"
                    " latency_ts submitted_at started_at ended_at"),
    # Shares of time or of all cores; stored in steps of 1e-4.
    (-0.001, 1.01, "active_fraction cpu_util io_wait duty throttled_fraction"),
    (-1.01, 1.01, "period_strength tensor_nvlink_correlation tensor_fabric_correlation"),
    (0.0, 2.0, "util"),  # a counter that is refreshed late has two intervals' bytes in one
    # Ports of 1.6 Tb/s (0.2 TB/s) are the fastest announced; the disks of a node read as much together.
    (0.0, 1e12, "tx_bytes_per_second rx_bytes_per_second line_rate_bytes_per_second disk_read_bytes_per_second"
                " disk_write_bytes_per_second"),
    (0.0, 4e12, "nvlink_bytes_per_second"),  # NVLink 5: 0.9 TB/s one way
    (0.0, 1e11, "xmit_wait_per_second"),  # ticks of a clock of some GHz
    (0.0, 2e7, "energy_joules"),  # the largest board draws 5 MJ in an hour
    (0.0, 3700.0, "idle_run_seconds period_seconds"),
    (0.0, 1e13, "mem_used_bytes"),  # the largest board has 0.3 TB, the largest host some TB
    (0.0, 1e7, "gpu_index gpu_count slices nvlink_links gpus hours"),
)  # fmt: skip
# Of samples of GPUs alone: for longer rows the verdicts check these, with words about each GPU.
_OF_SAMPLES = (
    # Counted against a part of the GPU on MIG, activity may exceed 1 (DCGM#152).
    (0.0, 8.0, "gpu_util sm_active sm_occupancy tensor_active dram_active fp64_active fp32_active"),
    (0.0, 3000.0, "power_watts"),  # the largest board draws 1.4 kW
    (0.0, 1e10, "sm_clock_hertz mem_clock_hertz"),
    (0.0, 2e11, "pcie_tx_bytes_per_second pcie_rx_bytes_per_second"),  # PCIe 6 x16: 0.13 TB/s one way
    (0.0, 4e12, "nvlink_tx_bytes_per_second nvlink_rx_bytes_per_second"),
    (0.0, 2.0**53, "throttle_reasons"),
)  # fmt: skip
_SAMPLES = {name: (low, high) for low, high, names in _OF_SAMPLES for name in names.split()}
_OF_ROWS = {name: (low, high) for low, high, names in _RANGES for name in names.split()}
_OF_ROWS |= dict.fromkeys(_SAMPLES, (-MAX_NUMBER, MAX_NUMBER))
# Columns without which a row is meaningless.
NEEDED = frozenset(
    {"node", "workload_id", "port", "ts", "interval_seconds", "observed_seconds", "ts_start", "ts_end", "since",
     "started_at"}
)  # fmt: skip
_BEGIN_END = (("ts_start", "ts_end"), ("since", "until"), ("valid_from", "valid_to"), ("started_at", "ended_at"))
# An SM counts as busy in a second from this activity on (the floor under which DCGM noise lies).
BUSY_SM_ACTIVE = 0.05
# Columns of minutes that are means of samples without a statistic in their name.
_MEANS = frozenset({"throttled_fraction", "duty", "active_fraction"})


def to_table(rows: Sequence[Sequence[object]], query: Query, lost: Counter[Any] | None = None) -> pd.DataFrame:
    """Rows of `query` as a table: text as objects (None where missing), numbers as floats (NaN where missing), bins as
    a `BinsArray`. Impossible values are missing, rows of an impossible time left out; `lost` counts the rows
    of both by node, or by the column ``file`` and node."""
    if not rows:
        return empty_table(query.columns)
    texts, numbers = len(query.text), len(query.numbers)
    columns = list(zip(*rows, strict=True))
    # One block of numbers is cut, sorted and joined at once.
    block = np.array([_numbers(column) for column in columns[texts : texts + numbers]]).reshape(numbers, len(rows))
    gone, wrong = impossible(query.numbers, block)
    table = pd.DataFrame(block.T, columns=list(query.numbers), copy=False)
    for n, name in enumerate(query.text):
        table.insert(n, name, pd.Series(_texts(columns[n]), dtype=object, copy=False))
    for name, column in zip(query.bins, columns[texts + numbers :], strict=True):
        bins = _bins(column)
        if "observed_seconds" in table:
            excess = bins.matrix.sum(axis=1) > observed_most(table["observed_seconds"].to_numpy(float))
            bins.matrix[excess] = np.nan
            wrong |= excess
        table[name] = bins
    for name in NEEDED.intersection(table.columns):
        gone |= table[name].isna().to_numpy()
    if lost is not None and (some := gone | wrong).any():
        names = table.loc[some, "node"].fillna("") if "node" in table else [""] * int(some.sum())
        lost.update(zip(table.loc[some, "file"], names, strict=True) if "file" in table else names)
    return table[~gone].reset_index(drop=True) if gone.any() else table


def empty_table(columns: Sequence[str]) -> pd.DataFrame:
    """No rows. Made as one block: most tables of a file are empty, and a column apart for each costs milliseconds."""
    return pd.DataFrame(np.empty((0, len(columns)), dtype=object), columns=list(columns))


def _texts(column: Sequence[object]) -> npt.NDArray[np.object_]:
    """Text or None in each cell, whatever SQLite kept there; equal texts are one object."""
    codes, distinct = pd.factorize(np.array(column, dtype=object))
    texts = [decoded(cell) if isinstance(cell, bytes) else str(cell) for cell in distinct]
    return np.array([*texts, None], dtype=object)[codes]


def _numbers(column: Sequence[object]) -> npt.NDArray[np.float64]:
    try:
        return np.array(column, dtype=float)
    except (TypeError, ValueError):
        return np.array([float(cell) if isinstance(cell, (int, float)) else np.nan for cell in column])


def _bins(column: Sequence[object]) -> BinsArray:
    """All cells of a column in one parse, equal ones once; where one is no JSON array of seconds, all are missing."""
    codes, distinct = pd.factorize(np.array(column, dtype=object))
    matrix_of = BinsArray.missing(len(distinct) + 1).matrix  # the last is the missing cells'
    try:
        texts = [cell if isinstance(cell, bytes) else str(cell).encode() for cell in distinct]
        matrix = np.array(orjson.loads(b"[" + b",".join(texts) + b"]"), dtype=float)
    except (TypeError, ValueError, OverflowError):
        matrix = np.empty(0)
    if matrix.shape == (len(distinct), WIDTH) and np.all((matrix >= 0) & (matrix <= MAX_NUMBER)):
        matrix_of[:-1] = matrix
    return BinsArray(matrix_of[codes])


def minutes_from_samples(samples: pd.DataFrame, keys: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Samples of devices (named by `keys`) as minute rows, with the `columns` that samples can give; the rest is NaN.
    A port that is not ACTIVE has `active_fraction` alone."""
    if samples.empty:
        return empty_table(columns)
    rows = samples.assign(ts=np.ceil(samples["ts"] / 60.0) * 60.0)
    if "throttle_reasons" in rows:
        reasons, active = rows.pop("throttle_reasons"), rows["sm_active"]
        is_throttled = (reasons.fillna(0).astype("int64") & THROTTLE_MASK) != 0
        rows["throttled_fraction"] = is_throttled.astype(float).where(reasons.notna())
        rows["duty"] = (active >= BUSY_SM_ACTIVE).astype(float).where(active.notna())
    if "state" in rows:
        traffic = rows[["tx_bytes_per_second", "rx_bytes_per_second"]].max(axis=1)
        rows["util"] = traffic / rows["line_rate_bytes_per_second"]
        rows["active_fraction"] = (rows.pop("state") == "ACTIVE").astype(float)
    at = [*keys, "ts"]
    grouped = rows.groupby(at, sort=True)
    measures = [name for name in rows.columns if name not in columns]
    how = {name: "mean" if name in _MEANS else "first" for name in rows.columns.difference([*at, *measures])}
    out = grouped.agg({**how, "interval_seconds": "sum"})
    # A tick may have begun before its minute; what exceeds that was counted twice, and nothing says which is right.
    seconds = out.pop("interval_seconds")
    out["observed_seconds"] = seconds.where(seconds <= observed_most(np.array(60.0))).clip(upper=60.0)
    values = grouped[measures]
    statistics = {"mean": values.mean(), "max": values.max(), "p95": values.quantile(0.95), "n": values.count()}
    out = out.join([table.add_suffix(f"_{suffix}") for suffix, table in statistics.items()])
    out["interval_seconds"] = 60.0
    return out[out["observed_seconds"].notna()].reset_index().reindex(columns=list(columns))


def impossible(names: Sequence[str], block: Floats) -> tuple[Mask, Mask]:
    """Rows with an impossible time or coverage (too many seconds, an end before its begin), and rows with impossible
    values, which become NaN in `block`. `block`: a line for each of `names`."""
    columns = dict(zip(names, block, strict=True))
    gone, wrong = (np.zeros(block.shape[1], dtype=np.bool_) for _ in range(2))
    length, seconds = columns.get("interval_seconds"), columns.get("observed_seconds")
    if length is not None:
        gone |= (length <= 0) | (length > (7200.0 if seconds is None else 3600.0))
        if seconds is not None:
            gone |= (seconds < 0) | (seconds > observed_most(length))
    for begin, end in _BEGIN_END:
        if begin in columns and end in columns:
            gone |= columns[end] < columns[begin]
    ranges = _OF_ROWS if seconds is not None else _OF_ROWS | _SAMPLES
    for name, values in columns.items():
        base = next((name.removesuffix(end) for end in _STATISTICS if name.endswith(end)), name)
        low, high = ranges.get(base, (0.0, MAX_NUMBER))
        outside = (values < low) | (values > high)
        values[outside] = np.nan
        wrong |= outside
    return gone, wrong


def observed_most(interval_seconds: Floats) -> Floats:
    """The most seconds that an interval can have been observed. Clocks are corrected by some parts in a thousand, and a
    tick (60 s at most) that ended just within the interval may have begun before it."""
    return interval_seconds * 1.01 + 60.0
