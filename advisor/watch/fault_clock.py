"""Busy GPUs at a clock that only a fault explains: a hardware slowdown, a power brake, a clock that is stuck."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from ..core.advice_types import Evidence
from ..core.incident_types import Sighting
from ..core.recent import Floats, Mask
from .scene import MINUTE, Rule, Scene
from .signs import low_level

_BUSY_ENGINE, _USUAL = 0.5, 0.9
# Busy spans of the newest minutes that must show it.
_SHARE = 0.8
_PEERS_MIN = 4
_HERTZ = 1e6
_SLOW = "{name} has been busy at {clock:.0f} MHz for {lasted} (since {since}), "
_THAN = " Its usual clock under load is {usual:.0f} MHz."


class FaultClock(Rule):
    """GPUs that have been busy at a fault's clock for the newest minutes."""

    kind = "fault-clock"
    texts: ClassVar = {
        "slowdown-throttle": f"{_SLOW}with a hardware slowdown reported.{_THAN}",
        "clock-stuck-low": f"{_SLOW}without a throttle reason that explains it.{_THAN}",
    }
    steps: ClassVar = {
        "clock-check": "Check power supply, cooling and 'nvidia-smi -q -d PERFORMANCE' on {node}. Drain the node if a "
        "reset does not help."
    }

    def find(self, scene: Scene) -> Iterator[Sighting]:
        spans, rules, gpu = scene.spans, scene.rules, scene.recent.gpu
        clock = gpu["sm_clock_hertz"]
        busy = (scene.gpus.work | scene.gpus.spin) & (gpu["engine"] >= _BUSY_ENGINE)
        newest = spans.since(spans.end - rules.fault_minutes * MINUTE)
        running = busy & newest
        is_running = running.sum(axis=1) >= _SHARE * newest.sum()
        now = low_level(clock, 0.5, running)
        usual = np.fmax(low_level(clock, _USUAL, busy & ~newest), _of_peers(scene, now, is_running))
        throttled = (gpu["throttled"] >= rules.fault_throttled_min) & running
        is_throttled = throttled.sum(axis=1) >= _SHARE * running.sum(axis=1)
        # NaN, where a clock is not known, is not slow.
        slow = is_running & (now <= rules.fault_clock_share_max * usual)
        for n in map(int, np.flatnonzero(slow)):
            if scene.recent.gpus[n].node not in scene.fresh or scene.recent.gpus[n].part < 1:
                continue
            if not is_throttled[n] and not _is_outlier(scene, n, now):
                continue
            most = rules.fault_clock_share_max * float(usual[n])
            sound = np.flatnonzero(busy[n] & (clock[n] > most))
            since = float(spans.ends[sound[-1]]) if len(sound) else spans.start
            yield self.sighting(
                scene, "slowdown-throttle" if is_throttled[n] else "clock-stuck-low", scene.of_gpu(n),
                step="clock-check", severity="high", since=since, gpus=(n,),
                wasted_seconds=(1 - float(now[n] / usual[n])) * (scene.end - since), evidence=(
                    Evidence("sm_clock", float(now[n]) / _HERTZ, most / _HERTZ, "MHz"),
                    Evidence("usual_clock", float(usual[n]) / _HERTZ, None, "MHz"),
                ), clock=float(now[n]) / _HERTZ, usual=float(usual[n]) / _HERTZ,
            )  # fmt: skip


def _of_peers(scene: Scene, now: Floats, is_running: Mask) -> Floats:
    """The median clock of all busy GPUs of each GPU's SKU; NaN of fewer than four others."""
    skus = np.array([gpu.sku or "" for gpu in scene.recent.gpus], dtype=object)
    out = np.full(len(skus), np.nan)
    for sku in set(skus) - {""}:
        own = (skus == sku) & is_running & np.isfinite(now)
        if own.sum() > _PEERS_MIN:
            out[own] = np.median(now[own])
    return out


def _is_outlier(scene: Scene, place: int, now: Floats) -> bool:
    """Whether others of the same workload or node run fast: what was set on purpose is set for all of them."""
    beside = {n for hold in scene.recent.holds if place in hold.gpus for n in hold.gpus}
    beside |= {n for n, one in enumerate(scene.recent.gpus) if one.node == scene.recent.gpus[place].node}
    others = [now[n] for n in beside - {place} if np.isfinite(now[n])]
    return bool(others) and bool(now[place] <= scene.rules.fault_clock_share_max * np.median(others))
