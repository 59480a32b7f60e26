"""From rows of a database to the frame's tables: numbers, bins, and samples folded into minute rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd

from ...agent.metrics import THROTTLE_MASK
from ...agent.store.reading.queries import Query
from ..core.histogram_array import WIDTH, BinsArray
from .plausible import Lost, impossible_rows, is_needed, observed_most, outside

# An SM counts as busy in a second from this activity on (the floor under which DCGM noise lies).
BUSY_SM_ACTIVE = 0.05
# No measure in base units comes near this (`plausible` has each one's own range).
MAX_NUMBER = 1e18
_MOST_BINS_TEXT = 32 * WIDTH
_MINUTE_MOST = float(observed_most(np.array([60.0]))[0])


def to_table(rows: Sequence[Sequence[object]], query: Query, lost: Lost | None = None) -> pd.DataFrame:
    """Rows of `query` as a table: text as objects (None where missing), numbers as floats (NaN where missing).

    Columns of bins become a `BinsArray`. The numbers are one block, which is cut, sorted and joined at once. What
    cannot be (`plausible`) is missing, and a row of a time that cannot be is left out; `lost` counts both.
    """
    if not rows:
        return empty_table(query.columns)
    texts, numbers = len(query.text), len(query.numbers)
    columns = list(zip(*rows, strict=True))
    block = np.array([_numbers(column) for column in columns[texts : texts + numbers]]).reshape(numbers, len(rows))
    # A row that does not say what it is about, or when, says nothing.
    gone = impossible_rows(query.numbers, block)
    wrong = np.zeros(len(rows), dtype=np.bool_)
    for n, where in outside(query.numbers, block):
        block[n][where] = np.nan
        wrong |= where
    for n, name in enumerate(query.numbers):
        if is_needed(name):
            gone |= np.isnan(block[n])
    table = pd.DataFrame(block.T, columns=list(query.numbers), copy=False)
    for n, name in enumerate(query.text):
        cells = _texts(columns[n])
        table.insert(n, name, pd.Series(cells, dtype=object, copy=False))
        if is_needed(name):
            gone |= pd.isna(cells)
    for name, column in zip(query.bins, columns[texts + numbers :], strict=True):
        bins = _bins(column)
        if "observed_seconds" in query.numbers:
            wrong |= _without_excess(bins, table["observed_seconds"].to_numpy(float))
        table[name] = bins
    if lost is not None and (gone.any() or wrong.any()):
        node = table["node"] if "node" in table else pd.Series([""] * len(table), dtype=object)
        lost.count(node[gone], node[wrong & ~gone])
    return table[~gone].reset_index(drop=True) if gone.any() else table


def empty_table(columns: Sequence[str]) -> pd.DataFrame:
    """No rows. Made as one block: most tables of a file are empty, and a column apart for each costs milliseconds."""
    return pd.DataFrame(np.empty((0, len(columns)), dtype=object), columns=list(columns))


def _texts(column: Sequence[object]) -> npt.NDArray[np.object_]:
    """Text or None in each cell, whatever SQLite kept there; equal texts are one object."""
    codes, distinct = _distinct(column)
    texts = [cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell) for cell in distinct]
    return np.array([*texts, None], dtype=object)[codes]


def _distinct(column: Sequence[object]) -> tuple[npt.NDArray[np.intp], list[object]]:
    """For every cell the position of what it holds among the distinct ones; -1 where it is missing."""
    cells = np.empty(len(column), dtype=object)
    cells[:] = column
    codes, distinct = pd.factorize(cells)
    return codes, list(distinct)


def _numbers(column: Sequence[object]) -> npt.NDArray[np.float64]:
    """A number in each cell, NaN where it is missing, no number, or too large to be a measure of anything."""
    try:
        values = np.array(column, dtype=float)
    except (TypeError, ValueError, OverflowError):
        values = np.array([float(c) if isinstance(c, (int, float)) else np.nan for c in column])
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) <= MAX_NUMBER, values, np.nan)


def _bins(column: Sequence[object]) -> BinsArray:
    """All cells of a column in one parse, equal ones once; a cell that is no JSON array of seconds is missing."""
    codes, distinct = _distinct(column)
    known = BinsArray.missing(len(distinct) + 1).matrix  # the last is the missing cells'
    texts = [cell if isinstance(cell, str) and len(cell) <= _MOST_BINS_TEXT else "0" for cell in distinct]
    if texts:
        parsed = _seconds(texts)
        known[:-1] = parsed if parsed is not None else [_one_cell(text) for text in texts]
    return BinsArray(known[codes])


def _seconds(texts: Sequence[str]) -> npt.NDArray[np.float64] | None:
    """JSON arrays of `WIDTH` seconds each as one matrix; None where one of them is something else."""
    try:
        matrix = np.array(orjson.loads(f"[{','.join(texts)}]"), dtype=float)
    except (TypeError, ValueError, OverflowError):
        return None
    is_whole = matrix.shape == (len(texts), WIDTH) and np.all((matrix >= 0) & (matrix <= MAX_NUMBER))
    return matrix if is_whole else None


def _one_cell(text: str) -> npt.NDArray[np.float64]:
    parsed = _seconds([text])
    return np.full(WIDTH, np.nan) if parsed is None else parsed[0]


def _without_excess(bins: BinsArray, observed_seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Make the bins missing of rows that count more seconds than were observed; which they are."""
    with np.errstate(invalid="ignore", over="ignore"):
        excess = bins.matrix.sum(axis=1) > observed_most(observed_seconds)
    bins.matrix[excess] = np.nan
    return excess


def gpu_minutes_from_samples(samples: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Samples of GPUs as minute rows with the columns of `gpu_minutes` that samples can give; the rest is NaN."""
    if samples.empty:
        return empty_table(columns)
    reasons = samples["throttle_reasons"]
    is_throttled = (reasons.fillna(0).astype("int64") & THROTTLE_MASK) != 0
    derived = samples.assign(
        throttled_fraction=is_throttled.astype(float).where(reasons.notna()),
        duty=(samples["sm_active"] >= BUSY_SM_ACTIVE).where(samples["sm_active"].notna()).astype(float),
    ).drop(columns="throttle_reasons")
    fixed = {"gpu_index": "first", "mem_total_bytes": "first", "throttled_fraction": "mean", "duty": "mean"}
    return _minute_rows(derived, ["node", "gpu_uuid"], fixed, columns)


def fabric_minutes_from_samples(samples: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Samples of fabric ports as minute rows; a port that is not ACTIVE has `active_fraction` alone."""
    if samples.empty:
        return empty_table(columns)
    traffic = samples[["tx_bytes_per_second", "rx_bytes_per_second"]].max(axis=1)
    derived = samples.assign(
        util=traffic / samples["line_rate_bytes_per_second"],
        active_fraction=(samples["state"] == "ACTIVE").astype(float),
    ).drop(columns="state")
    fixed = {"role": "first", "link_layer": "first", "line_rate_bytes_per_second": "first", "active_fraction": "mean"}
    return _minute_rows(derived, ["node", "device", "port"], fixed, columns)


def host_minutes_from_samples(samples: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Samples of hosts as minute rows."""
    if samples.empty:
        return empty_table(columns)
    return _minute_rows(samples, ["node"], {}, columns)


def _minute_rows(samples: pd.DataFrame, keys: list[str], fixed: dict[str, str], columns: Sequence[str]) -> pd.DataFrame:
    samples = samples.assign(ts=np.ceil(samples["ts"] / 60.0) * 60.0)
    grouped = samples.groupby([*keys, "ts"], sort=True)
    out = pd.DataFrame(grouped.agg({"interval_seconds": "sum", **fixed}))
    out = out.rename(columns={"interval_seconds": "observed_seconds"})
    # A tick may have begun before its minute; what exceeds that was counted twice, and nothing says which is right.
    out["observed_seconds"] = out["observed_seconds"].where(out["observed_seconds"] <= _MINUTE_MOST).clip(upper=60.0)
    measures = [c for c in samples.columns if c not in {*keys, "ts", "interval_seconds", *fixed}]
    for suffix, table in (
        ("mean", grouped[measures].mean()),
        ("max", grouped[measures].max()),
        ("p95", grouped[measures].quantile(0.95)),
        ("n", grouped[measures].count()),
    ):
        wanted = [m for m in measures if f"{m}_{suffix}" in columns]
        out[[f"{m}_{suffix}" for m in wanted]] = table[wanted]
    out["interval_seconds"] = 60.0
    out = out[out["observed_seconds"].notna()]
    return out.reset_index().reindex(columns=list(columns))


def folded(minutes: pd.DataFrame, keys: Sequence[str], step: float) -> pd.DataFrame:
    """Minute rows as rows of `step` seconds that end at its multiples: observed seconds and samples are summed, maxima
    and p95 are the largest, other numbers means weighted by the seconds in which they are known."""
    if minutes.empty:
        return minutes
    rows = minutes.assign(ts=np.ceil(minutes["ts"] / step) * step)
    at = [*keys, "ts"]
    numbers = [c for c in rows.columns if c not in at and rows[c].dtype == np.float64]
    summed = [c for c in numbers if c == "observed_seconds" or c.endswith("_n")]
    largest = [c for c in numbers if c.endswith(("_max", "_p95"))]
    means = [c for c in numbers if c not in {*summed, *largest, "interval_seconds"}]
    weight = rows[means].notna().mul(rows["observed_seconds"], axis=0)
    group = [rows[name] for name in at]
    grouped = rows.groupby(at, sort=True)
    with np.errstate(invalid="ignore"):
        mean = (rows[means] * weight).groupby(group).sum(min_count=1) / weight.groupby(group).sum()
    out = pd.concat([grouped[summed].sum(min_count=1), grouped[largest].max(), mean], axis=1)
    texts = [c for c in rows.columns if c not in {*at, *numbers} and not isinstance(rows[c].array, BinsArray)]
    out[texts] = grouped[texts].first()
    out["interval_seconds"] = step
    return out.reset_index()[[c for c in minutes.columns if c in {*at, *out.columns}]]
