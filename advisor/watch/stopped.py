"""Jobs that worked and do not any more: their pattern ended, or their ranks spin in a collective.

A pause is told from a stop by the job's own pauses, and by its hosts: a checkpoint writes, an evaluation computes, a
download receives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..core.advice_types import Evidence
from ..core.coded_text import CodedText, coded
from ..core.incident_types import Sighting
from ..core.recent import Hold
from ..core.timestamps import minute, rfc3339, span
from .scene import MINUTE, Scene
from .words import gpus_of, named, power_evidence, who

# Share of the stall in which ranks must spin for it to be called a spin.
_SPIN_SHARE = 0.5
# Work before the stall must fill this share of the time since it began: who works now and then has no pattern.
_DUTY_MIN = 0.5
# A job of one GPU has no collective to hang in, and is more often a batch that waits for its next piece, unless it
# has worked for hours without a pause.
_ALONE_TIMES = 2.5
_STEADY_ALONE_TIMES, _STEADY_SECONDS, _STEADY_DUTY, _STEADY_PAUSE_SECONDS = 1.375, 2 * 3600.0, 0.95, 120.0
_FABRIC_ALIVE = 0.01


@dataclass(frozen=True, slots=True)
class _Stall:
    last_progress: float
    last_alive: float
    longest_pause_seconds: float
    needed_seconds: float
    spin: bool


def stopped(scene: Scene) -> Iterator[Sighting]:
    """Jobs that have made no progress for longer than any pause of theirs."""
    for n, hold in enumerate(scene.recent.holds):
        if hold.shared or not (hold.holder == "job" or (hold.holder == "process" and len(hold.gpus) > 1)):
            continue
        stall = _stall(scene, n, hold) if scene.is_fresh(hold) else None
        # What is not known to be a job may serve requests, and rests when none come.
        if stall is not None and (stall.spin or hold.holder == "job"):
            yield _sighting(scene, hold, stall)


def _stall(scene: Scene, n: int, hold: Hold) -> _Stall | None:
    line, holds, rules = scene.line, scene.holds, scene.rules
    progress = holds.progress[n]
    at = np.flatnonzero(progress)
    if not len(at) or line.seconds[at].sum() < rules.worked_minutes * MINUTE:
        return None
    last = float(line.ends[at[-1]])
    first = float(line.ends[at[0]] - line.seconds[at[0]])
    if line.end - last < rules.stall_minutes * MINUTE or line.seconds[at].sum() < _DUTY_MIN * (last - first):
        return None
    pause = _longest_pause(scene, at)
    least = rules.stall_minutes if holds.host_known[n] else rules.blind_stall_minutes
    if len(hold.gpus) == 1:
        worked = float(line.seconds[at].sum())
        steady = worked >= max(_STEADY_SECONDS, _STEADY_DUTY * (last - first)) and pause <= _STEADY_PAUSE_SECONDS
        least = max(rules.stall_minutes * _STEADY_ALONE_TIMES, least) if steady else least * _ALONE_TIMES
    needed = max(least * MINUTE, rules.stall_times * pause)
    with np.errstate(invalid="ignore"):
        alive = progress | holds.host[n] | (holds.fabric[n] >= _FABRIC_ALIVE)
    last_alive = float(line.ends[np.flatnonzero(alive)[-1]])
    if line.end - last < needed or line.end - last_alive < least * MINUTE:
        return None
    after = line.since(last)
    seen = holds.stall[n] & after
    if line.seconds[seen].sum() < rules.observed_min * (line.end - last) - 2 * MINUTE:
        return None
    spinning = float(line.seconds[holds.spin[n] & after].sum())
    return _Stall(last, last_alive, pause, needed, spinning >= _SPIN_SHARE * (line.end - last))


def _longest_pause(scene: Scene, at: np.ndarray) -> float:
    """The longest pause between two spans with progress; in coarse spans it may have been a span longer."""
    line = scene.line
    if len(at) < 2:
        return 0.0
    begins, ends = line.ends[at] - line.seconds[at], line.ends[at]
    pauses = begins[1:] - ends[:-1]
    coarse = at[1:] < line.coarse
    return float(np.where(pauses > 1.0, pauses + np.where(coarse, 0.5 * line.seconds[at[1:]], 0.0), 0.0).max())


def _sighting(scene: Scene, hold: Hold, stall: _Stall) -> Sighting:
    subject = scene.of_hold(hold)
    code = "collectives-spin" if stall.spin else "pattern-ended"
    lost = scene.end - stall.last_progress
    evidence = (
        Evidence("no_progress", lost / MINUTE, stall.needed_seconds / MINUTE, "minutes"),
        Evidence("last_work", rfc3339(stall.last_progress), None, "time (UTC)"),
        Evidence("longest_pause_before", stall.longest_pause_seconds / MINUTE, None, "minutes"),
        *power_evidence(scene, hold.gpus, stall.last_progress),
    )
    what = (
        "its GPUs run a kernel that neither computes nor moves data, as ranks do that wait in a collective"
        if stall.spin
        else "its GPUs rest and its hosts are quiet"
    )
    return scene.sighting(
        "stopped", subject, code=code, severity="high" if len(hold.gpus) > 1 else "medium", since=stall.last_progress,
        last_work=stall.last_progress, wasted_seconds=lost, gpus=hold.gpus, evidence=evidence,
        text=CodedText(
            f"stopped-{code}",
            f"{who(subject)[:1].upper()}{who(subject)[1:]} stopped working {span(lost)} ago on {gpus_of(subject)}: "
            f"{what}. Last progress: {minute(stall.last_progress)}.",
            {"stalled_seconds": lost, "longest_pause_seconds": stall.longest_pause_seconds},
        ),
        do_next=coded(
            "stop-check",
            "Check the newest lines of its log and its stacks (py-spy dump) on {node}. "
            "Restart it from the last checkpoint if it hangs.",
            node=named(subject.nodes[0]) if subject.nodes else "its node",
        ),
    )  # fmt: skip
