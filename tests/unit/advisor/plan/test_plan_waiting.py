"""Waiting jobs in plans: each GPU once, each job whole, those that wait longest first."""

import time
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from skuwise.advisor.plan.problem import Layout
from skuwise.advisor.plan.solve import solve
from skuwise.advisor.plan.starts import place, starts_of
from skuwise.advisor.plan.steps import sequence
from skuwise.tests.support.plan_checker import broken_rules, wrong_starts, wrong_steps
from skuwise.tests.support.plan_fleets import small_problem, with_queue


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.booleans())
def test_no_gpu_is_promised_twice(fleet_seed: int, queue_seed: int, keeps_reserve: bool) -> None:
    problem = with_queue(small_problem(fleet_seed), queue_seed)
    problem = problem if keeps_reserve else replace(problem, reserve={})
    layouts: list[Layout] = []
    layouts.append(solve(problem, 0.3, time.perf_counter, layouts.append))
    assert layouts[1].bound >= layouts[1].value >= layouts[0].value
    for layout in layouts:
        placed = place(problem, layout)
        kept = replace(layout, kept=layout.kept | {name for p in placed for name in p.gpus})
        steps = sequence(problem, kept)
        starts = starts_of(problem, layout, steps, placed)
        assert broken_rules(problem, kept) == []
        assert wrong_steps(problem, kept, steps) == []
        assert wrong_starts(problem, layout, steps, starts) == []
