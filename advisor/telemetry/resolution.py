"""Which rows tell about which hour: hours where there are any, minutes at the edges, samples for what is newest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

Fetch = Callable[[Query, float, float], pd.DataFrame]


@dataclass(frozen=True)
class RowFamily:
    """One family of rows at its three resolutions."""

    keys: tuple[str, ...]
    hours: Query
    minutes: Query
    samples: Query
    fold: Callable[[pd.DataFrame, Sequence[str]], pd.DataFrame]


GPU = RowFamily(
    ("node", "gpu_uuid"),
    queries.GPU_HOURS,
    queries.GPU_MINUTES,
    queries.GPU_SAMPLES,
    tables.gpu_minutes_from_samples,
)
FABRIC = RowFamily(
    ("node", "device", "port"),
    queries.FABRIC_HOURS,
    queries.FABRIC_MINUTES,
    queries.FABRIC_SAMPLES,
    tables.fabric_minutes_from_samples,
)
HOST = RowFamily(
    ("node",), queries.HOST_HOURS, queries.HOST_MINUTES, queries.HOST_SAMPLES, tables.host_minutes_from_samples
)


def read_family(fetch: Fetch, family: RowFamily, window: Window, last_seen: dict[str, float]) -> pd.DataFrame:
    """All rows of a family in the window, each moment told once, by the coarsest rows that lie inside the window.

    `last_seen`: node -> when it was last seen, so that a node long gone is not searched for minutes.
    """
    hours = fetch(family.hours, window.start, window.end)
    hours = _from(hours, window.start)
    parts = [hours]
    first_hour = np.ceil(window.start / HOUR) * HOUR
    if first_hour > window.start and not hours.empty:
        parts.append(fetch(family.minutes, window.start, min(first_hour, window.end)))
    floors = _floors(hours, last_seen, window.start)
    minutes = _after(fetch, family.minutes, floors, last_seen, window.end + MINUTE - 1e-6)
    minutes = _from(minutes, window.start)
    parts.append(minutes)
    floors = _floors(minutes, last_seen, floors)
    floors = {node: max(floor, window.end - SAMPLES_SPAN_SECONDS) for node, floor in floors.items()}
    samples = _after(fetch, family.samples, floors, last_seen, window.end)
    parts.append(family.fold(samples, family.minutes.columns))
    return concat(parts, family.hours.columns)


def _from(rows: pd.DataFrame, start: float) -> pd.DataFrame:
    """The rows that do not begin before `start`."""
    late = rows["ts"] - rows["interval_seconds"] >= start - 1.0
    return rows if late.all() else rows[late]


def concat(parts: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """Tables under one another, without the empty ones (which would change the types of the columns)."""
    filled = [with_columns(part, columns) for part in parts if not part.empty]
    if not filled:
        return tables.empty_table(columns)
    return filled[0].reset_index(drop=True) if len(filled) == 1 else pd.concat(filled, ignore_index=True)


def with_columns(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """`table` with exactly these columns: a number that it lacks is NaN, bins that it lacks are None."""
    if list(table.columns) == list(columns):
        return table
    out = table.reindex(columns=list(columns))
    lacking = [name for name in columns if name.endswith("_bins") and name not in table]
    return out.assign(**{name: BinsArray.missing(len(out)) for name in lacking})


def _floors(rows: pd.DataFrame, last_seen: dict[str, float], default: float | dict[str, float]) -> dict[str, float]:
    """Node -> end of what `rows` tells of it."""
    ends = rows.groupby("node")["ts"].max().to_dict() if not rows.empty else {}
    if isinstance(default, dict):
        return {node: float(ends.get(node, default[node])) for node in last_seen}
    return {node: float(ends.get(node, default)) for node in last_seen}


def _after(
    fetch: Fetch, query: Query, floors: dict[str, float], last_seen: dict[str, float], end: float
) -> pd.DataFrame:
    """Rows newer than each node's floor; nodes with the same floor share a query."""
    by_floor: dict[float, set[str]] = {}
    for node, floor in floors.items():
        if min(end, last_seen[node] + MINUTE) > floor:
            by_floor.setdefault(floor, set()).add(node)
    parts = []
    for floor, nodes in by_floor.items():
        until = min(end, max(last_seen[node] for node in nodes) + MINUTE)
        rows = fetch(query, floor, until)
        parts.append(rows[rows["node"].isin(nodes)])
    return concat(parts, query.columns)


@dataclass(frozen=True)
class Refinement:
    """Minutes that stand in for hours: `minutes`, and of each hour ``node, gpu_uuid, hour`` (its end)."""

    minutes: pd.DataFrame
    hours: pd.DataFrame


def refine(
    fetch: Fetch, gpu: pd.DataFrame, uses: pd.DataFrame, window: Window, minutes_from: float | None, *, most: int
) -> tuple[pd.DataFrame, CodedText | None]:
    """Put minutes in place of the hours that the start or end of a workload cuts, where the minutes still exist.

    `minutes_from`: where the minutes of this database begin, None where it has none. `most`: hours to do that for.
    """
    found, note = refinement(fetch, gpu, uses, window, minutes_from, most=most)
    return (gpu if found is None else with_minutes(gpu, [found])), note


def with_minutes(gpu: pd.DataFrame, found: Sequence[Refinement]) -> pd.DataFrame:
    """`gpu` with the minutes in place of their hours; of an hour that several tell, the first."""
    if not found:
        return gpu
    hours = pd.concat([one.hours for one in found])
    if hours.duplicated().any():
        found = _once(found)
    replaced = pd.MultiIndex.from_frame(gpu[["node", "gpu_uuid", "ts"]]).isin(pd.MultiIndex.from_frame(hours))
    is_hour = gpu["interval_seconds"].to_numpy(float) > MINUTE
    return concat([gpu[~(replaced & is_hour)], *(one.minutes for one in found)], list(gpu.columns))


def _once(found: Sequence[Refinement]) -> list[Refinement]:
    kept: list[Refinement] = []
    seen = pd.MultiIndex.from_frame(found[0].hours[:0])
    for one in found:
        own = pd.MultiIndex.from_frame(one.hours)
        again = own[own.isin(seen)]
        ends = one.minutes[["node", "gpu_uuid"]].assign(hour=np.ceil(one.minutes["ts"] / HOUR) * HOUR)
        told = pd.MultiIndex.from_frame(ends).isin(again)
        kept.append(Refinement(one.minutes[~told], one.hours[~own.isin(seen)]))
        seen = seen.append(own)
    return kept


def refinement(
    fetch: Fetch, gpu: pd.DataFrame, uses: pd.DataFrame, window: Window, minutes_from: float | None, *, most: int
) -> tuple[Refinement | None, CodedText | None]:
    """The minutes that `refine` puts in; None: none."""
    if gpu.empty or uses.empty or minutes_from is None:
        return None, None
    edges = pd.concat(
        [
            uses[["node", "gpu_uuid"]].assign(edge=uses[end], length=uses["ts_end"] - uses["ts_start"])
            for end in ("ts_start", "ts_end")
        ]
    ).sort_values("length", kind="stable")
    edges["ts"] = np.ceil(edges["edge"] / HOUR) * HOUR
    inside = (edges["ts"] - edges["edge"] > MINUTE) & (edges["edge"] - (edges["ts"] - HOUR) > MINUTE)
    in_window = (edges["edge"] > window.start) & (edges["edge"] < window.end)
    kept = edges["ts"] - HOUR >= minutes_from - MINUTE
    cut = edges.loc[inside & in_window & kept, ["node", "gpu_uuid", "ts"]].drop_duplicates()
    is_hour = gpu["interval_seconds"] > MINUTE
    cut = cut.merge(gpu.loc[is_hour, ["node", "gpu_uuid", "ts", "observed_seconds"]], on=["node", "gpu_uuid", "ts"])
    note = None
    if len(cut) > most:
        note = coded(
            "hours-shared-by-overlap",
            "{hours} hours contain the start or end of a workload. {most} of them are read per minute; "
            "the others are divided by overlap.",
            hours=len(cut), most=most,
        )  # fmt: skip
        cut = cut.iloc[:most]
    if cut.empty:
        return None, note
    stamps = sorted(cut["ts"].unique())
    minutes = concat([fetch(queries.GPU_MINUTES, ts - HOUR, ts) for ts in stamps], queries.GPU_MINUTES.columns)
    if minutes.empty:
        return None, note
    minutes["hour"] = np.ceil(minutes["ts"] / HOUR) * HOUR
    covered = minutes.groupby(["node", "gpu_uuid", "hour"])["observed_seconds"].sum().rename("covered").reset_index()
    cut = cut.merge(covered, left_on=["node", "gpu_uuid", "ts"], right_on=["node", "gpu_uuid", "hour"])
    cut = cut[cut["covered"] >= 0.9 * cut["observed_seconds"]][["node", "gpu_uuid", "hour"]]
    chosen = minutes.merge(cut, on=["node", "gpu_uuid", "hour"]).drop(columns="hour")
    return Refinement(chosen, cut), note
