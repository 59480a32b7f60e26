"""Which rows tell about which hour: hours where there are any, minutes at the edges, samples for what is newest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd

from ...agent.store.reading import queries
from ...agent.store.reading.queries import Query
from ..core.coded_text import CodedText, coded
from ..core.frame import Window
from ..core.histogram_array import BinsArray
from . import tables
from .only import Device, Only

HOUR = 3600.0
MINUTE = 60.0
# Samples are read raw, so only for as long as the rollups may lag.
SAMPLES_SPAN_SECONDS = 6 * HOUR
# Hours that a workload's start or end cuts are read as minutes, up to so many a node and so many in all, those of the
# shortest workloads first: the rest are attributed by overlap, which a long one does not notice.
MAX_REFINED_HOURS, MAX_REFINED_HOURS_IN_ALL = 400, 2000


class Fetch(Protocol):
    """Gives the rows of a query in (start, end], as tables that need not be in order. `only`: of whom they are wanted
    (None: of all); those of others may come, too."""

    def __call__(
        self, query: Query, start: float, end: float, *, only: Only | None = None
    ) -> Sequence[pd.DataFrame]: ...


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


def read_family(
    fetch: Fetch, family: RowFamily, window: Window, last_seen: dict[str, float], resolution: float = HOUR
) -> list[pd.DataFrame]:
    """All rows of a family in the window, each moment told once, by the coarsest rows that lie inside the window; as
    tables that are not empty, each with as many of the family's columns as its rows have.

    `last_seen`: node -> when it was last seen, so that a node long gone is not searched for minutes. `resolution`:
    seconds of a row; below an hour there are rows of minutes only, folded where a row is longer.
    """
    if resolution < HOUR:
        parts = _minutes_and_samples(fetch, family, window, last_seen, dict.fromkeys(last_seen, window.start))
        if resolution == MINUTE or not parts:
            return parts
        return [fold_rows(concat(parts, family.minutes.columns), family.keys, resolution)]
    hours = _from(fetch(family.hours, window.start, window.end), window.start)
    parts = list(hours)
    first_hour = np.ceil(window.start / HOUR) * HOUR
    if first_hour > window.start and hours:
        parts += fetch(family.minutes, window.start, min(first_hour, window.end))
    parts += _minutes_and_samples(fetch, family, window, last_seen, _floors(hours, last_seen, window.start))
    return [part for part in parts if not part.empty]


def _minutes_and_samples(
    fetch: Fetch, family: RowFamily, window: Window, last_seen: dict[str, float], floors: dict[str, float]
) -> list[pd.DataFrame]:
    """Rows of minutes of each node after its floor, and of samples after the minutes."""
    minutes = _from(_after(fetch, family.minutes, floors, last_seen, window.end + MINUTE - 1e-6), window.start)
    floors = _floors(minutes, last_seen, floors)
    floors = {node: max(floor, window.end - SAMPLES_SPAN_SECONDS) for node, floor in floors.items()}
    samples = concat(_after(fetch, family.samples, floors, last_seen, window.end), family.samples.columns)
    parts = [*minutes, family.fold(samples, family.minutes.columns)]
    return [part for part in parts if not part.empty]


def fold_rows(rows: pd.DataFrame, keys: Sequence[str], seconds: float) -> pd.DataFrame:
    """Rows of minutes as rows of `seconds`: observed time and samples are summed, maxima kept, the rest averaged."""
    grouped = rows.assign(ts=np.ceil(rows["ts"] / seconds) * seconds).groupby([*keys, "ts"], sort=True)
    numbers = [name for name in rows.select_dtypes("number") if name not in {*keys, "ts"}]
    out = grouped[numbers].mean()
    maxima = [name for name in numbers if name.endswith("_max")]
    summed = [name for name in numbers if name.endswith("_n") or name == "observed_seconds"]
    out[maxima], out[summed] = grouped[maxima].max(), grouped[summed].sum()
    texts = [name for name in rows.columns if name not in {*keys, "ts", *numbers}]
    out[texts] = grouped[texts].first()
    return out.assign(interval_seconds=seconds).reset_index()[list(rows.columns)]


def _from(parts: Sequence[pd.DataFrame], start: float) -> list[pd.DataFrame]:
    """The rows that do not begin before `start`."""
    kept = []
    for rows in parts:
        kept.append(tables.cut(rows, (rows["ts"] - rows["interval_seconds"] >= start - 1.0).to_numpy(bool)))
    return [rows for rows in kept if not rows.empty]


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


def _floors(
    parts: Sequence[pd.DataFrame], last_seen: dict[str, float], default: float | dict[str, float]
) -> dict[str, float]:
    """Node -> end of what the rows tell of it."""
    ends: dict[str, float] = {}
    for rows in parts:
        for node, end in rows.groupby("node")["ts"].max().items() if not rows.empty else ():
            ends[str(node)] = max(float(end), ends.get(str(node), float(end)))
    if isinstance(default, dict):
        return {node: float(ends.get(node, default[node])) for node in last_seen}
    return {node: float(ends.get(node, default)) for node in last_seen}


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
        found = (
            rows[rows["node"].isin(nodes)] for rows in fetch(query, floor, until, only=Only(nodes)) if not rows.empty
        )
        parts += [rows for rows in found if not rows.empty]
    return parts


@dataclass(frozen=True)
class Refinement:
    """Minutes that stand in for hours: `minutes`, and of each hour ``node, gpu_uuid, hour`` (its end)."""

    minutes: pd.DataFrame
    hours: pd.DataFrame


def with_minutes(gpu: Sequence[pd.DataFrame], found: Sequence[Refinement]) -> list[pd.DataFrame]:
    """`gpu` with the minutes in place of their hours; of an hour that several tell, the first."""
    if not found:
        return list(gpu)
    hours = pd.concat([one.hours for one in found])
    if hours.duplicated().any():
        found = _once(found)
    replaced = pd.MultiIndex.from_frame(hours)
    return [*(_without(rows, replaced) for rows in gpu), *(one.minutes for one in found)]


def _without(rows: pd.DataFrame, hours: pd.MultiIndex) -> pd.DataFrame:
    """The rows but those of these hours (node, GPU, end)."""
    # Few hours are cut: only rows that end with one are looked at closely.
    is_hour = rows["interval_seconds"].to_numpy(float) > MINUTE
    at = np.flatnonzero(is_hour & np.isin(rows["ts"].to_numpy(float), hours.get_level_values(2).to_numpy(float)))
    if not len(at):
        return rows
    gone = np.zeros(len(rows), dtype=np.bool_)
    gone[at] = pd.MultiIndex.from_frame(rows[["node", "gpu_uuid", "ts"]].iloc[at]).isin(hours)
    return rows[~gone]


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
    fetch: Fetch,
    gpu: Sequence[pd.DataFrame],
    uses: pd.DataFrame,
    window: Window,
    minutes_from: float | None,
    *,
    most: int,
) -> tuple[Refinement | None, CodedText | None]:
    """Minutes for the hours that the start or end of a workload cuts, where the minutes still exist; None: there are
    none.

    `gpu`: rows of GPUs, in any number of tables. `minutes_from`: where the minutes of this database begin, None where
    it has none. `most`: hours to do that for.
    """
    if not any(len(rows) for rows in gpu) or uses.empty or minutes_from is None:
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
    told = ["node", "gpu_uuid", "ts", "observed_seconds"]
    stamps = cut["ts"].unique()
    near = [rows.loc[(rows["interval_seconds"] > MINUTE) & rows["ts"].isin(stamps), told] for rows in gpu if len(rows)]
    cut = cut.merge(pd.concat(near), on=["node", "gpu_uuid", "ts"])
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
    of_hour: dict[float, set[Device]] = {}
    for node, uuid, ts in zip(cut["node"], cut["gpu_uuid"], cut["ts"], strict=True):
        of_hour.setdefault(float(ts), set()).add((str(node), str(uuid)))
    fetched = [fetch(queries.GPU_MINUTES, ts - HOUR, ts, only=Only(gpus=own)) for ts, own in sorted(of_hour.items())]
    minutes = concat([rows for part in fetched for rows in part], queries.GPU_MINUTES.columns)
    if minutes.empty:
        return None, note
    minutes["hour"] = np.ceil(minutes["ts"] / HOUR) * HOUR
    covered = minutes.groupby(["node", "gpu_uuid", "hour"])["observed_seconds"].sum().rename("covered").reset_index()
    cut = cut.merge(covered, left_on=["node", "gpu_uuid", "ts"], right_on=["node", "gpu_uuid", "hour"])
    cut = cut[cut["covered"] >= 0.9 * cut["observed_seconds"]][["node", "gpu_uuid", "hour"]]
    chosen = minutes.merge(cut, on=["node", "gpu_uuid", "hour"]).drop(columns="hour")
    return Refinement(chosen, cut), note
