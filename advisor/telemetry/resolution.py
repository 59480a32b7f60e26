"""Which rows tell about which hour: hours where there are any, minutes at the edges, samples for what is newest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...agent.store.reading import queries
from ...agent.store.reading.queries import Query
from ..core.coded_text import CodedText, coded
from ..core.frame import Window
from ..core.histogram_array import BinsArray
from . import tables

HOUR = 3600.0
MINUTE = 60.0
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
    """One family of rows at its three resolutions. `keys`: what names a device."""

    keys: tuple[str, ...]
    hours: Query
    minutes: Query
    samples: Query


GPU = RowFamily(("node", "gpu_uuid"), queries.GPU_HOURS, queries.GPU_MINUTES, queries.GPU_SAMPLES)
FABRIC = RowFamily(("node", "device", "port"), queries.FABRIC_HOURS, queries.FABRIC_MINUTES, queries.FABRIC_SAMPLES)
HOST = RowFamily(("node",), queries.HOST_HOURS, queries.HOST_MINUTES, queries.HOST_SAMPLES)
FAMILIES = {"gpu": GPU, "fabric": FABRIC, "host": HOST}


def read_family(
    fetch: Fetch, family: RowFamily, window: Window, last_seen: dict[str, float], resolution: float = HOUR
) -> list[pd.DataFrame]:
    """All rows of a family in the window, each moment once, by the coarsest rows that lie inside the window; as
    tables that are not empty. `last_seen`: node -> when it was last seen, so that a node long gone is not searched for
    minutes. `resolution`: seconds of the coarsest rows: 3600, 300 or 60."""
    columns = family.minutes.columns
    hours: list[pd.DataFrame] = []
    if resolution >= HOUR:
        hours = _from(fetch(family.hours, window.start, window.end, None), window.start)
    floors = _ends(hours, dict.fromkeys(last_seen, window.start))
    minutes = _from(_after(fetch, family.minutes, floors, last_seen, window.end + MINUTE - 1e-6), window.start)
    floors = {node: max(end, window.end - SAMPLES_SPAN_SECONDS) for node, end in _ends(minutes, floors).items()}
    samples = concat(_after(fetch, family.samples, floors, last_seen, window.end), family.samples.columns)
    fine = [*minutes, tables.minutes_from_samples(samples, family.keys, columns)]
    if MINUTE < resolution < HOUR:
        fine = [tables.folded(concat(fine, columns), family.keys, resolution)]
    return [part for part in (*hours, *fine) if not part.empty]


def _from(parts: Sequence[pd.DataFrame], start: float) -> list[pd.DataFrame]:
    """The rows that do not begin before `start`."""
    kept = [rows[rows["ts"] - rows["interval_seconds"] >= start - 1.0] for rows in parts if not rows.empty]
    return [rows for rows in kept if not rows.empty]


def _ends(parts: Sequence[pd.DataFrame], known: dict[str, float]) -> dict[str, float]:
    """Node -> end of its rows; where it has none, what was known."""
    if not parts:
        return known
    ends = pd.concat([rows[["node", "ts"]] for rows in parts]).groupby("node")["ts"].max().to_dict()
    return {node: ends.get(node, end) for node, end in known.items()}


def _after(
    fetch: Fetch, query: Query, floors: dict[str, float], last_seen: dict[str, float], end: float
) -> list[pd.DataFrame]:
    """Rows newer than each node's floor; nodes with the same floor share a query."""
    by_floor: dict[float, set[str]] = {}
    for node, floor in floors.items():
        if min(end, last_seen[node] + MINUTE) > floor:
            by_floor.setdefault(floor, set()).add(node)
    parts: list[pd.DataFrame] = []
    for floor, nodes in by_floor.items():
        until = min(end, max(last_seen[node] for node in nodes) + MINUTE)
        parts += fetch(query, floor, until, ("node", nodes))
    return parts


def concat(parts: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """Tables under one another in these columns, without the empty ones (which would change the types of the columns):
    a number that a table lacks is NaN, bins that it lacks are missing."""
    filled: list[pd.DataFrame] = []
    for part in parts:
        if part.empty:
            continue
        if list(part.columns) != list(columns):
            lacking = [name for name in columns if name.endswith("_bins") and name not in part]
            bins = {name: BinsArray.missing(len(part)) for name in lacking}
            part = part.reindex(columns=list(columns)).assign(**bins)  # noqa: PLW2901
        filled.append(part)
    if not filled:
        return tables.empty_table(columns)
    return filled[0].reset_index(drop=True) if len(filled) == 1 else pd.concat(filled, ignore_index=True)


def stacked(parts: list[tuple[int, pd.DataFrame]], query: Query, order: Sequence[str]) -> pd.DataFrame:
    """Like `concat`, with the column ``file``, the number that came with each table, and ordered by `order`, equal rows
    as they came. Each row is put where it belongs in one pass, and a table is let go once its rows are taken (a fleet's
    rows are the most memory that a reading takes): `parts` is empty afterwards."""
    parts[:] = [part for part in parts if not part[1].empty]
    if not parts:
        return tables.empty_table([*query.columns, "file"])
    keys = pd.concat([table[list(order)] for _, table in parts], ignore_index=True)
    place = np.argsort(keys.sort_values(list(order), kind="stable").index.to_numpy())
    count = len(place)
    numbers = np.full((len(query.numbers), count), np.nan)
    texts = {name: np.full(count, None, dtype=object) for name in query.text}
    bins = {name: BinsArray.missing(count) for name in query.bins}
    files = np.empty(count, dtype=np.int64)
    end = 0
    while parts:
        file, table = parts.pop(0)
        begin, end = end, end + len(table)
        at = place[begin:end]
        files[at] = file
        for row, name in enumerate(query.numbers):
            if name in table:
                numbers[row, at] = table[name].to_numpy(float)
        for name, cells in texts.items():
            cells[at] = table[name].to_numpy(object)
        for name, column in bins.items():
            if name in table and isinstance(own := table[name].array, BinsArray):
                column.matrix[at] = own.matrix
    out = pd.DataFrame(numbers.T, columns=list(query.numbers), copy=False)
    for n, (name, cells) in enumerate(texts.items()):
        out.insert(n, name, pd.Series(cells, dtype=object, copy=False))
    for name, column in {**bins, "file": files}.items():
        out[name] = pd.Series(column, copy=False)
    return out


@dataclass(frozen=True)
class Refinement:
    """Minutes that stand in for hours: `minutes`, and of each hour ``node, gpu_uuid, hour`` (its end)."""

    minutes: pd.DataFrame
    hours: pd.DataFrame


def with_minutes(gpu: Sequence[pd.DataFrame], found: Refinement) -> list[pd.DataFrame]:
    """`gpu` with the minutes in place of their hours."""
    hours = pd.MultiIndex.from_frame(found.hours)
    kept = []
    for rows in gpu:
        # Few hours are cut: only rows that end with one are looked at closely.
        gone = (rows["ts"].isin(found.hours["hour"]) & (rows["interval_seconds"] > MINUTE)).to_numpy(bool, copy=True)
        gone[gone] = pd.MultiIndex.from_frame(rows.loc[gone, ["node", "gpu_uuid", "ts"]]).isin(hours)
        kept.append(rows[~gone])
    return [*kept, found.minutes]


def refinement(
    fetch: Fetch,
    gpu: Sequence[pd.DataFrame],
    uses: pd.DataFrame,
    window: Window,
    minutes_from: float | None,
    *,
    most: int,
) -> tuple[Refinement | None, CodedText | None]:
    """Minutes for the hours that the start or end of a workload cuts, where the minutes still exist; None: there are
    none. `gpu`: rows of GPUs, in any number of tables. `minutes_from`: where the minutes of this database begin, None
    where it has none. `most`: hours to do that for."""
    if not any(len(rows) for rows in gpu) or uses.empty or minutes_from is None:
        return None, None
    device = ["node", "gpu_uuid"]
    edges = pd.concat(
        uses[device].assign(edge=uses[end], length=uses["ts_end"] - uses["ts_start"]) for end in ("ts_start", "ts_end")
    ).sort_values("length", kind="stable")
    edges["ts"] = np.ceil(edges["edge"] / HOUR) * HOUR
    is_inside = (edges["ts"] - edges["edge"]).between(MINUTE, HOUR - MINUTE, inclusive="neither")
    is_inside &= edges["edge"].between(window.start, window.end, inclusive="neither")
    is_inside &= edges["ts"] - HOUR >= minutes_from - MINUTE
    cut = edges.loc[is_inside, [*device, "ts"]].drop_duplicates()
    about = [*device, "ts", "observed_seconds"]
    near = [rows.loc[(rows["interval_seconds"] > MINUTE) & rows["ts"].isin(cut["ts"].unique()), about] for rows in gpu]
    cut = cut.merge(pd.concat(near), on=[*device, "ts"])
    note = None
    if len(cut) > most:
        note = coded(
            "hours-shared-by-overlap",
            "{hours} hours contain the start or end of a workload. {most} of them are read per minute; "
            "the others are divided by overlap.",
            hours=len(cut), most=most,
        )  # fmt: skip
        cut = cut.iloc[:most]
    fetched = [
        part
        for ts, own in cut.groupby("ts")
        for part in fetch(queries.GPU_MINUTES, float(ts) - HOUR, float(ts), ("gpu_uuid", set(own["gpu_uuid"])))  # type: ignore[arg-type]
    ]
    minutes = concat(fetched, queries.GPU_MINUTES.columns)
    if minutes.empty:
        return None, note
    hour = [*device, "hour"]
    minutes["hour"] = np.ceil(minutes["ts"] / HOUR) * HOUR
    covered = minutes.groupby(hour, as_index=False).agg(covered=("observed_seconds", "sum"))
    cut = cut.rename(columns={"ts": "hour"}).merge(covered, on=hour)
    cut = cut.loc[cut["covered"] >= 0.9 * cut["observed_seconds"], hour]
    return Refinement(minutes.merge(cut, on=hour).drop(columns="hour"), cut), note
