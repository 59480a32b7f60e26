"""Where the GPU-hours of each UTC day went: `gpu_hour_accounting`, cut at midnight.

The totals of the window are those of `occupancy`; a day's part of them is as its rows tell. A row that spans midnight
is divided by time. What was not observed lies in the days in which something is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.frame import Frame
from ..workloads.attribution import Attribution
from ..workloads.inventory import Inventory
from .gpu_hour_accounting import placed_by_nodes, summed

Floats = npt.NDArray[np.float64]

DAY = 86400.0
COLUMNS = ("node", "class", "workload_id", "day", "gpu_hours")
_USE = ["node", "class", "workload_id"]


@dataclass(frozen=True, slots=True)
class NodeSpan:
    """The time for which a node is accounted for, Unix seconds."""

    start: float
    end: float

    def days(self) -> Floats:
        """The beginning of every UTC day that it touches, Unix seconds."""
        first, last = _first_day(self.start), max(_last_day(self.end), _first_day(self.start))
        return np.arange(first, last + 1) * DAY

    def hours_of(self, day: float) -> float:
        """How many hours of a day it covers."""
        return max(min(self.end, day + DAY) - max(self.start, day), 0.0) / 3600


def _first_day(ts: float) -> float:
    return float(np.floor(ts / DAY))


def _last_day(ts: float) -> float:
    return float(np.ceil(ts / DAY)) - 1


def node_spans(frame: Frame, inventory: Inventory) -> dict[str, NodeSpan]:
    """Every node that is accounted for."""
    out = {}
    for name, node in inventory.nodes.items():
        if node.span_hours > 0:
            end = frame.window.end if node.end is None else min(node.end, frame.window.end)
            out[name] = NodeSpan(end - node.span_hours * 3600, end)
    return out


def daily_hours(  # noqa: PLR0917
    frame: Frame, inventory: Inventory, attribution: Attribution, idle: pd.Series, parts: Floats,
    occupancy: pd.DataFrame,
) -> pd.DataFrame:  # fmt: skip
    """`COLUMNS`: GPU-hours by node, class, workload ("" where there is none) and day (its beginning, Unix seconds).

    `idle`, `parts`: as for `occupancy`, whose totals these are.
    """
    spans = node_spans(frame, inventory)
    totals = occupancy.assign(workload_id=_ids(occupancy["workload_id"])).groupby(_USE)["gpu_hours"].sum()
    tables = (_by_day(frame, table, spans) for table in placed_by_nodes(frame, attribution, idle, parts))
    observed = summed(tables, list(COLUMNS[:4]), list(COLUMNS[4:]))
    if observed is None:
        observed = pd.DataFrame({name: pd.Series(dtype=object) for name in COLUMNS})
    if not observed.empty:
        seen = observed.groupby(_USE)["gpu_hours"].transform("sum")
        wanted = totals.reindex(pd.MultiIndex.from_frame(observed[_USE])).to_numpy(float)
        observed["gpu_hours"] *= wanted / seen
    counts = {name: node.gpu_count for name, node in inventory.nodes.items()}
    rest = _unobserved(totals, observed, spans, counts)
    filled = [part for part in (observed, rest) if not part.empty]
    if not filled:
        return pd.DataFrame({name: pd.Series(dtype=object) for name in COLUMNS})
    whole = pd.concat(filled, ignore_index=True)[list(COLUMNS)]
    return whole[whole["gpu_hours"] > 0].sort_values(list(COLUMNS[:4]), ignore_index=True)


def _by_day(frame: Frame, table: pd.DataFrame, spans: Mapping[str, NodeSpan]) -> pd.DataFrame:
    """`COLUMNS` of each moment, cut at the ends of days, before they are held to the totals."""
    table = table[table["node"].isin(list(spans))]
    at = table["row"].to_numpy(int)
    end = frame.gpu["ts"].to_numpy(float)[at]
    begin = end - frame.gpu["interval_seconds"].to_numpy(float)[at]
    bounds = {name: span.days()[[0, -1]] / DAY for name, span in spans.items()}
    least, most = (table["node"].map({name: days[n] for name, days in bounds.items()}).to_numpy(float) for n in (0, 1))
    # A row may begin before its node's span, or end behind it by a clock that is off: it counts in the nearest day.
    first = np.clip(np.floor(begin / DAY), least, most)
    last = np.maximum(np.clip(np.ceil(end / DAY) - 1, least, most), first)
    count = (last - first + 1).astype(int)
    taken = np.repeat(np.arange(len(table)), count)
    nth = np.arange(len(taken)) - np.repeat(np.cumsum(count) - count, count)
    day = (first[taken] + nth) * DAY
    overlap = np.clip(np.minimum(end[taken], day + DAY) - np.maximum(begin[taken], day), 0.0, None)
    whole = np.bincount(taken, overlap, minlength=len(table))[taken]
    share = np.where(whole > 0, overlap / np.where(whole > 0, whole, 1.0), 1.0 / count[taken])
    return pd.DataFrame(
        {
            "node": table["node"].astype(str).to_numpy()[taken], "class": table["class"].to_numpy()[taken],
            "workload_id": _ids(table["workload_id"]).to_numpy()[taken], "day": day,
            "gpu_hours": table["gpu_hours"].to_numpy(float)[taken] * share,
        }
    )  # fmt: skip


def _unobserved(
    totals: pd.Series, observed: pd.DataFrame, spans: Mapping[str, NodeSpan], counts: Mapping[str, int]
) -> pd.DataFrame:
    """What of each node was not observed, in the days that lack hours."""
    seen = observed.groupby(["node", "day"])["gpu_hours"].sum() if not observed.empty else pd.Series(dtype=float)
    rows: list[tuple[str, str, str, float, float]] = []
    for (node, use, workload), hours in totals.items():  # type: ignore[misc]
        span = spans.get(str(node))
        if use != "unobserved" or span is None or hours <= 0:
            continue
        days = span.days()
        lacking = np.array([
            max(counts[str(node)] * span.hours_of(day) - float(seen.get((node, day), 0.0)), 0.0) for day in days
        ])  # fmt: skip
        weights = lacking if lacking.sum() > 0 else np.array([span.hours_of(day) for day in days])
        parts = float(hours) * weights / weights.sum()
        rows += [(str(node), "unobserved", str(workload), float(d), float(p)) for d, p in zip(days, parts, strict=True)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _ids(workloads: pd.Series) -> pd.Series:
    """Ids of workloads, "" where there is none."""
    return workloads.astype(object).where(workloads.notna(), "")
