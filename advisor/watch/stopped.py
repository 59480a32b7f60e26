"""Jobs that worked and do not any more: their pattern ended, or their ranks spin in a collective.

A pause is told from a stop by the job's own pauses, and by its hosts: a checkpoint writes, an evaluation computes, a
download receives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import numpy.typing as npt

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
            if hold.shared or not scene.is_fresh(hold) or not (is_job or (hold.holder == "process" and hold.gpus[1:])):
                continue
            stall = _stall(scene, n, hold)
            if stall is None:
                continue
            since, pause, needed, spins = stall
            # What is not known to be a job may serve requests, and rests when none come.
            if spins or is_job:
                words, lost = who(subject := scene.of_hold(hold)), scene.end - since
                yield self.sighting(
                    scene, "collectives-spin" if spins else "pattern-ended", subject, step="stop-check", since=since,
                    severity="high" if len(hold.gpus) > 1 else "medium", last_work=since, wasted_seconds=lost,
                    gpus=hold.gpus, evidence=(
                        Evidence("no_progress", lost / MINUTE, needed / MINUTE, "minutes"),
                        Evidence("last_work", rfc3339(since), None, "time (UTC)"),
                        Evidence("longest_pause_before", pause / MINUTE, None, "minutes"),
                        *scene.power_evidence(hold.gpus, since),
                    ), first_who=words[:1].upper() + words[1:],
                )  # fmt: skip


def _stall(scene: Scene, n: int, hold: Hold) -> tuple[float, float, float, bool] | None:
    """The end of the last progress, the longest pause before it and the time without progress that was needed, both in
    seconds, and whether ranks spin; None: it did not stop."""
    spans, holds, rules, end = scene.spans, scene.holds, scene.rules, scene.end
    progress = holds.progress[n]
    at = np.flatnonzero(progress)
    worked = float(spans.seconds[at].sum())
    if not len(at) or worked < rules.worked_minutes * MINUTE:
        return None
    first, last = float(spans.ends[at[0]] - spans.seconds[at[0]]), float(spans.ends[at[-1]])
    if end - last < rules.stall_minutes * MINUTE or worked < _DUTY_MIN * (last - first):
        return None
    pause = _longest_pause(scene, at)
    least = rules.stall_minutes if holds.host_known[n] else rules.blind_stall_minutes
    if len(hold.gpus) == 1:
        is_steady = worked >= max(_STEADY_SECONDS, _STEADY_DUTY * (last - first)) and pause <= _STEADY_PAUSE_SECONDS
        least = max(rules.stall_minutes * _STEADY_ALONE_TIMES, least) if is_steady else least * _ALONE_TIMES
    needed = max(least * MINUTE, rules.stall_times * pause)
    alive = progress | holds.host[n] | (holds.fabric[n] >= _FABRIC_ALIVE)
    if end - last < needed or end - spans.ends[np.flatnonzero(alive)[-1]] < least * MINUTE:
        return None
    after = spans.since(last)
    if spans.seconds[holds.stall[n] & after].sum() < rules.observed_min * (end - last) - 2 * MINUTE:
        return None
    return last, pause, needed, bool(spans.seconds[holds.spin[n] & after].sum() >= _SPIN_SHARE * (end - last))


def _longest_pause(scene: Scene, at: npt.NDArray[np.intp]) -> float:
    """The longest pause between two spans with progress; in long spans it may have been half a span longer."""
    ends, seconds = scene.spans.ends[at], scene.spans.seconds[at]
    pauses = (ends - seconds)[1:] - ends[:-1]
    margin = np.where(seconds[1:] > MINUTE, 0.5 * seconds[1:], 0.0)
    return float(np.where(pauses > 1.0, pauses + margin, 0.0).max(initial=0.0))
