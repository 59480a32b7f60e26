"""An advice and a request in, one frozen Plan out. Time is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted, suggest
from ..core.advice_types import Realisation
from ..core.coded_text import CodedText, coded
from ..core.formatting import counted
from ..core.frame import Frame
from ..pipeline import Reasoned
from .build import Drafted, draft, reserve_of
from .figures import cash_of_plan, day_of, left_out, pool_name, pool_plans, released
from .problem import FOREVER, NO_CHANGE, FleetChange, Layout, PlanNode, PlanRequest, Problem
from .result import Plan, PlanStep, RentedNode, ReturnedNode, SolverFigures
from .solve import has_solver, solve
from .steps import sequence
from .whatif import changed
from .worth import HOURS_PER_MONTH, UNITS, month_usd, node_worth


@dataclass(frozen=True)
class Planner:
    """Makes plans of one fleet. `seconds`: of the longest search; None: by the size of the fleet. `clock`: seconds, for
    the time that solving takes."""

    reasoned: Reasoned
    frame: Frame
    seconds: float | None
    clock: Callable[[], float]

    def plan(
        self, request: PlanRequest, change: FleetChange = NO_CHANGE, on_first: Callable[[Plan], None] | None = None
    ) -> Plan:
        """The plan of a request; `change`: of a fleet or a demand that is not today's. `on_first`: is given a first
        plan within seconds; what it raises ends the search. Raises SkuwiseError."""
        drafted = draft(self.reasoned, self.frame, request)
        check_names(drafted, self.reasoned, request)
        if change != NO_CHANGE:
            problem, changes = changed(drafted.problem, change)
            # For failures it keeps what is free without nodes that are not there.
            wanted, kept = reserve_of(problem, request)
            lost = {pool: gpus - kept.get(pool, 0) for pool, gpus in drafted.problem.reserve.items()}
            drafted = replace(
                drafted, problem=replace(problem, reserve=kept), reserve_wanted=wanted,
                reserve_lost={pool: gpus for pool, gpus in lost.items() if gpus > 0}, change=change, changes=changes,
            )  # fmt: skip

        def first(layout: Layout) -> None:
            if on_first is not None:
                on_first(plan_of(self.reasoned, drafted, layout))

        layout = solve(drafted.problem, self.seconds, self.clock, first)
        return plan_of(self.reasoned, drafted, layout)


def plan_of(reasoned: Reasoned, drafted: Drafted, layout: Layout) -> Plan:
    """What a layout means for people."""
    problem, advice, request, change = drafted.problem, reasoned.advice, drafted.request, drafted.change
    order = sequence(problem, layout)
    names = {w.id: w.name for w in advice.workloads}
    absent = {n.name for n in problem.nodes if n.extra is not None}
    steps = tuple(
        replace(
            step,
            moves=tuple(
                # A node that is not there is no place to come from.
                replace(m, unit=_unit_name(m.unit, names, step.name), start=None if m.start in absent else m.start)
                for m in step.moves
            ),
        )
        for step in order
    )
    # What was added stays: it is no part of what can be given back.
    layout = replace(layout, kept=layout.kept | {n.name for n in problem.nodes if n.extra == "added"})
    today = [n for n in problem.nodes if n.is_today]
    returned = _returned(problem, layout, steps)
    reserve, not_in_plan = left_out(reasoned, drafted, layout, order)
    cash = cash_of_plan(reasoned, problem, layout)
    watts = [watts for r in returned if (watts := problem.by_node[r.name].idle_watts) is not None]
    advise = advice.summary.recoverable_usd_per_month if change == NO_CHANGE else None
    now = cash[0].saving_usd_per_month.p50 if cash else 0.0
    others = sum(r.usd_per_month for r in reserve) + sum(n.advise_usd_per_month or 0.0 for n in not_in_plan)
    return Plan(
        goal=problem.goal, risk=request.risk, max_moves=request.max_moves, generated_at=advice.generated_at,
        start=advice.start, end=advice.end,
        source=dict(advice.source), nodes_today=len(today), gpus_today=sum(n.gpus for n in today),
        workloads=len({s.workload or s.id for s in problem.series}),
        touched=len({s.series for s in steps if s.series is not None}),
        gpus_freed=released(problem, layout), cash=cash,
        energy_kwh_per_month=sum(watts) * HOURS_PER_MONTH / 1000 if watts else None,
        pools=pool_plans(problem, layout, drafted, change.growth_per_month), returned=returned,
        rented=tuple(RentedNode(*_told(n)) for n in problem.nodes if n.is_bought and n.name in layout.kept),
        missing=tuple(RentedNode(*_told(n)) for n in problem.nodes if n.extra == "missing" and n.name in layout.kept),
        steps=steps,
        advise_usd_per_month=advise, plan_usd_per_month=None if advise is None else now,
        combined_usd_per_month=None if advise is None else now + others - advise, reserve=reserve,
        not_in_plan=not_in_plan, beside=_beside(reasoned, drafted, layout),
        kept_nodes={n.name: n.held for n in today if n.held is not None}, solver=_solver(problem, layout),
        notes=plan_notes(drafted), changes=drafted.changes,
    )  # fmt: skip


def _solver(problem: Problem, layout: Layout) -> SolverFigures:
    """Figures of the goal, where nodes that are not there cost what they would as part of the fleet."""
    extra = sum(node_worth(n, problem) for n in problem.nodes if n.extra is not None)
    value, bound = layout.value - extra, layout.bound - extra
    finite = bound if np.isfinite(bound) else None
    gap = 0.0 if layout.proven else None if not finite else max(finite - value, 0.0) / abs(finite)
    return SolverFigures(UNITS[problem.goal], value, finite, gap, layout.seconds, layout.proven)


def plan_notes(drafted: Drafted) -> tuple[CodedText, ...]:
    problem = drafted.problem
    today = [n for n in problem.nodes if n.is_today]
    units = [u for s in problem.series for u in s.units]
    held = sum(n.held is not None and n.held.code != "plan-excluded" for n in today)
    unpriced = sum(n.usd_per_hour is None for n in today)
    forever = sum(n.bound_until == FOREVER and n.usd_per_hour is not None for n in today)
    bound = "{count} owned, or committed without a known end: capacity when emptied, not cash"
    counts = [
        ("plan-nodes-held", "too little is known to empty or fill {count}", held),
        ("plan-unpriced", "no price for {count}: no cash is counted", unpriced),
        ("plan-bound", bound, forever),
    ]
    notes = [coded(code, text, count=counted(number, "node")) for code, text, number in counts if number]
    if not any(n.host_mem_bytes for n in today) or not any(u.host_mem_bytes for u in units):
        notes.append(coded("plan-host-memory-unknown", "host memory was not measured and limits nothing"))
    crowded = "{pool}: work of the window would not fit beside the services of today: {gpus} too few at the peak"
    lost = "{pool}: {gpus} fewer than today can be kept in reserve for failures"
    lacking = [("plan-crowded-today", crowded, *pool_gpus) for pool_gpus in sorted(drafted.crowded.items())]
    lacking += [("plan-reserve-lost", lost, *pool_gpus) for pool_gpus in sorted(drafted.reserve_lost.items())]
    for code, text, pool, gpus in lacking:
        name = pool_name(problem.pools[pool][0]) if pool in problem.pools else pool
        notes.append(coded(code, text, pool=name, gpus=counted(gpus, "GPU")))
    if not has_solver():
        text = "OR-tools is not installed: the plan comes from a greedy search, and a better one may exist. Run pip "
        notes.append(coded("plan-greedy", f"{text}install 'skuwise[plan]'."))
    unclear = sum(u.fixed is not None and u.fixed.code == "plan-kind-unclear" for u in units)
    if unclear:
        text = "the plan moves no work of unclear kind: {count}"
        notes.append(coded("plan-kinds-unclear", text, count=counted(unclear, "replica")))
    return tuple(notes)


def check_names(drafted: Drafted, reasoned: Reasoned, request: PlanRequest) -> None:
    """Raises UsageError for a team or name that nothing has."""
    series = drafted.problem.series
    teams = {s.team for s in series if s.team}
    every = {
        *teams, *(s.id for s in series), *(s.name for s in series), *(n.name for n in drafted.problem.nodes),
        *(o.id for o in reasoned.options), *(u.id for s in series for u in s.units),
        *(w.id for w in reasoned.advice.workloads), *(w.name for w in reasoned.advice.workloads),
    }  # fmt: skip
    for what, asked, names in (("team", request.only, teams), ("name", request.exclude, every)):
        for name in sorted(asked - names):
            some = ", ".join(map(quoted, sorted(names)[:5])) or "none"
            hint = suggest(name, sorted(names)) or f"Known {what}s: {some}."
            raise UsageError(f"Unknown {what} {quoted(name)} in this window.", hint)


def _unit_name(unit: str, names: Mapping[str, str], series: str) -> str:
    """A replica by its workload's name; a new one has a number behind the name of its series."""
    if unit in names:
        return names[unit]
    if "#" in unit:
        return f"{series} (new {int(unit.rpartition('#')[2]) + 1})"
    return f"{series} (more {unit.rpartition('+')[2]})" if "+" in unit else unit


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
        day = day_of(n.bound_until) if how == "cash-at" else None
        out.append(ReturnedNode(*_told(n), how, day, emptied.get(n.name), n.drains))
    return tuple(sorted(out, key=lambda r: (r.available_from or "", r.step or 0, r.name)))


def _told(n: PlanNode) -> tuple[str, str, str | None, str | None, int, float | None, str | None]:
    usd = month_usd(n) if n.usd_per_hour is not None else None
    return n.name, n.pool, n.node_sku, n.gpu_sku, n.gpus, usd, n.price


def _beside(reasoned: Reasoned, drafted: Drafted, layout: Layout) -> tuple[str, ...]:
    """Recommendations that move nothing, of work that stays where it is: they are predictions for it there."""
    gone = {s.workload for s in drafted.problem.series if (o := layout.chosen.get(s.id)) and not o.keeps_units}
    return tuple(
        r.id
        for r in reasoned.options
        if r.id in drafted.left_out and drafted.left_out[r.id].code == "plan-in-place"
        and r.workload not in gone and not r.blocked_by and r.shown is not False
    )  # fmt: skip
