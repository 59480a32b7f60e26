"""Jobs that worked and do not any more: their pattern ended, or their ranks spin in a collective.

A pause is told from a stop by the job's own pauses, and by its hosts: a checkpoint writes, an evaluation computes, a
download receives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from ..core.advice_types import Evidence
from ..core.incident_types import Sighting
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
        spans, holds, rules, end = scene.spans, scene.holds, scene.rules, scene.end
        for n, hold in enumerate(scene.recent.holds):
            is_job, at = hold.holder == "job", np.flatnonzero(holds.progress[n])
            may_stop = (is_job or (hold.holder == "process" and len(hold.gpus) > 1)) and not hold.shared
            if not may_stop or not len(at) or not scene.is_fresh(hold):
                continue
            ends, seconds = spans.ends[at], spans.seconds[at]
            since, lasted, worked = float(ends[-1]), float(ends[-1] - ends[0] + seconds[0]), float(seconds.sum())
            # In longer spans a pause may have been half a span longer.
            pauses = np.diff(ends) - seconds[1:]
            pauses += np.where((pauses > 1.0) & (seconds[1:] > MINUTE), 0.5 * seconds[1:], 0.0)
            pause = float(pauses.max(initial=0.0))
            least = rules.stall_minutes if holds.host_known[n] else rules.blind_stall_minutes
            if len(hold.gpus) == 1:
                is_steady = worked >= max(_STEADY_SECONDS, _STEADY_DUTY * lasted) and pause <= _STEADY_PAUSE_SECONDS
                least = max(rules.stall_minutes * _STEADY_ALONE_TIMES, least) if is_steady else least * _ALONE_TIMES
            needed, after, lost = max(least * MINUTE, rules.stall_times * pause), spans.since(since), end - since
            alive = spans.ends[holds.progress[n] | holds.host[n] | (holds.fabric[n] >= _FABRIC_ALIVE)][-1]
            seen, spun = (float(spans.seconds[mask[n] & after].sum()) for mask in (holds.stall, holds.spin))
            spins = spun >= _SPIN_SHARE * lost
            has_worked = worked >= max(rules.worked_minutes * MINUTE, _DUTY_MIN * lasted)
            has_ended = lost >= needed and end - alive >= least * MINUTE
            is_observed = seen >= rules.observed_min * lost - 2 * MINUTE
            # What is not known to be a job may serve requests, and rests when none come.
            if not has_worked or not has_ended or not is_observed or not (spins or is_job):
                continue
            subject = scene.of_hold(hold)
            yield self.sighting(
                scene, "collectives-spin" if spins else "pattern-ended", subject, step="stop-check", since=since,
                severity="high" if len(hold.gpus) > 1 else "medium", last_work=since, wasted_seconds=lost,
                gpus=hold.gpus, evidence=(
                    Evidence("no_progress", lost / MINUTE, needed / MINUTE, "minutes"),
                    Evidence("last_work", rfc3339(since), None, "time (UTC)"),
                    Evidence("longest_pause_before", pause / MINUTE, None, "minutes"),
                    *scene.power_evidence(hold.gpus, since),
                ), first_who=who(subject)[:1].upper() + who(subject)[1:],
            )  # fmt: skip
