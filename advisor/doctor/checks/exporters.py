"""Which exporters feed a server, and in which versions, as far as any series tells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...telemetry.prometheus.client.response import SeriesAnswer
from ...telemetry.prometheus.promql.labels import AGENT_NODE_LABELS, NODE_LABELS
from ...telemetry.prometheus.promql.promql import AGENT_ANCHOR, ANCHORS, selector
from ..facts import SeenExporter
from .identity import Described

_IMAGES = ("dcgm-exporter", "node-exporter", "kube-state-metrics")
# The tag of an image is the version of what it holds; a digest tells none.
_TAG = re.compile(r"(?:^|/)([a-z0-9._-]+):([A-Za-z0-9._-]{1,60})(?:@.*)?$")
_VERSION_LABELS = ("DCGM_EXPORTER_VERSION", "dcgm_exporter_version")


def exporters_queries(
    known: set[str], matches: Sequence[str], end: float, span: str
) -> dict[str, tuple[str, float, Sequence[str]]]:
    """Name -> query, moment and labels."""
    queries: dict[str, tuple[str, float, Sequence[str]]] = {}
    for name, series in (("node", "node_exporter_build_info"), ("kube", "kube_state_metrics_build_info")):
        if series in known:
            query = f"count by (version) (last_over_time({series}{selector(matches)}[{span}]))"
            queries[name] = (query, end, ("version",))
    if "kube_pod_container_info" in known:
        wanted = selector(matches, f'image=~".*({"|".join(_IMAGES)}).*"')
        query = f"count by (image) (last_over_time(kube_pod_container_info{wanted}[{span}]))"
        queries["images"] = (query, end, ("image",))
    anchor = next((name for name in ANCHORS if name in known), None)
    if anchor is not None:
        by = _VERSION_LABELS
        query = f"count by ({', '.join(by)}) (last_over_time({anchor}{selector(matches)}[{span}]))"
        queries["dcgm"] = (query, end, by)
    if "node_uname_info" in known:
        queries["hosts"] = (f"last_over_time(node_uname_info{selector(matches)}[{span}])", end, NODE_LABELS)
    if "skuwise_node_info" in known:
        kept = (*AGENT_NODE_LABELS, "agent_version")
        queries["agents"] = (f"last_over_time(skuwise_node_info{selector(matches)}[{span}])", end, kept)
    return queries


def exporters_of(
    answers: Mapping[str, SeriesAnswer], known: set[str], about: Described, *, dcgm_nodes: int = 0
) -> tuple[SeenExporter, ...]:
    """From the answers to `exporters_queries`. `dcgm_nodes`: on how many nodes dcgm-exporter is seen."""
    images = _tags(answers.get("images"))
    found: list[SeenExporter] = []
    if AGENT_ANCHOR in known or "skuwise_node_info" in known:
        found.append(SeenExporter("skuwise agent", _values(answers, "agents", "agent_version"), len(about.agents)))
    if any(name in known for name in ANCHORS):
        labelled = tuple(sorted({v for one in _VERSION_LABELS for v in _values(answers, "dcgm", one)}))
        found.append(SeenExporter("dcgm-exporter", labelled or images.get("dcgm-exporter", ()), dcgm_nodes))
    if any(name.startswith("node_") for name in known):
        versions = _values(answers, "node", "version") or images.get("node-exporter", ())
        hosts = {about.host_of(labels) for labels in _labels(answers, "hosts")} - {None}
        found.append(SeenExporter("node_exporter", versions, len(hosts) if "hosts" in answers else None))
    if any(name.startswith("kube_") for name in known):
        versions = _values(answers, "kube", "version") or images.get("kube-state-metrics", ())
        found.append(SeenExporter("kube-state-metrics", versions))
    return tuple(found)


def _labels(answers: Mapping[str, SeriesAnswer], name: str) -> Sequence[Mapping[str, str]]:
    answer = answers.get(name)
    return answer.labels if answer is not None else ()


def _values(answers: Mapping[str, SeriesAnswer], name: str, label: str) -> tuple[str, ...]:
    return tuple(sorted({value for labels in _labels(answers, name) if (value := labels.get(label))}))


def _tags(answer: SeriesAnswer | None) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for labels in answer.labels if answer is not None else ():
        match = _TAG.search(labels.get("image", ""))
        if match is not None and match[1] in _IMAGES:
            found.setdefault(match[1], set()).add(match[2])
    return {image: tuple(sorted(tags)) for image, tags in found.items()}
