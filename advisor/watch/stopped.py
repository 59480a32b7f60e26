"""Jobs that worked and do not any more: their pattern ended, or their ranks spin in a collective.

A pause is told from a stop by the job's own pauses, and by its hosts: a checkpoint writes, an evaluation computes, a
download receives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import numpy as np

from ..core.advice_types import Evidence
from ..core.incident_types import Sighting
from ..core.recent import Hold
from ..core.timestamps import rfc3339
from .scene import HOUR, MINUTE, Rule, Scene, who

# Share of the stall in which ranks must spin for it to be called a spin.
_SPIN_SHARE = 0.5
# Work before the stall must fill this share of the time since it began: who works now and then has no pattern.
_DUTY_MIN = 0.5
# A job of one GPU has no collective to hang in, and is more often a batch that waits for its next piece, unless it
# has worked for hours without a pause.
_ALONE_TIMES = 2.5
_STEADY_ALONE_TIMES, _STEADY_SECONDS, _STEADY_DUTY, _STEADY_PAUSE_SECONDS = 1.375, 2 * HOUR, 0.95, 120.0
_FABRIC_ALIVE = 0.01
_STOPPED = "{first_who} stopped working {lasted} ago on {gpus}: its GPUs"


class Stopped(Rule):
    """Jobs that have made no progress for longer than any pause of theirs."""

    kind = "stopped"
    texts: ClassVar = {
        "pattern-ended": f"{_STOPPED} rest and its hosts are quiet. Last progress: {{since}}.",
        "collectives-spin": f"{_STOPPED} run a kernel that neither computes nor moves data, as ranks do that wait in a "
        "collective. Last progress: {since}.",
    }
    steps: ClassVar = {
        "stop-check": "Check the newest lines of its log and its stacks (py-spy dump) on {node}. "
        "Restart it from the last checkpoint if it hangs."
    }

    def find(self, scene: Scene) -> Iterator[Sighting]:
        for n, hold in enumerate(scene.recent.holds):
            is_job = hold.holder == "job"
            may_stop = is_job or (hold.holder == "process" and len(hold.gpus) > 1)
            stall = _stall(scene, n, hold) if may_stop and not hold.shared and scene.is_fresh(hold) else None
            # What is not known to be a job may serve requests, and rests when none come.
            if stall is not None and (stall.spins or is_job):
                subject, lost = scene.of_hold(hold), scene.end - stall.since
                yield self.sighting(
                    scene, "collectives-spin" if stall.spins else "pattern-ended", subject, step="stop-check",
                    since=stall.since, severity="high" if len(hold.gpus) > 1 else "medium", last_work=stall.since,
                    wasted_seconds=lost, gpus=hold.gpus, evidence=(
                        Evidence("no_progress", lost / MINUTE, stall.needed_seconds / MINUTE, "minutes"),
                        Evidence("last_work", rfc3339(stall.since), None, "time (UTC)"),
                        Evidence("longest_pause_before", stall.pause_seconds / MINUTE, None, "minutes"),
                        *scene.power_evidence(hold.gpus, stall.since),
                    ), first_who=who(subject)[:1].upper() + who(subject)[1:],
                )  # fmt: skip


class _Stall(NamedTuple):
    """`since`: the end of the last progress; `pause_seconds`: the longest pause before it; `needed_seconds`: the time
    without progress that makes it a stop; `spins`: whether ranks spin."""

    since: float
    pause_seconds: float
    needed_seconds: float
    spins: bool


def _stall(scene: Scene, n: int, hold: Hold) -> _Stall | None:
    """What a workload shows that makes no progress for longer than it ever paused; None: it did not stop."""
    spans, holds, rules, end = scene.spans, scene.holds, scene.rules, scene.end
    at = np.flatnonzero(holds.progress[n])
    ends, seconds = spans.ends[at], spans.seconds[at]
    worked = float(seconds.sum())
    if not len(at) or worked < max(rules.worked_minutes * MINUTE, _DUTY_MIN * (ends[-1] - ends[0] + seconds[0])):
        return None
    last, began = float(ends[-1]), float(ends[0] - seconds[0])
    # In longer spans a pause may have been half a span longer.
    pauses = np.diff(ends) - seconds[1:]
    pauses = np.where(pauses > 1.0, pauses + np.where(seconds[1:] > MINUTE, 0.5 * seconds[1:], 0.0), 0.0)
    pause = float(pauses.max(initial=0.0))
    least = rules.stall_minutes if holds.host_known[n] else rules.blind_stall_minutes
    if len(hold.gpus) == 1:
        is_steady = worked >= max(_STEADY_SECONDS, _STEADY_DUTY * (last - began)) and pause <= _STEADY_PAUSE_SECONDS
        least = max(rules.stall_minutes * _STEADY_ALONE_TIMES, least) if is_steady else least * _ALONE_TIMES
    needed = max(least * MINUTE, rules.stall_times * pause)
    alive = spans.ends[holds.progress[n] | holds.host[n] | (holds.fabric[n] >= _FABRIC_ALIVE)][-1]
    after = spans.since(last)
    seen = float(spans.seconds[holds.stall[n] & after].sum())
    if end - last < needed or end - alive < least * MINUTE or seen < rules.observed_min * (end - last) - 2 * MINUTE:
        return None
    spinning = float(spans.seconds[holds.spin[n] & after].sum())
    return _Stall(last, pause, needed, spinning >= _SPIN_SHARE * (end - last))
