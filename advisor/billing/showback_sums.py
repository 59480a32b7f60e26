"""Showback summed up: by team, workload, namespace or account, and against the nodes' price x hours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..core.coded_text import CodedText
from .showback import CATEGORIES, OWNED, UNOWNED, Category, Showback, ShowbackRow, ShowbackWorkload

By = Literal["team", "workload", "namespace", "account"]
BY: tuple[By, ...] = ("team", "workload", "namespace", "account")
# The parts must sum to the whole to this share of it.
TOLERANCE = 0.001


@dataclass(frozen=True, slots=True)
class Sum:
    """Rows added up. `usd`: by category, of priced rows; `gpu_hours` likewise, of all rows. `unpriced_gpu_hours`: those
    without a cost. `tokens`: generated; None: not told. `token_usd`: what the GPUs of the same hours cost, and
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
    """What one team, workload (all runs of a series), namespace or account held. `name` None: nobody is named.

    `tokens_unknown`: why there is no cost per token; None: there is one.
    """

    name: str | None
    series_id: str | None
    workloads: int
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
    key = _key(by)
    rows: dict[str | None, list[ShowbackRow]] = {}
    members: dict[str | None, dict[str, ShowbackWorkload]] = {}
    for row in showback.rows:
        if row.category not in OWNED or row.workload is None:
            continue
        workload = showback.workloads[row.workload]
        rows.setdefault(key(workload), []).append(row)
        members.setdefault(key(workload), {})[workload.id] = workload
    groups = []
    for name, own in rows.items():
        sums, held = sum_rows(own), members[name]
        first = next(iter(held.values()))
        shown, series = (first.name, name) if by == "workload" else (name, None)
        groups.append(GroupSum(shown, series, len(held), sums, _unknown(sums, held.values())))
    return tuple(sorted(groups, key=_rank))


def _key(by: By) -> Callable[[ShowbackWorkload], str | None]:
    match by:
        case "team":
            return lambda w: w.team
        case "workload":
            return lambda w: w.series_id
        case "namespace":
            return lambda w: w.namespace
        case "account":
            return lambda w: w.account


def _rank(group: GroupSum) -> tuple[bool, float, float, str, str]:
    sums = group.sums
    return (
        group.name is None, -(sums.total_usd or 0.0), -sums.total_gpu_hours, group.name or "", group.series_id or ""
    )  # fmt: skip


def _unknown(sums: Sum, workloads: Iterable[ShowbackWorkload]) -> CodedText | None:
    if sums.usd_per_million_tokens is not None:
        return None
    if sums.tokens:
        return CodedText("token-cost-without-price", "No cost per token: the nodes have no price.")
    if any(w.told_tokens for w in workloads):
        return CodedText(
            "token-cost-too-rare",
            "No cost per token: in no hour did the engines report tokens, and hold their GPUs alone, for 90 % of it.",
        )
    return CodedText("token-cost-not-reported", "No cost per token: no inference engine reports generated tokens.")


def unowned_of(showback: Showback) -> Mapping[Category, Sum]:
    """What no workload held alone, by category; those that have no row are left out."""
    by: dict[Category, list[ShowbackRow]] = {}
    for row in showback.rows:
        if row.category in UNOWNED:
            by.setdefault(row.category, []).append(row)
    return {category: sum_rows(by[category]) for category in UNOWNED if category in by}


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
    return Sum(_ordered(usd), _ordered(hours), unpriced, tokens, priced, token_usd)


def _ordered(sums: Mapping[Category, float]) -> Mapping[Category, float]:
    return {category: sums[category] for category in CATEGORIES if category in sums}


def node_checks(showback: Showback) -> Mapping[str, NodeCheck]:
    """Every node, by name."""
    own: dict[str, list[ShowbackRow]] = {}
    for row in showback.rows:
        own.setdefault(row.node, []).append(row)
    return {
        node.node: NodeCheck(
            sum(row.usd or 0.0 for row in own.get(node.node, ())) if node.price is not None else None, node.usd
        )
        for node in showback.nodes
    }


def whole_check(checks: Sequence[NodeCheck]) -> NodeCheck:
    """All priced nodes together."""
    known = [one for one in checks if one.node_usd is not None]
    if not known:
        return NodeCheck(None, None)
    return NodeCheck(sum(one.rows_usd or 0.0 for one in known), sum(one.node_usd or 0.0 for one in known))
