"""An advice cut by team: what is each team's own, as an advice of its own. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..core.advice_types import (
    Advice,
    FabricUse,
    Finding,
    NotJudged,
    Recommendation,
    Reconciliation,
    Summary,
    Unobserved,
)
from ..core.energy_sums import figures_of, joules_a_token, owners_of, phases_together
from ..core.energy_types import FleetEnergy
from ..core.totals import added_intervals
from ..core.verdict_types import WorkloadVerdict
from ..core.worth import counted_recommendations
from ..pipeline import WINDOW_NOTES
from ..recommend.waste import slowed_usd, wasted
from ..state.outcomes import MoveOutcome

# The team of a workload, or of a node by its name; None: nobody's, which is the administrators' business.
Whose = Callable[[WorkloadVerdict], str | None]
WhoseNode = Callable[[str], str | None]


def nobodys(_: str) -> None:
    """No team owns a node by itself."""


def split_by_team(
    advice: Advice, whose: Whose, whose_node: WhoseNode = nobodys, *, teams: Iterable[str] = ()
) -> Mapping[str | None, Advice]:
    """The advice of every team that has something in it, of each of `teams` even where it has nothing, and of None:
    what is nobody's.

    A finding and a recommendation go with their workload; those of no workload with their nodes, where all these
    are one team's, and a fabric with the one team whose workloads ran on its node. A team's dollars are those of the
    hours that its workloads held alone: shared GPUs, free nodes and hours that nobody observed stand in the fleet's
    reconciliation only. GPUs that were not observed go with every team whose workloads ran on their node or that owns
    it, and with None where there is no such team: of a node that teams share nobody knows whose they are.
    """
    workloads = {w.id: whose(w) for w in advice.workloads}
    on_node: dict[str, set[str | None]] = {}
    for w in advice.workloads:
        for node in w.nodes:
            on_node.setdefault(node, set()).add(workloads[w.id])
    fabrics: dict[str | None, list[FabricUse]] = {}
    for use in advice.fabrics:
        here = on_node.get(use.node) or {whose_node(use.node)}
        fabrics.setdefault(_only(here), []).append(use)
    dark: dict[str | None, list[Unobserved]] = {}
    for one in advice.summary.unobserved:
        for team in ({*on_node.get(one.node, ()), whose_node(one.node)} - {None}) or {None}:
            dark.setdefault(team, []).append(one)
    own: dict[str | None, list[WorkloadVerdict]] = {}
    for w in advice.workloads:
        own.setdefault(workloads[w.id], []).append(w)
    findings: dict[str | None, list[Finding]] = {}
    whose_finding: dict[str, str | None] = {}
    for f in advice.findings:
        team = workloads.get(f.workload) if f.workload is not None else _only({whose_node(node) for node in f.nodes})
        whose_finding[f.id] = team
        findings.setdefault(team, []).append(f)
    ways: dict[str | None, list[Recommendation]] = {}
    for r in advice.recommendations:
        of_findings = {whose_finding.get(f) for f in r.findings}
        team = workloads.get(r.workload) if r.workload is not None else _only(of_findings)
        ways.setdefault(team, []).append(r)
    return {
        team: _of_team(
            advice,
            own.get(team, ()),
            findings.get(team, ()),
            ways.get(team, ()),
            fabrics=tuple(fabrics.get(team, ())),
            unobserved=tuple(dark.get(team, ())),
        )
        for team in dict.fromkeys((*teams, *own, *findings, *ways, *fabrics, *dark))
    }


def outcomes_of(
    outcomes: Sequence[MoveOutcome], shared: Mapping[str | None, Advice], team: str | None
) -> tuple[MoveOutcome, ...]:
    """The outcomes of a team's moves: by their id where the advice still knows it, else by the workload's name, where
    one team alone has such a workload."""
    by_id = {r.id: t for t, a in shared.items() for r in a.recommendations}
    by_name = {name: t for t, a in shared.items() for name in {w.name for w in a.workloads}}
    teams_of_name = Counter(name for a in shared.values() for name in {w.name for w in a.workloads})

    def of(outcome: MoveOutcome) -> str | None:
        if outcome.id in by_id:
            return by_id[outcome.id]
        return by_name[outcome.about] if teams_of_name[outcome.about] == 1 else None

    return tuple(o for o in outcomes if of(o) == team)


def _only(teams: set[str | None]) -> str | None:
    return next(iter(teams)) if len(teams) == 1 else None


def _of_team(
    advice: Advice,
    workloads: Sequence[WorkloadVerdict],
    findings: Sequence[Finding],
    ways: Sequence[Recommendation],
    *,
    fabrics: tuple[FabricUse, ...],
    unobserved: tuple[Unobserved, ...],
) -> Advice:
    costs = [w.cost_usd for w in workloads if w.cost_usd is not None]
    cost = sum(costs) if costs else None
    series = {w.id: w.series_id for w in workloads}
    used = {w.node_sku for w in workloads} | {r.target.node_sku for r in ways} | {r.source.node_sku for r in ways}
    named = {f.price for f in findings} | {p for r in ways for p in r.prices}
    cash = counted_recommendations(ways)
    gpus = {gpu for w in workloads for gpu in w.gpus}
    nodes = {node for w in workloads for node in w.nodes}
    known = {gpu for s in advice.standings if s.node in nodes for gpu in s.judged}
    judged = len(gpus & known) if advice.standings and advice.summary.judged_gpu_count is not None else None
    waste = wasted((f, series.get(f.workload or "")) for f in findings)
    slowed = slowed_usd(findings)
    saving = sum(r.saving_usd_per_month.p50 for r in cash if r.saving_usd_per_month)
    return replace(
        advice,
        summary=Summary(
            gpu_count=len(gpus) + sum(len(one.gpus) for one in unobserved),
            gpu_hours=sum(w.gpu_hours for w in workloads),
            cost_usd=cost,
            wasted_usd=waste if cost is not None and (judged != 0 or waste) else None,
            slowed_usd=slowed if cost is not None and (judged != 0 or slowed) else None,
            recoverable_usd_per_month=saving if (cost is not None and judged != 0) or cash else None,
            reconciliation=Reconciliation(cost, None, None, None, None, None, cost),
            recoverable_interval_usd_per_month=added_intervals(
                r.saving_usd_per_month for r in cash if r.saving_usd_per_month
            ),
            unobserved=unobserved,
            window_hours=advice.summary.window_hours,
            observed_hours=advice.summary.observed_hours,
            observed_gpu_hours=sum(w.gpu_hours for w in workloads),
            judged_gpu_count=judged,
            judged_from=advice.summary.judged_from,
            floor_hours=advice.summary.floor_hours,
            energy=_energy(advice, workloads),
            min_saving_usd_per_month=advice.summary.min_saving_usd_per_month,
        ),
        prices=tuple(p for p in advice.prices if p.id in named or p.sku in used),
        workloads=tuple(workloads),
        findings=tuple(findings),
        judged=(),
        not_judged=tuple(_not_judged(advice, workloads, nodes)),
        recommendations=tuple(ways),
        notes=tuple(note for note in advice.notes if note.code in WINDOW_NOTES),
        market=None,
        nodes=tuple(sorted(nodes)),
        fabrics=fabrics,
        # A team's part of a node's power is no node's.
        node_energy=(),
    )


def _not_judged(advice: Advice, workloads: Sequence[WorkloadVerdict], nodes: Collection[str]) -> Iterator[NotJudged]:
    """What was not judged of a team's work, and of nodes that are its own; no price of what it shares."""
    own = {w.id: w for w in workloads}
    for one in advice.not_judged:
        mine = [own[id_] for id_ in one.workloads if id_ in own]
        if mine:
            gpus, there = {gpu for w in mine for gpu in w.gpus}, sorted({node for w in mine for node in w.nodes})
            yield replace(
                one, nodes=tuple(there), workloads=tuple(w.id for w in mine), gpu_count=len(gpus),
                usd_per_month=one.usd_per_month if len(mine) == len(one.workloads) else None,
            )  # fmt: skip
        elif not one.workloads and set(one.nodes) <= set(nodes):
            yield one


def _energy(advice: Advice, workloads: Sequence[WorkloadVerdict]) -> FleetEnergy | None:
    """What a team's workloads drew in the moments that were theirs alone; None: not told."""
    fleet, told = advice.summary.energy, [w.energy for w in workloads if w.energy is not None]
    if fleet is None or len(told) < len(workloads):
        return None
    figures = figures_of(told)
    tokens, joules = joules_a_token(told)
    return FleetEnergy(
        **figures,
        idle_held_kwh=figures["idle_kwh"],
        phases=phases_together(one.phases for one in told),
        owners=owners_of(workloads, lambda w: w.owner.user or w.owner.namespace or w.owner.account),
        generated_tokens=tokens,
        joules_per_token=joules,
        figures=fleet.figures,
    )
