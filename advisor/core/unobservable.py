"""Nodes whose GPUs cannot be read at all: why, and what to do about it. No other window would tell more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from ...rules.base.errors import NothingToDo
from .formatting import clause, listed


@dataclass(frozen=True, slots=True)
class Blind:
    """`reason`: a stable code (agent/model.py, `Absence`); `detail`: a sentence; `remedy`: what to do."""

    reason: str
    detail: str
    remedy: str

    @property
    def words(self) -> str:
        return f"{self.detail} {self.remedy}".strip()


def blind_nodes(absences: pd.DataFrame) -> Mapping[str, Blind]:
    """Node -> why its agent reads no GPU; of several reasons the one that lasted longest."""
    if absences.empty:
        return {}
    # The agent's source "nvml" is the driver: what it lacks is lacking of all GPUs.
    whole = absences[(absences["scope"] == "source") & (absences["metric"] == "*") & (absences["device"] == "nvml")]
    found: dict[str, tuple[float, Blind]] = {}
    for row in whole.to_dict("records"):
        since, until = float(row["since"]), float(row["until"])
        lasted = math.inf if math.isnan(until) else until - since
        node, detail = str(row["node"]), row["detail"]
        if isinstance(detail, str) and detail and lasted > found.get(node, (-math.inf,))[0]:
            remedy = row["remedy"]
            found[node] = lasted, Blind(str(row["reason"]), detail, remedy if isinstance(remedy, str) else "")
    return {node: why for node, (_, why) in found.items()}


def unreadable(nodes: Mapping[str, Blind]) -> NothingToDo:
    """The error for telemetry in which no GPU of any node can be read. `nodes`: one at least."""
    by_reason: dict[Blind, list[str]] = {}
    for node, why in nodes.items():
        by_reason.setdefault(why, []).append(node)
    told = "; ".join(
        f"GPUs of {listed(sorted(names))} cannot be read: {clause(why.detail)}" for why, names in by_reason.items()
    )
    remedies = dict.fromkeys(why.remedy for why in by_reason if why.remedy)
    doctor = "For details run 'skuwise agent doctor' on the node."
    return NothingToDo(f"{told[:1].upper()}{told[1:]}.", " ".join((*remedies, doctor)))
