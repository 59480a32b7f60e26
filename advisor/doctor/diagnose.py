"""From a frame and the advice on it to the diagnosis."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ...rules.catalog.loader import Catalog
from ..core.frame import Frame
from ..core.scalars import records, text
from ..core.verdict_types import INFERRED
from ..pipeline import Reasoned
from .coverage import Diagnosis, NodeState, metric_coverage, node_hours
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
