"""Busy GPUs at a clock that only a fault explains: a hardware slowdown, a power brake, a clock that is stuck."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..core.advice_types import Evidence
from ..core.coded_text import coded
from ..core.incident_types import Sighting
from ..core.timestamps import minute, span
from .scene import MINUTE, Scene
from .timeline import Mask, joined, low_level
from .words import named

_BUSY_ENGINE = 0.5
_USUAL = 0.9
# Busy spans of the newest minutes that must show it.
_SHARE = 0.8
_PEERS_MIN = 4
# Below this share of its peers' clock a GPU of the same workload is an outlier, whatever was set on purpose.
_HERTZ = 1e6


def fault_clocks(scene: Scene) -> Iterator[Sighting]:
    """GPUs that have been busy at a fault's clock for the newest minutes."""
    line, rules, count = scene.line, scene.rules, len(scene.recent.gpus)
    clock = joined(scene.recent.gpu, "sm_clock_hertz", count, line)
    if not np.isfinite(clock).any():
        return
    engine = joined(scene.recent.gpu, "engine", count, line)
    throttled = joined(scene.recent.gpu, "throttled", count, line)
    with np.errstate(invalid="ignore"):
        busy: Mask = (scene.gpus.work | scene.gpus.spin) & (engine >= _BUSY_ENGINE)
        newest = line.since(line.end - rules.fault_minutes * MINUTE)
        running = busy & newest
        enough = running.sum(axis=1) >= _SHARE * newest.sum()
        now = low_level(clock, 0.5, running)
        slow = (throttled >= rules.fault_throttled_min) & running
        own = low_level(clock, _USUAL, busy & ~newest)
    peers = _peer_clocks(scene, now, enough)
    for place in np.flatnonzero(enough):
        n = int(place)
        gpu = scene.recent.gpus[n]
        reference = np.fmax(own[n], peers.get(n, np.nan))
        if gpu.node not in scene.fresh or gpu.part < 1 or not np.isfinite(now[n]) or not np.isfinite(reference):
            continue
        share = float(now[n] / reference)
        is_slowed = slow[n].sum() >= _SHARE * running[n].sum() and share < 1.0
        if share <= rules.fault_clock_share_max and (is_slowed or _is_outlier(scene, n, now)):
            yield _sighting(
                scene, n, clock=float(now[n]), reference=float(reference), slowed=is_slowed,
                since=_since(scene, clock[n], busy[n], rules.fault_clock_share_max * float(reference)),
            )  # fmt: skip


def _peer_clocks(scene: Scene, now: np.ndarray, enough: np.ndarray) -> dict[int, float]:
    """The median clock of the other busy GPUs of the same SKU; not of fewer than four."""
    by_sku: dict[str, list[int]] = {}
    for n, gpu in enumerate(scene.recent.gpus):
        if gpu.sku is not None and enough[n] and np.isfinite(now[n]):
            by_sku.setdefault(gpu.sku, []).append(n)
    medians = {sku: float(np.median(now[own])) for sku, own in by_sku.items() if len(own) > _PEERS_MIN}
    return {n: medians[sku] for sku, own in by_sku.items() if sku in medians for n in own}


def _is_outlier(scene: Scene, place: int, now: np.ndarray) -> bool:
    """Whether others of the same workload or node run fast: what was set on purpose is set for all of them."""
    gpu = scene.recent.gpus[place]
    beside = {n for hold in scene.recent.holds if place in hold.gpus for n in hold.gpus}
    beside |= {n for n, one in enumerate(scene.recent.gpus) if one.node == gpu.node}
    others = [float(now[n]) for n in beside - {place} if np.isfinite(now[n])]
    return bool(others) and float(now[place]) <= scene.rules.fault_clock_share_max * float(np.median(others))


def _since(scene: Scene, clock: np.ndarray, busy: np.ndarray, limit: float) -> float:
    with np.errstate(invalid="ignore"):
        sound = np.flatnonzero(busy & (clock > limit))
    return float(scene.line.ends[sound[-1]]) if len(sound) else scene.line.start


def _sighting(scene: Scene, place: int, *, clock: float, reference: float, slowed: bool, since: float) -> Sighting:
    subject = scene.of_gpu(place)
    code = "slowdown-throttle" if slowed else "clock-stuck-low"
    lasted = scene.end - since
    reason = "with a hardware slowdown reported" if slowed else "without a throttle reason that explains it"
    lost = max(0.0, 1 - clock / reference)
    return scene.sighting(
        "fault-clock", subject, code=code, severity="high", since=since, last_work=None,
        wasted_seconds=lost * lasted, gpus=(place,),
        evidence=(
            Evidence("sm_clock", clock / _HERTZ, scene.rules.fault_clock_share_max * reference / _HERTZ, "MHz"),
            Evidence("usual_clock", reference / _HERTZ, None, "MHz"),
        ),
        text=coded(
            code,
            "{gpu} has been busy at {clock:.0f} MHz for {lasted} (since {since}), {reason}. Its usual clock under "
            "load is {usual:.0f} MHz.",
            gpu=named(subject.name), clock=clock / _HERTZ, lasted=span(lasted), since=minute(since), reason=reason,
            usual=reference / _HERTZ,
        ),
        do_next=coded(
            "clock-check",
            "Check power supply, cooling and 'nvidia-smi -q -d PERFORMANCE' on {node}. Drain the node if a reset "
            "does not help.",
            node=named(subject.nodes[0]),
        ),
    )  # fmt: skip
