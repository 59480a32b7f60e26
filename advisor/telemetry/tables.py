"""From rows of a database to the frame's tables: numbers, bins, and samples folded into minute rows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...agent.metrics import THROTTLE_MASK
from ...agent.store.reading.queries import Query
from ..core.histogram_array import WIDTH, BinsArray
from .packing import Texts, Unpacked
from .plausible import Lost, impossible_rows, is_needed, observed_most, outside

# An SM counts as busy in a second from this activity on (the floor under which DCGM noise lies).
BUSY_SM_ACTIVE = 0.05

# What a cell may hold at all. No measure in base units comes near 1e18 (`plausible` has each one's own range), and the
# agent's longest text is 1 kB.
MAX_NUMBER = 1e18
MAX_TEXT = 4096
MAX_BINS_TEXT = 32 * WIDTH
# Of each cell the place of what it holds among the distinct ones; -1 where it is missing.
Coded = tuple[npt.NDArray[np.intp], Sequence[object]]
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
    return table_of(
        query,
        len(rows),
        [_distinct(column) for column in columns[:texts]],
        [_as_numbers(column) for column in columns[texts : texts + numbers]],
        [_parse_bins(*_distinct(column)) for column in columns[texts + numbers :]],
        lost,
    )


def columns_to_table(told: Unpacked, query: Query, lost: Lost | None = None) -> pd.DataFrame:
    """The columns of an answer to `query` as a table, as `to_table` gives it. Raises ValueError."""
    if not told.count:
        return empty_table(query.columns)
    texts, numbers = len(query.text), len(query.numbers)
    coded = [(column.codes, column.distinct) for column in told.columns if isinstance(column, Texts)]
    plain = [column for column in told.columns if isinstance(column, np.ndarray)]
    if len(coded) != texts + len(query.bins) or len(plain) != numbers:
        raise ValueError("other columns")
    return table_of(query, told.count, coded[:texts], plain, [_parse_bins(*column) for column in coded[texts:]], lost)


def table_of(  # noqa: PLR0917
    query: Query,
    count: int,
    texts: Sequence[Coded],
    numbers: Sequence[npt.NDArray[Any]],
    bins: Sequence[BinsArray],
    lost: Lost | None,
) -> pd.DataFrame:
    """Columns of `query` as a table, as `to_table` gives it: texts by their distinct ones, numbers as they came."""
    block = np.empty((len(numbers), count))
    # A row that does not say what it is about, or when, says nothing.
    lacking = np.zeros(count, dtype=np.bool_)
    for n, column in enumerate(numbers):
        block[n] = _measures(column)
    impossible = impossible_rows(query.numbers, block)
    wrong = np.zeros(count, dtype=np.bool_)
    for n, where in outside(query.numbers, block):
        block[n][where] = np.nan
        wrong |= where
    for n, name in enumerate(query.numbers):
        if is_needed(name):
            lacking |= np.isnan(block[n])
    table = pd.DataFrame(block.T, columns=list(query.numbers), copy=False)
    for n, (name, column) in enumerate(zip(query.text, texts, strict=True)):
        cells = _texts(*column)
        table.insert(n, name, pd.Series(cells, dtype=object, copy=False))
        if is_needed(name):
            lacking |= pd.isna(cells)
    for name, parsed in zip(query.bins, bins, strict=True):
        if "observed_seconds" in query.numbers:
            wrong |= _without_excess(parsed, table["observed_seconds"].to_numpy(float))
        table[name] = parsed
    gone = lacking | impossible
    if lost is not None and (gone.any() or wrong.any()):
        node = table["node"] if "node" in table else pd.Series([""] * len(table), dtype=object)
        lost.count(node[gone], node[wrong & ~gone])
    return table[~gone].reset_index(drop=True) if gone.any() else table


def cut(table: pd.DataFrame, mask: npt.NDArray[np.bool_]) -> pd.DataFrame:
    """The rows of a mask; the table itself where that is all of them."""
    return table if mask.all() else table[mask]


def empty_table(columns: Sequence[str]) -> pd.DataFrame:
    """No rows. Made as one block: most tables of a file are empty, and a column apart for each costs milliseconds."""
    return pd.DataFrame(np.empty((0, len(columns)), dtype=object), columns=list(columns))


def _texts(codes: npt.NDArray[np.intp], distinct: Sequence[object]) -> npt.NDArray[np.object_]:
    """Text or None in each cell, whatever SQLite kept there, and no longer than a page; equal texts are one object."""
    return np.array([*(_text(cell) for cell in distinct), None], dtype=object)[codes]


def _distinct(column: Sequence[object]) -> Coded:
    """For every cell the position of what it holds among the distinct ones; -1 where it is missing."""
    cells = np.empty(len(column), dtype=object)
    cells[:] = column
    codes, distinct = pd.factorize(cells)
    return codes, list(distinct)


def _text(cell: object) -> str:
    text = cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _as_numbers(column: Sequence[object]) -> npt.NDArray[np.float64]:
    try:
        return np.array(column, dtype=float)
    except (TypeError, ValueError, OverflowError):
        return np.array([float(c) if isinstance(c, (int, float)) else np.nan for c in column])


def _measures(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A number in each cell, NaN where it is missing, no number, or too large to be a measure of anything."""
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) <= MAX_NUMBER, values, np.nan)


def _parse_bins(codes: npt.NDArray[np.intp], distinct: Sequence[object]) -> BinsArray:
    """All of a column in one parse, equal cells once; a cell that is no JSON array of seconds counts as missing."""
    known = BinsArray.missing(len(distinct) + 1).matrix  # the last is the missing cells'
    if len(distinct):
        try:
            known[:-1] = _parse_arrays([c.encode() if isinstance(c, str) else c for c in distinct])  # type: ignore[misc]
        except (TypeError, ValueError, OverflowError):
            known[:-1] = np.stack([_parse_cell(cell) for cell in distinct])
    return BinsArray(known[codes])


def _parse_arrays(cells: Sequence[bytes]) -> npt.NDArray[np.float64]:
    """JSON arrays of `WIDTH` seconds each as one matrix. Raises an error where one of them is something else."""
    lines = b"\n".join(cells)
    if not (lines[:1] == b"[" and lines[-1:] == b"]" and lines.count(b"]\n[") == len(cells) - 1):
        raise ValueError("a cell is not an array")
    if len(lines) > MAX_BINS_TEXT * len(cells):
        raise ValueError("a cell is longer than seconds are")
    table = pd.read_csv(
        io.BytesIO(lines[1:-1].replace(b"]\n[", b"\n")),
        header=None, dtype=np.float64, quoting=csv.QUOTE_NONE, skip_blank_lines=False,
    )  # fmt: skip
    matrix = table.to_numpy()
    if matrix.shape != (len(cells), WIDTH) or not _are_seconds(matrix):
        raise ValueError("a cell is not an array of seconds")
    return matrix


def _parse_cell(cell: object) -> npt.NDArray[np.float64]:
    """One JSON array of seconds; NaN all along where it is none."""
    nothing = np.full(WIDTH, np.nan)
    if not isinstance(cell, (str, bytes)) or len(cell) > MAX_BINS_TEXT:
        return nothing
    try:
        seconds = np.array(json.loads(cell), dtype=float)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return nothing
    return seconds if seconds.shape == (WIDTH,) and _are_seconds(seconds) else nothing


def _without_excess(bins: BinsArray, observed_seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Make the bins missing of rows that count more seconds than were observed; which they are."""
    with np.errstate(invalid="ignore", over="ignore"):
        excess = bins.matrix.sum(axis=1) > observed_most(observed_seconds)
    bins.matrix[excess] = np.nan
    return excess


def _are_seconds(bins: npt.NDArray[np.float64]) -> bool:
    return bool(np.all((bins >= 0) & (bins <= MAX_NUMBER)))


def gpu_minutes_from_samples(samples: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Samples of GPUs as minute rows with the columns of `gpu_minutes` that samples can give; the rest is NaN."""
    if samples.empty:
        return empty_table(columns)
    derived = samples.assign(
        throttled_fraction=_throttled(samples["throttle_reasons"]),
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


def _throttled(reasons: pd.Series) -> pd.Series:
    bits = reasons.fillna(0).astype("int64") & THROTTLE_MASK
    return (bits != 0).astype(float).where(reasons.notna())


def _minute_rows(samples: pd.DataFrame, keys: list[str], fixed: dict[str, str], columns: Sequence[str]) -> pd.DataFrame:
    samples = samples.assign(ts=np.ceil(samples["ts"] / 60.0) * 60.0)
    grouped = samples.groupby([*keys, "ts"], sort=True)
    out = pd.DataFrame(grouped.agg({"interval_seconds": "sum", **fixed}))
    out = out.rename(columns={"interval_seconds": "observed_seconds"})
    # A tick may have begun before its minute; what exceeds that was told twice, and nothing says which is right.
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
