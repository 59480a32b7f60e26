"""The diagnosis as a person reads it in a terminal or a pipe. All outside text passes through `clean`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ...rules.base.sanitize import clean
from ..core import formatting as words
from ..core.timestamps import day, minute, span
from ..render.console import console_of, indented, line, table, written
from .types import Diagnosis, MetricCoverage, NodeState, TelemetryGap

SHOWN_NODES = 12
_LISTED = 4
_INDENT = 3


def render_diagnosis_text(found: Diagnosis, *, width: int = 100, color: bool = False) -> str:
    """The whole diagnosis, `width` columns wide; without `color` it holds no escape sequence at all."""
    out, console = console_of(width, color)
    _head(console, found)
    if not found.nodes:
        return written(out)
    _nodes(console, found)
    _metrics(console, found)
    _around(console, found)
    _money(console, found)
    _gaps(console, found)
    return written(out)


def _head(console: Console, found: Diagnosis) -> None:
    nodes = "1 node" if len(found.nodes) == 1 else f"{len(found.nodes)} nodes"
    line(console, f"{_source(found)}: {nodes}, {found.observed} of {found.expected} GPUs observed", "bold")
    window = f"{day(found.window.start)} to {day(found.window.end)} UTC"
    if found.observed_hours:
        since = f", telemetry since {minute(found.begin)}" if found.begin > found.window.start + 3600 else ""
        line(
            console,
            f"Window {window}{since}; {span(min(found.observed_hours, found.window.hours) * 3600)} of "
            f"{span(found.window.seconds)} observed.",
        )
    else:
        line(console, f"Window {window}: no GPU telemetry.")
    line(console, _readiness(found))
    if found.mig_instances:
        parents = sum(1 for node in found.nodes if node.mig_instances)
        line(console, f"MIG: {found.mig_instances} instances on {parents} of {nodes}.")
    if found.slurm.jobs:
        told = found.slurm
        line(
            console,
            f"Slurm jobs: {told.jobs} observed, {told.named} with a name ({told.in_table} from Slurm's job table).",
        )
    for note in found.notes:
        line(console, f"Note: {note}")
    console.print()


def _source(found: Diagnosis) -> str:
    if found.source.get("kind") == "prometheus":
        return f"{found.source.get('url')} ({found.source.get('server')})"
    paths = found.source.get("databases")
    listed = paths if isinstance(paths, list) else []
    return str(listed[0]) if len(listed) == 1 else f"{len(listed)} databases"


def _readiness(found: Diagnosis) -> str:
    ready = found.readiness
    if not found.observed:
        return "Waste detection: not possible, no GPU is observed."
    if ready.hours_left > 0:
        return (
            f"Waste detection: possible after {span(ready.hours_left * 3600)} more of data "
            f"({ready.floor_hours:g} h per node required, {ready.best_hours:.1f} h available)."
        )
    return (
        f"Waste detection: possible on {ready.ready_nodes} of {len(found.nodes)} nodes (at least "
        f"{ready.floor_hours:g} h of data)."
    )


def _nodes(console: Console, found: Diagnosis) -> None:
    differing = [node for node in found.nodes if node.unobserved or node.expected == 0]
    if not differing:
        line(console, "All known GPUs are observed.")
        console.print()
        return
    line(console, "Nodes with unobserved GPUs", "bold")
    rows = [_node_row(node) for node in differing[:SHOWN_NODES]]
    console.print(table(("node", "expected", "by", "named", "observed", "why"), rows))
    if len(differing) > SHOWN_NODES:
        line(console, f"and {len(differing) - SHOWN_NODES} more nodes; --format json lists all of them.")
    console.print()


def _node_row(node: NodeState) -> tuple[str, ...]:
    why = "; ".join(f"{len(one.gpus)}: {one.reason}" for one in node.unobserved) or "GPUs cannot be read, see below."
    return (
        node.node,
        str(node.expected or "unknown"),
        node.expected_from if node.expected else words.NONE,
        str(node.named),
        str(node.observed),
        why,
    )


def _metrics(console: Console, found: Diagnosis) -> None:
    line(console, "Metrics", "bold")
    console.print(
        table(("metric", "available on", "of the window", "resolution"), [_metric_row(one) for one in found.metrics])
    )
    if found.sampled:
        line(console, f"Shares refer to {found.sampled} sampled times of the window.")
    console.print()


def _metric_row(one: MetricCoverage) -> tuple[str, ...]:
    what = "GPUs" if one.scope == "gpu" else "nodes"
    known = f"{one.having} of {one.of} {what}" if one.of else words.NONE
    share = words.NONE
    if one.window_share is not None:
        share = words.percent(one.window_share) if one.window_share >= 0.01 else "< 1 %"
    return one.title, known, share, span(one.resolution_seconds) if one.resolution_seconds else words.NONE


def _around(console: Console, found: Diagnosis) -> None:
    for one in found.exporters:
        versions = ", ".join(one.versions[:_LISTED]) or "version unknown"
        where = "" if one.nodes is None else f", on {one.nodes} node{'s' if one.nodes != 1 else ''}"
        line(console, f"{one.name}: {versions}{where}")
    labels = found.labels
    if labels.busy_gpus:
        share = labels.labeled_gpu_hours / labels.busy_gpu_hours
        line(
            console,
            f"Workload labels: {labels.labeled_gpus} of {labels.busy_gpus} active GPUs have a pod or job "
            f"name ({words.percent(share)} of the busy GPU-hours)",
        )
    elif found.observed:
        line(console, "Workload labels: no GPU was active at the sampled times")
    if found.pods is not None:
        line(
            console,
            f"Pod owners: kube-state-metrics reports owners of {found.pods.owned} of {found.pods.on_gpus} pods on GPUs",
        )
    with_ports = [node for node in found.nodes if node.fabric_ports]
    if with_ports:
        line(console, f"Fabric: ports observed on {_names([node.node for node in with_ports])}")
    elif any(node.fabric_seen for node in found.nodes):
        line(console, "Fabric: no InfiniBand port metrics; Ethernet counters available")
    else:
        line(console, "Fabric: no metrics on any node")
    console.print()


def _money(console: Console, found: Diagnosis) -> None:
    groups: dict[tuple[str, str, str], list[NodeState]] = {}
    for node in found.nodes:
        price = f"{words.usd(node.usd_per_hour)}/h ({node.price})" if node.usd_per_hour is not None else "no price"
        sku = node.node_sku or (f"unknown ({node.node_sku_source})" if node.node_sku_source else "unknown")
        groups.setdefault((sku, _region(node), price), []).append(node)
    rows = [
        (sku, region, price, str(len(nodes)), _names([node.node for node in nodes]))
        for (sku, region, price), nodes in sorted(groups.items())
    ]
    if rows:
        line(console, "Prices", "bold")
        console.print(table(("node type", "region", "node price", "nodes", "which"), rows))
        console.print()


def _region(node: NodeState) -> str:
    region = node.region or "unknown"
    return f"{region}, {node.assumed_region} assumed" if node.assumed_region else region


def _gaps(console: Console, found: Diagnosis) -> None:
    if not found.gaps:
        line(console, "No gaps found.")
        return
    line(console, f"Gaps ({len(found.gaps)})", "bold")
    for number, gap in enumerate(found.gaps, 1):
        _gap(console, number, gap)


def _gap(console: Console, number: int, gap: TelemetryGap) -> None:
    line(console, f"{number}. {gap.what} ({gap.code})", "bold")
    indented(console, f"Effect: {gap.loses}", _INDENT)
    if gap.nodes:
        indented(console, f"Nodes: {_names(gap.nodes)}", _INDENT)
    if gap.add and gap.where:
        indented(console, f"Add to {gap.where}:", _INDENT)
        for own in gap.add.split("\n"):
            # Lines to copy stay whole: a terminal may wrap them, we do not.
            console.print(Text(f"     {clean(own)}", no_wrap=True, overflow="ignore"), crop=False, soft_wrap=True)
    elif gap.add:
        indented(console, f"To do: {gap.add.rstrip('.')}.", _INDENT)


def _names(names: Sequence[str]) -> str:
    if len(names) <= _LISTED:
        return ", ".join(names)
    return f"{', '.join(names[: _LISTED - 1])} and {len(names) - _LISTED + 1} more"
