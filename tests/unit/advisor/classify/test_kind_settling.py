"""What an abstention names: the series, label or metric that is missing, and how much it would say."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from skuwise.advisor.classify.kinds.clues import Clue
from skuwise.advisor.classify.kinds.kinds import judge_kind, settled_by
from skuwise.advisor.classify.kinds.shapes import SHAPES, fingerprint
from skuwise.advisor.core.coded_text import CodedText
from skuwise.rules.models.kind_model import KindModel
from skuwise.rules.policy.labels import WORKING_KINDS
from skuwise.rules.policy.thresholds import load_kind_thresholds

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
    assert codes(found) == [code]
    assert series in found[0].text
    assert found[0].fields["odds"] == pytest.approx(math.exp(2.0))
    assert "between training and batch-inference (by up to 7 to 1)" in found[0].text


def test_what_cannot_exist_is_not_asked_for() -> None:
    telling = model(collectives=2.0, fabric_busy=2.0, working_hours=2.0, rests_at_night=2.0)
    assert settling({**WHOLE, "elapsed_hours": 48.0, "ended": 1.0}, telling) == []  # it ended: no further day comes
    assert settling({**WHOLE, "elapsed_hours": 3.0, "ended": 1.0}, telling) == []
    assert settling({**WHOLE, "gpus": 1.0, "nodes": 1.0}, telling) == []


def test_whoever_runs_it_is_asked_for_where_no_name_says_anything() -> None:
    (owner,) = settling(WHOLE, model(), named=False)
    assert owner.code == "settled-by-owner"
    assert "kube-state-metrics" in owner.text
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
    assert sure.label == "training"
    assert not [one for one in sure.evidence if one.code.startswith("settled-by")]
