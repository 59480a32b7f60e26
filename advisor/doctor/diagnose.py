"""From what a source tells to the diagnosis: pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...rules.catalog.hour_prices import SOURCE
from ...rules.catalog.loader import Catalog
from ...rules.catalog.types import Price
from ..core.advice_types import Unobserved
from ..core.intervals import most_at_once
from ..moves.base.price_book import PriceBook
from ..verdicts.types import NodeFacts
from .checks.gaps import gaps_of
from .facts import MEASURES, CoverageMeasure, ExpectedGpu, NodeCoverage, SourceCoverage, applies
from .types import Diagnosis, Labels, MetricCoverage, NodeState, Readiness

_FABRICS = ("infiniband", "ethernet")


def diagnose(
    told: SourceCoverage, catalog: Catalog, book: PriceBook, floor_hours: float, generated_at: float
) -> Diagnosis:
    """`floor_hours`: hours of data below which no rule of waste gives a verdict; `generated_at`: Unix seconds."""
    nodes = tuple(_state(node, told, catalog, book) for node in sorted(told.nodes, key=lambda one: one.node))
    metrics = tuple(_coverage(measure, told, nodes, catalog) for measure in MEASURES)
    labels = _labels(told)
    best = max((node.hours for node in nodes), default=0.0)
    readiness = Readiness(
        floor_hours, sum(node.hours >= floor_hours for node in nodes), best, max(floor_hours - best, 0.0)
    )
    return Diagnosis(
        generated_at=generated_at, source=told.source, window=told.window, begin=told.begin,
        observed_hours=told.observed_hours, sampled=told.sampled, nodes=nodes, metrics=metrics,
        exporters=told.exporters, labels=labels, readiness=readiness,
        gaps=gaps_of(told, catalog, nodes, metrics, labels, readiness), notes=told.notes, pods=told.pods,
        slurm=told.slurm,
    )  # fmt: skip


def _state(node: NodeCoverage, told: SourceCoverage, catalog: Catalog, book: PriceBook) -> NodeState:
    observed = at_once(node.gpus, told.slack_seconds)
    silent = [gpu for gpu in node.gpus if gpu.hours <= 0]
    of_sku = catalog.node_gpu_count(node.node_sku) if node.node_sku else None
    counts = {"node SKU": of_sku or 0, "declared": node.declared or 0, "requested": node.requested}
    # Without another count those exist that were seen at once, and those of which nothing was seen.
    counts["named"] = observed if of_sku or node.declared else observed + len(silent)
    expected = max(counts.values())
    source = next(name for name, count in counts.items() if count == expected)
    price = book.of(_facts(node, expected))
    return NodeState(
        node=node.node, expected=expected, expected_from=source, named=len(node.gpus), observed=observed,
        unobserved=_unobserved(node, expected, source, observed, silent),
        hours=sum(gpu.hours for gpu in node.gpus) / max(expected, 1), node_sku=node.node_sku,
        node_sku_source=node.node_sku_source, provider=node.provider, region=node.region,
        usd_per_hour=price.usd_per_hour if price else None,
        price=_basis(price) if price else None,
        assumed_region=price.region if price and price.region_assumed else None,
        fabric_ports=node.fabric_ports, fabric_seen=any(node.known.get(name, 0.0) > 0 for name in _FABRICS),
        mig_instances=sum(gpu.instances for gpu in node.gpus),
    )  # fmt: skip


def _facts(node: NodeCoverage, gpu_count: int) -> NodeFacts:
    """As much of the advice's node as its price depends on."""
    skus = {gpu.sku for gpu in node.gpus}
    return NodeFacts(
        node=node.node, cluster="", provider=node.provider, region=node.region, node_sku=node.node_sku,
        node_sku_source=node.node_sku_source, gpu_sku=next(iter(skus)) if len(skus) == 1 else None,
        gpu_count=gpu_count, first_seen=math.nan, last_seen=math.nan, hours_observed=0.0, fabric=None,
    )  # fmt: skip


def _basis(price: Price) -> str:
    said = f"{price.basis}, {price.as_of}"
    return f"{price.source}, {price.as_of}" if price.source.startswith(SOURCE) else said


def at_once(gpus: Iterable[ExpectedGpu], slack_seconds: float) -> int:
    """The most GPUs that were observed at a time: one that took another's place is no GPU more."""
    return most_at_once(((gpu.first_ts, gpu.last_ts) for gpu in gpus if gpu.hours > 0), slack_seconds)


def _unobserved(
    node: NodeCoverage, expected: int, source: str, observed: int, silent: list[ExpectedGpu]
) -> tuple[Unobserved, ...]:
    missing = expected - observed
    named = tuple(gpu.gpu_uuid for gpu in silent[:missing])
    unnamed = tuple(f"unnamed-{n + 1}" for n in range(missing - len(named)))
    absent = next((one for one in node.absences if one.metric in ("*", "gpu")), None)
    found = []
    if absent is not None and observed == 0 and missing > 0:
        reason = absent.detail or f"The agent reports for the GPUs of this node: {absent.reason}."
        return (Unobserved(node.node, (*named, *unnamed), reason, absent.reason),)
    if named:
        reason, code = "A time series names this GPU, but no metric of it was reported in the window.", "no-samples"
        if observed == 0:
            reason, code = "No exporter or agent reported metrics of this node's GPUs in the window.", "no-exporter"
        found.append(Unobserved(node.node, named, reason, code))
    if unnamed:
        has = {
            "node SKU": f"The node's SKU has {expected} GPUs",
            "declared": f"The node declares {expected} GPUs",
            "requested": f"Pods requested {expected} GPUs on the node",
        }.get(source, f"Time series name {expected} GPUs")
        if observed == 0 and not named:
            found.append(
                Unobserved(node.node, unnamed, f"{has}, but no exporter or agent reports any of them.", "no-exporter")
            )
        else:
            said = f"{has}, but only {observed + len(named)} appear in any time series."
            found.append(Unobserved(node.node, unnamed, said, "not-named"))
    return tuple(found)


def _coverage(
    measure: CoverageMeasure, told: SourceCoverage, nodes: tuple[NodeState, ...], catalog: Catalog
) -> MetricCoverage:
    window_hours = max(told.window.hours, 1e-9)
    if measure.scope == "node":
        hours = [node.known.get(measure.name, 0.0) for node in told.nodes]
        of = len(told.nodes)
    else:
        gpus = [gpu for node in told.nodes for gpu in node.gpus if gpu.hours > 0]
        fitting = [gpu for gpu in gpus if applies(measure.name, gpu, catalog)]
        hours = [gpu.known.get(measure.name, 0.0) for gpu in fitting]
        # What is not observed at all lacks everything.
        of = len(fitting) + sum(node.expected - node.observed for node in nodes)
    having = [one for one in hours if one > 0]
    return MetricCoverage(
        measure.name, measure.title, measure.scope, len(having), of,
        min(sum(having) / len(having) / window_hours, 1.0) if having else None,
        told.resolution.get(measure.name) if having else None,
    )  # fmt: skip


def _labels(told: SourceCoverage) -> Labels:
    busy = [gpu for node in told.nodes for gpu in node.gpus if gpu.busy_hours > 0]
    return Labels(
        len(busy), sum(gpu.labeled_hours > 0 for gpu in busy), sum(gpu.busy_hours for gpu in busy),
        sum(min(gpu.labeled_hours, gpu.busy_hours) for gpu in busy),
    )  # fmt: skip
