"""A fabric that carries nothing under a job that used it and goes on working."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from ..core.advice_types import Evidence
from ..core.incident_types import Sighting
from .scene import MINUTE, Rule, Scene

_USED_SPANS_MIN = 10
_SILENT = (
    "The fabric under {who} on {gpus} has carried nothing for {lasted}, since {since}; it usually carries {usual:.0%} "
    "of line rate. The GPUs still work."
)


class FabricSilent(Rule):
    """Jobs on several nodes whose fabric fell silent while their GPUs work."""

    kind = "fabric-silent"
    texts: ClassVar = {"fabric-silent": _SILENT, "port-down": f"{_SILENT} A port of its nodes is not active."}
    steps: ClassVar = {
        "fabric-check": "Check the ports (ibstat) and NCCL's log: it may have fallen back to TCP, or the ranks work "
        "apart."
    }

    def find(self, scene: Scene) -> Iterator[Sighting]:
        spans, rules = scene.spans, scene.rules
        newest = spans.since(spans.end - rules.fabric_minutes * MINUTE)
        for n, hold in enumerate(scene.recent.holds):
            nodes = {scene.recent.gpus[gpu].node for gpu in hold.gpus}
            if len(nodes) < 2 or hold.holder not in ("job", "process") or not scene.is_fresh(hold):
                continue
            share, progress = scene.holds.fabric[n], scene.holds.progress[n]
            at = np.flatnonzero((share > rules.fabric_silent_max) & spans.since(hold.since))
            is_silent = (progress & (share <= rules.fabric_silent_max))[newest].all()
            usual = float(np.median(share[at])) if len(at) >= _USED_SPANS_MIN else 0.0
            if not is_silent or usual < rules.fabric_used_min:
                continue
            own = [place for place, node in enumerate(scene.recent.nodes) if node.node in nodes]
            active = float(np.nanmin(scene.recent.node["fabric_up"][own][:, newest], initial=1.0))
            yield self.sighting(
                scene, "port-down" if active < 1.0 else "fabric-silent", scene.of_hold(hold), step="fabric-check",
                severity="high", since=float(spans.ends[at[-1]]), last_work=scene.end, gpus=hold.gpus, evidence=(
                    Evidence("fabric", float(np.mean(share[newest])), rules.fabric_silent_max, "ratio of line rate"),
                    Evidence("fabric_usual", usual, None, "ratio of line rate"),
                    Evidence("ports_active", active, 1.0, "ratio"),
                ), usual=usual,
            )  # fmt: skip
