"""The fleet by pool: today, after a plan, and how far what is left carries."""

from __future__ import annotations

import math
from collections import Counter

from .build import Drafted
from .mig import divided, divided_today
from .problem import Layout, PlanNode, Problem
from .result import PoolPlan
from .worth import MONTH_SECONDS

# Beyond it no growth rate holds.
YEARS_MAX = 10.0


def pool_plans(problem: Problem, layout: Layout, drafted: Drafted, growth: float | None) -> tuple[PoolPlan, ...]:
    """The largest pool first. `growth`: of all demand a month, ratio; None: not asked."""
    before_mig, after_mig = divided_today(problem), divided(problem, layout.places)
    out = []
    for pool, members in problem.pools.items():
        own = [n for n in members if n.is_today]
        kept = [n for n in members if n.name in layout.kept]
        if not own and not kept:
            continue
        fixed = sum(problem.fixed_gpus.get(n.name, 0) for n in members)
        before = problem.needed(pool, {}) + fixed + _sum(before_mig, members)
        after = problem.needed(pool, layout.chosen) + fixed + _sum(after_mig, members)
        peak = float(after.max(initial=0.0))
        room = sum(n.gpus for n in kept if n.extra != "missing")
        carries = room / peak if peak > 0 else None
        out.append(
            PoolPlan(
                pool=pool, node_sku=members[0].node_sku, gpu_sku=members[0].gpu_sku, region=members[0].region,
                nodes_today=len(own), nodes_after=sum(n.extra != "missing" for n in kept),
                rented=sum(n.is_bought for n in kept),
                gpus_today=sum(n.gpus for n in own), gpus_after=room,
                gpus_needed_today=float(before.max(initial=0.0)), gpus_needed=peak,
                peak_at=float(drafted.grid[int(after.argmax())]) + 3600.0 if len(after) and peak > 0 else None,
                reserve_gpus=min(drafted.reserve_wanted.get(pool, 0), max(int(room - peak), 0)),
                reserve_wanted_gpus=drafted.reserve_wanted.get(pool, 0) if peak > 0 else 0,
                short_gpus=layout.short.get(pool, 0) + drafted.crowded.get(pool, 0),
                carries=carries, runs_out_at=_runs_out(problem.now, carries, growth),
            )
        )  # fmt: skip
    return tuple(sorted(out, key=lambda p: (-p.gpus_today, p.pool)))


def _sum(divided: Counter[str], members: tuple[PlanNode, ...]) -> int:
    return sum(divided[n.name] for n in members)


def pool_name(node: PlanNode) -> str:
    """The pool of a node for people: ``ND96isr_H100_v5 in eastus``."""
    return f"{node.pool.rpartition('/')[2].removeprefix('Standard_')}{f' in {node.region}' if node.region else ''}"


def _runs_out(now: float, carries: float | None, growth: float | None) -> float | None:
    """When demand that grows by `growth` a month, compounded, is more than there is."""
    if carries is None or growth is None or growth <= 0:
        return None
    months = math.log(max(carries, 1.0)) / math.log1p(growth)
    return now + months * MONTH_SECONDS if months <= 12 * YEARS_MAX else None
