"""Plans of 20 to 200 nodes: seconds and distance from the bound, for each goal; and the same model by HiGHS.

Usage: python -m skuwise.benchmarks.performance.advisor.plan_solver [NODES ...] [--seeds N] [--goals cash,nodes]
       [--times F] [--highs SECONDS]
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

from skuwise.advisor.plan.carriers import by_size
from skuwise.advisor.plan.problem import GOALS, Goal, Layout
from skuwise.advisor.plan.solve import Search, SolverBudget, solve
from skuwise.advisor.plan.solvers import Solution, by_cp_sat, by_highs
from skuwise.tests.support.plan_checker import broken_rules
from skuwise.tests.support.plan_fleets_large import large_problem

SIZES = (20, 50, 100, 200)
WORKLOADS_A_NODE = 5


def measured(nodes: int, goal: Goal, seeds: int, times: float) -> None:
    seconds, cpu, gaps, first_seconds, first_gaps, broken = [], [], [], [], [], 0
    workloads, options = [], []
    for seed in range(seeds):
        problem = large_problem(seed, nodes=nodes, series=nodes * WORKLOADS_A_NODE, goal=goal)
        budget = SolverBudget.of(problem).scaled(times)
        firsts: list[Layout] = []
        workloads.append(len(problem.series))
        options.append(len(problem.options))
        began, cpu_began = time.perf_counter(), time.process_time()
        layout = solve(problem, budget, time.perf_counter, firsts.append)
        cpu.append(time.process_time() - cpu_began)
        seconds.append(time.perf_counter() - began)
        gaps.append(math.inf if layout.gap is None else layout.gap)
        first_seconds.append(firsts[0].seconds)
        first_gaps.append(1 - firsts[0].value / layout.bound if layout.bound > 0 else 0.0)
        broken += len(broken_rules(problem, layout)) + len(broken_rules(problem, firsts[0]))
    print(
        f"{nodes:4} nodes, {max(workloads):5} workloads, {max(options):4} options, {goal:8}: "
        f"{statistics.median(seconds):5.1f} s (at most {max(seconds):5.1f}; CPU {max(cpu):5.1f}), "
        f"gap {statistics.median(gaps):6.2%} "
        f"(at most {max(gaps):6.2%}); first answer {max(first_seconds):4.2f} s, "
        f"gap {statistics.median(first_gaps):6.2%}; "
        f"{broken} rules broken",
        flush=True,
    )


def compared(nodes: int, goal: Goal, seeds: int, seconds: float) -> None:
    """The model without places: how far from its own bound either solver comes, and what of CPU it took."""
    for seed in range(seeds):
        search = Search(large_problem(seed, nodes=nodes, series=nodes * WORKLOADS_A_NODE, goal=goal), SolverBudget())
        search.quick()
        model = search.model(by_size(search.rooms), whole=False)
        for name, run in (
            ("HiGHS", lambda model=model: by_highs(model.cp, seconds, 0.0)),
            ("CP-SAT", lambda model=model: by_cp_sat(model.cp, seconds, 0.0, 2)),
        ):
            began = time.process_time()
            found = run()
            print(
                f"{nodes:4} nodes, {goal:8}, seed {seed}: {name:6} {_gap(found)} in {found.seconds:.1f} s "
                f"(CPU {time.process_time() - began:.1f})",
                flush=True,
            )


def _gap(found: Solution) -> str:
    if not found.values:
        return "no answer"
    return f"{(found.bound - found.objective) / max(abs(found.bound), 1e-9):6.2%} of {found.bound:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("nodes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--goals", default=",".join(GOALS))
    parser.add_argument("--times", type=float, default=1.0, help="of the time limits: on a machine that is busy")
    parser.add_argument("--highs", type=float, metavar="SECONDS", help="the model of the bound by HiGHS and by CP-SAT")
    args = parser.parse_args()
    goals: list[Goal] = [one for one in GOALS if one in args.goals.split(",")]
    for nodes in args.nodes or SIZES:
        for goal in goals:
            if args.highs:
                compared(nodes, goal, args.seeds, args.highs)
            else:
                measured(nodes, goal, args.seeds, args.times)


if __name__ == "__main__":
    main()
