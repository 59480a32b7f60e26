"""200 random fleets: no plan breaks a rule, neither at once nor step by step, and the bound is one."""

import time
from collections.abc import Callable

import pytest
from skuwise.advisor.plan.figures import recoverable_of
from skuwise.advisor.plan.problem import Layout, PlanRequest
from skuwise.advisor.plan.solve import solve
from skuwise.advisor.plan.steps import sequence
from skuwise.tests.support.plan_builders import planner, random_fleet
from skuwise.tests.support.plan_checker import broken_rules, wrong_steps
from skuwise.tests.support.plan_exhaustive import score
from skuwise.tests.support.plan_fleets import small_problem

FLEETS, AT_ONCE = 200, 50


@pytest.mark.parametrize("batch", range(FLEETS // AT_ONCE))
def test_no_plan_of_a_random_fleet_breaks_a_rule(batch: int, seed_of: Callable[[int], int]) -> None:
    proven = 0
    for number in range(batch * AT_ONCE, (batch + 1) * AT_ONCE):
        seed = seed_of(number)
        problem = small_problem(seed)
        first: list[Layout] = []
        layout = solve(problem, 2.0, time.perf_counter, first.append)
        assert broken_rules(problem, first[0]) == [], seed
        assert broken_rules(problem, layout) == [], seed
        assert score(problem, layout) == pytest.approx(layout.value, abs=0.02 * len(problem.nodes)), seed
        assert layout.bound >= layout.value >= first[0].value, seed
        assert wrong_steps(problem, layout, sequence(problem, layout)) == [], seed
        proven += layout.proven
    # Small fleets are mostly solved: a bound that is loose, or an answer that is far from it, is the exception.
    assert proven >= AT_ONCE * 0.8


def test_a_plan_and_what_it_leaves_are_what_advise_counts(seed_of: Callable[[int], int]) -> None:
    recoverable = kept = 0.0
    for number in range(25):
        seed = seed_of(number)
        given = planner(random_fleet(seed))
        plan = given.plan(PlanRequest())
        left = {n.recommendation: n.advise_usd_per_month for n in plan.not_in_plan if n.advise_usd_per_month}
        reserve = sum(r.usd_per_month for r in plan.reserve)
        assert plan.advise_usd_per_month == given.found.advice.summary.recoverable_usd_per_month
        assert plan.plan_usd_per_month is not None and plan.combined_usd_per_month is not None
        total = plan.plan_usd_per_month - plan.combined_usd_per_month + reserve + sum(left.values())
        assert total == pytest.approx(plan.advise_usd_per_month, abs=0.01), seed
        # Each dollar that advise counts stands in one place.
        counted = recoverable_of(given.found)
        taken = {s.recommendation for s in plan.steps} & counted.keys()
        assert not taken & left.keys() and left.items() <= counted.items(), seed
        assert left.keys().isdisjoint({r.recommendation for r in plan.reserve}), seed
        recoverable, kept = recoverable + (plan.advise_usd_per_month or 0.0), kept + reserve
    assert recoverable > 0 and kept > 0
