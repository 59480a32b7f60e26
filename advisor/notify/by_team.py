"""An advice split by team: what belongs to each, as an advice of its own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ..core.advice_types import Advice, NotJudged, Reconciliation, Unobserved
from ..core.energy_types import FleetEnergy, figures_of, joules_a_token, owners_of, phases_together
from ..core.verdict_types import WorkloadVerdict
from ..core.worth import added_intervals, counted_recommendations
from ..pipeline import WINDOW_NOTES
from ..recommend.waste import slowed_usd, wasted
from ..state.outcomes import MoveOutcome

T = TypeVar("T")
Team = str | None  # None: no team's, which is the administrators' business


def _grouped(values: Iterable[T], team_of: Callable[[T], Team]) -> dict[Team, tuple[T, ...]]:
    """The values of each team, in their order."""
    groups: dict[Team, list[T]] = {}
    for value in values:
        groups.setdefault(team_of(value), []).append(value)
    return {team: tuple(group) for team, group in groups.items()}


def split_by_team(
    advice: Advice,
    team_of: Callable[[WorkloadVerdict], Team],
    team_of_node: Callable[[str], Team] = lambda _: None,
    *,
    teams: Iterable[str] = (),
) -> Mapping[Team, Advice]:
    """The advice of every team that has something in it, of each of `teams` even where it has nothing, and of None:
    what is no team's.

    A finding and a recommendation go with their workload; those of no workload with their nodes, where all these
    are one team's, and a fabric with the one team whose workloads ran on its node. A team's dollars are those of the
    hours that its workloads held alone: shared GPUs, free nodes and hours that nobody observed stand in the fleet's
    reconciliation only. GPUs that were not observed go with every team whose workloads ran on their node or that owns
    it, and with None where there is no such team: of a node that teams share nobody knows whose they are.
    """
    team_by_workload = {w.id: team_of(w) for w in advice.workloads}
    on_node: dict[str, set[Team]] = {}
    for w in advice.workloads:
        for node in w.nodes:
            on_node.setdefault(node, set()).add(team_by_workload[w.id])

    def owner(workload: str | None, others: Iterable[Team]) -> Team:
        return team_by_workload.get(workload) if workload is not None else _only(others)

    team_by_finding = {f.id: owner(f.workload, map(team_of_node, f.nodes)) for f in advice.findings}
    groups: dict[str, dict[Team, Any]] = {
        "workloads": _grouped(advice.workloads, lambda w: team_by_workload[w.id]),
        "findings": _grouped(advice.findings, lambda f: team_by_finding[f.id]),
        "recommendations": _grouped(
            advice.recommendations, lambda r: owner(r.workload, map(team_by_finding.get, r.findings))
        ),
        "fabrics": _grouped(advice.fabrics, lambda use: _only(on_node.get(use.node) or {team_of_node(use.node)})),
    }
    unobserved: dict[Team, list[Unobserved]] = {}
    for one in advice.summary.unobserved:
        for team in ({*on_node.get(one.node, ()), team_of_node(one.node)} - {None}) or {None}:
            unobserved.setdefault(team, []).append(one)
    parts: dict[Team, Advice] = {}
    for team in (*teams, *(team for group in groups.values() for team in group), *unobserved):
        if team not in parts:
            part = replace(advice, **{name: group.get(team, ()) for name, group in groups.items()})
            parts[team] = _part(part, tuple(unobserved.get(team, ())))
    return parts


def outcomes_by_team(
    outcomes: Sequence[MoveOutcome], parts: Mapping[Team, Advice]
) -> Mapping[Team, tuple[MoveOutcome, ...]]:
    """The outcomes of each team's moves: by their id where the advice still knows it, else by the workload's name,
    where one team alone has such a workload."""
    by_id = {r.id: team for team, part in parts.items() for r in part.recommendations}
    by_name: dict[str, set[Team]] = {}
    for team, part in parts.items():
        for w in part.workloads:
            by_name.setdefault(w.name, set()).add(team)
    return _grouped(outcomes, lambda o: by_id[o.id] if o.id in by_id else _only(by_name.get(o.about, ())))


def _only(teams: Iterable[Team]) -> Team:
    """The one team that all of them are; None: they are several."""
    different = set(teams)
    return different.pop() if len(different) == 1 else None


def _part(part: Advice, unobserved: tuple[Unobserved, ...]) -> Advice:
    """The advice of one team, whose workloads, findings, recommendations and fabrics stand in `part` already; the rest
    of it is the fleet's yet."""
    fleet, workloads, findings, recommendations = part.summary, part.workloads, part.findings, part.recommendations
    costs = [w.cost_usd for w in workloads if w.cost_usd is not None]
    cost = sum(costs) if costs else None
    gpu_hours = sum(w.gpu_hours for w in workloads)
    series = {w.id: w.series_id for w in workloads}
    skus = {w.node_sku for w in workloads} | {c.node_sku for r in recommendations for c in (r.source, r.target)}
    price_ids = {f.price for f in findings} | {p for r in recommendations for p in r.prices}
    savings = [r.saving_usd_per_month for r in counted_recommendations(recommendations)]
    gpus = {gpu for w in workloads for gpu in w.gpus}
    nodes = {node for w in workloads for node in w.nodes}
    judged = None
    if part.standings and fleet.judged_gpu_count is not None:
        judged = len(gpus & {gpu for s in part.standings if s.node in nodes for gpu in s.judged})
    waste = wasted((f, series.get(f.workload or "")) for f in findings)
    slowed = slowed_usd(findings)
    # Without a judged GPU nothing is known, rather than nothing wasted.
    known = cost is not None and judged != 0
    return replace(
        part,
        summary=replace(
            fleet,
            gpu_count=len(gpus) + sum(len(one.gpus) for one in unobserved),
            gpu_hours=gpu_hours,
            cost_usd=cost,
            wasted_usd=waste if known or (cost is not None and waste) else None,
            slowed_usd=slowed if known or (cost is not None and slowed) else None,
            recoverable_usd_per_month=sum(s.p50 for s in savings if s) if known or savings else None,
            reconciliation=Reconciliation(cost, None, None, None, None, None, cost),
            recoverable_interval_usd_per_month=added_intervals(s for s in savings if s),
            unobserved=unobserved,
            observed_gpu_hours=gpu_hours,
            gpu_hours_by_use=None,
            judged_gpu_count=judged,
            energy=_energy(fleet.energy, workloads),
        ),
        prices=tuple(p for p in part.prices if p.id in price_ids or p.sku in skus),
        judged=(),
        not_judged=tuple(_not_judged(part.not_judged, workloads, nodes)),
        notes=tuple(note for note in part.notes if note.code in WINDOW_NOTES),
        market=None,
        nodes=tuple(sorted(nodes)),
        node_energy=(),  # a team's part of a node's power is no node's
    )


def _not_judged(
    not_judged: Iterable[NotJudged], workloads: Sequence[WorkloadVerdict], nodes: Collection[str]
) -> Iterator[NotJudged]:
    """What was not judged of a team's work, and of nodes that are its own; no price of what it shares."""
    by_id = {w.id: w for w in workloads}
    for one in not_judged:
        own = [by_id[id_] for id_ in one.workloads if id_ in by_id]
        if own:
            gpus, there = {gpu for w in own for gpu in w.gpus}, sorted({node for w in own for node in w.nodes})
            yield replace(
                one, nodes=tuple(there), workloads=tuple(w.id for w in own), gpu_count=len(gpus),
                usd_per_month=one.usd_per_month if len(own) == len(one.workloads) else None,
            )  # fmt: skip
        elif not one.workloads and set(one.nodes) <= set(nodes):
            yield one


def _energy(fleet: FleetEnergy | None, workloads: Sequence[WorkloadVerdict]) -> FleetEnergy | None:
    """What a team's workloads drew in the moments that were theirs alone; None: not known."""
    parts = [w.energy for w in workloads if w.energy is not None]
    if fleet is None or len(parts) < len(workloads):
        return None
    figures = figures_of(parts)
    tokens, joules = joules_a_token(parts)
    return FleetEnergy(
        **figures,
        idle_held_kwh=figures["idle_kwh"],
        phases=phases_together(phase for part in parts for phase in part.phases),
        owners=owners_of((w.owner.user or w.owner.namespace or w.owner.account, w.energy) for w in workloads),
        generated_tokens=tokens,
        joules_per_token=joules,
        figures=fleet.figures,
    )
