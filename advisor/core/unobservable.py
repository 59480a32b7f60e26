"""Nodes whose GPUs cannot be read in any window: the reason and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...rules.base.errors import NothingToDo
from .formatting import clause, listed


@dataclass(frozen=True, slots=True)
class Blind:
    """`reason`: a stable code (agent/model.py, `Absence`); `detail`: a sentence; `remedy`: may be empty."""

    reason: str
    detail: str
    remedy: str

    @property
    def words(self) -> str:
        return f"{self.detail} {self.remedy}".strip()


def blind_nodes(absences: pd.DataFrame) -> Mapping[str, Blind]:
    """Node -> why its agent reads no GPU: of several reasons the one that lasted longest."""
    if absences.empty:
        return {}
    # The agent's source "nvml" is the driver: without it all GPUs are missing.
    whole = absences[(absences["scope"] == "source") & (absences["metric"] == "*") & (absences["device"] == "nvml")]
    texts = whole[["node", "reason", "detail", "remedy"]].fillna("").assign(
        lasted=(whole["until"].astype(float) - whole["since"].astype(float)).fillna(np.inf)
    )  # fmt: skip
    longest = texts[texts["detail"] != ""].sort_values("lasted", ascending=False, kind="stable").drop_duplicates("node")
    rows = longest[["node", "reason", "detail", "remedy"]].itertuples(index=False, name=None)
    return {str(node): Blind(str(reason), detail, remedy) for node, reason, detail, remedy in rows}


def unreadable(nodes: Mapping[str, Blind]) -> NothingToDo:
    """The error for telemetry without any readable GPU. `nodes`: at least one."""
    by_reason: dict[Blind, list[str]] = {}
    for node, why in nodes.items():
        by_reason.setdefault(why, []).append(node)
    reasons = [f"GPUs of {listed(sorted(names))} cannot be read: {clause(b.detail)}." for b, names in by_reason.items()]
    remedies = dict.fromkeys(why.remedy for why in by_reason if why.remedy)
    return NothingToDo(" ".join(reasons), " ".join((*remedies, "For details run 'skuwise agent doctor' on the node.")))
