"""A reading of the last hours in, what the watch found out. Pure: the same reading gives the same sightings."""

from __future__ import annotations

import numpy as np

from ..core.incident_types import WatchPass
from ..core.recent import Recent
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
    every = frozenset(f"workload:{hold.workload_id}" for hold in recent.holds)
    stale = SilentTelemetry().stale_source(scene)
    if stale is not None:
        return WatchPass(recent.now, scene.end, (stale,), every, frozenset(), 0, recent.notes)
    found = [one for rule in RULES for one in rule.find(scene)]
    # A job that stopped is not told again as held but idle: it is one fault, and its hours and dollars count once.
    over = {one.subject.key for one in found if one.kind == "stopped"}
    once = {one.id: one for one in found if not (one.kind == "held-idle" and one.subject.key in over)}
    dearest = sorted(once.values(), key=lambda one: (-(one.cost_usd or 0.0), -one.gpu_hours, one.id))
    dark = _without_data(scene)
    return WatchPass(
        recent.now, scene.end, tuple(dearest), dark | _undecided(scene), scene.fresh, len(recent.holds), recent.notes,
        every, len(dark),
    )  # fmt: skip


def _without_data(scene: Scene) -> frozenset[str]:
    """Keys of what cannot be judged at the end of the reading: its newest spans are missing or contradict."""
    newest, gpus, holds = scene.spans.since(scene.end - scene.rules.gap_minutes * MINUTE), scene.gpus, scene.holds
    is_known = (gpus.work | gpus.rest | gpus.spin)[:, newest].any(axis=1)
    is_judged = (holds.work | holds.rest | holds.stall)[:, newest].any(axis=1)
    return frozenset(
        f"gpu:{gpu.node}/{gpu.uuid}"
        for gpu, known in zip(scene.recent.gpus, is_known, strict=True)
        if not known and gpu.node in scene.fresh and gpu.last_seen is not None
    ) | _keys(scene, ~is_judged)


def _undecided(scene: Scene) -> frozenset[str]:
    """Keys of workloads that show no progress, for whatever time could be observed: after a gap in the data an idle
    time is counted again, and what was open before it neither goes on nor ends until work is shown or the limit is
    reached again."""
    newest = scene.spans.since(scene.end - scene.rules.stall_minutes * MINUTE)
    return _keys(scene, ~scene.holds.progress[:, newest].any(axis=1))


def _keys(scene: Scene, chosen: np.ndarray) -> frozenset[str]:
    return frozenset(f"workload:{scene.recent.holds[n].workload_id}" for n in np.flatnonzero(chosen))
