"""The diagnosis as a person reads it in a terminal or a pipe. All outside text passes through `clean`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ...rules.base.sanitize import clean
from ..core import formatting as words
from ..core.formatting import counted
from ..core.timestamps import minute, span
from ..render.text import console_of, indented, line, table, written
from ..views import coverage
from .types import Diagnosis, MetricCoverage

SHOWN_NODES = 12
_LISTED = 4
_INDENT = 3


def render_diagnosis_text(found: Diagnosis, *, width: int = 100, color: bool = False) -> str:
    """The whole diagnosis, `width` columns wide; without `color` it holds no escape sequence at all."""
    out, console = console_of(width, color)
    _head(console, found)
    _nodes(console, found)
    _metrics(console, found)
    _around(console, found)
    _money(console, found)
    _gaps(console, found)
    return written(out)


def _head(console: Console, found: Diagnosis) -> None:
    advice, nodes = found.advice, counted(len(found.nodes), "node")
    line(console, f"{_source(found)}: {nodes}, {coverage.gpus_words(advice.summary)}", "bold")
    window = f"Window {coverage.window_words(advice)}"
    since = f"; telemetry since {minute(found.begin)}" if found.begin > advice.start + 3600 else ""
    line(console, f"{window}{since}.")
    line(console, coverage.extent_words(advice))
    if found.mig_instances:
        parents = sum(1 for node in found.nodes if node.mig_instances)
        line(console, f"MIG: {found.mig_instances} instances on {parents} of {nodes}.")
    for note in found.notes:
        line(console, f"Note: {note}")
    console.print()


def _source(found: Diagnosis) -> str:
    source = found.advice.source
    if found.on_server:
        return f"{source.get('url')} ({source.get('server')})"
    paths = source.get("databases")
    listed = paths if isinstance(paths, list) else []
    return str(listed[0]) if len(listed) == 1 else f"{len(listed)} databases"


def _nodes(console: Console, found: Diagnosis) -> None:
    differing = [node for node in found.nodes if node.counted.unobserved or node.expected == 0]
    if not differing:
        line(console, "All known GPUs are observed.")
        console.print()
        return
    line(console, "Nodes with unobserved GPUs", "bold")
    rows = []
    for node in differing[:SHOWN_NODES]:
        own = node.counted
        why = "; ".join(f"{len(one.gpus)}: {one.reason}" for one in own.unobserved) or "GPUs cannot be read, see below."
        expected, source = (str(node.expected), own.source) if node.expected else ("unknown", words.NONE)
        rows.append((node.node, expected, source, str(len(own.gpus)), str(node.observed), why))
    console.print(table(("node", "expected", "by", "named", "observed", "why"), rows))
    if len(differing) > SHOWN_NODES:
        line(console, f"and {len(differing) - SHOWN_NODES} more nodes; --format json lists all of them.")
    console.print()


def _metrics(console: Console, found: Diagnosis) -> None:
    line(console, "Metrics", "bold")
    console.print(table(("metric", "available on", "of the window", "resolution"), map(_metric_row, found.metrics)))
    console.print()


def _metric_row(one: MetricCoverage) -> tuple[str, ...]:
    what = "GPUs" if one.scope == "gpu" else "nodes"
    known = f"{one.having} of {one.of} {what}" if one.of else words.NONE
    share = words.NONE
    if one.window_share is not None:
        share = words.percent(one.window_share) if one.window_share >= 0.01 else "< 1 %"
    return one.title, known, share, span(one.resolution_seconds) if one.resolution_seconds else words.NONE


def _around(console: Console, found: Diagnosis) -> None:
    line(console, f"Sources: {', '.join(found.exporters)}")
    labels = found.labels
    if labels.busy_gpus:
        share = words.percent(labels.labeled_gpu_hours / labels.busy_gpu_hours)
        line(
            console,
            f"Workload labels: {labels.labeled_gpus} of {labels.busy_gpus} active GPUs have a pod or job name ({share} "
            "of the busy GPU-hours)",
        )
    else:
        line(console, "Workload labels: no GPU was active")
    if found.on_server and found.kubernetes.observed:
        pods = found.kubernetes
        line(console, f"Kubernetes: {pods.named} of {counted(pods.observed, 'workload')} with an owner or an image")
    if found.slurm.observed:
        line(console, f"Slurm: {found.slurm.named} of {counted(found.slurm.observed, 'job')} with a name")
    _fabric(console, found)
    console.print()


def _fabric(console: Console, found: Diagnosis) -> None:
    """The fabric of each node that has one, as the advice takes it."""
    groups: dict[str, list[str]] = {}
    for use in found.advice.fabrics:
        groups.setdefault(use.unseen or f"{use.kind or 'ports'} observed", []).append(use.node)
    for said, nodes in groups.items():
        line(console, f"Fabric of {_names(nodes)}: {said}")


def _money(console: Console, found: Diagnosis) -> None:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in found.nodes:
        facts, price = node.facts, node.price
        cost = f"{words.usd(price.usd_per_hour)}/h ({node.price_words})" if price is not None else "no price"
        source = f"unknown ({facts.node_sku_source})" if facts.node_sku_source else "unknown"
        sku = facts.node_sku or (price.sku if price is not None else source)
        region = facts.region or "unknown"
        region = f"{region}, {node.assumed_region} assumed" if node.assumed_region else region
        groups.setdefault((sku, region, cost), []).append(node.node)
    rows = [(*key, str(len(nodes)), _names(nodes)) for key, nodes in sorted(groups.items())]
    line(console, "Prices", "bold")
    console.print(table(("node type", "region", "node price", "nodes", "which"), rows))
    console.print()


def _gaps(console: Console, found: Diagnosis) -> None:
    if not found.gaps:
        line(console, "No gaps found.")
        return
    line(console, f"Gaps ({len(found.gaps)})", "bold")
    for number, gap in enumerate(found.gaps, 1):
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
