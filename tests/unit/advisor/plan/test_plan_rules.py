"""Single rules of a plan, each with a fleet small enough to see what the answer must be."""

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.plan.build import as_today, reserve_of
from skuwise.advisor.plan.problem import (
    Layout,
    PlanNode,
    PlanOption,
    PlanRequest,
    PlanSeries,
    PlanUnit,
    Problem,
)
from skuwise.advisor.plan.result import Move
from skuwise.advisor.plan.solve import solve
from skuwise.advisor.plan.steps import sequence
from skuwise.tests.support.plan_checker import broken_rules, wrong_steps
from skuwise.tests.support.plan_fleets import small_problem

NOW = 1_790_000_000.0


def node(name: str, **more: Any) -> PlanNode:
    return PlanNode(name, more.pop("pool", "p"), "gpu", "sku", more.pop("gpus", 8), more.pop("usd", 10.0), **more)


def service(name: str, places: Mapping[str, int] | list[tuple[str, int]], peak: float = 0.0, **more: Any) -> PlanSeries:
    """Replicas by (node, GPUs). `more`: of the series `apart`, `tenant`, `pool`; the rest of each unit."""
    pairs = list(places.items()) if isinstance(places, Mapping) else places
    about = {key: more.pop(key) for key in ("apart", "tenant", "pool") if key in more}
    units = tuple(PlanUnit(f"{name}{i}", name, {at: gpus}, **more) for i, (at, gpus) in enumerate(pairs))
    hours = np.array([0.0, peak])
    return PlanSeries(
        name, name, "team", about.pop("pool", "p"), "online-inference", False, units, hours, np.zeros(2), **about
    )  # fmt: skip


def fleet(nodes: list[PlanNode], series: list[PlanSeries], *options: PlanOption, **more: Any) -> Problem:
    return Problem(tuple(nodes), tuple(series), options, more.pop("goal", "cash"), NOW, **more)


def planned(problem: Problem) -> Layout:
    layout = solve(problem, 5.0, time.perf_counter)
    assert broken_rules(problem, layout) == []
    return layout


def test_a_node_bound_for_good_is_not_cash_but_it_is_a_node() -> None:
    nodes = [node("a", bound_until=math.inf), node("b", bound_until=math.inf)]
    series = [service("s", {"a": 3}), service("t", {"b": 4})]
    assert planned(fleet(nodes, series)).value == 0
    assert planned(fleet(nodes, series, goal="nodes")).value == 0.98


def test_demand_at_its_peak_keeps_a_node() -> None:
    series = [service("s", {"a": 3}, peak=6), service("t", {"b": 4}, peak=4)]
    assert planned(fleet([node("a"), node("b")], series)).kept == {"a", "b"}
    # Where the peaks are not at the same hour they share a node.
    apart = replace(series[0], demand=np.array([6.0, 0.0])), replace(series[1], demand=np.array([0.0, 5.0]))
    assert planned(fleet([node("a"), node("b")], [*apart])).kept == {"a", "b"}
    lower = replace(apart[0], demand=np.array([4.0, 0.0])), apart[1]
    assert len(planned(fleet([node("a"), node("b")], [*lower])).kept) == 1


def test_the_reserve_is_where_the_largest_unit_could_start_again() -> None:
    nodes = [node(name) for name in "abc"]
    series = [service("s", {"a": 4}), service("t", {"b": 3}), service("u", {"c": 1})]
    # 8 GPUs on one node hold all; with 4 in reserve 4 have to be free on one node.
    assert len(planned(fleet(nodes, series)).kept) == 1
    assert len(planned(fleet(nodes, series, reserve={"p": 4})).kept) == 2
    full = [service("s", {"a": 8}), service("t", {"b": 5}), service("u", {"c": 3})]
    # Nowhere are 8 free today, so 5 are enough: the reserve of 1 alone would leave two nodes... which are full.
    layout = planned(fleet(nodes, full, reserve={"p": 1}))
    assert layout.kept == {"a", "b", "c"}


def test_what_does_not_move_keeps_its_node_and_may_end() -> None:
    fixed = CodedText("fixed", "it may not move")
    series = [service("s", {"a": 2}, fixed=fixed), service("t", {"b": 2}, fixed=fixed)]
    assert planned(fleet([node("a"), node("b")], series)).kept == {"a", "b"}
    release = PlanOption("r", "t", "release", None, 0, 0, "low", keeps_units=False)
    assert planned(fleet([node("a"), node("b")], series, release)).kept == {"a"}


def job(name: str, gpus: float, nodes: float, **more: Any) -> PlanSeries:
    return PlanSeries(
        name, name, "team", more.pop("pool", "p"), "training", True, (), np.array([0.0, gpus]), np.array([0.0, nodes])
    )  # fmt: skip


@pytest.mark.parametrize(("free", "moves"), [((4, 4), False), ((8, 0), True)])
def test_jobs_that_go_elsewhere_get_whole_nodes_there(free: tuple[int, int], moves: bool) -> None:
    """Eight GPUs that are free in parts on two nodes start no run that takes eight of one."""
    fixed = CodedText("fixed", "it may not move")
    nodes = [node("a", usd=40.0), node("x", pool="q"), node("y", pool="q")]
    there = [service(f"s{at}", {at: 8 - left}, pool="q", fixed=fixed)
             for at, left in zip("xy", free, strict=True) if left < 8]  # fmt: skip
    move = PlanOption("r", "j", "move-sku", "q", 1, 8, "low", node_gpus=8)
    layout = planned(fleet(nodes, [job("j", 8.0, 1.0), *there], move))
    assert set(layout.chosen) == ({"j"} if moves else set())
    # Its runs are the scheduler's affair: no replica of it has a node.
    assert layout.places.keys() == {f"s{at}0" for at, left in zip("xy", free, strict=True) if left < 8}
    torn = replace(move, node_gpus=0)
    assert set(planned(fleet(nodes, [job("j", 8.0, 1.0), *there], torn)).chosen) == {"j"}


def test_a_pool_that_all_work_leaves_keeps_no_reserve() -> None:
    nodes = [node("a"), node("b"), node("x", pool="q", usd=1.0)]
    move = PlanOption("r", "s", "move-sku", "q", 1, 8, "low", keeps_units=False)
    problem = fleet(nodes, [service("s", {"a": 8})], move, reserve={"p": 8})
    assert planned(problem).kept == {"x"}
    # Other work that stays there keeps it.
    fixed = service("t", {"b": 1}, fixed=CodedText("fixed", "it may not move"))
    assert planned(fleet(nodes, [service("s", {"a": 8}), fixed], move, reserve={"p": 7})).kept == {"b", "x"}


def test_work_that_has_no_room_today_is_cut_down() -> None:
    """Of 16 GPUs services hold 12 and jobs had up to 5; a service needed 10 once and holds 8."""
    series = [service("s", {"a": 8}, peak=10.0), service("t", {"b": 4}), job("j", 5.0, 0.0)]
    cut, crowded = as_today(fleet([node("a"), node("b")], series))
    assert crowded == {"p": 3}
    assert (cut.by_series["j"].demand.max(), cut.by_series["s"].demand.max()) == (2.0, 9.0)
    wanted, kept = reserve_of(replace(cut, series=cut.series[:2]), PlanRequest(reserve_nodes=1))
    assert (wanted, kept) == ({"p": 8}, {"p": 3})


@pytest.mark.parametrize(("cores", "kept"), [(64.0, {"b"}), (1.0, {"n"})])
def test_no_node_is_rented_while_one_alike_that_would_do_is_given_up(cores: float, kept: set[str]) -> None:
    """Of two that would do, that with jobs is kept."""
    nodes = [
        node("a", cpu_cores=cores), node("b", drains=True, cpu_cores=cores), node("n", rented=True),
        node("x", pool="q", usd=20.0),
    ]  # fmt: skip
    move = PlanOption("r", "s", "move-sku", "p", 1, 8, "low", keeps_units=False, cpu_cores_each=4.0)
    layout = planned(fleet(nodes, [service("s", {"x": 8}, pool="q")], move))
    assert (layout.kept, layout.places) == (kept, dict.fromkeys(["r#0"], *kept))


def test_without_the_solver_the_greedy_plan_is_told_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    nodes = [node("a"), node("b"), node("x", pool="q", usd=1.0, rented=True)]
    move = PlanOption("r", "s", "move-sku", "q", 1, 8, "low", keeps_units=False)
    layout = planned(fleet(nodes, [service("s", {"a": 8})], move))
    assert (layout.kept, math.isinf(layout.bound), layout.proven) == ({"x"}, True, False)


@pytest.mark.parametrize("number", [0, 2])
def test_the_same_fleet_has_the_same_plan_again(number: int) -> None:
    problem = small_problem(number)
    first, *others = [solve(problem, None, time.perf_counter) for _ in range(2)]
    for other in others:
        assert (other.chosen, other.places, other.kept) == (first.chosen, first.places, first.kept)


def test_what_needs_room_comes_after_what_makes_it() -> None:
    nodes = tuple(node(name, usd=usd) for name, usd in (("a", 1.0), ("b", 1.0), ("c", 90.0)))
    series = (service("s", {"a": 6}), service("t", {"b": 2}), service("u", {"c": 6}), service("v", {"b": 2}))
    problem = fleet([*nodes], [*series])
    layout = solve(problem, 5.0, time.perf_counter)
    assert "c" not in layout.kept
    steps = sequence(problem, layout)
    assert wrong_steps(problem, layout, steps) == []
    last = max(i for i, step in enumerate(steps) if step.series == "u")
    assert steps[last].frees == ("c",) and steps[last].after
    assert all(steps[number - 1].series in ("t", "v") for number in steps[last].after)


def test_a_swap_needs_capacity_for_a_moment() -> None:
    problem = fleet([node("a"), node("b")], [service("s", {"a": 8}), service("t", {"b": 8})])
    swapped = Layout({}, {"s0": "b", "t0": "a"}, frozenset({"a", "b"}))
    steps = sequence(problem, swapped)
    assert [step.staging is not None for step in steps] == [True, False]
    assert wrong_steps(problem, swapped, steps) == []


def test_what_is_replaced_stops_after_what_replaces_it() -> None:
    nodes = tuple(PlanNode(name, name, "gpu", "sku", 8, usd) for name, usd in (("a", 1.0), ("c", 90.0)))
    unit = PlanUnit("s0", "s", {"c": 4})
    chat = PlanSeries("s", "s", None, "c", "serving", False, (unit,), np.full(1, 4.0), np.zeros(1))
    other = PlanOption("other", "s", "move-sku", "a", 1, 4, "low", keeps_units=False)
    problem = Problem(nodes, (chat,), (other,), "cash", 0.0)
    layout = Layout({"s": other}, {"other#0": "a"}, frozenset({"a"}))
    (step,) = sequence(problem, layout)
    assert step.moves == (Move("other#0", None, "a", 4), Move("s0", "c", None, 4))
