"""The tables of measured pairs, the calibration made from them, and errors of what was left out."""

import numpy as np
import pytest
from msgspec.structs import replace
from skuwise.benchmarks.evaluation.moves import shipped_left_out
from skuwise.benchmarks.fit.move_model import calibrate, read_lines
from skuwise.rules.models import load_move_model


def test_the_calibration_that_ships_is_the_one_of_the_tables():
    lines, profiles, _, _ = read_lines()
    made, shipped = calibrate(lines, profiles), load_move_model()
    assert made.unseen == shipped.unseen
    assert {name: replace(work_class, params=None, batch=None) for name, work_class in made.classes.items()} == {
        name: replace(work_class, params=None, batch=None) for name, work_class in shipped.classes.items()
    }


@pytest.fixture(scope="module")
def left_out():
    return shipped_left_out()[0]


# Median errors: those of the model before (6.7 % of a token by family, 7.7 % of pairs by source) and a point.
@pytest.mark.parametrize(
    ("section", "lines", "median"), [("published pairs, source", 595, 0.087), ("time of a token", 492, 0.077)]
)
def test_predictions_hold_where_source_and_model_family_were_left_out(left_out, section, lines, median):
    (pairs,) = (errors for name, errors in left_out.items() if name.startswith(section))
    moved = [pair for pair in pairs if pair.changes]
    assert len(pairs) == lines
    assert np.median([pair.error for pair in pairs]) <= median
    assert np.mean([pair.same_direction for pair in moved]) >= 0.95
    assert 0.76 <= np.mean([pair.covered for pair in pairs]) <= 0.88
