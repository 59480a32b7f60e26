"""Telemetry that died: a source, a node, a GPU that report nothing any more, and counters that stand still.

Missing data is no idleness: all of these say that something is not known, and what it may hide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from ..core.advice_types import Evidence, Severity
from ..core.formatting import counted
from ..core.incident_types import Sighting, Subject
from ..core.timestamps import rfc3339, span
from .scene import MINUTE, Rule, Scene, who

# Power must contradict the counters in this share of the newest spans.
_STUCK_SHARE = 0.9


class SilentTelemetry(Rule):
    """Nodes and GPUs of which nothing comes any more, and GPUs whose counters stand still; the source alone where its
    newest data are old: nothing else can be said then."""

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
        recent, spans, end, fresh_seconds = scene.recent, scene.spans, scene.end, scene.rules.fresh_minutes * MINUTE
        if scene.is_stale:
            yield self._silent(scene, "source-stale", Subject("source", "the telemetry source"), end, "high")
            return
        for node in recent.nodes:
            if node.node in scene.fresh or node.drained or node.last_seen is None:
                continue
            gpus = tuple(n for n, gpu in enumerate(recent.gpus) if gpu.node == node.node)
            held = [hold for hold in recent.holds if set(gpus).intersection(hold.gpus)]
            running = who(scene.of_hold(held[0])) if len(held) == 1 else f"{len(held)} workloads"
            count, ids = node.gpus_expected or len(gpus), tuple(recent.gpus[n].uuid for n in gpus)
            yield self._silent(
                scene, "node-silent",
                Subject(f"node:{node.node}", node.node, (node.node,), ids, float(count), node_sku=node.sku),
                node.last_seen, "medium" if held else "low", gpus, count=counted(count, "GPU"),
                held=f" It was running {running}." if held else "",
            )  # fmt: skip
        newest, contradicted = spans.since(end - fresh_seconds), scene.gpus.contradicted
        is_stuck = contradicted[:, newest].mean(axis=1) >= _STUCK_SHARE
        for n, gpu in enumerate(recent.gpus):
            if gpu.node not in scene.fresh:
                continue
            if gpu.last_seen is not None and end - gpu.last_seen > fresh_seconds and not scene.nodes[gpu.node].drained:
                yield self._silent(scene, "gpu-missing", scene.of_gpu(n), gpu.last_seen, "high", (n,))
            if is_stuck[n]:
                # Since the end of the newest span that was not contradicted.
                sound = spans.ends[~contradicted[n]]
                power = float(np.nanmean(recent.gpu["power_watts"][n, newest]))
                yield self.sighting(
                    scene, "counters-stuck", scene.of_gpu(n), step="counters-stuck-restart", severity="medium",
                    since=float(sound[-1]) if len(sound) else spans.start, gpus=(n,), power=power,
                    evidence=(Evidence("power", power, None, "watts"), Evidence("engine_active", 0.0, None, "ratio")),
                )  # fmt: skip

    def _silent(  # noqa: PLR0917
        self, scene: Scene, code: str, subject: Subject, last: float, severity: Severity, gpus: tuple[int, ...] = (),
        count: str = "", held: str = "",
    ) -> Sighting:  # fmt: skip
        """Something that has reported nothing since `last`."""
        age = (scene.recent.now if scene.is_stale else scene.end) - last
        return self.sighting(
            scene, code, subject, step=f"{code}-check", severity=severity, since=last, gpus=gpus, evidence=(
                Evidence("last_data", rfc3339(last), None, "time (UTC)"),
                Evidence("silent_for", age / MINUTE, scene.rules.fresh_minutes, "minutes"),
            ), age=span(age), count=count, held=held,
        )  # fmt: skip
