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
from skuwise.rules.models.kind_model import FILE, KindModel, load_kind_model
from skuwise.rules.policy.labels import WORKING_KINDS
from skuwise.rules.policy.thresholds import load_kind_thresholds
from skuwise.tests.support.rulebooks import rulebook

NAMES = [shape.name for shape in SHAPES]


def test_the_model_that_ships_is_for_these_shapes_and_comes_of_what_is_declared() -> None:
    model = rulebook().kind_model
    assert model.labels == WORKING_KINDS and set(model.weights) == set(NAMES)
    assert model.inputs == trainer.inputs(read_rows()) and "scikit-learn" in model.trained["libraries"]


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("  several-gpus: ", "  several-gpu: ", "unknown shape 'several-gpu'"),
        ("schema: skuwise.kind-model/2", "schema: skuwise.kind-model/3", "the schema is not"),
        ('fingerprint: "', 'fingerprint: "0', "made for other shapes"),
        ("intercepts:\n", "intercepts:\n  sleeping: 1\n", "unknown key 'sleeping'"),
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
    return KindModel(WORKING_KINDS, dict.fromkeys(WORKING_KINDS, 0.0), table, 1.0, 0.0, fingerprint(SHAPES), "x", {})


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
    unsure = judge_kind((), features, load_kind_thresholds(), model(periodic=2.0, compute_bound=1.5))
    assert unsure.label == "unknown"
    assert [one.code for one in unsure.evidence if one.code.startswith("settled-by")] == [
        "settled-by-owner", "settled-by-seconds",
    ]  # fmt: skip
    strong = (Clue({"training": 6.0}, CodedText("owner-kind", "Its owner trains.", {})),)
    sure = judge_kind(strong, features, load_kind_thresholds(), model(periodic=2.0))
    assert sure.label == "training" and not [one for one in sure.evidence if one.code.startswith("settled-by")]
