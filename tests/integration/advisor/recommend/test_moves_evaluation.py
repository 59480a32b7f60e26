"""The tables of measured pairs, the calibration made from them, and errors of what was left out."""

import numpy as np
from msgspec.structs import replace
from skuwise.benchmarks.evaluation.moves import shipped_left_out
from skuwise.benchmarks.fit.move_model import calibrate, read_lines
from skuwise.rules.models import load_move_model


def test_the_calibration_that_ships_is_the_one_of_the_tables():
    lines, profiles, _, _ = read_lines()
    made, shipped = calibrate(lines, profiles), load_move_model()
    assert made.unseen == shipped.unseen
    ours, theirs = (
        {name: replace(work_class, params=None, batch=None) for name, work_class in model.classes.items()}
        for model in (made, shipped)
    )
    assert ours == theirs


def test_predictions_hold_where_source_and_model_family_were_left_out():
    left_out, _ = shipped_left_out()
    # Median errors: those of the model before (6.7 % of a token by family, 7.7 % of pairs by source) and a point.
    for section, lines, median in (("published pairs, source", 595, 0.087), ("time of a token", 492, 0.077)):
        (pairs,) = (errors for name, errors in left_out.items() if name.startswith(section))
        assert len(pairs) == lines and np.median([pair.error for pair in pairs]) <= median
        assert np.mean([pair.same_direction for pair in pairs if pair.changes]) >= 0.95
        assert 0.76 <= np.mean([pair.covered for pair in pairs]) <= 0.88
