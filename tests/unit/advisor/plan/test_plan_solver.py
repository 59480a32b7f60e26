"""The solver of plans: no rule is broken, what it finds is the best there is, and the bound is one."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from skuwise.advisor.plan.problem import Layout
from skuwise.advisor.plan.solve import SolverBudget, solve
from skuwise.tests.support.plan_checker import broken_rules
from skuwise.tests.support.plan_exhaustive import best_value, score, tiny_problem
from skuwise.tests.support.plan_fleets import small_problem

BUDGET = SolverBudget(bound_seconds=3, layout_seconds=3)


@pytest.mark.parametrize("number", range(8))
def test_neither_the_first_answer_nor_the_last_breaks_a_rule(number: int, seed_of: Callable[[int], int]) -> None:
    problem = small_problem(seed_of(number))
    first: list[Layout] = []
    layout = solve(problem, BUDGET, time.perf_counter, first.append)
    assert broken_rules(problem, first[0]) == []
    assert broken_rules(problem, layout) == []
    assert score(problem, layout) >= score(problem, first[0]) - 1e-6
    assert layout.bound >= layout.value


@pytest.mark.parametrize("number", [0, 2])
def test_the_same_fleet_has_the_same_plan_again(number: int) -> None:
    problem = small_problem(number)
    first, *others = [solve(problem, SolverBudget(30, 30), time.perf_counter) for _ in range(2)]
    for other in others:
        assert (other.chosen, other.places, other.kept) == (first.chosen, first.places, first.kept)


@pytest.mark.parametrize("seconds", [0.1, 20.0, 3600.0])
def test_a_search_within_seconds_leaves_room_for_a_slow_machine(seconds: float) -> None:
    budget = SolverBudget.within(seconds)
    assert budget.longest_seconds == pytest.approx(seconds)
    assert budget.bound_seconds + budget.layout_seconds < seconds


class UnwantedError(Exception):
    pass


@pytest.mark.parametrize("answers", [0, 1])
def test_a_search_that_nobody_wants_any_more_runs_no_solver(answers: int) -> None:
    first: list[Layout] = []
    asked: list[int] = []

    def wanted() -> None:
        asked.append(len(first))
        if len(asked) > answers:
            raise UnwantedError

    with pytest.raises(UnwantedError):
        solve(small_problem(3), SolverBudget(30, 30, enough=-1.0), time.perf_counter, first.append, wanted)
    assert len(first) == 1
    assert asked == [1] * (answers + 1)


# Tiny fleets that are searched through in well under a second.
@pytest.mark.parametrize("number", [0, 2, 5, 8, 11])
def test_of_a_tiny_fleet_the_best_layout_is_found_and_proven(number: int) -> None:
    problem = tiny_problem(number)
    layout = solve(problem, SolverBudget(enough=0.0), time.perf_counter)
    assert broken_rules(problem, layout) == []
    assert score(problem, layout) == pytest.approx(best_value(problem), abs=0.02)
    assert layout.proven
