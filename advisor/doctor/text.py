"""The diagnosis as text for a terminal or a pipe, in which all outside text is cleaned, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from ...rules.base.sanitize import clean
from ..core import formatting as words
from ..core.formatting import counted
from ..core.timestamps import minute, rfc3339, span
from ..show import coverage
from ..show.coverage import judged_nodes
from ..show.writers.text import console_of, indented, line, table, written
from .types import Diagnosis, NodeState

SCHEMA = "skuwise.doctor/1"


def diagnosis_dict(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis as plain values."""
    advice, summary = found.advice, found.advice.summary
    observed_hours, floor = summary.observed_hours or 0.0, summary.floor_hours or 0.0
    return {
        "schema": SCHEMA,
        "generated_at": rfc3339(advice.generated_at),
        "window": {"start": rfc3339(advice.start), "end": rfc3339(advice.end)},
        "source": {name: value for name, value in advice.source.items() if name != "asked"},
        "telemetry": {
            "begin": rfc3339(found.begin) if observed_hours else None,
            "observed_hours": _rounded(observed_hours),
            "window_hours": _rounded(summary.window_hours),
        },
        "summary": {
            "node_count": len(found.nodes), "gpu_count": summary.gpu_count, "observed_gpu_count": found.observed,
            "mig_instances": found.mig_instances,
            "unobserved": [
                {"node": one.node, "gpus": list(one.gpus), "reason": one.reason, "code": one.code}
                for one in summary.unobserved
            ],
        },
        "verdicts": {
            "possible": found.observed > 0,
            "waste_floor_hours": floor,
            "waste_ready_gpus": summary.judged_gpu_count,
            "waste_ready_nodes": len(judged_nodes(advice)[0]),
            "most_hours_of_a_node": _rounded(found.best_hours),
            "hours_until_waste": _rounded(max(floor - found.best_hours, 0.0) if summary.nothing_judged else 0.0),
        },
        "nodes": [_node(node) for node in found.nodes],
        "metrics": [
            {
                "metric": metric.metric, "scope": metric.scope, "having": metric.having, "of": metric.of,
                "window_share": _rounded(metric.window_share),
                "resolution_seconds": _rounded(metric.resolution_seconds),
            }
            for metric in found.metrics
        ],
        "exporters": [{"name": name} for name in found.exporters],
        "workload_labels": {name: _rounded(value) for name, value in asdict(found.labels).items()},
        "kubernetes_workloads": asdict(found.kubernetes),
        "slurm_jobs": asdict(found.slurm),
        "gaps": [asdict(gap) for gap in found.gaps],
        "notes": [asdict(note) for note in found.notes],
    }  # fmt: skip


def _node(one: NodeState) -> dict[str, Any]:
    facts = one.facts
    return {
        "node": one.node, "gpus_expected": one.expected, "expected_from": one.counted.source,
        "gpus_named": len(one.counted.gpus), "gpus_observed": one.observed, "hours": _rounded(facts.hours_observed),
        "node_sku": facts.node_sku, "node_sku_source": facts.node_sku_source, "provider": facts.provider,
        "region": facts.region, "usd_per_hour": one.price.usd_per_hour if one.price else None,
        "price": one.price_words, "price_region_assumed": one.assumed_region, "fabric_ports": one.fabric_ports,
        "network_observed": one.network_observed, "mig_instances": one.mig_instances,
    }  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


_SHOWN_NODES = 12
_LISTED = 4
_INDENT = 3


def render_diagnosis_text(found: Diagnosis, *, width: int = 100, color: bool = False) -> str:
    """The whole diagnosis, `width` columns wide; without `color` it holds no escape sequence at all."""
    out, console = console_of(width, color)
    for n, text in enumerate(_head(found)):
        line(console, text, "" if n else "bold")
    console.print()
    unobserved = [node for node in found.nodes if node.counted.unobserved or node.expected == 0]
    if unobserved:
        line(console, "Nodes with unobserved GPUs", "bold")
        heads = ("node", "expected", "by", "named", "observed", "why")
        console.print(table(heads, map(_node_row, unobserved[:_SHOWN_NODES])))
        if len(unobserved) > _SHOWN_NODES:
            line(console, f"and {len(unobserved) - _SHOWN_NODES} more nodes; --format json lists all of them.")
    else:
        line(console, "All known GPUs are observed.")
    console.print()
    line(console, "Metrics", "bold")
    console.print(table(("metric", "available on", "of the window", "resolution"), _metric_rows(found)))
    console.print()
    for text in _around(found):
        line(console, text)
    console.print()
    line(console, "Prices", "bold")
    console.print(table(("node type", "region", "node price", "nodes", "which"), _price_rows(found)))
    console.print()
    line(console, *((f"Gaps ({len(found.gaps)})", "bold") if found.gaps else ("No gaps found.",)))
    for number, gap in enumerate(found.gaps, 1):
        line(console, f"{number}. {gap.what} ({gap.code})", "bold")
        indented(console, f"Effect: {gap.loses}", _INDENT)
        if gap.nodes:
            indented(console, f"Nodes: {_names(gap.nodes)}", _INDENT)
        if gap.add and gap.where:
            indented(console, f"Add to {gap.where}:", _INDENT)
            for part in gap.add.split("\n"):
                # Lines to copy stay whole: a terminal may wrap them, we do not.
                console.print(Text(f"     {clean(part)}", no_wrap=True, overflow="ignore"), crop=False, soft_wrap=True)
        elif gap.add:
            indented(console, f"To do: {gap.add.rstrip('.')}.", _INDENT)
    return written(out)


def _head(found: Diagnosis) -> Iterator[str]:
    advice, source, nodes = found.advice, found.advice.source, counted(len(found.nodes), "node")
    paths = source.get("databases")
    listed = paths if isinstance(paths, list) else []
    where = str(listed[0]) if len(listed) == 1 else f"{len(listed)} databases"
    if found.on_server:
        where = f"{source.get('url')} ({source.get('server')})"
    yield f"{where}: {nodes}, {coverage.gpus_words(advice.summary)}"
    since = f"; telemetry since {minute(found.begin)}" if found.begin > advice.start + 3600 else ""
    yield f"Window {coverage.window_words(advice)}{since}."
    yield coverage.extent_words(advice)
    if found.mig_instances:
        parents = sum(1 for node in found.nodes if node.mig_instances)
        yield f"MIG: {found.mig_instances} instances on {parents} of {nodes}."
    yield from (f"Note: {note}" for note in found.notes)


def _node_row(node: NodeState) -> tuple[str, ...]:
    own = node.counted
    why = "; ".join(f"{len(one.gpus)}: {one.reason}" for one in own.unobserved) or "GPUs cannot be read, see below."
    expected, source = (str(node.expected), own.source) if node.expected else ("unknown", words.NONE)
    return node.node, expected, source, str(len(own.gpus)), str(node.observed), why


def _metric_rows(found: Diagnosis) -> Iterator[tuple[str, ...]]:
    for metric in found.metrics:
        known = (
            f"{metric.having} of {metric.of} {'GPUs' if metric.scope == 'gpu' else 'nodes'}"
            if metric.of
            else words.NONE
        )
        share = words.NONE
        if metric.window_share is not None:
            share = words.percent(metric.window_share) if metric.window_share >= 0.01 else "< 1 %"
        yield metric.title, known, share, span(metric.resolution_seconds) if metric.resolution_seconds else words.NONE


def _around(found: Diagnosis) -> Iterator[str]:
    """What tells of the fleet beside its metrics; the fabric of each node that has one as the advice takes it."""
    yield f"Sources: {', '.join(found.exporters)}"
    labels, pods, jobs = found.labels, found.kubernetes, found.slurm
    named = "no GPU was active"
    if labels.busy_gpus:
        share = words.percent(labels.labeled_gpu_hours / labels.busy_gpu_hours)
        named = f"{labels.labeled_gpus} of {labels.busy_gpus} active GPUs have a pod or job name ({share} "
        named += "of the busy GPU-hours)"
    yield f"Workload labels: {named}"
    if found.on_server and pods.observed:
        yield f"Kubernetes: {pods.named} of {counted(pods.observed, 'workload')} with an owner or an image"
    if jobs.observed:
        yield f"Slurm: {jobs.named} of {counted(jobs.observed, 'job')} with a name"
    fabrics: dict[str, list[str]] = {}
    for use in found.advice.fabrics:
        fabrics.setdefault(use.unseen or f"{use.kind or 'ports'} observed", []).append(use.node)
    yield from (f"Fabric of {_names(nodes)}: {said}" for said, nodes in fabrics.items())


def _price_rows(found: Diagnosis) -> Iterator[tuple[str, ...]]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in found.nodes:
        facts, price = node.facts, node.price
        cost = f"{words.usd(price.usd_per_hour)}/h ({node.price_words})" if price is not None else "no price"
        source = f"unknown ({facts.node_sku_source})" if facts.node_sku_source else "unknown"
        sku = facts.node_sku or (price.sku if price is not None else source)
        region = facts.region or "unknown"
        region = f"{region}, {node.assumed_region} assumed" if node.assumed_region else region
        groups.setdefault((sku, region, cost), []).append(node.node)
    yield from ((*key, str(len(nodes)), _names(nodes)) for key, nodes in sorted(groups.items()))


def _names(nodes: Sequence[str]) -> str:
    if len(nodes) <= _LISTED:
        return ", ".join(nodes)
    return f"{', '.join(nodes[: _LISTED - 1])} and {len(nodes) - _LISTED + 1} more"
