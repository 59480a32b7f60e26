"""The ranks of a workload beside one another: where one is late, the others wait for it in every step.

Ranks that share their steps do the same work. So where one of them hardly waits and all others do, it is late; and
where one does that work at a much lower clock, it is late too, even if samples are too long to show the waiting. The
rank that waits least is the suspect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....rules.policy.thresholds import Threshold

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Lateness:
    """Per row of the measures: whether its workload has several ranks, whether it waits for another, whether it is the
    one waited for, and the share of time that its workload's waiting ranks lose (NaN where nobody waits)."""

    several: Mask
    waiting: Mask
    late: Mask
    lost: Floats


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows by workload and moment: `rows` sorted by group, the groups' first positions in it, and their sizes."""

    rows: Ints
    first: Ints
    size: Ints

    @property
    def number(self) -> Ints:
        """The group of each entry of `rows`."""
        return np.repeat(np.arange(len(self.first)), self.size)


def lateness(
    gpu: pd.DataFrame, rows: pd.DataFrame, workload_rows: pd.DataFrame, thresholds: Mapping[str, Threshold]
) -> Lateness:
    """Who waits for whom. `gpu`: the frame's rows; `workload_rows`: which of them are whose (the attribution's).

    GPUs that several workloads share tell nothing of one workload's ranks and are left out. Linear but for sorting.
    """
    t = {name: threshold.value for name, threshold in thresholds.items()}
    several, waiting, late = (np.zeros(len(gpu), dtype=np.bool_) for _ in range(3))
    share = np.full(len(gpu), np.nan)
    own = workload_rows[workload_rows["whole"].to_numpy(bool) & ~workload_rows["shared"].to_numpy(bool)]
    groups = _groups(own, gpu, ~rows["idle"].to_numpy(bool) & ~rows["fault"].to_numpy(bool))
    if len(groups.first):
        apart, lost = _apart(groups, rows, t)
        slowed = ~np.isnan(lost)[groups.number]
        several[groups.rows] = True
        waiting[groups.rows], late[groups.rows] = slowed & ~apart, slowed & apart
        share[groups.rows] = lost[groups.number]
    return Lateness(several, waiting, late, share)


def _apart(groups: _Groups, rows: pd.DataFrame, t: Mapping[str, float]) -> tuple[Mask, Floats]:
    """Which entries are late, and per group what the others lose (NaN: nobody is late)."""
    values = {name: rows[name].to_numpy(float)[groups.rows] for name in ("waits", "c", "g", "clock_ratio")}
    values |= {"clock": values["clock_ratio"], "engine": values["g"]}
    late = np.zeros(len(groups.rows), dtype=np.bool_)
    lost = np.full(len(groups.first), np.nan)
    # Waiting counts before the rest: it shows what is lost whatever makes the rank late.
    for signal in ("engine", "clock", "waits"):
        one, share = _one_apart(groups, values, signal, t)
        found = ~np.isnan(share)
        late = np.where(found[groups.number], one, late)
        lost = np.where(found, share, lost)
    return late, lost


def _groups(own: pd.DataFrame, gpu: pd.DataFrame, busy: Mask) -> _Groups:
    at = own["row"].to_numpy(int)
    keep = busy[at]
    at, code = at[keep], pd.factorize(own["workload_id"])[0][keep]
    # Rows end on the minute or the hour: moments of nodes whose clocks differ a little fall together.
    moment, length = gpu["ts"].to_numpy(float)[at], gpu["interval_seconds"].to_numpy(float)[at]
    order = np.lexsort((length, moment, code))
    at, code, moment, length = at[order], code[order], moment[order], length[order]
    new = np.ones(len(at), dtype=np.bool_)
    new[1:] = (np.diff(code) != 0) | (np.diff(moment) != 0) | (np.diff(length) != 0)
    first = np.nonzero(new)[0]
    size = np.diff(np.append(first, len(at)))
    many = size >= 2
    inside = np.repeat(many, size)
    size = size[many]
    return _Groups(at[inside].astype(np.intp), (np.cumsum(size) - size).astype(np.intp), size.astype(np.intp))


def _one_apart(
    groups: _Groups, values: Mapping[str, Floats], signal: str, t: Mapping[str, float]
) -> tuple[Mask, Floats]:
    """Which entries stand apart as late by one signal, and per group the share of time that the others lose.

    waits: the others wait for a fifth of the time more than the late ones. clock: the late ones run at so much less of
    the others' clock. engine: the late ones' engine rests so much more, for want of their host, while the others spin,
    which means of any length show. NaN: nobody stands apart, too many do, or they do not share their steps.
    """
    number = groups.number
    level = values[signal]
    order = np.lexsort((level, number))
    ranked = level[order]  # NaN last within its group
    n = groups.size
    lowest = ranked[groups.first]
    usual = ranked[groups.first + 1 + (n - 2) // 2]  # the middle one of the others
    lost = 1 - lowest / usual if signal == "clock" else usual - lowest
    known = np.add.reduceat((~np.isnan(level)).astype(float), groups.first) >= n
    middle = (usual + lowest) / 2
    late = level < middle[number]
    few = np.add.reduceat(late.astype(float), groups.first) <= np.maximum(1, n * t["straggler_late_share_max"])
    apart = known & (lost >= t["straggler_wait_min"]) & few
    if signal == "waits":
        apart &= usual >= t["straggler_wait_min"]
    if signal == "engine":
        apart &= usual >= t["spin_engine_min"]
    together = _alike(groups, values["c"], late, t["straggler_work_within"])
    # The others do not finish early and rest: they are as busy as the late one, in a collective.
    least = 1 - t["straggler_work_within"]
    together &= _others(groups, values["g"], late) >= least * _mean(groups, values["g"], late)
    return late, np.where(apart & together, lost, np.nan)


def _alike(groups: _Groups, work: Floats, late: Mask, within: float) -> Mask:
    one, others = _mean(groups, work, late), _others(groups, work, late)
    return np.asarray(np.abs(one - others) <= within * np.maximum(one, others))


def _mean(groups: _Groups, values: Floats, chosen: Mask) -> Floats:
    count = np.add.reduceat(chosen.astype(float), groups.first)
    total = np.add.reduceat(np.where(chosen, values, 0.0), groups.first)
    return np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)


def _others(groups: _Groups, values: Floats, late: Mask) -> Floats:
    return _mean(groups, values, ~late)
