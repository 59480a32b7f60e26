"""What a layout means in nodes, GPUs and dollars: drawn jointly, by node type, and beside what `advise` counts."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from ..core.advice_types import Realisation, Recommendation
from ..core.coded_text import CodedText, coded
from ..core.formatting import counted, listed
from ..core.frame import Frame
from ..pipeline import Reasoned
from ..recommend.prediction import percentiles
from ..recommend.recommender import best_together, without_losers
from .build import Drafted, draft
from .problem import FOREVER, NO_CHANGE, FleetChange, Goal, Layout, PlanNode, PlanOption, PlanRequest, Problem
from .result import CashDate, NotInPlan, Plan, PlanStep, PoolPlan, RentedNode, ReservedNode, ReturnedNode, SolverFigures
from .solve import has_solver, solve
from .starts import start_jobs, with_steps
from .state import HOURS_PER_MONTH, MONTH_SECONDS, SCALE, UNITS, State, Worth, month_usd, node_worth
from .steps import sequence

YEARS_MAX = 10.0  # beyond it no growth rate holds


def cash_of_plan(reasoned: Reasoned, after: State) -> tuple[CashDate, ...]:
    """US dollars a month: of returned nodes, less rent. The interval is that of the recommendations in the plan, from
    their joint draws. Empty: no price is known."""
    problem = after.problem
    if not any(n.usd_per_hour for n in problem.nodes if n.is_today):
        return ()
    chosen = {o.id for o in after.chosen.values()}
    drawn = [o.draws for o in reasoned.options if o.id in chosen and o.draws is not None]
    # Date ("": now) -> dollars from then on.
    back = {"": -sum(month_usd(n) for n in problem.nodes if n.is_bought and n.name in after.kept)}
    days: list[str] = []
    for n in problem.nodes:
        if n.is_today and n.name not in after.kept and n.bound_until != FOREVER and n.usd_per_hour:
            days.append(_day_free(n, problem) or "")
            back[days[-1]] = back.get(days[-1], 0.0) + month_usd(n)
    total = sum((draws - np.median(draws) for draws in drawn), np.zeros(1))
    return tuple(
        CashDate(day or None, sum(other <= day for other in days), percentiles(total := total + back[day]))
        for day in sorted(back)
    )


def _day_free(n: PlanNode, problem: Problem) -> str | None:
    """The date (ISO) that a commitment binds a node to; None: it can be given back now, or never."""
    if n.bound_until in (None, FOREVER) or n.bound_until <= problem.now:
        return None
    return datetime.fromtimestamp(n.bound_until, UTC).date().isoformat()


def pool_plans(after: State, drafted: Drafted, starting: Mapping[str, int]) -> tuple[PoolPlan, ...]:
    """The fleet by pool, the largest first: today, after a plan, and how far what is left carries. `starting`: pool ->
    GPUs that waiting jobs get, which are no reserve."""
    problem, growth, out = after.problem, drafted.change.growth_per_month, []
    for pool, members in problem.pools.items():
        today, kept = [n for n in members if n.is_today], [n for n in members if n.name in after.kept]
        if not today and not kept:
            continue
        asked = after.needs[pool][0]
        peak, room = int(asked.max()), sum(n.gpus for n in kept if n.extra != "missing")
        carries, months = room / peak if peak > 0 else None, math.inf
        if carries is not None and growth is not None and growth > 0:  # a month, compounded
            months = math.log(max(carries, 1.0)) / math.log1p(growth)
        wanted = drafted.reserve_wanted.get(pool, 0)
        out.append(
            PoolPlan(
                pool=pool, node_sku=members[0].node_sku, gpu_sku=members[0].gpu_sku, region=members[0].region,
                nodes_today=len(today), nodes_after=sum(n.extra != "missing" for n in kept),
                rented=sum(n.is_bought for n in kept),
                gpus_today=sum(n.gpus for n in today), gpus_after=room,
                gpus_needed_today=float(problem.needs[pool][0].max()), gpus_needed=float(peak),
                peak_at=float(drafted.grid[int(asked.argmax())]) + 3600.0 if peak > 0 else None,
                reserve_gpus=min(wanted, max(room - peak - starting.get(pool, 0), 0)),
                reserve_wanted_gpus=wanted if peak > 0 else 0,
                short_gpus=drafted.crowded.get(pool, 0), carries=carries,
                runs_out_at=problem.now + months * MONTH_SECONDS if months <= 12 * YEARS_MAX else None,
            )
        )  # fmt: skip
    return tuple(sorted(out, key=lambda p: (-p.gpus_today, p.pool)))


def pool_name(node: PlanNode) -> str:
    """The pool of a node for people: ``ND96isr_H100_v5 in eastus``."""
    return f"{node.pool.rpartition('/')[2].removeprefix('Standard_')}{f' in {node.region}' if node.region else ''}"


_NOTHING: Mapping[Goal, str] = {
    "cash": "within the plan it frees no whole node that is worth more than it costs",
    "nodes": "within the plan it frees no whole node",
    "capacity": "within the plan it frees no GPU",
    "energy": "within the plan it saves no energy that was measured",
}


def left_out(
    reasoned: Reasoned, drafted: Drafted, after: State, steps: Sequence[PlanStep], awaited: Set[str] = frozenset()
) -> tuple[tuple[ReservedNode, ...], tuple[NotInPlan, ...]]:
    """Recommendations that are no part of the plan: nodes that it keeps in reserve, and the rest, each with what
    `advise` counts of it as recoverable. `awaited`: nodes that are kept for waiting jobs alone."""
    problem, recoverable = drafted.problem, recoverable_of(reasoned)
    chosen, touched = {o.id for o in after.chosen.values()}, _touched(steps)
    gone = {n.name for n in problem.nodes if n.is_today and n.name not in after.kept}
    # What the layout alone empties stands for nodes alike that recommendations name, which name nodes and no work.
    by_layout = gone - {name for step in steps if step.kind == "option" for name in step.sources}
    alike = Counter(problem.by_node[name].pool for name in by_layout)
    reserve: list[ReservedNode] = []
    left: list[NotInPlan] = []

    def rank(r: Recommendation) -> tuple[object, ...]:
        """Nodes that stay empty first: these are the reserve."""
        return r.action != "release", any(after.rooms[n].gpus for n in r.yardstick.nodes if n in after.rooms), r.rank

    for r in sorted((r for r in reasoned.options if r.id not in chosen), key=rank):
        usd, option = recoverable.get(r.id), problem.by_option.get(r.id)
        why = drafted.left_out.get(r.id) if option is None else _why(after, option, touched)
        if why is None or (why.code in ("plan-in-place", "plan-by-layout") and usd is None):
            continue
        if why.code == "plan-by-layout":
            names = [name for name in r.yardstick.freed or r.yardstick.nodes if name in problem.by_node]
            given = Counter(problem.by_node[name].pool for name in names if name in by_layout or name not in gone)
            if names and given <= alike:
                gone, alike = gone.difference(names), alike - given
                continue
            why = _why_kept(after, names, {node.node for node in reserve})
            if not awaited.isdisjoint(names):
                why = coded("plan-jobs-start", "jobs that wait for GPUs start on {nodes}", nodes=listed(sorted(names)))
            if usd is not None and why.code == "plan-reserve":
                reserve += [ReservedNode(name, usd / len(names), r.id, why) for name in names]
                continue
        alone = r.saving_usd_per_month.p50 if r.saving_usd_per_month else None
        # Its work is in the plan another way, and so are its dollars.
        usd = None if why.code == "plan-other-chosen" else usd
        left.append(NotInPlan(r.id, r.action, r.workload, why, r.risk, alone, why.code == "plan-risk", usd))
    left.sort(key=lambda n: (not n.risk_alone, -(n.would_bring_usd_per_month or 0.0), n.recommendation))
    return tuple(sorted(reserve, key=lambda node: (-node.usd_per_month, node.node))), tuple(left)


def _touched(steps: Sequence[PlanStep]) -> int:
    return len({step.series for step in steps if step.series is not None})


def recoverable_of(reasoned: Reasoned) -> Mapping[str, float]:
    """Recommendation -> US dollars a month that `advise` counts as recoverable: those that together bring most."""
    best = best_together([o for o in reasoned.options if o.counts])
    kept = {id(draws) for draws in without_losers([o.draws for o in best if o.draws is not None])}
    return {o.id: float(np.median(o.draws)) for o in best if o.draws is not None and id(o.draws) in kept}


def _why_kept(after: State, names: Sequence[str], reserved: Set[str]) -> CodedText:
    nodes = [after.problem.by_node[name] for name in names]
    for held in (n.held for n in nodes if n.held is not None):
        return held
    for pool in {n.pool for n in nodes}:
        freed = reserved | set(names)
        left = [
            room for n in after.problem.pools[pool] if (room := after.rooms[n.name]) and n.name in after.kept - freed
        ]
        gpus, wholes = map(int, after.needs[pool].max(axis=1))
        room = sum(r.node.gpus for r in left) - gpus
        if room < 0 or sum(not r.gpus for r in left) < wholes:
            return coded("plan-peak", "the work of its node type needs it at its peak")
        if room < (reserve := after.reserve(pool)):
            text, where = "kept free for failures: {gpus} GPUs of {pool}", pool_name(after.problem.pools[pool][0])
            return coded("plan-reserve", text, gpus=reserve, pool=where)
    return coded("plan-brings-nothing", _NOTHING[after.problem.goal])


def _why(after: State, option: PlanOption, touched: int) -> CodedText:
    problem, taken = after.problem, after.chosen.get(option.series)
    rival = taken or next((c for c in after.chosen.values() if c.id in option.excludes), None)
    if rival is not None:
        return coded("plan-other-chosen", "{other} of the same work is in the plan instead", other=rival.id)
    if problem.max_moves == 0:
        return coded("plan-nothing-touched", "no workload may be touched")
    if problem.max_moves is not None and touched >= problem.max_moves:
        text = "at most {most} may be touched, and other changes gain more"
        return coded("plan-not-worth-a-move", text, most=counted(problem.max_moves, "workload"))
    return coded("plan-brings-nothing", _NOTHING[problem.goal])


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
        drafted = draft(self.reasoned, self.frame, request, change)

        def first(layout: Layout) -> None:
            if on_first is not None:
                on_first(plan_of(self.reasoned, drafted, layout))

        layout = solve(drafted.problem, self.seconds, self.clock, first)
        return plan_of(self.reasoned, drafted, layout)


def plan_of(reasoned: Reasoned, drafted: Drafted, layout: Layout) -> Plan:
    """What a layout means for people."""
    problem, advice, request, change = drafted.problem, reasoned.advice, drafted.request, drafted.change
    names = {w.id: w.name for w in advice.workloads}
    starts, starting = start_jobs(problem, layout), Counter[str]()
    for start in starts:
        starting[start.pool] += start.gpus
    given = {node.node for start in starts for node in start.nodes}
    order = sequence(problem, replace(layout, kept=layout.kept | given))
    absent, steps = {n.name for n in problem.nodes if n.extra is not None}, []
    for step in order:
        # A node that is not there is no place to come from.
        moves = [replace(m, unit=_unit_name(m.unit, names, step.name), start=None if m.start in absent else m.start)
                 for m in step.moves]  # fmt: skip
        steps.append(replace(step, moves=tuple(moves)))
    # What was added stays: it is no part of what can be given back.
    kept = layout.kept | given | {n.name for n in problem.nodes if n.extra == "added"}
    before, after = State(problem), State(problem).set(layout.chosen, layout.places, kept)
    # Figures of the goal, where nodes that are not there cost what they would as part of the fleet, and a GPU of a pool
    # that jobs wait for counts once.
    plain = replace(problem, awaited=frozenset())
    extra = sum(node_worth(n, plain) for n in problem.nodes if n.extra is not None)
    value = Worth(plain).of(State(plain).set(layout.chosen, layout.places, layout.kept)) / SCALE - extra
    bound = layout.bound - extra if math.isfinite(layout.bound) else None
    bound = bound if not problem.awaited else value if layout.proven else None
    gap = 0.0 if layout.proven else None if not bound else max(bound - value, 0.0) / abs(bound)
    today = [n for n in problem.nodes if n.is_today]
    emptied = {name: step.number for step in steps for name in step.frees if step.series is not None or step.after}
    returned: list[ReturnedNode] = []
    for n in (n for n in today if n.name not in kept):
        date = _day_free(n, problem) if n.usd_per_hour else None
        how: Realisation = "cash-at" if date else "cash-now"
        how = "capacity-freed" if n.bound_until == FOREVER or not n.usd_per_hour else how
        returned.append(ReturnedNode(*_about(n), how, date, emptied.get(n.name), n.drains))
    returned.sort(key=lambda node: (node.available_from or "", node.step or 0, node.name))
    reserve, not_in_plan = left_out(reasoned, drafted, after, order, given - layout.kept)
    # Recommendations that move nothing, of work that stays where it is: they are predictions for it there.
    gone = {s.workload for s in problem.series if (o := layout.chosen.get(s.id)) and not o.keeps_units}
    in_place = [r for r in reasoned.options if (why := drafted.left_out.get(r.id)) and why.code == "plan-in-place"]
    cash = cash_of_plan(reasoned, after)
    watts = [watts for r in returned if (watts := problem.by_node[r.name].idle_watts) is not None]
    advise = advice.summary.recoverable_usd_per_month if change == NO_CHANGE else None
    now = cash[0].saving_usd_per_month.p50 if cash else 0.0
    others = sum(r.usd_per_month for r in reserve) + sum(n.advise_usd_per_month or 0.0 for n in not_in_plan)
    return Plan(
        goal=problem.goal, risk=request.risk, max_moves=request.max_moves, generated_at=advice.generated_at,
        start=advice.start, end=advice.end, source=dict(advice.source),
        nodes_today=len(today), gpus_today=sum(n.gpus for n in today),
        workloads=len({s.workload or s.id for s in problem.series}), touched=_touched(steps),
        gpus_freed=max(sum(before.rooms[n.name].gpus - after.rooms[n.name].gpus for n in today), 0), cash=cash,
        energy_kwh_per_month=sum(watts) * HOURS_PER_MONTH / 1000 if watts else None,
        pools=pool_plans(after, drafted, starting), returned=tuple(returned),
        rented=tuple(RentedNode(*_about(n)) for n in problem.nodes if n.is_bought and n.name in kept),
        missing=tuple(RentedNode(*_about(n)) for n in problem.nodes if n.extra == "missing" and n.name in kept),
        steps=tuple(steps), starts=with_steps(problem, layout, order, starts), waiting=advice.summary.waiting,
        advise_usd_per_month=advise, plan_usd_per_month=None if advise is None else now,
        combined_usd_per_month=None if advise is None else now + others - advise, reserve=reserve,
        not_in_plan=not_in_plan,
        beside=tuple(r.id for r in in_place if r.workload not in gone and not r.blocked_by and r.shown is not False),
        kept_nodes={n.name: n.held for n in today if n.held is not None},
        solver=SolverFigures(UNITS[problem.goal], value, bound, gap, layout.seconds, layout.proven),
        notes=plan_notes(drafted), changes=drafted.changes,
    )  # fmt: skip


def plan_notes(drafted: Drafted) -> tuple[CodedText, ...]:
    problem = drafted.problem
    today = [n for n in problem.nodes if n.is_today]
    units = [u for s in problem.series for u in s.units]
    counts = [
        ("plan-nodes-held", "too little is known to empty or fill {count}", "node",
         sum(n.held is not None and n.held.code != "plan-excluded" for n in today)),
        ("plan-unpriced", "no price for {count}: no cash is counted", "node",
         sum(n.usd_per_hour is None for n in today)),
        ("plan-bound", "{count} owned, or committed without a known end: capacity when emptied, not cash", "node",
         sum(n.bound_until == FOREVER and n.usd_per_hour is not None for n in today)),
        ("plan-kinds-unclear", "the plan moves no work of unclear kind: {count}", "replica",
         sum(u.fixed is not None and u.fixed.code == "plan-kind-unclear" for u in units)),
    ]  # fmt: skip
    notes = [coded(code, text, count=counted(number, noun)) for code, text, noun, number in counts if number]
    if not any(n.host_mem_bytes for n in today) or not any(u.host_mem_bytes for u in units):
        notes.append(coded("plan-host-memory-unknown", "host memory was not measured and limits nothing"))
    crowded = "{pool}: work of the window would not fit beside the services of today: {gpus} too few at the peak"
    for pool, gpus in sorted(drafted.crowded.items()):
        notes.append(
            coded("plan-crowded-today", crowded, pool=pool_name(problem.pools[pool][0]), gpus=counted(gpus, "GPU"))
        )
    if not has_solver():
        text = "OR-tools is not installed: the plan comes from a greedy search, and a better one may exist. Run pip "
        notes.append(coded("plan-greedy", f"{text}install 'skuwise[plan]'."))
    return tuple(notes)


def _unit_name(unit: str, names: Mapping[str, str], series: str) -> str:
    if unit in names:
        return names[unit]
    if "#" in unit:
        return f"{series} (new {int(unit.rpartition('#')[2]) + 1})"
    return f"{series} (more {unit.rpartition('+')[2]})" if "+" in unit else unit


def _about(n: PlanNode) -> tuple[str, str, str | None, str | None, int, float | None, str | None]:
    usd = month_usd(n) if n.usd_per_hour is not None else None
    return n.name, n.pool, n.node_sku, n.gpu_sku, n.gpus, usd, n.price
