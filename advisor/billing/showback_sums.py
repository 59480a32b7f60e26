"""Showback summed up: by team, workload, namespace or account, and against the nodes' price x hours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ..core.coded_text import CodedText
from .showback import CATEGORIES, UNOWNED, Category, Showback, ShowbackRow, ShowbackWorkload

By = Literal["team", "workload", "namespace", "account"]
BY: tuple[By, ...] = ("team", "workload", "namespace", "account")
# A work that no team is known for counts under its owner, as in the advice.
_FIELD: Mapping[By, str] = {"team": "owner", "workload": "series_id", "namespace": "namespace", "account": "account"}
# The parts must sum to the whole to this share of it.
TOLERANCE = 0.001


@dataclass(frozen=True, slots=True)
class Sum:
    """Rows added up. `usd`: by category, of priced rows; `gpu_hours` likewise, of all rows. `unpriced_gpu_hours`: those
    without a cost. `tokens`: generated; None: not reported. `token_usd`: what the GPUs of the same hours cost, and
    `priced_tokens` what was generated in those of them that have a price; None: none has."""

    usd: Mapping[Category, float]
    gpu_hours: Mapping[Category, float]
    unpriced_gpu_hours: float
    tokens: float | None
    priced_tokens: float | None
    token_usd: float | None

    @property
    def total_usd(self) -> float | None:
        """None: none of it has a price."""
        return sum(self.usd.values()) if self.usd else None

    @property
    def total_gpu_hours(self) -> float:
        return sum(self.gpu_hours.values())

    @property
    def usd_per_million_tokens(self) -> float | None:
        made = self.priced_tokens
        return self.token_usd / made * 1e6 if made and self.token_usd is not None else None


@dataclass(frozen=True, slots=True)
class GroupSum:
    """What one owner, workload (all runs of a series), namespace or account held. `name` None: nobody is named.

    `tokens_unknown`: why there is no cost per token; None: there is one. `teams`: those of its workloads.
    """

    name: str | None
    series_id: str | None
    workloads: int
    teams: frozenset[str | None]
    sums: Sum
    tokens_unknown: CodedText | None


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """Rows against price x hours, US dollars: of one node, or of all priced ones; None: no price is known."""

    rows_usd: float | None
    node_usd: float | None

    @property
    def difference_usd(self) -> float | None:
        return None if self.rows_usd is None or self.node_usd is None else self.rows_usd - self.node_usd

    @property
    def closes(self) -> bool:
        """Whether the two are one and the same within 0.1 %; also where there is nothing to compare."""
        difference = self.difference_usd
        return difference is None or abs(difference) <= TOLERANCE * max(abs(self.node_usd or 0.0), 1e-3)


def groups_of(showback: Showback, by: By) -> tuple[GroupSum, ...]:
    """Every group that held something, the dearest first; the one without a name last."""
    parts: dict[str | None, list[tuple[ShowbackRow, ShowbackWorkload]]] = {}
    for row in showback.rows:
        if row.category not in UNOWNED and row.workload is not None:
            workload = showback.workloads[row.workload]
            parts.setdefault(getattr(workload, _FIELD[by]), []).append((row, workload))
    groups = []
    for name, own in parts.items():
        sums, held = sum_rows(row for row, _ in own), {workload.id: workload for _, workload in own}
        if sums.tokens:
            why = "without-price", "the nodes have no price"
        elif any(w.reports_tokens for w in held.values()):
            why = (
                "too-rare", "in no hour did the engines report tokens, and hold their GPUs alone, for 90 % of it"
            )  # fmt: skip
        else:
            why = "not-reported", "no inference engine reports generated tokens"
        unknown = CodedText(f"token-cost-{why[0]}", f"No cost per token: {why[1]}.")
        shown, series = (own[0][1].name, name) if by == "workload" else (name, None)
        teams = frozenset(w.team for w in held.values())
        groups.append(
            GroupSum(
                shown, series, len(held), teams, sums, unknown if sums.usd_per_million_tokens is None else None
            )
        )  # fmt: skip

    def rank(group: GroupSum) -> tuple[bool, float, float, str, str]:
        usd, hours = group.sums.total_usd or 0.0, group.sums.total_gpu_hours
        return group.name is None, -usd, -hours, group.name or "", group.series_id or ""

    return tuple(sorted(groups, key=rank))


def unowned_of(showback: Showback) -> Mapping[Category, Sum]:
    """What no workload held alone, by category; those that have no row are left out."""
    rows: dict[Category, list[ShowbackRow]] = {category: [] for category in UNOWNED}
    for row in showback.rows:
        if row.category in rows:
            rows[row.category].append(row)
    return {category: sum_rows(own) for category, own in rows.items() if own}


def sum_rows(rows: Iterable[ShowbackRow]) -> Sum:
    usd: dict[Category, float] = {}
    hours: dict[Category, float] = {}
    unpriced = 0.0
    tokens = priced = token_usd = None
    for row in rows:
        if row.usd is not None:
            usd[row.category] = usd.get(row.category, 0.0) + row.usd
        else:
            unpriced += row.gpu_hours
        if row.category != "fabric-premium":
            hours[row.category] = hours.get(row.category, 0.0) + row.gpu_hours
        if row.tokens is not None:
            tokens = (tokens or 0.0) + row.tokens
            if row.token_usd is not None:
                priced = (priced or 0.0) + row.tokens
        if row.token_usd is not None:
            token_usd = (token_usd or 0.0) + row.token_usd
    usd, hours = (dict(sorted(sums.items(), key=lambda one: CATEGORIES.index(one[0]))) for sums in (usd, hours))
    return Sum(usd, hours, unpriced, tokens, priced, token_usd)


def node_checks(showback: Showback) -> Mapping[str, NodeCheck]:
    """Every node, by name."""
    usd = {node.node: 0.0 for node in showback.nodes}
    for row in showback.rows:
        usd[row.node] += row.usd or 0.0
    return {n.node: NodeCheck(usd[n.node] if n.price is not None else None, n.usd) for n in showback.nodes}


def whole_check(checks: Iterable[NodeCheck]) -> NodeCheck:
    """All priced nodes together."""
    priced = [(one.rows_usd or 0.0, one.node_usd) for one in checks if one.node_usd is not None]
    return (
        NodeCheck(sum(rows for rows, _ in priced), sum(node for _, node in priced)) if priced else NodeCheck(None, None)
    )
