"""From rows of a database to the frame's tables: numbers, bins, and samples folded into minute rows.

Rows and values that cannot be (`core/possible.py`) are left out, or missing, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd

from ...agent.metrics import THROTTLE_MASK
from ...agent.store.reader import decoded
from ..core.histogram_array import WIDTH, BinsArray
from ..core.possible import MAX_NUMBER, NEEDED, impossible, observed_most
from .queries import Query

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
    """A number in each cell, NaN where it is missing or no number."""
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
