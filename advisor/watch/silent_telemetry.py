"""Telemetry that died: a source, a node, a GPU that report nothing any more, and counters that stand still.

Missing data is no idleness: all of these say that something is not known, and what it may hide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from ..core.advice_types import Evidence, Severity
from ..core.formatting import counted
from ..core.incident_types import Sighting, Subject
from ..core.recent import RecentNode
from ..core.timestamps import rfc3339, span
from .scene import MINUTE, Rule, Scene, who

# Power must contradict the counters in this share of the newest spans.
_STUCK_SHARE = 0.9


class SilentTelemetry(Rule):
    """Nodes and GPUs of which nothing comes any more, and GPUs whose counters stand still."""

    kind = "telemetry-dead"
    texts: ClassVar = {
        "source-stale": "The newest telemetry is {age} old ({since}). Nothing can be evaluated until data arrive.",
        "node-silent": "No telemetry from {name} ({count}) for {age}, since {since}.{held}",
        "gpu-missing": "{name} has reported nothing for {age}, since {since}, while its node reports.",
        "counters-stuck": "{name} draws {power:.0f} W, but its activity counters have shown no work since {since}. "
        "This is a telemetry fault, and its activity is unknown.",
    }
    steps: ClassVar = {
        "source-stale-check": "Check the agents, the Prometheus server and this machine's clock.",
        "node-silent-check": "Check that {node} is up, and that its agent or exporter runs.",
        "gpu-missing-check": "Check dmesg on {node} for XID errors, and whether nvidia-smi lists the GPU.",
        "counters-stuck-restart": "Restart the DCGM host engine or the exporter on {node}; counters stop after some "
        "XID errors.",
    }

    def find(self, scene: Scene) -> Iterator[Sighting]:
        for node in scene.recent.nodes:
            if not node.drained and node.node not in scene.fresh and node.last_seen is not None:
                yield self._silent_node(scene, node, node.last_seen)
        newest = scene.spans.since(scene.end - scene.rules.fresh_minutes * MINUTE)
        contradicted = scene.gpus.contradicted
        is_stuck = contradicted[:, newest].mean(axis=1) >= _STUCK_SHARE
        for place, gpu in enumerate(scene.recent.gpus):
            if gpu.node not in scene.fresh:
                continue
            if is_stuck[place]:
                # Since the end of the newest span that was not contradicted.
                sound = np.flatnonzero(~contradicted[place])
                power = float(np.nanmean(scene.recent.gpu["power_watts"][place, newest]))
                yield self.sighting(
                    scene, "counters-stuck", scene.of_gpu(place), step="counters-stuck-restart", severity="medium",
                    since=float(scene.spans.ends[sound[-1]]) if len(sound) else scene.spans.start, gpus=(place,),
                    evidence=(Evidence("power", power, None, "watts"), Evidence("engine_active", 0.0, None, "ratio")),
                    power=power,
                )  # fmt: skip
            is_gone = gpu.last_seen is not None and scene.end - gpu.last_seen > scene.rules.fresh_minutes * MINUTE
            if gpu.last_seen is not None and is_gone and not scene.nodes[gpu.node].drained:
                yield self._silent(
                    scene, "gpu-missing", scene.of_gpu(place), scene.end, gpu.last_seen, "high", gpus=(place,)
                )

    def stale_source(self, scene: Scene) -> Sighting | None:
        """The whole source where its newest data are old; nothing else can be said then."""
        now, subject = scene.recent.now, Subject("source", "the telemetry source")
        if now - scene.end <= scene.rules.fresh_minutes * MINUTE:
            return None
        return self._silent(scene, "source-stale", subject, now, scene.end, "high")

    def _silent_node(self, scene: Scene, node: RecentNode, last: float) -> Sighting:
        gpus = [n for n, gpu in enumerate(scene.recent.gpus) if gpu.node == node.node]
        held = [hold for hold in scene.recent.holds if set(gpus).intersection(hold.gpus)]
        running = who(scene.of_hold(held[0])) if len(held) == 1 else f"{len(held)} workloads"
        count = node.gpus_expected or len(gpus)
        subject = Subject(
            f"node:{node.node}", node.node, (node.node,), tuple(scene.recent.gpus[n].uuid for n in gpus), float(count),
            node_sku=node.sku,
        )  # fmt: skip
        return self._silent(
            scene, "node-silent", subject, scene.end, last, "medium" if held else "low", gpus=gpus,
            count=counted(count, "GPU"), held=f" It was running {running}." if held else "",
        )  # fmt: skip

    def _silent(
        self, scene: Scene, code: str, subject: Subject, now: float, last: float, severity: Severity, *,
        gpus: Sequence[int] = (), **fields: str,
    ) -> Sighting:  # fmt: skip
        """Something that has reported nothing since `last`."""
        evidence = (
            Evidence("last_data", rfc3339(last), None, "time (UTC)"),
            Evidence("silent_for", (now - last) / MINUTE, scene.rules.fresh_minutes, "minutes"),
        )
        return self.sighting(
            scene, code, subject, step=f"{code}-check", severity=severity, since=last, gpus=gpus, evidence=evidence,
            age=span(now - last), **fields,
        )  # fmt: skip
