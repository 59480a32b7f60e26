"""From a frame and the advice on it to the diagnosis: pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pandas as pd

from ...rules.catalog.loader import Catalog
from ..core.frame import Frame
from ..core.scalars import records, text
from ..core.verdict_types import INFERRED
from ..pipeline import Reasoned
from .coverage import metric_coverage, node_hours
from .gaps import gaps_of
from .types import Diagnosis, Labels, NodeState, SchedulerWorkloads

_GAP_SAYS = "no-fabric-series"  # a note of the reader
_AT_WORK = ("workload", "shared")


def diagnose(frame: Frame, found: Reasoned, catalog: Catalog) -> Diagnosis:
    """`found`: what `advise` says of the frame; the diagnosis takes from it all that both speak of."""
    verdicts, advice, inventory = found.fleet.verdicts, found.advice, found.fleet.verdicts.inventory
    known = node_hours(frame, inventory)
    metrics = metric_coverage(frame, found, known, catalog)
    ports = frame.fabric[["node", "device", "port"]].drop_duplicates()["node"].astype(str).value_counts().to_dict()
    instances = Counter(node for node, _ in inventory.parents)
    judged = {standing.node: len(standing.judged) for standing in advice.standings}
    types = {str(row["node"]): text(row["instance_type"]) for row in records(frame.nodes)}
    nodes = tuple(
        NodeState(
            facts, inventory.nodes[facts.node], found.fleet.book.of(facts), types.get(facts.node), known[facts.node],
            ports.get(facts.node, 0), instances[facts.node], judged.get(facts.node, 0),
        )
        for facts in verdicts.nodes
        if facts.node in known
    )  # fmt: skip
    exporters, seen = frame.source.get("exporters"), frame.gpu[frame.gpu["observed_seconds"] > 0]
    pods = frame.workloads[frame.workloads["scheduler"] == "kubernetes"]
    # What kube-state-metrics or the kubelet says of a pod gives its workload a controller's kind or an image.
    told = int(pods[["controller_kind", "image"]].notna().any(axis=1).sum())
    diagnosis = Diagnosis(
        advice=advice,
        begin=float((seen["ts"] - seen["interval_seconds"]).min()),
        best_hours=max((node.facts.hours_observed for node in nodes), default=0.0),
        nodes=nodes,
        metrics=metrics,
        exporters=tuple(map(str, exporters)) if isinstance(exporters, list) else ("skuwise agent",),
        labels=_labels(found),
        kubernetes=SchedulerWorkloads(len(pods), told),
        slurm=_slurm(frame.workloads),
        gaps=(),
        notes=tuple(note for note in verdicts.notes if note.code != _GAP_SAYS),
    )
    return replace(diagnosis, gaps=gaps_of(diagnosis, frame, verdicts, catalog))


def _labels(found: Reasoned) -> Labels:
    """GPU-hours of work by the accounting of the advice; what was inferred from activity alone has no label."""
    unnamed = {workload.id for workload in found.fleet.verdicts.workloads if workload.basis == INFERRED}
    rows = found.fleet.verdicts.occupancy
    busy = rows[rows["class"].isin(_AT_WORK) & (rows["gpu_hours"] > 0)]
    labeled = busy[~busy["workload_id"].isin(unnamed)]
    busy_gpus, labeled_gpus = (len(one.drop_duplicates(["node", "gpu_uuid"])) for one in (busy, labeled))
    return Labels(busy_gpus, labeled_gpus, float(busy["gpu_hours"].sum()), float(labeled["gpu_hours"].sum()))


def _slurm(workloads: pd.DataFrame) -> SchedulerWorkloads:
    """A job of which only the number is known is called after it, or after Slurm's copy of its script."""
    workload = workloads[(workloads["scheduler"] == "slurm") & workloads["job_id"].notna()]
    numbers = "job " + workload["job_id"].astype(str)
    named = workload["name"].notna() & (workload["name"] != "slurm_script") & (workload["name"] != numbers)
    return SchedulerWorkloads(len(workload), int(named.sum()))
