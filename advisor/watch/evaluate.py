"""A reading of the last hours in, what the watch found out. Pure: the same reading gives the same sightings."""

from __future__ import annotations

import numpy as np

from ..core.incident_types import Sighting, WatchPass
from ..core.recent import Recent
from .fabric_silent import fabric_silent
from .fault_clock import fault_clocks
from .held_idle import held_idle
from .holds import hold_signs
from .scene import MINUTE, Criteria, Scene
from .signs import gpu_signs, rested_before
from .silent_telemetry import silent_telemetry, stale_source
from .stopped import stopped
from .timeline import timeline_of


def scene_of(recent: Recent, criteria: Criteria) -> Scene:
    """A reading with its signs."""
    line, rules = timeline_of(recent.gpu), criteria.rules
    gpus = gpu_signs(recent, line, criteria.book, rules)
    fresh = frozenset(
        node.node
        for node in recent.nodes
        if node.last_seen is not None and line.end - node.last_seen <= rules.fresh_minutes * MINUTE
    )
    before = rested_before(recent, line, criteria.book, rules)
    return Scene(recent, line, gpus, hold_signs(recent, line, gpus, rules), criteria.limits, rules, fresh, before)


def evaluate(recent: Recent, criteria: Criteria) -> WatchPass:
    """Everything that is certain of a reading."""
    scene = scene_of(recent, criteria)
    stale = stale_source(scene)
    every = frozenset({f"workload:{hold.workload_id}" for hold in recent.holds})
    if stale is not None:
        return WatchPass(recent.now, scene.end, (stale,), every, frozenset(), 0, recent.notes)
    found = [
        *stopped(scene), *held_idle(scene), *fabric_silent(scene), *fault_clocks(scene), *silent_telemetry(scene),
    ]  # fmt: skip
    dark = unknown_subjects(scene)
    return WatchPass(
        recent.now, scene.end, tuple(_once(found)), dark | undecided(scene), scene.fresh, len(recent.holds),
        recent.notes, every, len(dark),
    )  # fmt: skip


def _once(found: list[Sighting]) -> list[Sighting]:
    """Each sighting once, the most expensive first. A job that stopped is not told again as held but idle: it is one
    fault, and its GPU-hours and dollars count once."""
    over = {one.subject.key for one in found if one.kind == "stopped"}
    every = {one.id: one for one in found if not (one.kind == "held-idle" and one.subject.key in over)}
    return sorted(every.values(), key=lambda one: (-(one.cost_usd or 0.0), -one.gpu_hours, one.id))


def unknown_subjects(scene: Scene) -> frozenset[str]:
    """Keys of what cannot be judged at the end of the reading: its newest spans are missing or contradict."""
    line, signs = scene.line, scene.gpus
    newest = line.since(line.end - scene.rules.gap_minutes * MINUTE)
    blind = np.logical_not((signs.work | signs.rest | signs.spin)[:, newest].any(axis=1))
    found = {
        f"gpu:{gpu.node}/{gpu.uuid}"
        for n, gpu in enumerate(scene.recent.gpus)
        if blind[n] and gpu.node in scene.fresh and gpu.last_seen is not None
    }
    known = (scene.holds.work | scene.holds.rest | scene.holds.stall)[:, newest].any(axis=1)
    dark = np.flatnonzero(np.logical_not(known))
    found |= {f"workload:{scene.recent.holds[n].workload_id}" for n in dark}
    return frozenset(found)


def undecided(scene: Scene) -> frozenset[str]:
    """Keys of workloads that show no progress, for whatever time could be observed: after a gap in the data an idle
    time is counted again, and what was open before it neither goes on nor ends until work is shown or the limit is
    reached again."""
    line, holds = scene.line, scene.holds
    newest = line.since(line.end - scene.rules.stall_minutes * MINUTE)
    still = np.logical_not(holds.progress[:, newest].any(axis=1))
    return frozenset(f"workload:{hold.workload_id}" for n, hold in enumerate(scene.recent.holds) if still[n])
