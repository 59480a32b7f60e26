"""An advice and a request in, one frozen Plan out. Time and the solver's budget are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted
from ...rules.base.suggestions import suggest
from ..core.advice_types import Realisation
from ..core.coded_text import CodedText, coded
from ..core.formatting import counted
from ..core.frame import Frame
from ..pipeline import Reasoned
from .build import Drafted, draft, with_reserve
from .choices import IN_PLACE, LeftOut
from .draws import brought, interval
from .limits import NO_CHANGE, FleetChange, PlanRequest
from .pool_plans import pool_name, pool_plans
from .problem import FOREVER, Goal, Layout, PlanNode, Problem, gap_of
from .result import CashDate, Move, NotInPlan, Plan, PlanStep, RentedNode, ReturnedNode, SolverFigures
from .solve import SolverBudget, solve
from .steps import Step, sequence
from .whatif import changed
from .worth import HOURS_PER_MONTH, UNITS, month_usd, node_worth


def plan_notes(drafted: Drafted) -> tuple[CodedText, ...]:
    problem = drafted.problem
    own = [n for n in problem.nodes if n.is_today]
    notes: list[CodedText] = []
    held = [n for n in own if n.held is not None and n.held.code != "plan-excluded"]
    if held:
        notes.append(
            coded("plan-nodes-held", "too little is known to empty or fill {nodes}", nodes=counted(len(held), "node"))
        )
    unpriced = [n for n in own if n.usd_per_hour is None]
    if unpriced:
        notes.append(
            coded("plan-unpriced", "no price for {nodes}: no cash is counted", nodes=counted(len(unpriced), "node"))
        )
    forever = [n for n in own if n.bound_until == FOREVER and n.usd_per_hour is not None]
    if forever:
        notes.append(
            coded(
                "plan-bound", "{nodes} owned, or committed without a known end: capacity when emptied, not cash",
                nodes=counted(len(forever), "node"),
            )
        )  # fmt: skip
    if not any(n.host_mem_bytes for n in own) or not any(u.host_mem_bytes for s in problem.series for u in s.units):
        notes.append(coded("plan-host-memory-unknown", "host memory was not measured and limits nothing"))
    for pool, gpus in sorted(drafted.crowded.items()):
        notes.append(
            coded(
                "plan-crowded-today",
                "{pool}: jobs of the window would not fit beside the services of today: {gpus} too few at the peak",
                pool=pool_name(problem.pools[pool][0]), gpus=counted(gpus, "GPU"),
            )
        )  # fmt: skip
    for pool, gpus in sorted(drafted.reserve_lost.items()):
        if pool in problem.reserve:
            notes.append(
                coded(
                    "plan-reserve-lost",
                    "{pool}: {gpus} fewer than today can be kept in reserve for failures",
                    pool=pool_name(problem.pools[pool][0]), gpus=counted(gpus, "GPU"),
                )
            )  # fmt: skip
    unknown = [
        s.name for s in problem.series for u in s.units if u.fixed is not None and u.fixed.code == "plan-kind-unclear"
    ]
    if unknown:
        notes.append(
            coded(
                "plan-kinds-unclear",
                "the plan moves no work of unclear kind: {replicas}",
                replicas=counted(len(unknown), "replica"),
            )
        )
    return tuple(notes)


_NOTHING: Mapping[Goal, str] = {
    "cash": "within the plan it frees no whole node that is worth more than it costs",
    "nodes": "within the plan it frees no whole node",
    "capacity": "within the plan it frees no GPU",
    "energy": "within the plan it saves no energy that was measured",
}


def not_in_plan(found: Reasoned, drafted: Drafted, layout: Layout, touched: int) -> tuple[NotInPlan, ...]:
    """`touched`: workloads that the plan changes or moves."""
    most = drafted.problem.max_moves
    by_id = {o.recommendation.id: o.recommendation for o in found.options}
    chosen = {o.id for o in layout.chosen.values()}
    left = [one for one in drafted.left_out if one.why.code not in ("plan-in-place", "plan-by-layout")]
    for o in drafted.problem.options:
        if o.id in chosen or o.id not in by_id:
            continue
        taken = layout.chosen.get(o.series)
        rival = taken if taken is not None else next((c for c in layout.chosen.values() if c.id in o.excludes), None)
        if rival is not None:
            why = coded("plan-other-chosen", "{other} of the same work is in the plan instead", other=rival.id)
        elif most == 0:
            why = coded("plan-nothing-touched", "no workload may be touched")
        elif most is not None and touched >= most:
            why = coded(
                "plan-not-worth-a-move", "at most {most} may be touched, and other changes gain more",
                most=counted(most, "workload"),
            )  # fmt: skip
        else:
            why = coded("plan-brings-nothing", _NOTHING[drafted.problem.goal])
        left.append(LeftOut(by_id[o.id], why))
    out = [
        NotInPlan(
            one.recommendation.id, one.recommendation.action, one.recommendation.workload, one.why,
            one.recommendation.risk,
            one.recommendation.saving_usd_per_month.p50 if one.recommendation.saving_usd_per_month else None, one.risk,
        )
        for one in left
    ]  # fmt: skip
    return tuple(sorted(out, key=lambda n: (not n.risk_alone, -(n.would_bring_usd_per_month or 0.0), n.recommendation)))


@dataclass(frozen=True)
class Planner:
    """What every plan of one look at a fleet shares. `budget` None: by the size of the fleet. `clock`: seconds, to tell
    how long solving took."""

    found: Reasoned
    frame: Frame
    budget: SolverBudget | None
    clock: Callable[[], float]

    def plan(
        self,
        request: PlanRequest,
        change: FleetChange = NO_CHANGE,
        on_first: Callable[[Plan], None] | None = None,
        wanted: Callable[[], None] = lambda: None,
    ) -> Plan:
        """The plan of a request; `change`: of a fleet or a demand that is not today's. `on_first`: is given a first
        plan within seconds. `wanted`: is called every few seconds; what it raises ends the search."""
        drafted = draft(self.found, self.frame, request)
        check_names(drafted, self.found, request)
        told: tuple[CodedText, ...] = ()
        if not change.nothing:
            problem, told = changed(drafted.problem, change)
            drafted = with_reserve(drafted, problem, request)

        def first(layout: Layout) -> None:
            if on_first is not None:
                on_first(plan_of(self.found, drafted, layout, told, change))

        budget = self.budget or SolverBudget.of(drafted.problem)
        layout = solve(drafted.problem, budget, self.clock, first, wanted)
        deserted = _deserted(drafted.problem, layout)
        if deserted:
            # A pool that all work leaves keeps no node for it.
            reserve = {pool: gpus for pool, gpus in drafted.problem.reserve.items() if pool not in deserted}
            relieved = replace(drafted, problem=replace(drafted.problem, reserve=reserve))
            again = solve(relieved.problem, budget, self.clock, wanted=wanted)
            if deserted <= _deserted(replace(relieved.problem, reserve=drafted.problem.reserve), again):
                drafted, layout = relieved, again
        return plan_of(self.found, drafted, layout, told, change)


def _renumbered(drafted: Drafted, layout: Layout) -> tuple[Drafted, Layout]:
    """The nodes to rent are the first of their kind: which of those that could be rented was chosen means nothing."""
    names: dict[str, str] = {}
    for members in drafted.problem.pools.values():
        own = [n.name for n in members if n.rented]
        order = [name for name in own if name in layout.kept] + [name for name in own if name not in layout.kept]
        names.update(zip(order, own, strict=True))
    nodes = tuple(replace(n, name=names.get(n.name, n.name)) for n in drafted.problem.nodes)
    places = {unit: names.get(node, node) for unit, node in layout.places.items()}
    kept = frozenset(names.get(name, name) for name in layout.kept)
    return replace(drafted, problem=replace(drafted.problem, nodes=nodes)), replace(layout, places=places, kept=kept)


def _deserted(problem: Problem, layout: Layout) -> frozenset[str]:
    """Pools with a reserve in which nothing needs a GPU any more."""
    fixed = {problem.by_node[name].pool for name, count in problem.fixed_gpus.items() if count}
    mig = {problem.by_node[layout.places[u.id]].pool for s in problem.series for u in s.units
           if u.mig is not None and u.id in layout.places}  # fmt: skip
    return frozenset(
        pool
        for pool, gpus in problem.reserve.items()
        if gpus and pool not in fixed | mig and not problem.needed(pool, layout.chosen).any()
    )


def plan_of(
    found: Reasoned,
    drafted: Drafted,
    layout: Layout,
    changes: tuple[CodedText, ...] = (),
    change: FleetChange = NO_CHANGE,
) -> Plan:
    """What a layout means for people."""
    drafted, layout = _renumbered(drafted, layout)
    problem, advice = drafted.problem, found.advice
    steps = _steps(found, problem, _real(problem, sequence(problem, layout)))
    # What was added stays: it is no part of what can be given back.
    layout = replace(layout, kept=layout.kept | {n.name for n in problem.nodes if n.extra == "added"})
    drawn = brought(problem, layout)
    own = [n for n in problem.nodes if n.is_today]
    returned = _returned(problem, layout, steps)
    touched = {s.series for s in steps if s.series is not None}
    cash = tuple(
        CashDate(_day(at), _until(returned, at), interval(usd)) for at, usd in zip(drawn.dates, drawn.usd, strict=True)
    )
    watts = [problem.by_node[r.node].idle_watts for r in returned]
    known = [w for w in watts if w is not None]
    return Plan(
        goal=problem.goal,
        generated_at=advice.generated_at,
        start=advice.start,
        end=advice.end,
        source=dict(advice.source),
        nodes_today=len(own),
        gpus_today=sum(n.gpus for n in own),
        workloads=len({s.workload or s.id for s in problem.series}),
        touched=len(touched),
        nodes=interval(drawn.nodes),
        gpus_freed=interval(drawn.gpus),
        cash=cash if any(n.usd_per_hour for n in own) else (),
        energy_kwh_per_month=sum(known) * HOURS_PER_MONTH / 1000 if known else None,
        pools=pool_plans(problem, layout, drafted, change.growth_per_month),
        returned=returned,
        rented=_new_nodes(problem, layout, lambda n: n.is_bought),
        missing=_new_nodes(problem, layout, lambda n: n.extra == "missing"),
        steps=steps,
        not_in_plan=not_in_plan(found, drafted, layout, len(touched)),
        beside=_beside(drafted, layout),
        kept_nodes={n.name: n.held for n in own if n.held is not None},
        solver=_solver(problem, layout),
        notes=plan_notes(drafted),
        changes=changes,
    )


def _solver(problem: Problem, layout: Layout) -> SolverFigures:
    """Figures of the goal, where nodes that are not there cost what they would as part of the fleet."""
    extra = sum(node_worth(n, problem) for n in problem.nodes if n.extra is not None)
    value, bound = layout.value - extra, layout.bound - extra
    return SolverFigures(
        UNITS[problem.goal], value, bound if np.isfinite(bound) else None,
        0.0 if layout.proven else gap_of(value, bound), layout.seconds, layout.proven,
    )  # fmt: skip


def check_names(drafted: Drafted, found: Reasoned, request: PlanRequest) -> None:
    """Raises UsageError for a team or name that nothing has."""
    series = drafted.problem.series
    teams = {s.team for s in series if s.team}
    known = {
        *teams, *(s.id for s in series), *(s.name for s in series), *(n.name for n in drafted.problem.nodes),
        *(o.recommendation.id for o in found.options), *(u.id for s in series for u in s.units),
        *(w.id for w in found.advice.workloads), *(w.name for w in found.advice.workloads),
    }  # fmt: skip
    for what, asked, names in (("team", request.only, teams), ("name", request.exclude, known)):
        for one in sorted(asked - names):
            told = (
                suggest(one, sorted(names)) or f"Known {what}s: {', '.join(map(quoted, sorted(names)[:5])) or 'none'}."
            )
            raise UsageError(f"Unknown {what} {quoted(one)} in this window.", told)


def _real(problem: Problem, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps without those that only give up nodes that are not there; what the others wait for keeps its place."""
    kept = [k for k, step in enumerate(steps) if step.kind != "give-up" or _today(problem, step.frees)]
    at = {k: n for n, k in enumerate(kept)}
    return tuple(replace(steps[k], after=tuple(at[a] for a in steps[k].after if a in at)) for k in kept)


def _steps(found: Reasoned, problem: Problem, steps: tuple[Step, ...]) -> tuple[PlanStep, ...]:
    names = {w.id: w.name for w in found.advice.workloads}
    out = []
    for number, step in enumerate(steps, start=1):
        series = problem.by_series.get(step.series or "")
        option = problem.by_option.get(step.option or "")
        units = {u.id: u for u in series.units} if series is not None else {}
        moves = tuple(
            Move(
                _unit_name(unit, names, series.name if series else ""),
                _there(problem, a),
                b,
                _gpus(unit, units, option),
            )
            for unit, a, b in step.moves
        )
        out.append(
            PlanStep(
                number=number, kind=step.kind, action=option.action if option is not None else None,  # type: ignore[arg-type]
                recommendation=option.id if option is not None else None,
                series=series.id if series is not None else None,
                workload=series.workload if series is not None else None,
                name=series.name if series is not None else "", team=series.team if series is not None else None,
                moves=moves, frees=_today(problem, step.frees), rents=step.rents,
                after=tuple(k + 1 for k in step.after),
                risk=option.risk if option is not None else None, staging=step.staging,
            )
        )  # fmt: skip
    return tuple(out)


def _today(problem: Problem, nodes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in nodes if problem.by_node[name].extra is None)


def _there(problem: Problem, node: str | None) -> str | None:
    """A node that is not there is no place to come from."""
    return node if node is not None and problem.by_node[node].extra is None else None


def _unit_name(unit: str, names: Mapping[str, str], series: str) -> str:
    """A replica by its workload's name; one that is started anew has a number behind that of its series."""
    if unit in names:
        return names[unit]
    if "#" in unit:
        return f"{series} (new {int(unit.rpartition('#')[2]) + 1})"
    return f"{series} (more {unit.rpartition('+')[2]})" if "+" in unit else unit


def _gpus(unit: str, units: Mapping[str, object], option: object) -> int:
    known = units.get(unit)
    return getattr(known, "gpu_count", None) or getattr(option, "gpus_each", 0)


def _returned(problem: Problem, layout: Layout, steps: tuple[PlanStep, ...]) -> tuple[ReturnedNode, ...]:
    emptied = {name: step.number for step in steps for name in step.frees if step.series is not None or step.after}
    out = []
    for n in problem.nodes:
        if not n.is_today or n.name in layout.kept:
            continue
        how: Realisation = (
            "capacity-freed" if n.bound_until == FOREVER or not n.usd_per_hour
            else "cash-now" if n.bound_until is None or n.bound_until <= problem.now else "cash-at"
        )  # fmt: skip
        out.append(
            ReturnedNode(
                n.name, n.pool, n.node_sku, n.gpu_sku, n.gpus, month_usd(n) if n.usd_per_hour is not None else None,
                n.price, how, _day(n.bound_until) if how == "cash-at" else None, emptied.get(n.name), n.drains,
            )
        )  # fmt: skip
    return tuple(sorted(out, key=lambda r: (r.available_from or "", r.step or 0, r.node)))


def _until(returned: tuple[ReturnedNode, ...], at: float | None) -> int:
    """Nodes that bring cash up to a date."""
    day = _day(at) or ""
    return sum(1 for r in returned if r.realisation != "capacity-freed" and (r.available_from or "") <= day)


def _new_nodes(problem: Problem, layout: Layout, which: Callable[[PlanNode], bool]) -> tuple[RentedNode, ...]:
    return tuple(
        RentedNode(
            n.name, n.pool, n.node_sku, n.gpu_sku, n.gpus, month_usd(n) if n.usd_per_hour is not None else None, n.price
        )
        for n in problem.nodes
        if which(n) and n.name in layout.kept
    )


def _beside(drafted: Drafted, layout: Layout) -> tuple[str, ...]:
    """Recommendations that move nothing, of work that stays where it is: they are predictions for it there."""
    gone = {s for s, o in layout.chosen.items() if not o.keeps_units}
    workloads = {s.workload for s in drafted.problem.series if s.id in gone}
    return tuple(
        one.recommendation.id
        for one in drafted.left_out
        if one.why.code == "plan-in-place"
        and one.recommendation.action in IN_PLACE
        and one.recommendation.workload not in workloads
        and not one.recommendation.blocked_by
        and one.recommendation.shown is not False
    )


def _day(at: float | None) -> str | None:
    if at is None or at == FOREVER or not np.isfinite(at):
        return None
    return datetime.fromtimestamp(at, UTC).date().isoformat()
