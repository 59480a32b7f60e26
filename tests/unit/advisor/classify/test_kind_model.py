"""The model of kinds and its shapes: read strictly, made reproducibly, clear where so; what an abstention names."""

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.classify.kinds.clues import Clue
from skuwise.advisor.classify.kinds.kinds import judge_kind, settled_by
from skuwise.advisor.classify.kinds.shapes import PROBE, SHAPES, Shape, fingerprint, levels
from skuwise.advisor.core.coded_text import CodedText
from skuwise.benchmarks.fit import train_kinds as trainer
from skuwise.benchmarks.fit.real_series import read_rows
from skuwise.rules.base.errors import RulesError
from skuwise.rules.base.yaml_loader import packaged_rules
from skuwise.rules.models.kind_model import FILE, Calibration, KindModel, load_kind_model
from skuwise.rules.policy.features import load_features
from skuwise.rules.policy.labels import WORKING_KINDS
from skuwise.rules.policy.thresholds import load_thresholds
from skuwise.tests.support.rulebooks import rulebook

NAMES = [shape.name for shape in SHAPES]


def test_the_model_that_ships_is_for_these_shapes_and_comes_of_what_is_declared() -> None:
    model = rulebook().kind_model
    assert model.labels == WORKING_KINDS and set(model.weights) == set(NAMES)
    assert model.inputs == trainer.inputs(read_rows()) and "scikit-learn" in model.trained["libraries"]


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("  several-gpus: ", "  several-gpu: ", "weights: .* 'several-gpu', 'several-gpus'"),
        ("schema: skuwise.kind-model/2", "schema: skuwise.kind-model/3", "schema: unknown value"),
        ('fingerprint: "', 'fingerprint: "0', "made for other shapes"),
        ("intercepts:\n", "intercepts:\n  sleeping: 1\n", "intercepts: .* 'sleeping'"),
        ("schema:", "schema: !!python/object/apply:os.system ['true'] #", "tags"),
        ("  periodic: {training: ", "  periodic: {training: 21, more: ", FILE),
    ],
)
def test_what_the_code_does_not_know_is_refused(old: str, new: str, part: str, tmp_path: Path) -> None:
    text = packaged_rules().joinpath(FILE).read_text()
    assert old in text
    (tmp_path / FILE).write_text(text.replace(old, new, 1))
    with pytest.raises(RulesError, match=part):
        load_kind_model(WORKING_KINDS, NAMES, fingerprint(SHAPES), tmp_path / FILE)


def test_what_is_missing_speaks_for_nothing() -> None:
    assert set(levels({"gpus": 1.0}).values()) == {0.0}
    assert levels({"gpus": 2.0}) == levels({"gpus": 2.0, "power_watts": 900.0, "clock_ratio": 1.0})


def test_second_fine_shapes_are_silent_where_samples_are_coarse() -> None:
    fine = levels({**PROBE, "period_share": 1.0, "sm_active_cv": 0.6})
    coarse = levels({**PROBE, "period_share": 1.0, "sm_active_cv": 0.6, "resolution_seconds": 60.0})
    second_fine = ("periodic", "pauses", "links-against-compute")
    assert all(fine[name] > 0 for name in second_fine) and all(coarse[name] == 0 for name in second_fine)


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
    assert {name for features, decides, _ in CASES.values() for name in (*features, decides)} <= set(load_features())
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


NAMED = (Clue({"training": 3.0}, CodedText("owner-kind", "Its owner trains.", {})),)
# Of one GPU for a week, all known of it.
WHOLE: Mapping[str, float] = {
    "resolution_seconds": 1.0, "elapsed_hours": 168.0, "hours": 168.0, "gpus": 1.0, "nodes": 1.0, "mem_level": 0.5,
    "mem_hourly_cv": 0.02, "tensor_utilization": 0.2, "hbm_utilization": 0.2,
}  # fmt: skip


def model(**weights: float) -> KindModel:
    """A model in which the named shapes (underscores for dashes) say so much for training, and all others nothing."""
    said = {name.replace("_", "-"): value for name, value in weights.items()}
    table = {
        shape.name: {label: said.get(shape.name, 0.0) if label == "training" else 0.0 for label in WORKING_KINDS}
        for shape in SHAPES
    }
    return KindModel(dict.fromkeys(WORKING_KINDS, 0.0), table, Calibration(1.0, 0.0), fingerprint(SHAPES), "x", {})


def settling(features: Mapping[str, float], told: KindModel, *, named: bool = True) -> list[CodedText]:
    return list(settled_by("training", "batch-inference", features, NAMED if named else (), told))


def codes(found: list[CodedText]) -> list[str]:
    return [one.code for one in found]


def without(*names: str) -> dict[str, float]:
    return {name: value for name, value in WHOLE.items() if name not in names}


@pytest.mark.parametrize(
    ("features", "weights", "code", "series"),
    [
        ({**WHOLE, "resolution_seconds": 60.0}, {"periodic": 2.0}, "settled-by-seconds", "one second apart"),
        (without("tensor_utilization"), {"compute_bound": 2.0}, "settled-by-pipes", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        (without("hbm_utilization"), {"thin_seconds": 2.0}, "settled-by-pipes", "DCGM_FI_PROF_DRAM_ACTIVE"),
        ({**WHOLE, "gpus": 4.0}, {"collectives": 2.0}, "settled-by-nvlink", "DCGM_FI_PROF_NVLINK_TX_BYTES"),
        ({**WHOLE, "nodes": 2.0}, {"fabric_busy": 2.0}, "settled-by-fabric", "node_infiniband_port_data"),
        (
            {**without("mem_level", "mem_hourly_cv"), "resolution_seconds": 60.0}, {"memory_moves": 2.0},
            "settled-by-memory", "DCGM_FI_DEV_FB_USED",
        ),
        ({**WHOLE, "elapsed_hours": 6.0}, {"rests_at_night": 2.0}, "settled-by-a-day", "one full day"),
        ({**WHOLE, "elapsed_hours": 48.0}, {"working_hours": 2.0}, "settled-by-days", "three days of data"),
    ],
)  # fmt: skip
def test_what_is_missing_and_would_tell_is_named_with_its_odds(
    features: Mapping[str, float], weights: Mapping[str, float], code: str, series: str
) -> None:
    found = settling(features, model(**weights))
    assert codes(found) == [code] and series in found[0].text
    assert found[0].fields["odds"] == pytest.approx(math.exp(2.0))
    assert "between training and batch-inference (by up to 7 to 1)" in found[0].text


def test_what_cannot_exist_is_not_asked_for() -> None:
    telling = model(collectives=2.0, fabric_busy=2.0, working_hours=2.0, rests_at_night=2.0)
    assert settling({**WHOLE, "elapsed_hours": 48.0, "ended": 1.0}, telling) == []  # it ended: no further day comes
    assert settling({**WHOLE, "elapsed_hours": 3.0, "ended": 1.0}, telling) == []
    assert settling({**WHOLE, "gpus": 1.0, "nodes": 1.0}, telling) == []


def test_whoever_runs_it_is_asked_for_where_no_name_says_anything() -> None:
    (owner,) = settling(WHOLE, model(), named=False)
    assert owner.code == "settled-by-owner" and "kube-state-metrics" in owner.text
    assert owner.fields["odds"] == pytest.approx(math.exp(2.0))
    silent = (Clue({}, CodedText("command-unknown", "Its command says nothing.", {})),)
    assert codes(list(settled_by("training", "interactive", WHOLE, silent, model()))) == ["settled-by-owner"]


def test_the_two_most_telling_are_named_the_most_telling_first() -> None:
    features = {**without("tensor_utilization"), "elapsed_hours": 48.0, "resolution_seconds": 60.0}
    found = settling(features, model(periodic=1.0, compute_bound=3.0, working_hours=2.5), named=False)
    assert codes(found) == ["settled-by-pipes", "settled-by-days"]
    odds = [float(str(one.fields["odds"])) for one in found]
    assert odds == sorted(odds, reverse=True)


def test_an_abstention_says_what_would_settle_it_and_a_verdict_does_not() -> None:
    features = {**without("tensor_utilization", "hbm_utilization"), "engine_active": 0.5, "resolution_seconds": 60.0}
    unsure = judge_kind((), features, load_thresholds("kinds.yaml"), model(periodic=2.0, compute_bound=1.5))
    assert unsure.label == "unknown"
    assert [one.code for one in unsure.evidence if one.code.startswith("settled-by")] == [
        "settled-by-owner", "settled-by-seconds",
    ]  # fmt: skip
    strong = (Clue({"training": 6.0}, CodedText("owner-kind", "Its owner trains.", {})),)
    sure = judge_kind(strong, features, load_thresholds("kinds.yaml"), model(periodic=2.0))
    assert sure.label == "training" and not [one for one in sure.evidence if one.code.startswith("settled-by")]
