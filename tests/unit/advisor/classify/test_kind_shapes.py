"""Every shape where it is clear, where it is not so and where nothing is known; and that evidence never turns round."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.classify.kinds.shapes import PROBE, SHAPES, Shape, levels
from skuwise.rules.policy.features import FEATURES
from skuwise.rules.policy.labels import WORKING_KINDS
from skuwise.tests.support.rulebooks import rulebook

Features = Mapping[str, float]
BY_NAME = {shape.name: shape for shape in SHAPES}
FINE: Features = {"resolution_seconds": 1.0}
DAY: Features = {"elapsed_hours": 72.0}
PAIR: Features = {"gpus": 2.0}
TWO_NODES: Features = {"nodes": 2.0, "gpus": 16.0}
PIPES: Features = {"hbm_utilization": 0.5, "tensor_utilization": 0.3}
FULL: Features = {"active_fill": 0.95, "active_engine": 0.9}
STEP: Features = {"period_strength": 0.9, "period_seconds": 8.0, "elapsed_hours": 10.0, **FINE}
# Shape -> features in which it is clear, the feature that decides, and a value of that with which it is not so.
CASES: dict[str, tuple[Features, str, float]] = {
    "periodic": ({**STEP, "period_share": 0.95}, "period_share", 0.1),
    "aperiodic": ({**STEP, "period_share": 0.0}, "period_share", 0.5),
    "fabric-busy": ({**TWO_NODES, "fabric_utilization": 0.2}, "fabric_utilization", 0.001),
    "fabric-silent": ({**TWO_NODES, "fabric_utilization": 0.0}, "fabric_utilization", 0.1),
    "larger-than-a-node": ({"gpus": 16.0, "nodes": 1.0}, "gpus", 8.0),
    "collectives": ({"nvlink_utilization": 0.3, "nvlink_symmetry": 0.99}, "nvlink_symmetry", 0.5),
    "links-against-compute": ({**FINE, "tensor_nvlink_correlation": -0.8}, "tensor_nvlink_correlation", 0.0),
    "bandwidth-bound": ({**PIPES, "memory_over_compute": 4.0}, "memory_over_compute", 0.5),
    "compute-bound": ({**PIPES, "memory_over_compute": 0.25}, "memory_over_compute", 2.0),
    "thin-seconds": ({"hbm_per_engine": 0.02, "tensor_per_engine": 0.01}, "hbm_per_engine", 0.6),
    "write-bursts": ({"write_bursts": 0.5}, "write_bursts", 0.0),
    "bus-busy": ({"pcie_utilization": 0.6}, "pcie_utilization", 0.01),
    "always-busy": ({**FINE, "duty": 0.99}, "duty", 0.5),
    "seldom-busy": ({**FINE, "duty": 0.05}, "duty", 0.6),
    "pauses": ({**FINE, "idle_run_hours": 0.5}, "idle_run_hours", 0.0),
    "never-rests": ({**DAY, "active_share": 1.0}, "active_share", 0.7),
    "light-all-day": ({**DAY, "active_share": 0.95, "active_engine": 0.1}, "active_engine", 0.8),
    "seldom-at-work": ({**DAY, "active_share": 0.1}, "active_share", 0.7),
    "full-hours": ({"active_fill": 0.98, "active_engine": 0.95}, "active_fill", 0.4),
    "bursts": ({"active_fill": 0.1}, "active_fill", 0.8),
    "graded-hours": ({**DAY, "between_share": 0.8}, "between_share", 0.1),
    "rests-at-night": ({**DAY, "rest_hours_max": 12.0, "active_share": 0.4}, "rest_hours_max", 2.0),
    "often-interrupted": ({**DAY, "rests_per_day": 6.0}, "rests_per_day", 1.0),
    "daily": ({"diurnal_share": 0.8, "diurnal_amplitude": 0.3}, "diurnal_share", 0.0),
    "steady": ({**DAY, "swing": 0.0}, "swing", 0.5),
    "same-hours": ({"day_before": 0.95}, "day_before", 0.0),
    "working-hours": ({"working_hours_share": 1.0, "active_share": 0.3}, "working_hours_share", 0.5),
    "memory-pool": ({"mem_flat": 1.0, "mem_level": 0.9}, "mem_flat", 0.0),
    "memory-still": ({"mem_hourly_cv": 0.0}, "mem_hourly_cv", 0.2),
    "memory-moves": ({"mem_hourly_cv": 0.5}, "mem_hourly_cv", 0.01),
    "memory-much": ({**FULL, "mem_max": 0.8}, "mem_max", 0.2),
    "memory-kept": ({"mem_kept_at_rest": 1.0, "active_share": 0.5}, "mem_kept_at_rest", 0.2),
    "older-than-days": ({"chain_hours": 200.0}, "chain_hours", 20.0),
    "came-and-went": ({"ended": 1.0, "chain_hours": 6.0}, "chain_hours", 50.0),
    "begins-at-one-hour": (
        {"series_start_spread_hours": 0.1, "series_run_hours": 5.0}, "series_start_spread_hours", 6.0
    ),
    "runs-recur": ({"series_runs": 6.0, "series_run_hours": 5.0}, "series_runs", 1.0),
    "several-gpus": ({"gpus": 2.0, "nodes": 1.0}, "gpus", 1.0),
    "in-lockstep": ({**PAIR, "sync": 0.9}, "sync", 0.1),
    "low-in-lockstep": ({**PAIR, "sync": 0.9, "engine_active": 0.2}, "engine_active", 0.8),
    "in-turns": ({**PAIR, "sync": -0.8}, "sync", 0.0),
    "memory-little": ({**FULL, "mem_max": 0.05}, "mem_max", 0.6),
    "short-and-full": ({**FULL, "mem_max": 0.7, "ended": 1.0, "chain_hours": 6.0}, "ended", 0.0),
    "power-at-limit": ({"engine_active": 0.95, "power_of_limit": 1.0}, "power_of_limit", 0.7),
    "busy-below-power-limit": ({"engine_active": 0.85, "power_of_limit": 0.8}, "power_of_limit", 0.4),
    "small-kernels": ({"engine_active": 0.99, "power_of_limit": 0.2}, "power_of_limit", 0.9),
    "steady-below-full": ({"active_fill": 0.9, "active_engine": 0.3}, "active_fill", 0.2),
    "even-below-full": ({"active_engine": 0.8, "active_swing": 0.01}, "active_swing", 0.4),
    "even-for-a-day": ({**DAY, "active_share": 1.0, "active_swing": 0.01, "active_engine": 0.5}, "active_swing", 0.3),
}  # fmt: skip


def test_every_shape_has_its_case_and_its_features_are_known() -> None:
    assert set(CASES) == set(BY_NAME)
    assert {name for features, decides, _ in CASES.values() for name in (*features, decides)} <= set(FEATURES)
    assert len(BY_NAME) == len(SHAPES)


@pytest.mark.parametrize("name", CASES)
def test_a_shape_grows_with_what_decides_it_from_nothing_to_clear_and_never_turns_back(name: str) -> None:
    features, decides, otherwise = CASES[name]
    steps = [otherwise + (features[decides] - otherwise) * n / 40 for n in range(41)]
    found = [BY_NAME[name].level({**features, decides: value}) for value in steps]
    assert found == sorted(found) and (found[0], found[-1]) == (0.0, pytest.approx(1.0))
    assert "{" not in BY_NAME[name].told(features).text


@pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])
def test_the_model_that_ships_keeps_what_the_shapes_declare(shape: Shape) -> None:
    model = rulebook().kind_model
    for kind in WORKING_KINDS:
        low, high = shape.bounds(kind, 3.0)
        assert low <= model.weights[shape.name][kind] <= high


@given(st.dictionaries(st.sampled_from(sorted(PROBE)), st.floats(-1e6, 1e6) | st.just(float("nan"))))
def test_no_features_make_a_level_that_is_no_share_or_a_sentence_without_its_number(features: Features) -> None:
    for name, level in levels(features).items():
        assert 0.0 <= level <= 1.0
        if level > 0:
            assert "{" not in BY_NAME[name].told(features).text
