"""A site's correction: fitted from few labels, tried on those left out, refused where it does not improve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.labelled.correction_fit import LEAST, SHAPES_FROM, Example, fit_correction, usable
from skuwise.advisor.labelled.judged import Judged
from skuwise.advisor.labelled.labels import Label
from skuwise.advisor.verdicts.kinds.kind_signals import PROBE, SHAPES, levels
from skuwise.advisor.verdicts.kinds.kinds import WORKING
from skuwise.rules.base.errors import NothingToDo
from skuwise.rules.models.kind_correction import corrected, correction_document
from skuwise.rules.models.kind_model import KindModel
from skuwise.tests.support.moves_builders import workload
from skuwise.tests.support.rulebooks import rulebook


def flat_model() -> KindModel:
    """A model that holds every work for fine-tuning, whatever its shape, at a temperature of 2."""
    weights = {shape.name: dict.fromkeys(WORKING, 0.0) for shape in SHAPES}
    intercepts = {label: 2.0 if label == "fine-tuning" else 0.0 for label in WORKING}
    return replace(rulebook().kind_model, intercepts=intercepts, weights=weights, temperature=2.0)


def examples(count: int, kinds: tuple[str, ...] = ("training", "online-inference"), seed: int = 3) -> list[Example]:
    """Work of kinds that differ in how much of the time they are busy."""
    rng = np.random.default_rng(seed)
    out = []
    for n in range(count):
        kind = kinds[n % len(kinds)]
        busy = rng.uniform(0.9, 1.0) if kind == "training" else rng.uniform(0.05, 0.2)
        features = {**PROBE, "duty": busy, "engine_active": busy, "idle_share": 0.0}
        out.append(Example(kind, f"w{n}", f"workload {n}", features))
    return out


def said(model: KindModel, example: Example) -> str:
    shown = levels(example.features)
    scores = {
        label: model.intercept(label) + sum(level * model.weight(name, label) for name, level in shown.items())
        for label in WORKING
    }
    return max(scores, key=scores.__getitem__)


def test_a_correction_makes_what_was_wrong_right_and_shifts_little() -> None:
    model, found = flat_model(), examples(60)
    correction = fit_correction(found, model).correction
    assert (correction.cross_validated.right_before, correction.cross_validated.right_after) == (0.0, 1.0)
    assert correction.cross_validated.loss_after < correction.cross_validated.loss_before
    assert 0 < len(correction.shapes) <= 6
    assert correction.fits(model)
    better = corrected(model, correction)
    assert [said(better, one) for one in found] == [one.kind for one in found]
    shifts = [abs(v) for by in (correction.intercepts, *correction.shapes.values()) for v in by.values()]
    assert max(shifts) < 3


def test_few_labels_shift_kinds_alone() -> None:
    few = fit_correction(examples(SHAPES_FROM - 1), flat_model()).correction
    assert few.shapes == {}
    assert few.intercepts["fine-tuning"] < 0 < few.intercepts["training"]
    assert fit_correction(examples(SHAPES_FROM), flat_model()).correction.shapes != {}


def test_the_same_labels_give_the_same_correction_in_any_order() -> None:
    found = examples(30)
    made = [fit_correction(some, flat_model()).correction for some in (found, found[::-1])]
    assert correction_document(made[0]) == correction_document(made[1])


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (examples(LEAST - 1), "9 are usable"),
        ([], "0 are usable"),
        (examples(30, ("training",)), "have the same kind, training"),
        ([replace(one, group="one") for one in examples(30)], "belong to 1 workload:"),
    ],
)
def test_too_few_labels_are_refused(found: list[Example], words: str) -> None:
    with pytest.raises(NothingToDo, match=words):
        fit_correction(found, flat_model())


def test_what_does_not_help_on_labels_left_out_is_refused() -> None:
    found = examples(40)
    good = corrected(flat_model(), fit_correction(found, flat_model()).correction)
    sure = replace(good, temperature=good.temperature / 20)  # right, and as sure as can be
    kinds = np.random.default_rng(1).permutation([one.kind for one in found])
    with pytest.raises(NothingToDo, match="does not improve accuracy on held-out labels"):
        fit_correction(found, sure)
    with pytest.raises(NothingToDo, match="does not improve"):
        # Labels at random: nothing of one tells of another, beside how often a kind is labelled at all.
        evenly = replace(flat_model(), intercepts={k: 3.0 if k in kinds else -3.0 for k in WORKING})
        fit_correction([replace(one, kind=str(kind)) for one, kind in zip(found, kinds, strict=True)], evenly)


def test_a_label_that_lies_is_named_and_moves_little() -> None:
    found = examples(60)
    liar = replace(found[0], kind="online-inference", about="job named vllm")
    fitted = fit_correction([liar, *found[1:]], flat_model())
    assert [(one.about, one.labelled, one.said) for one in fitted.doubts] == [
        ("job named vllm", "online-inference", "training")
    ]
    better = corrected(flat_model(), fitted.correction)
    assert [said(better, one) for one in found] == [one.kind for one in found]


def test_labels_that_cannot_be_learnt_from_are_counted_with_the_reason() -> None:
    label = Label("labels.csv:2", "w", None, "training", None, None, None, None, "", None, "")
    seen = workload("w", features={"hours": 5.0, "idle_share": 0.1})
    found = [
        Judged(label, seen, "a", "a"),
        Judged(replace(label, part="judge"), seen, "b", "b"),
        Judged(replace(label, kind="idle"), seen, "c", "c"),
        Judged(label, None, "d", "d"),
        Judged(label, replace(seen, features={"hours": 5.0, "idle_share": 1.0}), "e", "e"),
    ]
    kept, left = usable(found, 0.995)
    assert [one.about for one in kept] == ["a"]
    assert sorted(left) == [
        "idle whenever it was observed", "kept for validation", "labeled idle: idleness is counted, not classified",
        "not observed",
    ]  # fmt: skip
