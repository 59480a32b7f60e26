"""Telemetry that died: a source, a node, a GPU that report nothing any more, and counters that stand still.

Missing data is no idleness: all of these say that something is not known, and what it may hide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..core.advice_types import Evidence, Severity
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
            yield _silent(
                scene, scene.of_gpu(place), "gpu-missing", gpu.last_seen, (place,), "high",
                "{name} has reported nothing for {age}, since {since}, while its node reports.",
                "Check dmesg on {node} for XID errors, and whether nvidia-smi lists the GPU.",
            )  # fmt: skip
    yield from _stuck(scene)


def _node(scene: Scene, node: RecentNode) -> Sighting:
    gpus = [n for n, gpu in enumerate(scene.recent.gpus) if gpu.node == node.node]
    holders = [hold for hold in scene.recent.holds if set(gpus).intersection(hold.gpus)]
    held = f" It was running {who(scene.of_hold(holders[0]))}." if len(holders) == 1 else (
        f" It was running {len(holders)} workloads." if holders else ""
    )  # fmt: skip
    count = node.gpus_expected or len(gpus)
    subject = Subject(
        f"node:{node.node}", node.node, (node.node,), tuple(scene.recent.gpus[n].uuid for n in gpus), float(count),
        node_sku=node.sku,
    )  # fmt: skip
    return _silent(
        scene, subject, "node-silent", node.last_seen or scene.line.start, gpus, "medium" if holders else "low",
        f"No telemetry from {{name}} ({counted(count, 'GPU')}) for {{age}}, since {{since}}.{{held}}",
        "Check that {node} is up, and that its agent or exporter runs.", held=held,
    )  # fmt: skip


def _silent(  # noqa: PLR0917
    scene: Scene, subject: Subject, code: str, last: float, gpus: Sequence[int], severity: Severity, text: str,
    do_next: str, **fields: str,
) -> Sighting:  # fmt: skip
    """Something that has reported nothing since `last`."""
    age = scene.end - last
    return scene.sighting(
        "telemetry-dead", subject, code=code, severity=severity, since=last, last_work=None, wasted_seconds=0.0,
        gpus=gpus,
        evidence=(
            Evidence("last_data", rfc3339(last), None, "time (UTC)"),
            Evidence("silent_for", age / MINUTE, scene.rules.fresh_minutes, "minutes"),
        ),
        text=coded(code, text, name=named(subject.name), age=span(age), since=minute(last), **fields),
        do_next=coded(f"{code}-check", do_next, node=named(subject.nodes[0])),
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
