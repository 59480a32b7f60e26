"""The ranks of a workload beside one another: where one is late, the others wait for it in every step.

Ranks that share their steps do the same work. So where one of them hardly waits and all others do, it is late; and
where one does that work at a much lower clock, it is late too, even if samples are too long to show the waiting. The
rank that waits least is the suspect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....rules.policy.thresholds import Threshold
from ...core.coded_text import CodedText
from ...core.column_rows import ColumnRows
from ...core.segments import Segments, runs
from .evidence import say

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

# A GPU is the suspect where it was the late one for most of the time that somebody was.
_SUSPECT_SHARE_MIN = 0.5
# A difference in waiting is worth telling from this share of the time on.
_WAITS_MIN = 0.1


@dataclass(frozen=True, slots=True)
class Lateness:
    """Per row of the measures: whether its workload has several ranks, whether it waits for another, whether it is the
    one waited for, and the share of time that its workload's waiting ranks lose (NaN where none waits)."""

    several: Mask
    waiting: Mask
    late: Mask
    lost: Floats


def lateness(
    gpu: pd.DataFrame, rows: pd.DataFrame, workload_rows: pd.DataFrame, thresholds: Mapping[str, Threshold]
) -> Lateness:
    """Who waits for whom. `gpu`: the frame's rows; `workload_rows`: which of them are whose (the attribution's).

    GPUs that several workloads share show nothing about one workload's ranks and are left out. Linear but for sorting.
    """
    t = {name: threshold.value for name, threshold in thresholds.items()}
    several, waiting, late = (np.zeros(len(gpu), dtype=np.bool_) for _ in range(3))
    share = np.full(len(gpu), np.nan)
    workload_row = workload_rows[workload_rows["whole"].to_numpy(bool) & ~workload_rows["shared"].to_numpy(bool)]
    at, code = workload_row["row"].to_numpy(int), pd.factorize(workload_row["workload_id"])[0]
    works = ~(rows["idle"].to_numpy(bool) | rows["fault"].to_numpy(bool))[at]
    at, code = at[works], code[works]
    # Rows end on the minute or the hour: moments of nodes whose clocks differ a little fall together.
    moment, length = gpu["ts"].to_numpy(float)[at], gpu["interval_seconds"].to_numpy(float)[at]
    order = np.lexsort((length, moment, code))
    at = at[order]
    if len(at):
        first = np.nonzero(runs(code[order], moment[order], length[order]))[0]
        size = np.diff(np.append(first, len(at)))
        at, ranks = at[np.repeat(size >= 2, size)], Segments.of_lengths(size[size >= 2])
        values = {name: rows[name].to_numpy(float)[at] for name in ("waits", "c", "g", "clock_ratio")}
        apart, lost = np.zeros(len(at), dtype=np.bool_), np.full(len(ranks), np.nan)
        # Waiting counts before the rest: it shows what is lost whatever makes the rank late.
        for signal in ("g", "clock_ratio", "waits") if len(ranks) else ():
            behind, loses = _one_apart(ranks, values, signal, t)
            apart = np.where(ranks.spread(~np.isnan(loses)), behind, apart)
            lost = np.where(np.isnan(loses), lost, loses)
        slowed = ranks.spread(~np.isnan(lost))
        several[at] = True
        waiting[at], late[at] = slowed & ~apart, slowed & apart
        share[at] = ranks.spread(lost)
    return Lateness(several, waiting, late, share)


def _one_apart(
    ranks: Segments, values: Mapping[str, Floats], signal: str, t: Mapping[str, float]
) -> tuple[Mask, Floats]:
    """Which ranks stand apart as late by one signal, and per moment the share of time that the others lose.

    waits: the others wait for a fifth of the time more than the late ones. clock_ratio: the late ones run at so much
    less of the others' clock. g: the late ones' engine rests so much more, waiting for the host, while the others
    spin, which means of any length show. NaN: no rank differs, too many do, or they do not share their steps.
    """
    level, count, first = values[signal], ranks.lengths, ranks.bounds[:-1]
    ranked = level[np.lexsort((level, ranks.number))]  # NaN last
    lowest, usual = ranked[first], ranked[first + 1 + (count - 2) // 2]  # the middle one of the others
    lost = 1 - lowest / usual if signal == "clock_ratio" else usual - lowest
    late = level < ranks.spread((usual + lowest) / 2)
    incomplete = np.logical_and.reduce([~np.isnan(values[name]) for name in (signal, "c", "g")])
    apart = ranks.all(incomplete) & (lost >= t["straggler_wait_min"])
    apart &= ranks.count(late) <= np.maximum(1, count * t["straggler_late_share_max"])
    apart &= usual >= {"waits": t["straggler_wait_min"], "g": t["spin_engine_min"]}.get(signal, 0.0)
    (work, busy), (work_of_others, busy_of_others) = (
        [ranks.mean(np.where(chosen, values[name], np.nan)) for name in ("c", "g")] for chosen in (late, ~late)
    )
    within = t["straggler_work_within"]
    apart &= np.abs(work - work_of_others) <= within * np.maximum(work, work_of_others)
    # The others do not finish early and rest: they are as busy as the late one, in a collective.
    apart &= busy_of_others >= (1 - within) * busy
    return late, np.where(apart, lost, np.nan)


def suspect(rows: ColumnRows, weights: Floats) -> list[CodedText]:
    """Which GPU the others wait for: the one that waits least, or does the same work at a lower clock."""
    slowed = rows.flags("late") | rows.flags("waiting")
    if not slowed.any():
        return []
    table, seconds = rows.where(slowed), pd.Series(weights[slowed])
    late = table.flags("late")
    by_gpu = seconds[late].groupby([table[name][late] for name in ("node", "gpu_uuid", "gpu_index")]).sum()
    if by_gpu.empty or by_gpu.max() < _SUSPECT_SHARE_MIN * by_gpu.sum():
        return [say("no-single-suspect")]
    node, uuid, number = cast("tuple[str, str, float]", by_gpu.idxmax())
    column_rows, others = table.where((table["gpu_uuid"] == uuid) & late), table.where(~late)
    waits, clock, held = ((column_rows.mean(name), others.mean(name)) for name in ("waits", "clock_ratio", "throttled"))
    who = {"gpu_index": float(number), "node": str(node), "gpu_uuid": str(uuid)}
    differs = waits[1] - waits[0] >= _WAITS_MIN
    said = [
        say("suspect-waits-least", **who, waits=waits[0], others_wait=waits[1])
        if differs
        else say("suspect-is-slower", **who)
    ]
    if clock[0] < 0.95 * clock[1]:
        ratio = clock[0] / clock[1]
        said.append(say("suspect-is-throttled", clock=ratio, throttled=held[0], others_throttled=held[1]))
    return said
