"""Runs of one series: how those that follow one another chain, how many there are, how long, and when they begin."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...core.segments import Segments, runs

# A run that begins so soon after the last one's end is the same work begun again.
RESTART_GAP_SECONDS = 900.0
# Three runs that begin at one hour may be chance of a shift; fewer tell nothing.
STARTS_MIN = 3


@dataclass(frozen=True, slots=True)
class SeriesRuns:
    """`runs`: of the series in the window, one after another (what overlaps or follows at once is one run). `hours`:
    their median length. `start_spread_hours`: how far the hours of the day at which they begin lie apart (circular
    standard deviation); NaN where there are fewer than three."""

    runs: int
    hours: float
    start_spread_hours: float


def chain_hours(workloads: pd.DataFrame) -> dict[str, float]:
    """Workload id -> hours of the chain of runs of its series and name that it belongs to."""
    if workloads.empty:
        return {}
    run = workloads["series_id"].astype(str) + "\0" + workloads["name"].astype(str)
    table, chain = _chained(workloads.assign(run=run))
    span = table.groupby(chain)["last_seen"].transform("max") - table.groupby(chain)["first_seen"].transform("min")
    return dict(zip(table["workload_id"], span / 3600, strict=True))


def series_runs(workloads: pd.DataFrame) -> dict[str, SeriesRuns]:
    """Workload id -> the runs of its series."""
    if workloads.empty:
        return {}
    table, chain = _chained(workloads.assign(run=workloads["series_id"].astype(str)))
    series, start, last = table["run"].to_numpy(object), table["first_seen"].to_numpy(float), table["last_seen"]
    # The table is by series and time: so are its chains.
    new = np.nonzero(np.diff(chain.to_numpy(), prepend=0))[0]
    begin, end = start[new], np.maximum.reduceat(last.to_numpy(float), new)
    segments = Segments.of_lengths(np.diff(np.append(np.nonzero(runs(series[new]))[0], len(new))))
    hours, names = segments.median((end - begin) / 3600).tolist(), series[new][segments.bounds[:-1]]
    of_series = {
        str(name): SeriesRuns(int(length), median, _start_spread(begin[first : first + length]))
        for name, length, median, first in zip(
            names, segments.lengths.tolist(), hours, segments.bounds[:-1].tolist(), strict=True
        )
    }
    return {str(key): of_series[str(one)] for key, one in zip(table["workload_id"], series, strict=True)}


def _chained(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """The table by run and time, and the number of the chain that each row belongs to."""
    table = table.sort_values(["run", "first_seen"])
    reach = table.groupby("run")["last_seen"].cummax()
    gap = table["first_seen"] - reach.groupby(table["run"]).shift()
    return table, (gap.isna() | (gap > RESTART_GAP_SECONDS)).cumsum()


def _start_spread(starts: np.ndarray) -> float:
    if len(starts) < STARTS_MIN or len(np.unique(starts // 86400)) < STARTS_MIN:
        return math.nan
    angle = 2 * np.pi * (starts % 86400) / 86400
    length = min(float(np.hypot(np.cos(angle).mean(), np.sin(angle).mean())), 1.0)
    return 24 / (2 * np.pi) * math.sqrt(-2 * math.log(max(length, 1e-9)))
