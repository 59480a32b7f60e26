"""Rows by resolution: hours where there are any, minutes at the edges, samples for the newest data."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ..core.column_rows import BinsArray
from ..core.frame import Window
from . import queries, tables
from .queries import Query

HOUR, FIVE_MINUTES, MINUTE = 3600.0, 300.0, 60.0
# Samples are read raw, so only for as long as the rollups may lag.
SAMPLES_SPAN_SECONDS = 6 * HOUR
# Hours that a workload's start or end cuts are read as minutes, up to so many a node and so many in all, those of the
# shortest workloads first: the rest are attributed by overlap, which a long one does not notice.
MAX_REFINED_HOURS, MAX_REFINED_HOURS_IN_ALL = 400, 2000

# A column and the values of it that are wanted.
Only = tuple[str, Collection[str]]
# Gives the rows of a query in (start, end], as tables in any order; of some values of a column alone (None: all).
Fetch = Callable[[Query, float, float, Only | None], list[pd.DataFrame]]


@dataclass(frozen=True)
class RowFamily:
    """Rows of one kind of device, which `keys` name, at three resolutions. `is_short`: the columns that the watch
    needs, and where `hours` end no finer rows."""

    keys: tuple[str, ...]
    hours: Query
    minutes: Query
    samples: Query
    is_short: bool = False


_PORT = ("node", "device", "port")
FAMILIES = {
    "gpu": RowFamily(("node", "gpu_uuid"), queries.GPU_HOURS, queries.GPU_MINUTES, queries.GPU_SAMPLES),
    "fabric": RowFamily(_PORT, queries.FABRIC_HOURS, queries.FABRIC_MINUTES, queries.FABRIC_SAMPLES),
    "host": RowFamily(("node",), queries.HOST_HOURS, queries.HOST_MINUTES, queries.HOST_SAMPLES),
}
_SHORT = {
    HOUR: (queries.GPU_PAST,),
    FIVE_MINUTES: (queries.GPU_FIVE, queries.FABRIC_FIVE, queries.HOST_FIVE),
    MINUTE: (queries.GPU_SHORT, queries.FABRIC_SHORT, queries.HOST_SHORT),
}


def families(resolution: float, wanted: Collection[str] | None) -> dict[str, RowFamily]:
    """The families of rows of `resolution` seconds (3600, 300 or 60): whole ones, or, where certain GPUs are `wanted`,
    the columns that the watch needs; of hours those of GPUs alone."""
    if wanted is None:
        return FAMILIES
    pairs = zip(FAMILIES.items(), _SHORT[resolution], strict=False)
    return {name: replace(family, hours=query, minutes=query, is_short=True) for (name, family), query in pairs}


def read_family(
    fetch: Fetch, family: RowFamily, window: Window, last_seen: dict[str, float], resolution: float = HOUR,
    *, only: Only | None = None,
) -> list[pd.DataFrame]:  # fmt: skip
    """All rows of a family in the window, each moment once, by the coarsest rows that lie inside the window; as
    tables that are not empty. `last_seen`: node -> when it was last seen, so that a node long gone is not searched for
    minutes. `resolution`: seconds of the coarsest rows: 3600, 300 or 60. `only`: of the coarsest rows, those."""

    def inside(parts: list[pd.DataFrame]) -> list[pd.DataFrame]:
        return [rows[rows["ts"] - rows["interval_seconds"] >= window.start - 1.0] for rows in parts if len(rows)]

    columns = family.minutes.columns
    hours = inside(fetch(family.hours, window.start, window.end, only)) if resolution > MINUTE else []
    if family.is_short and resolution > MINUTE:
        return hours
    minutes = inside(
        _newer(fetch, family.minutes, hours, last_seen, start=window.start, end=window.end + MINUTE - 1e-6)
    )
    newest = max(window.start, window.end - SAMPLES_SPAN_SECONDS)
    parts = _newer(fetch, family.samples, hours + minutes, last_seen, start=newest, end=window.end)
    newest_rows = tables.minutes_from_samples(concat(parts, family.samples.columns), family.keys, columns)
    return [part for part in (*hours, *minutes, newest_rows) if not part.empty]


def _newer(
    fetch: Fetch, query: Query, tables: list[pd.DataFrame], last_seen: dict[str, float], *, start: float, end: float
) -> list[pd.DataFrame]:
    """Rows after `start` and each node's `known` rows; nodes for which that is the same moment share a query."""
    ends = pd.concat([rows[["node", "ts"]] for rows in tables]).groupby("node")["ts"].max() if tables else pd.Series()
    nodes_of: dict[float, list[str]] = {}
    for node, seen in last_seen.items():
        floor = max(start, ends.get(node, start))
        if min(end, seen + MINUTE) > floor:
            nodes_of.setdefault(floor, []).append(node)
    parts: list[pd.DataFrame] = []
    for floor, nodes in nodes_of.items():
        until = min(end, max(last_seen[node] for node in nodes) + MINUTE)
        parts += fetch(query, floor, until, ("node", nodes))
    return parts


def concat(parts: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """Tables under one another in these columns, without the empty ones (which would change the types of the columns):
    a number that a table lacks is NaN."""
    filled = [part.reindex(columns=list(columns)) for part in parts if not part.empty]
    return pd.concat(filled, ignore_index=True) if filled else tables.empty_table(columns)


def stacked(parts: list[tuple[int, pd.DataFrame]], query: Query, order: Sequence[str]) -> pd.DataFrame:
    """Like `concat`, with the column ``file``, the number that came with each table, and ordered by `order`, equal rows
    as they came. Works in one pass and releases each table once its rows are taken (a fleet's rows are most of the
    memory of a reading): `parts` is empty afterwards."""
    names = [*query.numbers, "file"]
    if not parts:
        return tables.empty_table([*query.text, *names, *query.bins])
    keys = pd.concat([table[list(order)] for _, table in parts], ignore_index=True)
    place = np.argsort(keys.sort_values(list(order), kind="stable").index.to_numpy())
    numbers = np.full((len(names), len(place)), np.nan)
    texts = np.full((len(query.text), len(place)), None, dtype=object)
    bins = {name: BinsArray.missing(len(place)) for name in query.bins}
    end = 0
    while parts:
        file, table = parts.pop(0)
        begin, end = end, end + len(table)
        at = place[begin:end]
        numbers[:, at] = table.assign(file=file).reindex(columns=names).to_numpy(float).T
        texts[:, at] = table[list(query.text)].to_numpy(object).T
        for name, column in bins.items():
            if name in table and isinstance(cells := table[name].array, BinsArray):
                column.matrix[at] = cells.matrix
    out = pd.DataFrame(texts.T, columns=list(query.text), dtype=object, copy=False)
    return pd.concat([out, pd.DataFrame(numbers.T, columns=names, copy=False), pd.DataFrame(bins, copy=False)], axis=1)


def with_minutes_at_edges(
    fetch: Fetch, gpu: list[pd.DataFrame], uses: pd.DataFrame, minutes_from: float, most: int
) -> list[pd.DataFrame]:
    """Rows of GPUs, with minutes in place of the hours that the start or end of a workload cuts, where minutes exist.
    `minutes_from`: where they begin; `most`: hours to do that for, the others are attributed by overlap."""
    if uses.empty or not gpu:
        return gpu
    device = ["node", "gpu_uuid"]
    hour = [*device, "ts"]
    edges = pd.concat(
        uses[device].assign(edge=uses[end], length=uses["ts_end"] - uses["ts_start"]) for end in ("ts_start", "ts_end")
    ).sort_values("length", kind="stable")
    edges["ts"] = np.ceil(edges["edge"] / HOUR) * HOUR
    is_inside = (edges["ts"] - edges["edge"]).between(MINUTE, HOUR - MINUTE, inclusive="neither")
    is_inside &= edges["ts"] - HOUR >= minutes_from - MINUTE
    cut = edges.loc[is_inside, hour].drop_duplicates()
    near = [rows[(rows["interval_seconds"] > MINUTE) & rows["ts"].isin(cut["ts"].unique())] for rows in gpu]
    cut = cut.merge(pd.concat(rows[[*hour, "observed_seconds"]] for rows in near), on=hour).iloc[:most]
    fetched: list[pd.DataFrame] = []
    for ts, uuids in cut.groupby("ts")["gpu_uuid"]:
        fetched += fetch(queries.GPU_MINUTES, float(ts) - HOUR, float(ts), ("gpu_uuid", set(uuids)))  # type: ignore[arg-type]
    minutes = concat(fetched, queries.GPU_MINUTES.columns)
    if minutes.empty:
        return gpu
    of_hour = [minutes["node"], minutes["gpu_uuid"], minutes["ts"].div(HOUR).apply(np.ceil).mul(HOUR)]
    covered = minutes.groupby(of_hour)["observed_seconds"].sum().rename("covered")
    cut = cut.join(covered, on=hour)
    replaced = pd.MultiIndex.from_frame(cut.loc[cut["covered"] >= 0.9 * cut["observed_seconds"], hour])
    gone = [rows.index[pd.MultiIndex.from_frame(rows[hour]).isin(replaced)] for rows in near]
    kept = [rows.drop(index=dropped) for rows, dropped in zip(gpu, gone, strict=True)]
    return [*kept, minutes[pd.MultiIndex.from_arrays(of_hour).isin(replaced)]]
