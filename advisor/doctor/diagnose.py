"""From a frame and the advice on it to the diagnosis, its page and its JSON (schema ``skuwise.doctor/1``)."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...rules.catalog.loader import Catalog
from ..core import formatting as words
from ..core.advice_json import plain
from ..core.formatting import NONE, counted, listed
from ..core.frame import Frame
from ..core.scalars import records, text
from ..core.timestamps import minute, rfc3339, span
from ..core.verdict_types import INFERRED
from ..pipeline import Reasoned
from ..show import coverage
from ..show.document import AsideBlock, Block, Bullets, Document, Section, Table, section
from .coverage import GPU_MEASURES, NODE_MEASURES, Diagnosis, NodeState, TelemetryGap, metric_coverage, node_hours
from .gaps import CHECKS

_GAP_NOTE = "no-fabric-series"  # a note of the reader that a gap repeats


def diagnose(frame: Frame, reasoned: Reasoned, catalog: Catalog) -> Diagnosis:
    """The diagnosis of a frame. `reasoned`: the advice on it, which decides all that both show."""
    verdicts, advice, inventory = reasoned.fleet.verdicts, reasoned.advice, reasoned.fleet.verdicts.inventory
    hours = node_hours(frame, inventory)
    ports = frame.fabric[["node", "device", "port"]].drop_duplicates()["node"].astype(str).value_counts().to_dict()
    instances = Counter(node for node, _ in inventory.parents)
    judged = {standing.node: len(standing.judged) for standing in advice.standings}
    types = {str(row["node"]): text(row["instance_type"]) for row in records(frame.nodes)}
    nodes = tuple(
        NodeState(
            facts, inventory.nodes[facts.node], reasoned.fleet.book.of(facts), types.get(facts.node), hours[facts.node],
            ports.get(facts.node, 0), instances[facts.node], judged.get(facts.node, 0),
        )
        for facts in verdicts.nodes
        if facts.node in hours
    )  # fmt: skip
    exporters, rows = frame.source.get("exporters"), frame.gpu[frame.gpu["observed_seconds"] > 0]
    pods = frame.workloads[frame.workloads["scheduler"] == "kubernetes"]
    owned = pods[["controller_kind", "image"]].notna().any(axis=1)
    jobs = frame.workloads[(frame.workloads["scheduler"] == "slurm") & frame.workloads["job_id"].notna()]
    # Without a name a job is called after its number, or after Slurm's copy of its script.
    unnamed = jobs["name"].fillna("slurm_script").isin({"slurm_script", *("job " + jobs["job_id"].astype(str))})
    # GPU-hours of work by the accounting of the advice; inferred work has no label.
    inferred = {workload.id for workload in verdicts.workloads if workload.basis == INFERRED}
    busy = verdicts.occupancy[verdicts.occupancy["class"].isin(["workload", "shared"])]
    busy, labels = busy[busy["gpu_hours"] > 0], {}
    for name, part in (("busy", busy), ("labeled", busy[~busy["workload_id"].isin(inferred)])):
        labels[f"{name}_gpus"] = len(part.drop_duplicates(["node", "gpu_uuid"]))
        labels[f"{name}_gpu_hours"] = float(part["gpu_hours"].sum())
    diagnosis = Diagnosis(
        frame=frame, verdicts=verdicts, catalog=catalog, advice=advice,
        begin=float((rows["ts"] - rows["interval_seconds"]).min()), nodes=nodes,
        metrics=metric_coverage(frame, reasoned, hours, catalog),
        exporters=tuple(map(str, exporters)) if isinstance(exporters, list) else ("skuwise agent",),
        labels=labels, kubernetes={"observed": len(pods), "named": int(owned.sum())},
        slurm={"observed": len(jobs), "named": int((~unnamed).sum())},
        notes=tuple(note for note in verdicts.notes if note.code != _GAP_NOTE),
    )  # fmt: skip
    return replace(diagnosis, gaps=tuple(gap for check in CHECKS for gap in check(diagnosis)))


SCHEMA = "skuwise.doctor/1"
_NODES_MAX = 12


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as plain values."""
    advice, summary = diagnosis.advice, diagnosis.advice.summary
    observed_hours, floor = summary.observed_hours or 0.0, summary.floor_hours or 0.0
    best_hours = max((node.facts.hours_observed for node in diagnosis.nodes), default=0.0)
    return plain({
        "schema": SCHEMA, "generated_at": rfc3339(advice.generated_at),
        "window": {"start": rfc3339(advice.start), "end": rfc3339(advice.end)},
        "source": {name: value for name, value in advice.source.items() if name != "asked"},
        "telemetry": {
            "begin": rfc3339(diagnosis.begin) if observed_hours else None, "observed_hours": observed_hours,
            "window_hours": summary.window_hours,
        },
        "summary": {
            "node_count": len(diagnosis.nodes), "gpu_count": summary.gpu_count,
            "observed_gpu_count": diagnosis.observed,
            "mig_instances": sum(node.mig_instances for node in diagnosis.nodes),
            "unobserved": [
                {"node": part.node, "gpus": part.gpus, "reason": part.reason, "code": part.code}
                for part in summary.unobserved
            ],
        },
        "verdicts": {
            "possible": diagnosis.observed > 0, "waste_floor_hours": floor,
            "waste_ready_gpus": summary.judged_gpu_count,
            "waste_ready_nodes": len(coverage.judged_nodes(advice)[0]), "most_hours_of_a_node": best_hours,
            "hours_until_waste": max(floor - best_hours, 0.0) if summary.nothing_judged else 0.0,
        },
        "nodes": [_node(node) for node in diagnosis.nodes],
        "metrics": [
            {
                "metric": m.metric, "scope": "gpu" if m.metric in GPU_MEASURES else "node", "having": m.having,
                "of": m.of, "window_share": m.window_share, "resolution_seconds": m.resolution_seconds,
            }
            for m in diagnosis.metrics
        ],
        "exporters": [{"name": name} for name in diagnosis.exporters],
        "workload_labels": diagnosis.labels, "kubernetes_workloads": diagnosis.kubernetes,
        "slurm_jobs": diagnosis.slurm, "gaps": diagnosis.gaps, "notes": diagnosis.notes,
    })  # fmt: skip


def _node(node: NodeState) -> dict[str, Any]:
    facts, inventory = node.facts, node.inventory
    return {
        "node": node.node, "gpus_expected": inventory.gpu_count, "expected_from": inventory.source,
        "gpus_named": len(inventory.gpus), "gpus_observed": node.observed, "hours": facts.hours_observed,
        "node_sku": facts.node_sku, "node_sku_source": facts.node_sku_source, "provider": facts.provider,
        "region": facts.region, "usd_per_hour": node.price.usd_per_hour if node.price else None,
        "price": node.price_words, "price_region_assumed": node.assumed_region, "fabric_ports": node.fabric_ports,
        "network_observed": node.network_observed, "mig_instances": node.mig_instances,
    }  # fmt: skip


def diagnosis_document(diagnosis: Diagnosis) -> Document:
    """The page: nodes with unobserved GPUs, metrics, sources, prices, and each gap with effect and remedy."""
    advice, source, nodes = diagnosis.advice, diagnosis.advice.source, counted(len(diagnosis.nodes), "node")
    paths = source.get("databases")
    paths = paths if isinstance(paths, list) else []
    where = str(paths[0]) if len(paths) == 1 else f"{len(paths)} databases"
    if diagnosis.on_server:
        where = f"{source.get('url')} ({source.get('server')})"
    heading = f"{where}: {nodes}, {coverage.gpus_words(advice.summary)}"
    since = f"; telemetry since {minute(diagnosis.begin)}" if diagnosis.begin > advice.start + 3600 else ""
    notes = Bullets(tuple(note.text for note in diagnosis.notes))
    mig = [node.mig_instances for node in diagnosis.nodes if node.mig_instances]
    gaps = [_gap(number, gap) for number, gap in enumerate(diagnosis.gaps, 1)]
    heads, rows = ("Metric", "Available on", "Of the window", "Resolution"), list[tuple[str, ...]]()
    for m in diagnosis.metrics:
        gpu, share = GPU_MEASURES.get(m.metric), NONE
        if m.window_share is not None:
            share = words.percent(m.window_share) if m.window_share >= 0.01 else "< 1 %"
        having = f"{m.having} of {m.of} {'GPUs' if gpu else 'nodes'}" if m.of else NONE
        resolution = span(m.resolution_seconds) if m.resolution_seconds else NONE
        rows.append((gpu.title if gpu else NODE_MEASURES[m.metric], having, share, resolution))
    return Document(
        title=heading, heading=heading, window=f"Window {coverage.window_words(advice)}{since}.",
        summary=coverage.extent_words(advice), tiles=(), sections=(
            section("GPUs", f"MIG: {sum(mig)} instances on {len(mig)} of {nodes}." if mig else "", _gpus(diagnosis)),
            section("Metrics", Table(heads, tuple(rows))),
            section("Sources", *_sources(diagnosis), notes),
            section("Prices", Table(("Node type", "Region", "Node price", "Nodes", "Which"), _price_rows(diagnosis))),
            section(f"Gaps ({len(gaps)})" if gaps else "Gaps", *(gaps or ["No gaps found."])),
        ),
    )  # fmt: skip


def _gap(number: int, gap: TelemetryGap) -> Section:
    remedy = f"To do: {gap.add.rstrip('.')}." if gap.add else ""
    nodes = f"Nodes: {listed(gap.nodes)}" if gap.nodes else ""
    return section(
        f"{number}. {gap.what} ({gap.code})", f"Effect: {gap.loses}", nodes,
        AsideBlock(f"Add to {gap.where}:", gap.add) if gap.add and gap.where else remedy,
    )  # fmt: skip


def _gpus(diagnosis: Diagnosis) -> Block:
    rows = []
    for node in diagnosis.nodes:
        inventory = node.inventory
        if inventory.unobserved or inventory.gpu_count == 0:
            why = "; ".join(f"{len(part.gpus)}: {part.reason}" for part in inventory.unobserved)
            expected = (str(inventory.gpu_count), inventory.source) if inventory.gpu_count else ("unknown", NONE)
            named = (str(len(inventory.gpus)), str(node.observed))
            rows.append((node.node, *expected, *named, why or "GPUs cannot be read, see below."))
    if not rows:
        return "All known GPUs are observed."
    more = f"{len(rows) - _NODES_MAX} more with --format json." if len(rows) > _NODES_MAX else ""
    heads = ("Node", "Expected", "By", "Named", "Observed", "Why")
    return Table(heads, tuple(rows[:_NODES_MAX]), right=(1, 3, 4), more=more)


def _sources(diagnosis: Diagnosis) -> Iterator[str]:
    labels, pods, jobs = diagnosis.labels, diagnosis.kubernetes, diagnosis.slurm
    yield f"Sources: {', '.join(diagnosis.exporters)}"
    share = words.percent(labels["labeled_gpu_hours"] / labels["busy_gpu_hours"]) if labels["busy_gpus"] else ""
    named = f"{labels['labeled_gpus']} of {labels['busy_gpus']} active GPUs have a pod or job name"
    yield f"Workload labels: {f'{named} ({share} of the busy GPU-hours)' if share else 'no GPU was active'}"
    if diagnosis.on_server and pods["observed"]:
        yield f"Kubernetes: {pods['named']} of {counted(pods['observed'], 'workload')} with an owner or an image"
    if jobs["observed"]:
        yield f"Slurm: {jobs['named']} of {counted(jobs['observed'], 'job')} with a name"
    fabrics: dict[str, list[str]] = {}
    for use in diagnosis.advice.fabrics:
        fabrics.setdefault(use.unseen or f"{use.kind or 'ports'} observed", []).append(use.node)
    yield from (f"Fabric of {listed(nodes)}: {state}" for state, nodes in fabrics.items())


def _price_rows(diagnosis: Diagnosis) -> tuple[tuple[str, ...], ...]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in diagnosis.nodes:
        facts, price = node.facts, node.price
        cost = f"{words.usd(price.usd_per_hour)}/h ({node.price_words})" if price is not None else "no price"
        unknown = f"unknown ({facts.node_sku_source})" if facts.node_sku_source else "unknown"
        sku = facts.node_sku or (price.sku if price is not None else unknown)
        region = f"{facts.region or 'unknown'}{f', {node.assumed_region} assumed' if node.assumed_region else ''}"
        groups.setdefault((sku, region, cost), []).append(node.node)
    return tuple((*key, str(len(nodes)), listed(nodes)) for key, nodes in sorted(groups.items()))
