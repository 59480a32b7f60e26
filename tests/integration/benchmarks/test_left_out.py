"""The figures that docs/method.md states of real series, computed anew from the table that ships."""

import json

import pytest
from skuwise.benchmarks.evaluation import left_out
from skuwise.benchmarks.fit.real_series import read_rows
from skuwise.benchmarks.fit.train_kinds import fit_rows

TOLERANCE = 0.01  # of each share: two series of 191


def test_kinds_of_owners_left_out_are_right_as_often_as_stated() -> None:
    judged = list(left_out.leave_owners_out(read_rows(), fit_rows, left_out.judge_features))
    stated = json.loads(left_out.FIGURES.read_text())
    found = left_out.figures_by_window(judged)
    assert found.keys() == stated.keys()
    for window, figures in stated.items():
        assert found[window] == pytest.approx(figures, abs=TOLERANCE), window
