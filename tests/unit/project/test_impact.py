"""What watching costs: the statistics behind benchmarks/performance/agent/impact.py."""

import math
import random

import pytest
from skuwise.benchmarks.performance.agent.impact import MIN_ROUNDS, MODES, OFF, Mode, TimedRun, run_rounds, slowdown


def test_a_slowdown_is_taken_within_a_round_so_that_a_drift_does_not_show() -> None:
    drift = [10.0 * 1.5**number for number in range(12)]  # far more than what is to be found
    rng = random.Random(2)
    watched = [seconds * 1.03 * math.exp(rng.gauss(0, 0.002)) for seconds in drift]
    found = slowdown(watched, drift, random.Random(3))
    assert found.median == pytest.approx(0.03, abs=0.003)
    assert found.low is not None and found.high is not None
    assert 0 < found.low < found.median < found.high and found.high - found.low < 0.01


def test_too_few_rounds_give_no_interval() -> None:
    few = [1.0] * (MIN_ROUNDS - 1)
    found = slowdown([1.1] * len(few), few, random.Random(5))
    assert (found.median, found.low, found.high) == (pytest.approx(0.1), None, None)


def test_every_mode_runs_once_a_round_and_its_own_cost_is_a_median() -> None:
    def run(mode: Mode) -> TimedRun:
        order.append(mode.name)
        return TimedRun(10.0) if mode is OFF else TimedRun(10.5, 0.004, 30_000_000)

    order: list[str] = []
    results, seconds = run_rounds(run, MODES, 6, random.Random(7))
    assert [(r.mode, r.slowdown.median, r.cpu_share) for r in results] == [
        (mode.name, pytest.approx(0.05), 0.004) for mode in MODES[1:]
    ]
    assert (
        all(set(order[n : n + 3]) == {mode.name for mode in MODES} for n in range(0, 18, 3))
        and seconds["off"] == [10.0] * 6
    )
