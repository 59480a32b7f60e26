"""Where the GPU-hours of each UTC day went: those of `classify/accounting/energy.py`, cut at midnight."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..classify.accounting.energy import placed_by_nodes, summed
from ..classify.workloads.attribution import Attribution
from ..classify.workloads.inventory import Inventory
from ..core.frame import Frame, Window

Floats = npt.NDArray[np.float64]

DAILY = ("node", "class", "workload_id", "day", "gpu_hours")
DAY = 86400.0


def node_spans(inventory: Inventory, window: Window) -> dict[str, tuple[float, float]]:
    """Node -> the time for which it is accounted for, Unix seconds; without those that are for none."""
    ends = {name: min(window.end if n.end is None else n.end, window.end) for name, n in inventory.nodes.items()}
    return {
        name: (ends[name] - n.span_hours * 3600, ends[name]) for name, n in inventory.nodes.items() if n.span_hours > 0
    }


def daily_hours(  # noqa: PLR0917
    frame: Frame, inventory: Inventory, attribution: Attribution, idle: pd.Series, parts: Floats,
    occupancy: pd.DataFrame,
) -> pd.DataFrame:  # fmt: skip
    """`DAILY`: GPU-hours by node, class, workload ("" where there is none) and day (its beginning, Unix seconds, UTC).

    The totals of the window are those of `occupancy`; a day's part of them is as its rows tell. A row that spans
    midnight is divided by time. What was not observed lies in the days in which something is missing.
    """
    use = list(DAILY[:3])
    spans = node_spans(inventory, frame.window)
    totals = _named(occupancy).groupby(use)["gpu_hours"].sum()
    tables = (_by_day(frame, table, spans) for table in placed_by_nodes(frame, attribution, idle, parts))
    observed = summed(tables, list(DAILY[:4]), ["gpu_hours"])
    seen = observed.groupby(use)["gpu_hours"].transform("sum")
    observed["gpu_hours"] *= totals.reindex(pd.MultiIndex.from_frame(observed[use])).to_numpy(float) / seen
    by_day = observed.groupby(["node", "day"])["gpu_hours"].sum().to_dict()
    rest: list[tuple[str, str, str, float, float]] = []
    for (node, kind, workload), hours in totals.items():  # type: ignore[misc]
        if kind == "unobserved" and node in spans:
            days = _days(*spans[node])
            held = (
                np.array([max(min(spans[node][1], day + DAY) - max(spans[node][0], day), 0.0) for day in days]) / 3600
            )
            there = np.array([by_day.get((node, day), 0.0) for day in days])
            lacking = np.maximum(inventory.nodes[node].gpu_count * held - there, 0.0)
            weights = lacking if lacking.sum() > 0 else held
            parts_of = hours * weights / weights.sum()
            rest += [(node, kind, workload, *one) for one in zip(days.tolist(), parts_of.tolist(), strict=True)]
    filled = [table for table in (observed, pd.DataFrame(rest, columns=list(DAILY))) if not table.empty]
    whole = pd.concat(filled, ignore_index=True) if filled else observed
    return whole[whole["gpu_hours"] > 0].sort_values(list(DAILY[:4]), ignore_index=True)


def _days(start: float, end: float) -> Floats:
    """The beginning of every UTC day that a span touches, Unix seconds."""
    return np.arange(start // DAY, max(np.ceil(end / DAY) - 1, start // DAY) + 1) * DAY


def _by_day(frame: Frame, table: pd.DataFrame, spans: Mapping[str, tuple[float, float]]) -> pd.DataFrame:
    """`DAILY` of each moment, cut at the ends of days, before they are held to the totals."""
    table = table[table["node"].isin(list(spans))]
    at = table["row"].to_numpy(int)
    end = frame.gpu["ts"].to_numpy(float)[at]
    begin = end - frame.gpu["interval_seconds"].to_numpy(float)[at]
    bounds = {name: _days(*span)[[0, -1]] / DAY for name, span in spans.items()}
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
    found = _named(table[["node", "class", "workload_id", "gpu_hours"]]).iloc[taken]
    return found.assign(day=day, gpu_hours=found["gpu_hours"] * share)


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """The table with "" for a workload where there is none."""
    ids = table["workload_id"].astype(object)
    return table.assign(workload_id=ids.where(ids.notna(), ""))
