"""A site's correction of kinds as a file: read strictly, and put into the model that it is for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.advise import load_rulebook
from skuwise.rules.base.errors import RulesError
from skuwise.rules.models.kind_correction import (
    CORRECTION_FILE,
    CrossValidation,
    KindCorrection,
    corrected,
    correction_document,
    digest,
    load_kind_correction,
)
from skuwise.rules.models.kind_model import KindModel
from skuwise.rules.policy.labels import WORKING_KINDS
from skuwise.tests.support.rulebooks import rulebook

SCORES = CrossValidation(0.5, 0.75, 1.25, 0.5)


def model() -> KindModel:
    return rulebook().kind_model


def correction(**changes: object) -> KindCorrection:
    shapes = {"one-gpu": {"interactive": -0.5}}
    own = KindCorrection(digest(model()), {"training": 14}, 2.0, {"training": 0.25}, shapes, SCORES)
    return replace(own, **changes)  # type: ignore[arg-type]


def folder(root: Path, text: str) -> Path:
    (root / CORRECTION_FILE).write_text(text)
    return root


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    own = correction()
    assert load_kind_correction(folder(tmp_path, correction_document(own)), WORKING_KINDS) == own
    bare = correction(shapes={}, intercepts={})
    assert load_kind_correction(folder(tmp_path, correction_document(bare)), WORKING_KINDS) == bare


def test_no_file_is_no_correction(tmp_path: Path) -> None:
    assert load_kind_correction(tmp_path, WORKING_KINDS) is None
    assert load_kind_correction(None, WORKING_KINDS) is None


def test_shifts_are_of_log_odds_as_they_count() -> None:
    before, after = model(), corrected(model(), correction())
    assert after.intercept("training") == pytest.approx((before.intercept("training") + 0.25) / 2)
    assert after.intercept("interactive") == pytest.approx(before.intercept("interactive") / 2)
    assert after.weight("one-gpu", "interactive") == pytest.approx((before.weight("one-gpu", "interactive") - 0.5) / 2)
    assert after.weight("one-gpu", "training") == pytest.approx(before.weight("one-gpu", "training") / 2)
    assert (after.fingerprint, after.labels) == (before.fingerprint, before.labels)


def test_the_rulebook_uses_one_that_fits_and_leaves_another_aside(tmp_path: Path) -> None:
    own = correction()
    book = load_rulebook(folder(tmp_path, correction_document(own)), None, 0.0)
    assert (book.kind_correction, book.correction_left) == (own, None)
    assert digest(book.kind_model) == digest(corrected(model(), own))
    without = load_rulebook(tmp_path, None, 0.0, with_correction=False)
    assert (without.kind_correction, digest(without.kind_model)) == (None, digest(model()))
    for old in (correction(model="0" * 16), correction(shapes={"no-such-shape": {"training": 1.0}})):
        book = load_rulebook(folder(tmp_path, correction_document(old)), None, 0.0)
        assert (book.kind_correction, book.correction_left) == (None, old)
        assert digest(book.kind_model) == digest(model())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind-correction/1", "kind-correction/2", ":3: the schema is not"),
        ("training: 0.250", "trainnig: 0.250", "unknown kind 'trainnig'"),
        ("training: 0.250", "training: 6", "at most 5"),
        ("training: 0.250", "training: .nan", "must be a number"),
        ("training: 14", "training: -1", "at least 0"),
        ("training: 14", "idle: 3", "unknown kind 'idle'"),
        ("temperature: 2.000", "temperature: 0", "at least 0.2"),
        ("  one-gpu:", "  \"one gpu\":", "a shape's name must be"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_file_and_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = correction_document(correction())
    assert old in text
    with pytest.raises(RulesError) as refused:
        load_kind_correction(folder(tmp_path, text.replace(old, new, 1)), WORKING_KINDS)
    assert said in str(refused.value)
    assert CORRECTION_FILE in str(refused.value)
