"""What a layout means in nodes, GPUs and dollars: drawn jointly, by node type, and beside what `advise` counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime

import numpy as np

from ..core.advice_types import Recommendation
from ..core.coded_text import CodedText, coded
from ..pipeline import Reasoned
from ..recommend.prediction import percentiles
from ..recommend.recommender import best_together, without_losers
from .build import Drafted
from .problem import FOREVER, Goal, Layout, PlanNode, Problem
from .result import CashDate, NotInPlan, PlanStep, PoolPlan, ReservedNode
from .state import State
from .worth import MONTH_SECONDS, month_usd

# Beyond it no growth rate holds.
YEARS_MAX = 10.0


def cash_of_plan(reasoned: Reasoned, problem: Problem, layout: Layout) -> tuple[CashDate, ...]:
    """US dollars a month: of returned nodes, less rent. The interval is that of the recommendations in the plan, from
    their joint draws. Empty: no price is known."""
    if not any(n.usd_per_hour for n in problem.nodes if n.is_today):
        return ()
    chosen = {o.id for o in layout.chosen.values()}
    drawn = [o.draws for o in reasoned.options if o.id in chosen and o.draws is not None]
    rent = sum(month_usd(n) for n in problem.nodes if n.is_bought and n.name in layout.kept)
    back: dict[float | None, float] = {None: -rent}
    days: list[str] = []
    for n in problem.nodes:
        if n.is_today and n.name not in layout.kept and n.bound_until != FOREVER and n.usd_per_hour:
            date = None if n.bound_until is None or n.bound_until <= problem.now else n.bound_until
            back[date] = back.get(date, 0.0) + month_usd(n)
            days.append(day_of(date) or "")
    total = sum((draws - np.median(draws) for draws in drawn), np.zeros(1))
    dates = sorted(back, key=lambda at: -1.0 if at is None else at)
    return tuple(
        CashDate(day, sum(other <= (day or "") for other in days), percentiles(total := total + back[date]))
        for date, day in ((date, day_of(date)) for date in dates)
    )


def day_of(at: float | None) -> str | None:
    """The date (ISO) of a moment; None: now."""
    return None if at is None else datetime.fromtimestamp(at, UTC).date().isoformat()


def released(problem: Problem, layout: Layout) -> int:
    """GPUs of the fleet that services hold today and no longer hold afterwards."""
    names = {n.name for n in problem.nodes if n.is_today}
    held = {u.id: u.gpu_count for s in problem.series for u in s.units}
    held |= {o.unit(k): o.gpus_each for o in layout.chosen.values() for k in range(o.started)}
    before = sum(c for s in problem.series for u in s.units for n, c in u.gpus.items() if n in names)
    return max(before - sum(held[unit] for unit, node in layout.places.items() if node in names), 0)


def pool_plans(problem: Problem, layout: Layout, drafted: Drafted, growth: float | None) -> tuple[PoolPlan, ...]:
    """The fleet by pool, the largest first: today, after a plan, and how far what is left carries. `growth`: of all
    demand a month, ratio; None: not asked."""
    asked, out = State(problem).set(layout.chosen, layout.places, layout.kept).asked, []
    for pool, members in problem.pools.items():
        today = [n for n in members if n.is_today]
        kept = [n for n in members if n.name in layout.kept]
        if not today and not kept:
            continue
        peak, room = int(asked[pool].max()), sum(n.gpus for n in kept if n.extra != "missing")
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
                gpus_needed_today=float(problem.needs.base[pool].max()), gpus_needed=float(peak),
                peak_at=float(drafted.grid[int(asked[pool].argmax())]) + 3600.0 if peak > 0 else None,
                reserve_gpus=min(wanted, max(room - peak, 0)), reserve_wanted_gpus=wanted if peak > 0 else 0,
                short_gpus=drafted.crowded.get(pool, 0),
                carries=carries,
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
    reasoned: Reasoned, drafted: Drafted, layout: Layout, steps: Sequence[PlanStep]
) -> tuple[tuple[ReservedNode, ...], tuple[NotInPlan, ...]]:
    """Recommendations that are no part of the plan: nodes that it keeps in reserve, and the rest, each with what
    `advise` counts of it as recoverable."""
    problem = drafted.problem
    chosen, options = {o.id for o in layout.chosen.values()}, problem.by_option
    counted = recoverable_of(reasoned)
    touched = len({step.series for step in steps if step.series is not None})
    state = State(problem).set(layout.chosen, layout.places, layout.kept)
    gone = {n.name for n in problem.nodes if n.is_today and n.name not in layout.kept}
    # What the layout alone empties stands for nodes alike that recommendations name, which name nodes and no work.
    by_layout = gone - {name for step in steps if step.kind == "option" for name in step.sources}
    reserve: list[ReservedNode] = []
    left: list[NotInPlan] = []

    def rank(r: Recommendation) -> tuple[object, ...]:
        """Nodes that stay empty first: these are the reserve."""
        return r.action != "release", any(state.rooms[n].gpus for n in r.yardstick.nodes if n in state.rooms), r.rank

    for r in sorted(reasoned.options, key=rank):
        usd = counted.get(r.id)
        if r.id in chosen:
            continue
        why = _why(drafted, layout, r.id, touched) if r.id in options else drafted.left_out.get(r.id)
        if why is None or (why.code in ("plan-in-place", "plan-by-layout") and usd is None):
            continue
        if why.code == "plan-by-layout":
            names = [name for name in r.yardstick.freed or r.yardstick.nodes if name in problem.by_node]
            if (given := _given_back(problem, names, gone, by_layout)) is not None:
                gone, by_layout = gone - given, by_layout - given
                continue
            why = _why_kept(state, names, {node.node for node in reserve})
            if usd is not None and why.code == "plan-reserve":
                reserve += [ReservedNode(name, usd / len(names), r.id, why) for name in names]
                continue
        alone = r.saving_usd_per_month.p50 if r.saving_usd_per_month else None
        # Its work is in the plan another way, and so are its dollars.
        usd = None if why.code == "plan-other-chosen" else usd
        left.append(NotInPlan(r.id, r.action, r.workload, why, r.risk, alone, why.code == "plan-risk", usd))
    left.sort(key=lambda n: (not n.risk_alone, -(n.would_bring_usd_per_month or 0.0), n.recommendation))
    return tuple(sorted(reserve, key=lambda node: (-node.usd_per_month, node.node))), tuple(left)


def recoverable_of(reasoned: Reasoned) -> Mapping[str, float]:
    """Recommendation -> US dollars a month that `advise` counts as recoverable: those that together bring most."""
    best = best_together([o for o in reasoned.options if o.counts])
    kept = {id(draws) for draws in without_losers([o.draws for o in best if o.draws is not None])}
    return {o.id: float(np.median(o.draws)) for o in best if o.draws is not None and id(o.draws) in kept}


def _given_back(problem: Problem, names: Sequence[str], gone: set[str], alike: set[str]) -> set[str] | None:
    """These nodes where they are `gone`, else as many of `alike` in the same pools; None: there are too few."""
    taken: set[str] = set()
    for name in names:
        pool = problem.by_node[name].pool
        candidates = [name] if name in gone else sorted(n for n in alike - taken if problem.by_node[n].pool == pool)
        if not candidates:
            return None
        taken.add(candidates[0])
    return taken if names else None


def _why_kept(state: State, names: Sequence[str], reserved: Set[str]) -> CodedText:
    """Why nodes that could be emptied are kept. `reserved`: nodes that are kept in reserve already."""
    nodes = [state.problem.by_node[name] for name in names]
    held = next((n.held for n in nodes if n.held is not None), None)
    if held is not None:
        return held
    for pool in {n.pool for n in nodes}:
        kept = [state.rooms[n.name] for n in state.problem.pools[pool] if n.name in state.kept]
        freed = [room for room in kept if room.node in nodes or room.node.name in reserved]
        room = sum(r.node.gpus for r in kept) - sum(r.node.gpus for r in freed) - int(state.asked[pool].max())
        empty = sum(not r.gpus for r in kept) - sum(not r.gpus for r in freed)
        if room < 0 or empty < int(state.whole[pool].max()):
            return coded("plan-peak", "the work of its node type needs it at its peak")
        if room < state.reserve(pool):
            return coded(
                "plan-reserve", "kept free for failures: {gpus} GPUs of {pool}",
                gpus=state.reserve(pool), pool=pool_name(kept[0].node),
            )  # fmt: skip
    return coded("plan-brings-nothing", _NOTHING[state.problem.goal])


def _why(drafted: Drafted, layout: Layout, id_: str, touched: int) -> CodedText:
    """Why an option was not taken."""
    problem, option = drafted.problem, drafted.problem.by_option[id_]
    taken = layout.chosen.get(option.series)
    rival = taken or next((c for c in layout.chosen.values() if c.id in option.excludes), None)
    if rival is not None:
        return coded("plan-other-chosen", "{other} of the same work is in the plan instead", other=rival.id)
    if problem.max_moves == 0:
        return coded("plan-nothing-touched", "no workload may be touched")
    if problem.max_moves is not None and touched >= problem.max_moves:
        return coded(
            "plan-not-worth-a-move", "at most {most} may be touched, and other changes gain more",
            most=f"{problem.max_moves} workload{'s' * (problem.max_moves != 1)}",
        )  # fmt: skip
    return coded("plan-brings-nothing", _NOTHING[problem.goal])
