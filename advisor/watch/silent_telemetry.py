"""Telemetry that died: a source, a node, a GPU that report nothing any more, and counters that stand still.

Missing data is no idleness: all of these say that something is not known, and what it may hide.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..core.advice_types import Evidence
from ..core.coded_text import coded
from ..core.formatting import counted
from ..core.incident_types import Sighting, Subject
from ..core.recent import RecentNode
from ..core.timestamps import minute, rfc3339, span
from .scene import MINUTE, Scene
from .words import named, who

# Power must contradict the counters in this share of the newest spans.
_STUCK_SHARE = 0.9


def stale_source(scene: Scene) -> Sighting | None:
    """The whole source where its newest data are old; nothing else can be said then."""
    age = scene.recent.now - scene.end
    if age <= scene.rules.fresh_minutes * MINUTE:
        return None
    subject = Subject("source", "the telemetry source")
    return scene.sighting(
        "telemetry-dead", subject, code="source-stale", severity="high", since=scene.end, last_work=None,
        wasted_seconds=0.0, gpus=(),
        evidence=(
            Evidence("data_age", age / MINUTE, scene.rules.fresh_minutes, "minutes"),
            Evidence("newest_data", rfc3339(scene.end), None, "time (UTC)"),
        ),
        text=coded(
            "source-stale", "The newest telemetry is {age} old ({newest}). Nothing can be evaluated until data arrive.",
            age=span(age), newest=minute(scene.end),
        ),
        do_next=coded("source-stale-check", "Check the agents, the Prometheus server and this machine's clock."),
    )  # fmt: skip


def silent_telemetry(scene: Scene) -> Iterator[Sighting]:
    """Nodes and GPUs of which nothing comes any more, and GPUs whose counters stand still."""
    silent = {node.node for node in scene.recent.nodes if not node.drained and node.node not in scene.fresh}
    for node in scene.recent.nodes:
        if node.node in silent and node.last_seen is not None:
            yield _node(scene, node)
    for place, gpu in enumerate(scene.recent.gpus):
        home = scene.nodes.get(gpu.node)
        if gpu.node in silent or home is None or home.drained:
            continue
        if gpu.last_seen is not None and scene.end - gpu.last_seen > scene.rules.fresh_minutes * MINUTE:
            yield _gpu(scene, place)
    yield from _stuck(scene)


def _node(scene: Scene, node: RecentNode) -> Sighting:
    gpus = [n for n, gpu in enumerate(scene.recent.gpus) if gpu.node == node.node]
    at = set(gpus)
    holders = [hold for hold in scene.recent.holds if at.intersection(hold.gpus)]
    last = node.last_seen or scene.line.start
    age = scene.end - last
    held = f" It was running {who(scene.of_hold(holders[0]))}." if len(holders) == 1 else (
        f" It was running {len(holders)} workloads." if holders else ""
    )  # fmt: skip
    count = node.gpus_expected or len(gpus)
    subject = Subject(
        f"node:{node.node}", node.node, (node.node,), tuple(scene.recent.gpus[n].uuid for n in gpus), float(count),
        node_sku=node.sku,
    )  # fmt: skip
    return scene.sighting(
        "telemetry-dead", subject, code="node-silent", severity="medium" if holders else "low", since=last,
        last_work=None, wasted_seconds=0.0, gpus=gpus,
        evidence=(
            Evidence("last_data", rfc3339(last), None, "time (UTC)"),
            Evidence("silent_for", age / MINUTE, scene.rules.fresh_minutes, "minutes"),
        ),
        text=coded(
            "node-silent", "No telemetry from {node} ({gpus}) for {age}, since {since}.{held}", node=named(node.node),
            gpus=counted(count, "GPU"), age=span(age), since=minute(last), held=held,
        ),
        do_next=coded(
            "node-silent-check", "Check that {node} is up, and that its agent or exporter runs.", node=named(node.node)
        ),
    )  # fmt: skip


def _gpu(scene: Scene, place: int) -> Sighting:
    gpu, subject = scene.recent.gpus[place], scene.of_gpu(place)
    last = gpu.last_seen or scene.line.start
    age = scene.end - last
    return scene.sighting(
        "telemetry-dead", subject, code="gpu-missing", severity="high", since=last, last_work=None,
        wasted_seconds=0.0, gpus=(place,),
        evidence=(
            Evidence("last_data", rfc3339(last), None, "time (UTC)"),
            Evidence("silent_for", age / MINUTE, scene.rules.fresh_minutes, "minutes"),
        ),
        text=coded(
            "gpu-missing", "{gpu} has reported nothing for {age}, since {since}, while its node reports.",
            gpu=named(subject.name), age=span(age), since=minute(last),
        ),
        do_next=coded(
            "gpu-missing-check", "Check dmesg on {node} for XID errors, and whether nvidia-smi lists the GPU.",
            node=named(gpu.node),
        ),
    )  # fmt: skip


def _stuck(scene: Scene) -> Iterator[Sighting]:
    """GPUs whose counters show rest while their power shows work."""
    line, signs = scene.line, scene.gpus
    newest = line.since(line.end - scene.rules.fresh_minutes * MINUTE)
    contradicted = signs.contradicted[:, newest]
    for place in np.flatnonzero(contradicted.mean(axis=1) >= _STUCK_SHARE):
        gpu = scene.recent.gpus[place]
        if gpu.node not in scene.fresh:
            continue
        subject = scene.of_gpu(int(place))
        own = signs.contradicted[place]
        # Since the end of the newest span that was not contradicted.
        sound = np.flatnonzero(~own)
        since = float(line.ends[sound[-1]]) if len(sound) else line.start
        power = float(np.nanmean(signs.power[place, newest]))
        yield scene.sighting(
            "telemetry-dead", subject, code="counters-stuck", severity="medium", since=since, last_work=None,
            wasted_seconds=0.0, gpus=(int(place),),
            evidence=(Evidence("power", power, None, "watts"), Evidence("engine_active", 0.0, None, "ratio")),
            text=coded(
                "counters-stuck",
                "{gpu} draws {power:.0f} W, but its activity counters have shown no work since {since}. "
                "This is a telemetry fault, and its activity is unknown.",
                gpu=named(subject.name), power=power, since=minute(since),
            ),
            do_next=coded(
                "counters-stuck-restart",
                "Restart the DCGM host engine or the exporter on {node}; counters stop after some XID errors.",
                node=named(gpu.node),
            ),
        )  # fmt: skip
