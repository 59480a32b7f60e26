"""The model of kinds: read strictly, made reproducibly, and of what it declares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.classify.kinds.shapes import PROBE, SHAPES, fingerprint, levels
from skuwise.benchmarks.fit import train_kinds as trainer
from skuwise.benchmarks.fit.real_series import Row, read_rows
from skuwise.rules.base.errors import RulesError
from skuwise.rules.base.yaml_loader import packaged_rules
from skuwise.rules.models.kind_model import FILE, load_kind_model
from skuwise.rules.policy.labels import WORKING_KINDS
from skuwise.tests.support.rulebooks import rulebook

NAMES = [shape.name for shape in SHAPES]


def test_the_model_that_ships_is_for_these_shapes_and_comes_of_what_is_declared() -> None:
    model = rulebook().kind_model
    assert model.labels == WORKING_KINDS
    assert set(model.weights) == set(NAMES)
    assert model.inputs == trainer.inputs(read_rows())
    assert "scikit-learn" in model.trained["libraries"]


def _altered(old: str, new: str, tmp_path: Path) -> Path:
    text = packaged_rules().joinpath(FILE).read_text()
    assert old in text
    path = tmp_path / FILE
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("  several-gpus: ", "  several-gpu: ", "unknown shape 'several-gpu'"),
        ("schema: skuwise.kind-model/2", "schema: skuwise.kind-model/3", "the schema is not"),
        ('fingerprint: "', 'fingerprint: "0', "made for other shapes"),
        ("intercepts:\n", "intercepts:\n  sleeping: 1\n", "unknown key 'sleeping'"),
        ("{slope: ", "{slope: 0, slopes: ", "must be at least"),
        ("schema:", "schema: !!python/object/apply:os.system ['true'] #", "tags"),
        ("trained:\n", "extra: 1\ntrained:\n", "unknown key 'extra'"),
        ("  periodic: {training: ", "  periodic: {training: .nan, more: ", FILE),
        ("  periodic: {training: ", "  periodic: {training: 21, more: ", FILE),
    ],
)
def test_what_the_code_does_not_know_is_refused(old: str, new: str, part: str, tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=part):
        load_kind_model(WORKING_KINDS, NAMES, fingerprint(SHAPES), _altered(old, new, tmp_path))


def _made_up(count: int = 160) -> list[Row]:
    """Series of two kinds that differ in rhythm and memory, of sixteen owners."""
    rng = np.random.default_rng(5)
    out: list[Row] = []
    for n in range(count):
        trains = n % 2 == 0
        features = {
            **PROBE, "idle_share": 0.0, "nodes": 1.0, "ended": 0.0, "period_strength": 0.8,
            "period_share": rng.uniform(0.6, 1.0) if trains else rng.uniform(0.0, 0.2),
            "mem_flat": float(rng.random() < (0.1 if trains else 0.9)),
            "swing": float(rng.uniform(0, 0.1) if trains else rng.uniform(0.05, 0.5)),
        }  # fmt: skip
        kind = "training" if trains ^ (n % 9 == 0) else "online-inference"  # some labels are wrong
        out.append(Row(f"{n}.csv", "whole", "made", f"owner {n % 16}", "made up", "", kind, (kind,), features))
    return out


def test_a_file_just_made_can_be_read_and_is_calibrated(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("\n".join(trainer.document(trainer.fit_rows(_made_up(), {"series": "made up"}))))
    model = load_kind_model(WORKING_KINDS, NAMES, fingerprint(SHAPES), path)
    assert model.weights["periodic"]["training"] > 0.5 > model.weights["periodic"]["online-inference"]
    assert model.calibrated(0.9) > model.calibrated(0.5) > model.calibrated(0.1)
    assert model.calibrated(1.0) <= 1.0


def test_what_is_missing_speaks_for_nothing() -> None:
    assert set(levels({"gpus": 1.0}).values()) == {0.0}
    assert levels({"gpus": 2.0}) == levels({"gpus": 2.0, "power_watts": 900.0, "clock_ratio": 1.0})


def test_second_fine_shapes_are_silent_where_samples_are_coarse() -> None:
    fine = levels({**PROBE, "period_share": 1.0, "sm_active_cv": 0.6})
    coarse = levels({**PROBE, "period_share": 1.0, "sm_active_cv": 0.6, "resolution_seconds": 60.0})
    second_fine = ("periodic", "pauses", "links-against-compute")
    assert all(fine[name] > 0 for name in second_fine)
    assert all(coarse[name] == 0 for name in second_fine)


@pytest.mark.parametrize("shape", SHAPES, ids=NAMES)
def test_every_shape_can_be_said_in_words_and_where_its_number_is_missing_without_it_or_not_at_all(shape) -> None:
    sentence = shape.told(PROBE).text
    assert sentence.endswith(".") and "{" not in sentence and "nan" not in sentence
    for missing in PROBE:
        rest = {name: value for name, value in PROBE.items() if name != missing}
        assert shape.level(rest) == 0.0 or "{" not in shape.told(rest).text
