"""A reading of the last hours in, what the watch found out. Pure: the same reading gives the same sightings."""

from __future__ import annotations

import numpy as np

from ..core.incident_types import WatchPass
from ..core.recent import Mask, Recent
from .fabric_silent import FabricSilent
from .fault_clock import FaultClock
from .held_idle import HeldIdle
from .scene import MINUTE, Criteria, Scene
from .silent_telemetry import SilentTelemetry
from .stopped import Stopped

RULES = (Stopped(), HeldIdle(), FabricSilent(), FaultClock(), SilentTelemetry())


def evaluate(recent: Recent, criteria: Criteria) -> WatchPass:
    """Everything that is certain of a reading."""
    scene = Scene.of(recent, criteria)
    gpus, holds, newest = scene.gpus, scene.holds, scene.spans.since(scene.end - scene.rules.gap_minutes * MINUTE)

    def keys(chosen: Mask) -> frozenset[str]:
        return frozenset(f"workload:{recent.holds[n].workload_id}" for n in np.flatnonzero(chosen))

    every = keys(np.ones(len(recent.holds), dtype=np.bool_))
    if scene.is_stale:
        return WatchPass(recent.now, scene.end, tuple(SilentTelemetry().find(scene)), every, notes=recent.notes)
    found = [one for rule in RULES for one in rule.find(scene)]
    # A job that stopped is not told again as held but idle: it is one fault, and its hours and dollars count once.
    over = {one.subject.key for one in found if one.kind == "stopped"}
    once = {one.id: one for one in found if not (one.kind == "held-idle" and one.subject.key in over)}
    dearest = sorted(once.values(), key=lambda one: (-(one.cost_usd or 0.0), -one.gpu_hours, one.id))
    # What cannot be judged: its newest spans are missing or contradict.
    is_dark = np.logical_not((gpus.work | gpus.rest | gpus.spin)[:, newest].any(axis=1))
    dark = keys(np.logical_not((holds.work | holds.rest | holds.stall)[:, newest].any(axis=1))) | {
        f"gpu:{gpu.node}/{gpu.uuid}"
        for n, gpu in enumerate(recent.gpus)
        if is_dark[n] and gpu.node in scene.fresh and gpu.last_seen is not None
    }
    # Nor can what shows no progress: after a gap in the data an idle time is counted again, and what was open before it
    # neither goes on nor ends until work is shown or the limit is reached again.
    newest = scene.spans.since(scene.end - scene.rules.stall_minutes * MINUTE)
    undecided = keys(np.logical_not(holds.progress[:, newest].any(axis=1)))
    return WatchPass(
        recent.now, scene.end, tuple(dearest), dark | undecided, scene.fresh, len(recent.holds), recent.notes, every,
        len(dark),
    )  # fmt: skip
