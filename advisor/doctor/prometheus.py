"""What a server of Prometheus' API tells, by instant queries at a few moments of the window."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...agent.model import Role
from ...agent.store.writing.slurm_rows import short_name
from ...rules.base.errors import NothingToDo
from ...rules.catalog.loader import Catalog
from ..core.frame import Window
from ..core.timestamps import minute
from ..telemetry.prometheus.client.client import Client
from ..telemetry.prometheus.client.response import Grid, Labels, SeriesAnswer
from ..telemetry.prometheus.discovery import Server, server_of
from ..telemetry.prometheus.promql.labels import NODE_LABELS, agent_node, gpu_of, node_of
from ..telemetry.prometheus.promql.promql import AGENT_ANCHOR, ANCHORS, selector
from . import presence
from .checks.exporters import exporters_of, exporters_queries
from .checks.identity import Described, described, identity_queries
from .checks.kubernetes import SERIES, pods_told
from .checks.slurm import seen_on_server
from .facts import GPU_MEASURES, ExpectedGpu, NodeCoverage, SourceCoverage
from .presence import Look
from .sampled_moments import HOUR, MOMENTS, Asker, first, newest, spread_moments

_NAMES = (
    "DCGM_FI_.+|skuwise_.+|node_infiniband_(port_data_transmitted_bytes_total|rate_bytes_per_second)"
    "|node_network_transmit_bytes_total|node_uname_info|node_dmi_info|node_cpu_seconds_total|node_exporter_build_info"
    "|kube_node_labels|kube_node_info|kube_node_status_capacity|kube_pod_info|kube_pod_container_info"
    "|kube_pod_container_resource_requests|kube_pod_status_phase|kube_state_metrics_build_info"
    f"|{'|'.join(SERIES)}"
)
# A sample counts as now for so many intervals: one may be missed.
_INTERVALS = 2.5
_LEAST_WITHIN, _MOST_WITHIN = 300.0, 1800.0
# Telemetry that begins this far into the window is looked at more closely.
_LATE = 0.1
_SPELLED_MOMENTS = 3
_DEVICE_BITS = (*GPU_MEASURES, presence.BUSY, presence.LABELED)


@dataclass(frozen=True)
class ServerQuestion:
    """How a server is asked. `now`: Unix seconds; `fabric_roles`: device pattern -> role."""

    client: Client
    matches: tuple[str, ...]
    now: float
    concurrency: int = 4
    fabric_roles: Mapping[str, Role] = field(default_factory=dict)


@dataclass
class _Device:
    """A GPU or an instance: at which moments which bits were set."""

    node: str
    uuid: str
    whole: str
    sku: str | None
    at: dict[int, set[str]] = field(default_factory=dict)


@dataclass
class _Seen:
    """What all moments told."""

    devices: dict[tuple[str, str], _Device] = field(default_factory=dict)
    nodes: list[tuple[Look, SeriesAnswer]] = field(default_factory=list)
    agents: list[tuple[Look, SeriesAnswer]] = field(default_factory=list)
    dcgm_nodes: set[str] = field(default_factory=set)

    def moments(self) -> set[int]:
        return {at for device in self.devices.values() for at, known in device.at.items() if known & set(GPU_MEASURES)}


def read_server(
    asked: ServerQuestion, catalog: Catalog, *, since_seconds: float, until: float | None
) -> SourceCoverage:
    """What a server tells of a window. Raises NothingToDo where no series tells of any GPU, SourceError where it cannot
    be asked."""
    server = server_of(asked.client)
    latest = until if until is not None else asked.now
    asker = Asker(asked.client, asked.matches, [], asked.concurrency)
    window = Window(max(latest - since_seconds, 0.0), latest)
    known = set(asked.client.names(selector(asked.matches, f'__name__=~"{_NAMES}"'), window.start, window.end))
    anchors = [name for name in (AGENT_ANCHOR, *ANCHORS) if name in known]
    chosen = selector(asked.matches)
    if not anchors:
        return _without_gpus(asker, server, known, window, catalog, asked)

    def counted(span: str) -> str:
        return " or ".join(f"count(last_over_time({name}{chosen}[{span}]))" for name in anchors)

    end = newest(asker, counted, window)
    window = Window(end - since_seconds, end)
    scraped = asker.client.scalar(
        " or ".join(f"quantile(0.5, count_over_time({name}{chosen}[1h]))" for name in anchors), end
    )
    within = min(max(_INTERVALS * HOUR / max(scraped or 1.0, 1.0), _LEAST_WITHIN), _MOST_WITHIN)
    span = f"{within:.0f}s"
    begin = looked_from = window.start
    moments = spread_moments(looked_from, end)
    spelling = _spelling(asker, known, moments, span)
    seen = _look(asker, known, moments, span, spelling)
    at = sorted(seen.moments())
    if not at:
        raise NothingToDo(
            f"No GPU samples on {asked.client.url} between {minute(window.start)} and {minute(end)}.",
            "Choose another window with --since and --until.",
        )
    if at[0] > 0:
        begin = max(first(asker, counted(span), moments[at[0] - 1], moments[at[0]]) - within, window.start)
        if begin > window.start + _LATE * window.seconds:
            looked_from, moments = begin, spread_moments(begin, end)
            spelling = _spelling(asker, known, moments, span)
            seen = _look(asker, known, moments, span, spelling)
    step_hours = (end - looked_from) / MOMENTS / HOUR
    about = described(
        asker.many(identity_queries(known, asked.matches, end, span, moments)), _gpu_skus(seen, catalog),
        catalog, asked.fabric_roles,
    )  # fmt: skip
    exporters = exporters_of(
        asker.many(exporters_queries(known, asked.matches, end, span)), known, about, dcgm_nodes=len(seen.dcgm_nodes)
    )
    nodes = _nodes(seen, about, moments, step_hours)
    resolution = _resolution(asker, known, end)
    return SourceCoverage(
        source=_source(asked, server),
        window=window,
        begin=begin,
        observed_hours=len(seen.moments()) * step_hours,
        nodes=nodes,
        exporters=exporters,
        resolution=resolution,
        sampled=MOMENTS,
        slack_seconds=step_hours * HOUR,
        kubernetes=about.kubernetes or any(one in spelling.work for one in presence.PODS),
        pods=pods_told(asker, known, end, span),
        jobs_seen=seen_on_server(asker, known, moments, span),
        notes=tuple(asker.notes),
    )


def _source(asked: ServerQuestion, server: Server) -> dict[str, object]:
    return {
        "kind": "prometheus", "url": asked.client.url, "server": str(server), "match": list(asked.matches),
        "queries": asked.client.counters.queries, "answer_bytes": asked.client.counters.bytes_read,
    }  # fmt: skip


def _without_gpus(  # noqa: PLR0917
    asker: Asker, server: Server, known: set[str], window: Window, catalog: Catalog, asked: ServerQuestion
) -> SourceCoverage:
    """Nodes may be known where no GPU is: by what they declare, by what pods request, by an agent without a driver."""
    span = f"{_LEAST_WITHIN:.0f}s"
    answers = asker.many(identity_queries(known, asked.matches, window.end, span, (window.end,)))
    about = described(answers, {}, catalog, asked.fabric_roles)
    exporters = exporters_of(asker.many(exporters_queries(known, asked.matches, window.end, span)), known, about)
    return SourceCoverage(
        source=_source(asked, server), window=window, begin=window.end, observed_hours=0.0,
        nodes=tuple(about.told(name, ()) for name in sorted(about.names)), exporters=exporters, resolution={},
        sampled=1, kubernetes=about.kubernetes, notes=tuple(asker.notes),
    )  # fmt: skip


def _spelling(asker: Asker, known: set[str], moments: Sequence[float], span: str) -> presence.Spelling:
    """By which labels dcgm-exporter names nodes and workloads, as far as a few moments tell."""
    asked: dict[str, tuple[str, float, Sequence[str]]] = {}
    for at in moments[-1 :: -max(len(moments) // _SPELLED_MOMENTS, 1)]:
        for name in presence.carriers(known)[:1]:
            for n, labels in enumerate(presence.WORK):
                chosen = selector(asker.matches, *labels)
                asked[f"{n} {name} {at}"] = (f"count(last_over_time({name}{chosen}[{span}]))", at, ())
            each = f"last_over_time({name}{selector(asker.matches)}[{span}])"
            asked[f"nodes {name} {at}"] = (f"count by ({', '.join(NODE_LABELS)}) ({each})", at, NODE_LABELS)
    told = asker.many(asked)
    work = {name.split()[0] for name, answer in told.items() if len(answer.labels)}
    nodes = {
        label for name, answer in told.items() if name.startswith("nodes") for one in answer.labels for label in one
    }
    return presence.Spelling(
        tuple(name for name in NODE_LABELS if name in nodes) or NODE_LABELS,
        tuple(labels for n, labels in enumerate(presence.WORK) if str(n) in work),
    )


def _look(asker: Asker, known: set[str], moments: Sequence[float], span: str, spelling: presence.Spelling) -> _Seen:
    """Ask at every moment, and put together what is told of each device."""
    grid = Grid(moments[0], moments[-1], (moments[-1] - moments[0]) / (len(moments) - 1))
    seen = _Seen()
    if AGENT_ANCHOR in known:
        for look, answer in asker.over(presence.agent_looks(asker.matches, span), grid):
            _devices(look, answer, seen, _agent_device)
        seen.agents = asker.over(presence.agent_node_looks(asker.matches, span), grid)
    if any(name in known for name in ANCHORS):
        for look, answer in asker.over(presence.dcgm_looks(known, asker.matches, span, spelling), grid):
            _devices(look, answer, seen, _dcgm_device)
    seen.nodes = asker.over(presence.node_looks(known, asker.matches, span), grid)
    _one_home_each(seen)
    return seen


def _devices(look: Look, answer: SeriesAnswer, seen: _Seen, named: Callable[[Labels, _Seen], _Device | None]) -> None:
    """What one query tells of each device."""
    for labels, values in zip(answer.labels, answer.values, strict=True):
        device = named(labels, seen)
        if device is None:
            continue
        for bit, known in look.told(values).items():
            for n in np.nonzero(known)[0].tolist():
                device.at.setdefault(n, set()).add(bit)


def _dcgm_device(labels: Labels, seen: _Seen) -> _Device | None:
    found, node = gpu_of(labels), node_of(labels)
    if found is None or node is None:
        return None
    uuid, parent = found
    seen.dcgm_nodes.add(node)
    return seen.devices.setdefault((node, uuid), _Device(node, uuid, parent or uuid, labels.get("modelName")))


def _agent_device(labels: Labels, seen: _Seen) -> _Device | None:
    node, uuid = agent_node(labels), labels.get("gpu_uuid")
    if node is None or uuid is None:
        return None
    device = seen.devices.setdefault((node, uuid), _Device(node, uuid, uuid, None))
    device.sku = device.sku or labels.get("sku")
    return device


def _one_home_each(seen: _Seen) -> None:
    """Each GPU on one node: where it was seen more often, if several nodes claim it; on the latest, if its node was
    renamed in the window, or is called by two exporters in two ways."""
    homes: dict[str, list[_Device]] = {}
    for device in seen.devices.values():
        homes.setdefault(device.uuid, []).append(device)
    for several in homes.values():
        if len(several) == 1:
            continue
        kept = max(several, key=lambda one: (len(one.at), max(one.at, default=-1), one.node))
        for other in several:
            if other is kept:
                continue
            if not set(other.at) & set(kept.at) or short_name(other.node) == short_name(kept.node):
                if max(other.at, default=-1) > max(kept.at, default=-1):
                    kept, other = other, kept  # noqa: PLW2901 - the later one stays
                for n, known in other.at.items():
                    kept.at.setdefault(n, set()).update(known)
            del seen.devices[other.node, other.uuid]


def _gpu_skus(seen: _Seen, catalog: Catalog) -> dict[str, dict[str, str | None]]:
    """Node -> its physical GPUs and the catalog's name of each."""
    out: dict[str, dict[str, str | None]] = {}
    for device in seen.devices.values():
        sku = catalog.gpu(device.sku) if device.sku else None
        out.setdefault(device.node, {})[device.whole] = sku.name if sku is not None else device.sku
    return out


def _nodes(seen: _Seen, about: Described, moments: Sequence[float], step_hours: float) -> tuple[NodeCoverage, ...]:
    by_node: dict[str, dict[str, list[_Device]]] = {}
    for device in seen.devices.values():
        whole = about.parents.get(device.uuid, device.whole)
        by_node.setdefault(about.name_of(device.node), {}).setdefault(whole, []).append(device)
    known = _node_hours(seen, about, step_hours)
    gpus = {
        node: tuple(_gpu(whole, devices, about, moments, step_hours) for whole, devices in sorted(of_node.items()))
        for node, of_node in by_node.items()
    }
    every = sorted({*gpus, *about.names})
    return tuple(about.told(name, gpus.get(name, ()), known.get(name, {})) for name in every)


def _gpu(
    whole: str, devices: Sequence[_Device], about: Described, moments: Sequence[float], step_hours: float
) -> ExpectedGpu:
    """One physical GPU: at a moment at which instances tell of it, what all of them tell."""
    instances = [one for one in devices if one.uuid != whole]
    own = [one for one in devices if one not in instances]
    hours: dict[str, int] = dict.fromkeys(_DEVICE_BITS, 0)
    seen: list[int] = []
    for n in range(len(moments)):
        parts = [one.at[n] for one in instances if one.at.get(n)] or [one.at[n] for one in own if one.at.get(n)]
        measured = set.intersection(*parts) if parts else set()
        worked = [part for part in parts if "busy" in part]
        if any(part & set(GPU_MEASURES) for part in parts):
            seen.append(n)
        for name in GPU_MEASURES:
            hours[name] += name in measured
        hours["busy"] += bool(worked)
        hours["labeled"] += bool(worked) and all("labeled" in part for part in worked)
    names = [one.sku for one in devices if one.sku]
    return ExpectedGpu(
        whole, about.sku_of(names[-1]) if names else None, len(seen) * step_hours,
        moments[seen[0]] - step_hours * HOUR if seen else math.nan, moments[seen[-1]] if seen else math.nan,
        {name: hours[name] * step_hours for name in GPU_MEASURES}, hours["busy"] * step_hours,
        hours["labeled"] * step_hours, len({one.uuid for one in instances}),
    )  # fmt: skip


def _node_hours(seen: _Seen, about: Described, step_hours: float) -> dict[str, dict[str, float]]:
    told: dict[str, dict[str, set[int]]] = {}
    for rows, named in ((seen.nodes, about.host_of), (seen.agents, agent_node)):
        for look, answer in rows:
            for labels, values in zip(answer.labels, answer.values, strict=True):
                node = named(labels)
                if node:
                    at = np.nonzero(look.told(values)[look.bit])[0].tolist()
                    told.setdefault(node, {}).setdefault(look.bit, set()).update(at)
    return {node: {name: len(at) * step_hours for name, at in own.items()} for node, own in told.items()}


def _resolution(asker: Asker, known: set[str], end: float) -> dict[str, float]:
    """Seconds between the samples of each measure, in the middle of its series, in the last hour."""
    chosen = selector(asker.matches)
    series: dict[str, str] = {}
    for measure in GPU_MEASURES:
        names = presence.dcgm_names(measure, known)
        if names:
            series[measure] = f"{names[0][0]}{chosen}"
        elif AGENT_ANCHOR in known:
            series[measure] = f"{AGENT_ANCHOR}{chosen}"
    for bit, (name, own) in presence.NODE_SERIES.items():
        if name in known:
            series[bit] = f"{name}{selector(asker.matches, *own)}"
    answers = asker.many(
        {measure: (f"quantile(0.5, count_over_time({one}[1h]))", end, ()) for measure, one in series.items()}
    )
    return {
        measure: HOUR / float(answer.values[0, 0])
        for measure, answer in answers.items()
        if answer.values.size and answer.values[0, 0] > 0
    }
