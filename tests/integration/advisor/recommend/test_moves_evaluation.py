"""The table of published pairs, the calibration made from it, and how far predictions of what was left out are off."""

from __future__ import annotations

import numpy as np
import pytest
from skuwise.benchmarks.evaluation import moves
from skuwise.benchmarks.fit import decode_pairs, move_model
from skuwise.benchmarks.fit import sku_pairs as pairs
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models.move_model import load_move_model, load_profiles

CATALOG = load_catalog()
PROFILES = load_profiles()
REFERENCE = CATALOG.gpus[PROFILES.reference]


@pytest.fixture(scope="module")
def runs():
    return decode_pairs.read_runs(decode_pairs.DECODE_TABLE, CATALOG)[0]


@pytest.fixture(scope="module")
def measured(runs):
    return move_model.measure(runs, PROFILES, REFERENCE)


@pytest.fixture(scope="module")
def seen(measured):
    found, _ = pairs.read_published(CATALOG)
    return move_model.look([pair for pair in found if pair.alike], PROFILES, REFERENCE, measured.factors)


def test_the_calibration_that_ships_is_the_one_of_the_tables(seen, measured):
    made, shipped = move_model.calibrate(seen, measured, PROFILES), load_move_model()
    assert made.offsets == shipped.offsets
    assert made.decode == shipped.decode
    assert set(made.ranges) == set(shipped.ranges)
    assert {name: r.sigma for name, r in made.groups.items()} == {name: r.sigma for name, r in shipped.groups.items()}


@pytest.mark.parametrize("by", ["family", "source"])
def test_predictions_hold_on_what_was_left_out(seen, measured, by):
    told = moves.held_out(seen, measured, lambda pair: getattr(pair, by), PROFILES, REFERENCE)
    errors = [one.error for one in told]
    moved = [one for one in told if one.changes]
    assert len(told) == len(seen)
    assert np.median(errors) <= 0.15
    assert np.percentile(errors, 90) <= 0.35
    assert sum(one.same_direction for one in moved) >= 0.95 * len(moved)
    assert 0.75 <= sum(one.covered for one in told) / len(told) <= 0.90
