"""What watching costs: statistics, the order of runs, and what is said of them."""

from __future__ import annotations

import json
import math
import random

import pytest
from skuwise.agent.impact.agent_process import MODES, OFF, AgentCost, Mode
from skuwise.agent.impact.measure import TimedRun, run_rounds
from skuwise.agent.impact.report import NO_GPU, impact_json, impact_table
from skuwise.agent.impact.statistics import MIN_ROUNDS, orders, slowdowns

MODE_NAMES = [mode.name for mode in MODES]


def test_every_mode_runs_once_a_round_and_the_order_changes() -> None:
    rounds = orders(MODE_NAMES, 50, random.Random(1))
    assert all(sorted(order) == sorted(MODE_NAMES) for order in rounds)
    assert {order[0] for order in rounds} == set(MODE_NAMES)


def test_a_slowdown_is_taken_within_a_round_so_that_a_drift_does_not_show() -> None:
    drift = [10.0 * 1.5**number for number in range(12)]  # far more than what is to be found
    rng = random.Random(2)
    watched = [seconds * 1.03 * math.exp(rng.gauss(0, 0.002)) for seconds in drift]
    found = slowdowns({"off": drift, "1 Hz": watched}, "off", random.Random(3))["1 Hz"]
    assert found.median == pytest.approx(0.03, abs=0.003)
    assert found.low is not None and found.high is not None
    assert found.low < found.median < found.high and found.high - found.low < 0.01
    assert found.is_distinguishable is True and found.rounds == 12


def test_noise_alone_is_not_told_from_none_in_19_of_20_measurements() -> None:
    rng = random.Random(4)
    told = 0
    for _ in range(100):
        off, on = ([math.exp(rng.gauss(0, 0.02)) for _ in range(10)] for _ in range(2))
        told += slowdowns({"off": off, "on": on}, "off", rng, draws=200)["on"].is_distinguishable is True
    assert told <= 10  # 5 are expected; a bootstrap of ten rounds is a little narrow


def test_too_few_rounds_give_no_interval() -> None:
    few = [1.0] * (MIN_ROUNDS - 1)
    found = slowdowns({"off": few, "on": [1.1] * len(few)}, "off", random.Random(5))["on"]
    assert found.median == pytest.approx(0.1)
    assert (found.low, found.high, found.is_distinguishable) == (None, None, None)
    enough = [1.0] * MIN_ROUNDS
    assert slowdowns({"off": enough, "on": enough}, "off", random.Random(5))["on"].is_distinguishable is False


@pytest.mark.parametrize("seconds", [[0.0], [1.0, 1.0]])
def test_what_is_no_pair_of_times_is_refused(seconds: list[float]) -> None:
    with pytest.raises(ValueError):
        slowdowns({"off": [1.0], "on": seconds}, "off", random.Random(6))


def run_that_costs(mode: Mode) -> TimedRun:
    if mode is OFF:
        return TimedRun(10.0)
    return TimedRun(10.5, AgentCost(0.004, 30_000_000), gpus=0)


def test_the_report_names_the_work_the_cost_and_that_no_gpu_was_there() -> None:
    said: list[str] = []
    impact = run_rounds("train.py", run_that_costs, MODES, 6, rng=random.Random(7), say=said.append)
    assert said[0] == "round 1 of 6: off 10.000 s, 1 Hz 10.500 s, burst 10.500 s"
    assert [result.mode.name for result in impact.modes] == ["1 Hz", "burst"]
    table = impact_table(impact, ("A note.",))
    assert "+5.00%" in table and "0.40% of a core" in table and "30 MB" in table and "yes" in table
    assert "train.py; 10.000 s alone (median of 6)" in table and NO_GPU in table and table.endswith("A note.")
    told = json.loads(json.dumps(impact_json(impact), allow_nan=False))
    assert told["modes"][0]["slowdown"] == {
        "median": pytest.approx(0.05),
        "low": pytest.approx(0.05),
        "high": pytest.approx(0.05),
        "rounds": 6,
    }
    assert told["modes"][1]["distinguishable"] is True
    assert told["seconds"]["off"] == [10.0] * 6 and told["gpus"] == 0
    with_gpus = run_rounds("x", lambda _: TimedRun(1.0, AgentCost(0.0, 1), gpus=8), MODES, 1, rng=random.Random(8))
    assert NO_GPU not in impact_table(with_gpus) and "needs 6 rounds" in impact_table(with_gpus)
