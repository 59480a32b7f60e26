"""A plan as the ledger keeps it, so that it can be followed: what each step is to leave, free and rent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..core.advice_types import Advice
from ..ledger.guard import sqlite_text
from ..ledger.identity import fleet_key
from ..ledger.plans.records import KeptCash, KeptNode, KeptPlan, KeptStep, StepParts, named
from ..moves.tracking.observation import Observation, observation_of, source_words
from .result import Plan, PlanStep


def kept_plan(
    plan: Plan, advice: Advice, titles: Mapping[int, str], *, now: float, by: str, name: str | None = None
) -> KeptPlan:
    """`advice`: what the plan was made of, with its fleet; `titles`: of the steps, by number; `now`: Unix seconds;
    `by`, `name`: who keeps it, and what it is called (None: nothing)."""
    assert advice.fleet is not None
    seen = observation_of(advice)
    return named(
        KeptPlan(
            id="",
            fleet=fleet_key(advice.fleet),
            name=sqlite_text(name) if name else None,
            goal=plan.goal,
            kept_at=now,
            by=sqlite_text(by),
            generated_at=plan.generated_at,
            seen_until=plan.end,
            source=sqlite_text(source_words(advice)),
            nodes_today=plan.nodes_today,
            cash=tuple(KeptCash(c.date, c.nodes, c.saving_usd_per_month) for c in plan.cash),
            steps=tuple(_step(s, plan, seen, titles.get(s.number, s.name)) for s in plan.steps),
            nodes=_nodes(plan, seen),
        )
    )


def _step(s: PlanStep, plan: Plan, seen: Observation, title: str) -> KeptStep:
    frees = dict.fromkeys((*s.frees, *(r.node for r in plan.returned if r.step == s.number)))
    return KeptStep(
        number=s.number,
        kind=s.kind,
        action=s.action,
        recommendation=sqlite_text(s.recommendation) if s.recommendation is not None else None,
        series=sqlite_text(s.series) if s.series is not None else None,
        name=sqlite_text(s.name),
        team=sqlite_text(s.team) if s.team is not None else None,
        what=sqlite_text(title),
        risk=s.risk,
        parts=StepParts(
            leaves={sqlite_text(node): count for node, count in _leaves(s, seen).items()},
            frees=tuple(map(sqlite_text, frees)),
            after=s.after,
            rents=tuple(map(sqlite_text, s.rents)),
        ),
    )


def _leaves(s: PlanStep, seen: Observation) -> Mapping[str, int]:
    """Node -> replicas of the series that stay or come, of each node that some leave."""
    going = Counter(m.start for m in s.moves if m.start is not None and m.start != m.end)
    coming = Counter(m.end for m in s.moves if m.end is not None and m.start != m.end)
    here = Counter(node for w in seen.now(s.series) for node in set(w.nodes))
    return {node: max(here[node] - count, 0) + coming[node] for node, count in sorted(going.items())}


def _nodes(plan: Plan, seen: Observation) -> tuple[KeptNode, ...]:
    rents = {n: s.number for s in plan.steps for n in s.rents}
    frees = {n: s.number for s in plan.steps for n in s.frees}
    returned = [
        KeptNode(
            sqlite_text(r.node), "return", sqlite_text(r.pool), _text(r.node_sku), r.gpus, r.usd_per_month,
            r.realisation, r.available_from, r.step or frees.get(r.node), r.drains,
        )
        for r in plan.returned
    ]  # fmt: skip
    rented = [
        KeptNode(
            sqlite_text(r.name), "rent", sqlite_text(r.pool), _text(r.node_sku), r.gpus, r.usd_per_month, None, None,
            rents.get(r.name), False,
        )
        for r in plan.rented
    ]  # fmt: skip
    asked = {r.node_sku for r in (*plan.rented, *plan.returned)}
    going = {r.node for r in plan.returned}
    there = [
        KeptNode(
            sqlite_text(n.node), "there", "", _text(n.node_sku), n.gpu_count, None, None, None, None, False
        )
        for n in seen.nodes.values()
        if n.node_sku in asked and n.node not in going
    ]  # fmt: skip
    return (*returned, *rented, *there)


def _text(value: str | None) -> str | None:
    return sqlite_text(value) if value is not None else None
