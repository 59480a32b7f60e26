"""One fleet and one goal: the plan, its execution, and the two weeks after it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from skuwise.advisor.advise import load_rulebook, read_and_reason
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.pipeline import Reasoned
from skuwise.advisor.plan.limits import PlanRequest
from skuwise.advisor.plan.planner import Planner
from skuwise.advisor.plan.problem import Goal
from skuwise.advisor.plan.result import Plan
from skuwise.advisor.plan.solve import SolverBudget

from .execute import execute
from .fleets import fleet
from .measure import ServiceOutcome, again_needed, empty_nodes, services
from .scheduler import Job, mean_waits
from .world import DAY, World, cluster_of, reopened, run_jobs, service_series, write

NOW = 1_790_000_000.0 - 1_790_000_000.0 % 3600
BUDGET = SolverBudget(bound_seconds=5.0, layout_seconds=10.0, workers=1)


@dataclass(frozen=True)
class Outcome:
    """`promised`: nodes given back; `measured`: those of them that were empty for two weeks, less those that services
    need again (`needed_again`). `usd_*`: a month, the last date with everything. `waited_*`: hours that jobs waited in
    the two weeks after, without the plan and with it. `short_gpus`: that the plan says are missing."""

    seed: int
    goal: str
    days: int
    nodes_today: int
    gpus_today: int
    promised: int
    interval: tuple[float, float]
    measured: int
    taken_back: int
    needed_again: int
    usd_promised: float | None
    usd_interval: tuple[float, float] | None
    usd_measured: float | None
    gpus_promised: float
    gpus_measured: float
    services: tuple[ServiceOutcome, ...]
    jobs: int
    waited_without: int
    waited_with: int
    waiting_jobs_without: int
    waiting_jobs_with: int
    short_gpus: int
    faults: tuple[str, ...]
    steps: int
    plan: Plan
    empty_then: frozenset[str]


def look(path: Path, world: World, folder: Path, now: float) -> tuple[Frame, Reasoned]:
    prices = None
    if world.prices:
        prices = folder / "prices.yaml"
        prices.write_text(world.prices)
    return read_and_reason([path], load_rulebook(None, prices, now), now=now, until=now)


def outcomes(
    seed: int, goals: Sequence[Goal], folder: Path, *, days: int = 14, small: bool = False
) -> Iterator[Outcome]:
    """Lay out a fleet, look at it for `days`, plan for each goal, carry the plan out, and look at it again."""
    world = fleet(seed, now=NOW, small=small)
    past = run_jobs(world, world.drawn_jobs("past", days), days)
    before_path = folder / f"before-{seed}"
    write(world, past.ran, before_path, start=NOW - days * DAY, days=days, what="past")
    frame, before = look(before_path, world, folder, NOW)
    coming = world.drawn_jobs("future", days)
    without = run_jobs(world, coming, days)
    planner = Planner(before, frame, BUDGET, time.monotonic)
    # Dividing GPUs is not simulated.
    mig = frozenset(o.recommendation.id for o in before.options if o.recommendation.action == "mig-slice")
    known = {service_series(s, cluster_of(s.sku)) for s in world.services}
    done: dict[World, Reasoned] = {}
    for goal in goals:
        plan = planner.plan(PlanRequest(goal=goal, exclude=mig))
        made = execute(world, plan, {r.id: r for r in before.advice.recommendations})
        jobs = made.world.drawn_jobs("future", days)
        there, ran = reopened(made.world, jobs, days, mean_waits(coming, without))
        if there not in done:
            path = folder / f"after-{seed}-{goal}"
            write(there, ran.ran, path, start=NOW, days=days, what="future")
            done[there] = look(path, world, folder, NOW + days * DAY)[1]
            rmtree(path)
        after = done[there]
        found = services(before, after, plan, known)
        returned = {r.node: r for r in plan.returned}
        empty = empty_nodes(after) & there.closed
        kept = {m.name: there.gpus_of(m.name) for m in there.machines if m.name not in there.closed}
        again = again_needed(after, found, kept)
        back = set(empty)
        for sku, count in again.items():
            back -= set(sorted(n for n in back if returned[n].node_sku == sku)[:count])
        rented = sum(r.usd_per_month or 0.0 for r in plan.rented)
        # Of node types that are rented it takes more of them.
        prices = {r.node_sku: r.usd_per_month or 0.0 for r in plan.rented}
        rented += sum(count * prices.get(sku, 0.0) for sku, count in again.items())
        cash = sum(
            r.usd_per_month or 0.0 for n, r in returned.items() if r.realisation != "capacity-freed" and n in back
        )
        last = plan.cash[-1].saving_usd_per_month if plan.cash else None
        held, then = sum(world.held().values()), sum(_own(there, world).values())
        yield Outcome(
            seed=seed, goal=goal, days=days, nodes_today=plan.nodes_today, gpus_today=plan.gpus_today,
            promised=len(returned), interval=(plan.nodes.p10, plan.nodes.p90), measured=len(back),
            taken_back=len(made.world.closed - there.closed), needed_again=sum(again.values()),
            usd_promised=last.p50 if last is not None else None,
            usd_interval=(last.p10, last.p90) if last is not None else None,
            usd_measured=cash - rented if last is not None else None, gpus_promised=plan.gpus_freed.p50,
            gpus_measured=held - then, services=found, jobs=_in_window(coming),
            waited_without=sum(without.waits().values()), waited_with=sum(ran.waits().values()),
            waiting_jobs_without=sum(w > 0 for w in without.waits().values()),
            waiting_jobs_with=sum(w > 0 for w in ran.waits().values()),
            short_gpus=sum(p.short_gpus for p in plan.pools), faults=made.faults,
            steps=len(plan.steps), plan=plan, empty_then=empty,
        )  # fmt: skip
    rmtree(before_path)


def _own(made: World, world: World) -> dict[str, int]:
    """GPUs held on nodes of the fleet of before."""
    own = {m.name for m in world.machines}
    return {name: count for name, count in made.held().items() if name in own}


def _in_window(jobs: Sequence[Job]) -> int:
    return sum(job.arrives >= 0 for job in jobs)
