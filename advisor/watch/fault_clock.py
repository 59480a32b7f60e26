"""Busy GPUs at a clock that only a fault explains: a hardware slowdown, a power brake, a clock that is stuck."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pandas as pd

from ..core.advice_types import Evidence
from ..core.incident_types import Sighting
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
        recent, spans, rules, gpu = scene.recent, scene.spans, scene.rules, scene.recent.gpu
        clock, busy = gpu["sm_clock_hertz"], (scene.gpus.work | scene.gpus.spin) & (gpu["engine"] >= _BUSY_ENGINE)
        newest = spans.since(spans.end - rules.fault_minutes * MINUTE)
        running = busy & newest
        is_running = running.sum(axis=1) >= _SHARE * newest.sum()
        now = pd.Series(low_level(clock, 0.5, running)).where(is_running)
        throttled = (gpu["throttled"] >= rules.fault_throttled_min) & running
        is_throttled = throttled.sum(axis=1) >= _SHARE * running.sum(axis=1)
        of_sku = now.groupby([one.sku or one.uuid for one in recent.gpus])
        peers = of_sku.transform("median").where(of_sku.transform("count") > _PEERS_MIN)
        usual = np.fmax(low_level(clock, _USUAL, busy & ~newest), peers)
        # What was set on purpose is set for all GPUs of a workload, or of a node.
        beside = {n: hold.workload_id for hold in recent.holds for n in hold.gpus}
        others = now.groupby([beside.get(n, one.node) for n, one in enumerate(recent.gpus)]).transform("median")
        # NaN, where a clock is not known, is not slow.
        slow = (now <= rules.fault_clock_share_max * usual) & (
            is_throttled | (now <= rules.fault_clock_share_max * others)
        )
        for n in map(int, np.flatnonzero(slow)):
            if recent.gpus[n].node not in scene.fresh or recent.gpus[n].part < 1:
                continue
            most = rules.fault_clock_share_max * usual[n]
            sound = spans.ends[busy[n] & (clock[n] > most)]
            since = float(sound[-1]) if len(sound) else spans.start
            yield self.sighting(
                scene, "slowdown-throttle" if is_throttled[n] else "clock-stuck-low", scene.of_gpu(n),
                step="clock-check", severity="high", since=since, gpus=(n,),
                wasted_seconds=float(1 - now[n] / usual[n]) * (scene.end - since), evidence=(
                    Evidence("sm_clock", float(now[n]) / _HERTZ, float(most) / _HERTZ, "MHz"),
                    Evidence("usual_clock", float(usual[n]) / _HERTZ, None, "MHz"),
                ), clock=float(now[n]) / _HERTZ, usual=float(usual[n]) / _HERTZ,
            )  # fmt: skip
