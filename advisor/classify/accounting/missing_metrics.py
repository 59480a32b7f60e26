"""Which metrics nobody saw of a workload, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...core.coded_text import CodedText, coded
from ...core.records import Record, records
from ..features.piece_rows import PieceRows
from ..workloads.session import Session

# What a verdict wants to see of a workload, and the measure that shows it.
_WANTED = {
    "gpu_util": "g",
    "sm_active": "sm",
    "tensor_active": "c",
    "dram_active": "m",
    "power_watts": "power",
    "mem_used_bytes": "mem",
}
_UNTOLD = coded("not-measured", "No data for these GPUs, and no reason recorded.")


def unseen_metrics(rows: PieceRows) -> list[tuple[str, ...]]:
    """The metrics that no row of each workload has."""
    seen = {metric: rows.segments.any(~np.isnan(rows.measured(name))).tolist() for metric, name in _WANTED.items()}
    return [tuple(metric for metric, known in seen.items() if not known[n]) for n in range(len(rows.segments))]


@dataclass(frozen=True)
class AbsenceReasons:
    """Why metrics are missing, as agents noted it: the absences of each node, each with its place among all."""

    of_node: Mapping[str, Sequence[tuple[int, Record]]]

    @classmethod
    def of(cls, absences: pd.DataFrame) -> AbsenceReasons:
        by_node: dict[str, list[tuple[int, Record]]] = {}
        for n, row in enumerate(records(absences)):
            by_node.setdefault(str(row["node"]), []).append((n, row))
        return cls(by_node)

    def reason(self, session: Session, metric: str) -> CodedText:
        """The first that is noted of a source of its nodes or of its GPUs: in the agent's words, by its code."""
        uuids = {uuid for _, uuid in session.gpus}
        own = [
            (n, row)
            for node in session.nodes
            for n, row in self.of_node.get(node, ())
            if row["metric"] in (metric, "*") and (row["scope"] == "source" or row["gpu_uuid"] in uuids)
        ]
        if not own:
            return _UNTOLD
        _, row = min(own, key=lambda one: one[0])
        reason, detail = str(row["reason"]), row["detail"]
        return CodedText(reason, detail if isinstance(detail, str) and detail else reason)
