"""Showback summed up: by team, workload, namespace or account, and against the nodes' price x hours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from ..core.coded_text import CodedText
from ..core.scalars import known
from .showback import DIGITS, HIDDEN, UNOWNED, Showback

By = Literal["team", "workload", "namespace", "account"]
BY: tuple[By, ...] = ("team", "workload", "namespace", "account")
# A work that no team is known for counts under its owner, as in the advice.
_FIELD: Mapping[By, str] = {"team": "owner", "workload": "series_id", "namespace": "namespace", "account": "account"}
# The parts must sum to the whole to this share of it.
TOLERANCE = 0.001


@dataclass(frozen=True, slots=True)
class Sum:
    """Rows added up: dollars of priced rows (None: none has a price), GPU-hours of all rows. `unpriced_gpu_hours`:
    those without a cost. `tokens`: generated; None: not reported. `token_cost_usd`: what the GPUs of the same hours
    cost; None: none of them has a price."""

    cost_usd: float | None
    gpu_hours: float
    unpriced_gpu_hours: float
    cost_usd_by_category: Mapping[str, float]
    gpu_hours_by_category: Mapping[str, float]
    tokens: float | None
    token_cost_usd: float | None
    usd_per_million_tokens: float | None


@dataclass(frozen=True, slots=True)
class GroupSum:
    """What one owner, workload (all runs of a series), namespace or account held. `name` None: nobody is named.

    `tokens_unknown`: why there is no cost per token; None: there is one. `teams`: those of its workloads.
    """

    name: str | None
    series_id: str | None
    workloads: int
    teams: frozenset[str | None] = field(metadata=HIDDEN)
    sums: Sum = field(metadata=HIDDEN)
    tokens_unknown: CodedText | None


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """Rows against price x hours, US dollars: of one node, or of all priced ones; None: no price is known."""

    rows_usd: float | None
    node_price_times_hours_usd: float | None

    @property
    def difference_usd(self) -> float | None:
        if self.rows_usd is None or self.node_price_times_hours_usd is None:
            return None
        return round(self.rows_usd - self.node_price_times_hours_usd, DIGITS) + 0.0  # never -0.0

    @property
    def closes(self) -> bool:
        """Whether the two are one and the same within 0.1 %; also where there is nothing to compare."""
        difference = self.difference_usd
        return difference is None or abs(difference) <= TOLERANCE * max(self.node_price_times_hours_usd or 0.0, 1e-3)


def groups_of(showback: Showback, by: By) -> tuple[GroupSum, ...]:
    """Every group that held something, the dearest first; the one without a name last."""
    rows = showback.rows[~showback.rows["category"].isin(UNOWNED) & showback.rows["workload"].notna()]
    names = [getattr(showback.workloads[workload], _FIELD[by]) for workload in rows["workload"]]
    groups = []
    for key, own in rows.groupby(pd.Series(names, rows.index, dtype=object), dropna=False, sort=False):
        name = key if isinstance(key, str) else None
        sums, held = sum_rows(own), [showback.workloads[workload] for workload in own["workload"].unique()]
        if sums.tokens:
            why = CodedText("token-cost-without-price", "No cost per token: the nodes have no price.")
        elif any(w.reports_tokens for w in held):
            text = "in no hour did the engines report tokens, and hold their GPUs alone, for 90 % of it."
            why = CodedText("token-cost-too-rare", f"No cost per token: {text}")
        else:
            why = CodedText(
                "token-cost-not-reported", "No cost per token: no inference engine reports generated tokens."
            )
        shown, series = (held[0].name, name) if by == "workload" else (name, None)
        unknown = why if sums.usd_per_million_tokens is None else None
        groups.append(GroupSum(shown, series, len(held), frozenset(w.team for w in held), sums, unknown))

    def rank(group: GroupSum) -> tuple[bool, float, float, str, str]:
        usd, hours = (round(value or 0.0, DIGITS) for value in (group.sums.cost_usd, group.sums.gpu_hours))
        return group.name is None, -usd, -hours, group.name or "", group.series_id or ""

    return tuple(sorted(groups, key=rank))


def unowned_of(showback: Showback) -> Mapping[str, Sum]:
    """What no workload held alone, by category; those that have no row are left out."""
    rows = showback.rows
    parts = ((category, rows[rows["category"] == category]) for category in UNOWNED)
    return {category: sum_rows(own) for category, own in parts if not own.empty}


def sum_rows(rows: pd.DataFrame) -> Sum:
    """The sums of rows under `ROWS`."""

    def by_category(some: pd.DataFrame, column: str) -> dict[str, float]:
        sums = some.groupby("category", observed=True)[column].sum()
        return {str(category): float(value) for category, value in sums.items()}

    priced = rows["usd"].notna()
    usd = by_category(rows[priced], "usd")
    hours = by_category(rows[rows["category"] != "fabric-premium"], "gpu_hours")
    made, cost = rows["tokens"].where(rows["token_usd"].notna()).sum(), known(rows["token_usd"].sum(min_count=1))
    return Sum(
        sum(usd.values()) if usd else None, sum(hours.values()), float(rows.loc[~priced, "gpu_hours"].sum()), usd,
        hours, known(rows["tokens"].sum(min_count=1)), cost, cost / made * 1e6 if made and cost is not None else None,
    )  # fmt: skip


def node_checks(showback: Showback) -> Mapping[str, NodeCheck]:
    """Every node, by name."""
    usd = showback.rows.groupby("node")["usd"].sum()
    return {
        n.node: NodeCheck(float(usd.get(n.node, 0.0)) if n.price is not None else None, n.usd) for n in showback.nodes
    }


def whole_check(checks: Iterable[NodeCheck]) -> NodeCheck:
    """All priced nodes together."""
    priced = [
        (check.rows_usd or 0.0, whole) for check in checks if (whole := check.node_price_times_hours_usd) is not None
    ]
    return NodeCheck(*map(sum, zip(*priced, strict=True))) if priced else NodeCheck(None, None)
