"""Since when each workload has not used its GPUs, by what was observed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .holds import last_true
from .scene import HOUR, MINUTE, Scene
from .signs import since_of
from .timeline import Mask

# Preparation keeps a host busy for half of some minutes on end; a shorter burst is what any host does now and then.
_SUSTAINED_SECONDS, _SUSTAINED_SHARE = 20 * MINUTE, 0.5


@dataclass(frozen=True, slots=True)
class Rest:
    """`since`: Unix seconds; `last_work`: None where there was none within view. `idle_seconds`: observed at rest
    since then; `longest_before_seconds`: the longest rest that work followed. `in_view`: whether the workload began
    within view. `free`: it held no memory since then."""

    since: float
    last_work: float | None
    idle_seconds: float
    longest_before_seconds: float
    in_view: bool
    free: bool


def given_time(scene: Scene) -> Mask:
    """Spans in which hosts of a workload prepared something for it, up to some hours after its last work."""
    line, holds = scene.line, scene.holds
    worked = np.nan_to_num(last_true(holds.work, line), nan=-np.inf)[:, None]
    # A stretch of preparation: hosts that are busy, and were for half of the minutes before.
    busy = np.concatenate(
        [np.zeros((len(holds.host), 1)), np.cumsum(holds.host * line.seconds[None, :], axis=1)], axis=1
    )
    first = np.searchsorted(line.ends, line.ends - _SUSTAINED_SECONDS, side="right")
    share = (busy[:, 1:] - busy[:, first]) / _SUSTAINED_SECONDS
    after = holds.host & (share >= _SUSTAINED_SHARE - 1e-6) & ~holds.work & (line.ends[None, :] > worked)
    return after & (np.cumsum(after * line.seconds[None, :], axis=1) <= scene.rules.host_time_hours * HOUR)


def rests(scene: Scene, least_seconds: float) -> dict[int, Rest]:
    """The rests of all workloads that last for `least_seconds` or longer, by place in `Recent.holds`.

    A workload whose data end early, or are too thin since its last work, is not in it.
    """
    line, holds, rules, recent = scene.line, scene.holds, scene.rules, scene.recent
    if not recent.holds:
        return {}
    gap = rules.gap_minutes * MINUTE
    found = since_of(line.ends, line.seconds, holds.work | given_time(scene), holds.rest, gap)
    last_work = last_true(holds.work, line)
    view = min(recent.past.start, line.start) if recent.past.count else line.start
    out: dict[int, Rest] = {}
    for n, hold in enumerate(recent.holds):
        # The newest minutes may be late; a longer gap may hide work.
        if np.isnan(found.since[n]) or line.end - found.newest[n] > gap or not scene.is_fresh(hold):
            continue
        since = max(float(found.since[n]), hold.since)
        after = line.since(since)
        idle = min(float(line.seconds[holds.rest[n] & after].sum()), line.end - since)
        if since >= line.end or idle < rules.observed_min * (line.end - since):
            continue
        before = scene.rested_before[list(hold.gpus)]
        if since <= line.observed_from + 1e-6 and np.isfinite(before).all():
            since = max(float(before.max()), hold.since)
            idle += line.observed_from - since
        if line.end - since < least_seconds:
            continue
        at = np.flatnonzero(holds.work[n])
        pauses = (line.ends[at] - line.seconds[at])[1:] - line.ends[at][:-1]
        out[n] = Rest(
            since, float(last_work[n]) if len(at) else None, idle, float(pauses.max(initial=0.0)), hold.since >= view,
            bool((holds.free[n] | ~after).all()),
        )  # fmt: skip
    return out
