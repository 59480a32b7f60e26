"""Simulated and random fleets: verdicts are right, every dollar has its place, and no plan breaks a rule."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.plan.figures import recoverable_of
from skuwise.advisor.plan.problem import Layout, PlanRequest
from skuwise.advisor.plan.solve import solve
from skuwise.advisor.plan.steps import sequence
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.benchmarks.generators.first import simulate
from skuwise.benchmarks.generators.first.builder import Truth
from skuwise.tests.support.plan_builders import planner, random_fleet
from skuwise.tests.support.plan_checker import broken_rules, score, wrong_steps
from skuwise.tests.support.plan_fleets import small_problem
from skuwise.tests.support.rulebooks import advice_of, rulebook

UNTIL = 1_790_000_000.0 // 3600 * 3600


def test_nine_of_ten_verdicts_on_a_fleet_are_right(tmp_path: Path) -> None:
    report = simulate("small", tmp_path / "small.db", days=14, seed=105, until=UNTIL)
    verdicts = judge(read_frame([tmp_path / "small.db"]), rulebook())
    truth = {t.workload_id: t for t in report.truths}
    kinds = [w.kind.label == truth[w.id].kind for w in verdicts.workloads]
    limits = [w.bottleneck.label == truth[w.id].bottleneck for w in verdicts.workloads]
    assert min(sum(kinds), sum(limits)) >= 0.9 * len(kinds)
    sums = verdicts.occupancy.groupby("node")["gpu_hours"].sum()
    for node in verdicts.nodes:
        assert sums[node.node] == pytest.approx(node.gpu_count * node.span_hours, rel=1e-9)


def test_phases_are_those_of_the_truth(tmp_path: Path) -> None:
    report = simulate("phases", tmp_path / "phases.db", days=2, seed=3, until=UNTIL)
    judged = {w.id: w for w in judge(read_frame([tmp_path / "phases.db"]), rulebook()).workloads}
    changing = {t.workload_id: t.phases for t in report.truths if isinstance(t, Truth) and t.phases}
    assert len(changing) == 2
    for id_, phases in changing.items():
        spans = [(t, p, min(t.end, p.end) - max(t.start, p.start)) for t in phases for p in judged[id_].phases]
        right = [
            max(common, 0.0) * (p.bottleneck == t.bottleneck and (p.kind == "training") == (t.kind == "training"))
            for t, p, common in spans
        ]
        # An evaluation of half an hour does not rule its hour, and hours are all that is kept.
        assert sum(right) >= 0.85 * sum(max(common, 0.0) for *_, common in spans) > 0
        assert len(judged[id_].phases) > 1


@pytest.mark.parametrize("scenario", ["small", "mig", "batch"])
def test_every_dollar_and_kilowatt_hour_of_a_fleet_has_its_place(scenario: str, tmp_path: Path) -> None:
    simulate(scenario, tmp_path / "fleet.db", days=2.0, seed=11, until=UNTIL)
    frame = read_frame([tmp_path / "fleet.db"])
    advice = advice_of(frame, UNTIL)
    r, e = advice.summary.reconciliation, advice.summary.energy
    parts = [p or 0.0 for p in (r.workloads, r.shared, r.allocated_idle, r.unallocated, r.drained, r.unobserved)]
    assert min(parts) >= 0 and r.total and sum(parts) == pytest.approx(r.total, rel=1e-3)
    assert advice.summary.wasted_usd is not None and advice.summary.cost_usd is not None
    assert 0 <= advice.summary.wasted_usd <= advice.summary.cost_usd
    assert e is not None and e.kwh is not None and e.by_use is not None
    uses = ("workloads", "shared", "allocated_idle", "unallocated", "drained")
    assert sum(e.by_use[use] for use in uses) == pytest.approx(e.kwh, rel=1e-3)
    if scenario == "mig":
        assert all(0 < w.gpu_part < 1 and not w.shared and (w.cost_usd or 0) > 0 for w in advice.workloads)
        assert advice.summary.recoverable_usd_per_month == 0  # no cash for parts of GPUs


@pytest.mark.parametrize("first", [0, 50, 100, 150])
def test_no_plan_of_a_random_fleet_breaks_a_rule(first: int, seed_of: Callable[[int], int]) -> None:
    proven = 0
    for number in range(first, first + 50):
        seed = seed_of(number)
        problem = small_problem(seed)
        layouts: list[Layout] = []
        layout = solve(problem, 2.0, time.perf_counter, layouts.append)
        assert broken_rules(problem, layouts[0]) == [], seed
        assert broken_rules(problem, layout) == [], seed
        assert score(problem, layout) == pytest.approx(layout.value, abs=0.02 * len(problem.nodes)), seed
        assert layout.bound >= layout.value >= layouts[0].value, seed
        assert wrong_steps(problem, layout, sequence(problem, layout)) == [], seed
        proven += layout.proven
    # Small fleets are mostly solved: a bound that is loose, or an answer that is far from it, is the exception.
    assert proven >= 40


def test_a_plan_and_what_it_leaves_are_what_advise_counts(seed_of: Callable[[int], int]) -> None:
    recoverable = kept = 0.0
    for number in range(25):
        seed = seed_of(number)
        given = planner(random_fleet(seed))
        plan = given.plan(PlanRequest())
        left = {n.recommendation: n.advise_usd_per_month for n in plan.not_in_plan if n.advise_usd_per_month}
        reserve = sum(r.usd_per_month for r in plan.reserve)
        assert plan.advise_usd_per_month == given.reasoned.advice.summary.recoverable_usd_per_month
        assert plan.plan_usd_per_month is not None and plan.combined_usd_per_month is not None
        total = plan.plan_usd_per_month - plan.combined_usd_per_month + reserve + sum(left.values())
        assert total == pytest.approx(plan.advise_usd_per_month, abs=0.01), seed
        # Each dollar that advise counts has one place.
        counted = recoverable_of(given.reasoned)
        taken = {s.recommendation for s in plan.steps} & counted.keys()
        assert not taken & left.keys() and left.items() <= counted.items(), seed
        assert left.keys().isdisjoint({r.recommendation for r in plan.reserve}), seed
        recoverable, kept = recoverable + (plan.advise_usd_per_month or 0.0), kept + reserve
    assert recoverable > 0 and kept > 0
