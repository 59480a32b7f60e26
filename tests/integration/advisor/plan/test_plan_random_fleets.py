"""200 random fleets: no plan breaks a rule, neither at once nor step by step, and the bound is one."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from skuwise.advisor.plan.problem import Layout
from skuwise.advisor.plan.solve import solve
from skuwise.advisor.plan.steps import sequence
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
