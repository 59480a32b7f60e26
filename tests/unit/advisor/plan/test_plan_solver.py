"""The solver of plans: no rule is broken, what it finds is the best there is, and the bound is one."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from skuwise.advisor.plan.problem import Layout, PlanNode, PlanOption, PlanSeries, PlanUnit, Problem
from skuwise.advisor.plan.solve import SolverBudget, solve
from skuwise.advisor.plan.steps import sequence
from skuwise.tests.support.plan_checker import broken_rules
from skuwise.tests.support.plan_exhaustive import best_value, score, tiny_problem
from skuwise.tests.support.plan_fleets import small_problem
from skuwise.tests.support.plan_steps import state_after, wrong_steps

BUDGET = SolverBudget(bound_seconds=3, layout_seconds=3)


@pytest.mark.parametrize("number", range(5))
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


@pytest.mark.parametrize("number", range(8))
def test_every_prefix_of_the_steps_keeps_the_rules(number: int, seed_of: Callable[[int], int]) -> None:
    problem = small_problem(seed_of(number))
    layout = solve(problem, SolverBudget(2, 2), time.perf_counter)
    assert wrong_steps(problem, layout, sequence(problem, layout)) == []


def _unit(name: str, node: str, gpus: int) -> PlanSeries:
    unit = PlanUnit(f"{name}0", name, {node: gpus})
    return PlanSeries(name, name, None, "p", "notebook", False, (unit,), np.zeros(1), np.zeros(1))


def test_what_needs_room_comes_after_what_makes_it() -> None:
    nodes = tuple(PlanNode(name, "p", "gpu", "sku", 8, usd) for name, usd in (("a", 1.0), ("b", 1.0), ("c", 90.0)))
    series = (_unit("s", "a", 6), _unit("t", "b", 2), _unit("u", "c", 6), _unit("v", "b", 2))
    problem = Problem(nodes, series, (), "cash", 0.0)
    layout = solve(problem, SolverBudget(2, 2), time.perf_counter)
    assert "c" not in layout.kept
    steps = sequence(problem, layout)
    assert wrong_steps(problem, layout, steps) == []
    last = max(i for i, step in enumerate(steps) if step.series == "u")
    assert steps[last].frees == ("c",)
    assert steps[last].after
    assert all(steps[i].series in ("t", "v") for i in steps[last].after)


def test_a_swap_needs_capacity_for_a_moment() -> None:
    nodes = (PlanNode("a", "p", "gpu", "sku", 8, 1.0), PlanNode("b", "p", "gpu", "sku", 8, 1.0))
    problem = Problem(nodes, (_unit("s", "a", 8), _unit("t", "b", 8)), (), "cash", 0.0)
    layout = solve(problem, SolverBudget(1, 1), time.perf_counter)
    swapped = state_after(problem, layout, ())
    swapped = type(swapped)({}, {"s0": "b", "t0": "a"}, layout.kept, {}, 0.0, 0.0, 0.0, proven=False)
    steps = sequence(problem, swapped)
    assert [step.staging is not None for step in steps] == [True, False]
    assert [step.settled for step in steps] == [False, True]
    assert "temporary capacity" in str(steps[0].staging)


def test_what_is_replaced_stops_after_what_replaces_it() -> None:
    nodes = tuple(PlanNode(name, name, "gpu", "sku", 8, usd) for name, usd in (("a", 1.0), ("c", 90.0)))
    unit = PlanUnit("s0", "s", {"c": 4})
    chat = PlanSeries("s", "s", None, "c", "serving", False, (unit,), np.full(1, 4.0), np.zeros(1))
    other = PlanOption("other", "s", "move-sku", "a", 1, 4, "low", keeps_units=False)
    problem = Problem(nodes, (chat,), (other,), "cash", 0.0)
    layout = Layout({"s": other}, {"other#0": "a"}, frozenset({"a"}), {}, 0.0, 0.0, 0.0, proven=False)
    (step,) = sequence(problem, layout)
    assert step.moves == (("other#0", None, "a"), ("s0", "c", None))
