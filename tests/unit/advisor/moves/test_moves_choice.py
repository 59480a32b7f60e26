"""What is recoverable together: losing an option never raises what is left."""

from __future__ import annotations

import numpy as np
from skuwise.advisor.moves.recommender import without_losers


def median(draws: list[np.ndarray]) -> float:
    return float(np.median(np.sum(draws, axis=0))) if draws else 0.0


def test_an_option_that_may_as_well_lose_lowers_no_sum_of_medians() -> None:
    rng = np.random.default_rng(1)
    skewed = 10_000.0 - 3000.0 * rng.exponential(1.0, 4000)
    gamble = rng.normal(10.0, 2000.0, 4000)
    assert np.median(gamble) > -100
    assert median([skewed, gamble]) < np.median(skewed)
    (left,) = without_losers([skewed, gamble])
    assert left is skewed


def test_what_surely_saves_stays() -> None:
    rng = np.random.default_rng(2)
    sure = [rng.uniform(100.0, 300.0, 4000) for _ in range(5)]
    assert len(without_losers(sure)) == 5
    assert without_losers([]) == []
