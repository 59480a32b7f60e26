"""Plans carried out in simulation: promised against measured.

    python -m skuwise.benchmarks.evaluation.plan_execution --seeds 0-11
    python -m skuwise.benchmarks.evaluation.plan_execution --show 3

A fleet is drawn (`planning.fleets`), looked at for two weeks, and planned. The plan is carried out on the fleet as it
truly is, and the two weeks after it, with other jobs and other days, are measured as the first two were
(docs/plan-execution.md).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from skuwise.advisor.plan.problem import GOALS, Goal

from .planning.outcome import Outcome, outcomes
from .planning.told import shown, table, totals


def of_seed(seed: int, goals: Sequence[Goal], days: int) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as name:
        return list(outcomes(seed, goals, Path(name), days=days))


def main() -> None:
    """Simulate, plan, execute, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-11", help="fleets, as in 0-11 (default: 0-11)")
    parser.add_argument(
        "--goals", default="cash,nodes,capacity", help="goals, with commas (default: cash,nodes,capacity)"
    )
    parser.add_argument("--days", type=int, default=14, help="days before and after the plan (default: 14)")
    parser.add_argument("--jobs", type=int, default=1, help="fleets at a time (default: 1)")
    parser.add_argument("--show", type=int, metavar="SEED", help="print the plan of one fleet step by step instead")
    options = parser.parse_args()
    goals: tuple[Goal, ...] = tuple(g for g in GOALS if g in options.goals.split(","))
    if options.show is not None:
        for one in of_seed(options.show, goals[:1], options.days):
            print("\n".join(shown(one)))
        return
    begun = time.monotonic()
    found: list[Outcome] = []
    for some in _all(_seeds(options.seeds), goals, options.days, options.jobs):
        found += some
        for one in some:
            print("\n".join(one_line for one_line in _progress(one)), flush=True)
    print(table(found))
    print("\n".join(totals(found)))
    print(f"{time.monotonic() - begun:.0f} s")


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def _all(seeds: Sequence[int], goals: Sequence[Goal], days: int, jobs: int) -> Iterator[list[Outcome]]:
    if jobs < 2:
        yield from (of_seed(seed, goals, days) for seed in seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(of_seed, seeds, [goals] * len(seeds), [days] * len(seeds))


def _progress(one: Outcome) -> Iterator[str]:
    for o in one.services:
        if o.beyond and o.touched:
            yield f"  seed {one.seed} {one.goal}: {o}"
    for fault in one.faults:
        yield f"  seed {one.seed} {one.goal}: FAULT {fault}"


if __name__ == "__main__":
    main()
