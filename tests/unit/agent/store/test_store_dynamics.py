"""Runs, periods, correlations and bins, against truths that can be worked out another way."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.agent.metrics import BIN_EDGES
from skuwise.agent.statistics.signal_stats import (
    autocorrelation_peak,
    bin_index,
    bin_seconds,
    longest_run_seconds,
    nearest_rank,
    pearson,
    second_grid,
    share_of_time,
    weighted_mean,
)

RATIOS = st.lists(st.floats(0, 2), min_size=1, max_size=60)


@given(st.floats(0, 5))
def test_a_bin_holds_its_ratio(ratio: float) -> None:
    index = bin_index(ratio)
    assert BIN_EDGES[index] <= ratio
    assert index == len(BIN_EDGES) - 1 or ratio < BIN_EDGES[index + 1]


@given(RATIOS, RATIOS)
def test_bins_merge_by_addition(first: list[float], second: list[float]) -> None:
    a, b = bin_seconds(first, [1.0] * len(first)), bin_seconds(second, [1.0] * len(second))
    both = bin_seconds(first + second, [1.0] * (len(first) + len(second)))
    assert a is not None and b is not None and both is not None
    assert [x + y for x, y in zip(a, b, strict=True)] == both


@given(RATIOS, st.sampled_from([0.5, 0.9, 0.95, 0.995, 1.0]))
def test_percentile_is_the_nearest_rank(values: list[float], share: float) -> None:
    found = nearest_rank(values, share)
    assert found in values
    assert found is not None
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values) + 1e-9


def test_means_and_shares_are_weighted_by_time() -> None:
    assert weighted_mean([1.0, 4.0], [2.0, 1.0]) == 2.0
    assert weighted_mean([], []) is None
    assert share_of_time([True, False, None], [1.0, 3.0, 100.0]) == 0.25
    assert share_of_time([None], [1.0]) is None


def test_a_run_ends_at_a_hole_and_at_an_unknown() -> None:
    ends = [1.0, 2.0, 3.0, 7.0, 8.0, 9.0]
    ones = [1.0] * 6
    assert longest_run_seconds([True] * 6, ends, ones) == 3.0
    assert longest_run_seconds([True, None, True, True, True, False], ends, ones) == 2.0
    assert longest_run_seconds([False] * 6, ends, ones) == 0.0
    assert longest_run_seconds([None] * 6, ends, ones) is None


def test_the_grid_averages_fast_samples_and_leaves_holes_open() -> None:
    fast = [0.1 * i for i in range(1, 31)]
    assert len(second_grid([1.0] * 30, fast)) == 4
    assert second_grid([1.0, 2.0, 3.0], [10.0, 11.0, 13.0]) == [1.0, 2.0, None, 3.0]
    assert second_grid([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]) == []


@pytest.mark.parametrize("period", [3, 4, 7, 12, 20])
def test_a_square_wave_shows_its_period(period: int, seed_of: Callable[[int], int]) -> None:
    rng = random.Random(seed_of(period))
    wave = [(0.8 if i % period < period / 2 else 0.1) + rng.gauss(0, 0.05) for i in range(60)]
    peak = autocorrelation_peak(wave, 2, 30)
    assert peak is not None
    assert peak[0] == pytest.approx(period, abs=0.35)
    assert peak[1] > 0.6


def test_noise_has_hardly_ever_a_period(seed_of: Callable[[int], int]) -> None:
    """Of a minute of noise 0.4 % have one by chance (4,000 drawn), nearly all at lags of which few pairs are left."""
    rng = random.Random(seed_of(0))
    periods = [autocorrelation_peak([rng.random() for _ in range(60)], 2, 30) for _ in range(400)]
    assert sum(one is not None for one in periods) <= 0.02 * len(periods)


@pytest.mark.parametrize("seed", range(10))
def test_constants_and_trends_have_no_period(seed: int, seed_of: Callable[[int], int]) -> None:
    rng = random.Random(seed_of(seed))
    assert autocorrelation_peak([0.5] * 60, 2, 30) is None
    assert autocorrelation_peak([i / 60 + rng.gauss(0, 0.01) for i in range(60)], 2, 30) is None
    assert autocorrelation_peak([1.0, 2.0], 2, 30) is None


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1e11)), min_size=20, max_size=80))
def test_pearson_agrees_with_the_standard_library(pairs: list[tuple[float, float]]) -> None:
    xs, ys = [p[0] for p in pairs], [p[1] for p in pairs]
    found = pearson(xs, ys)
    if found is not None and statistics.pstdev(xs) > 1e-6 and statistics.pstdev(ys) > 1:
        assert found == pytest.approx(statistics.correlation(xs, ys), abs=1e-6)
    assert found is None or -1 <= found <= 1


def test_pearson_of_a_constant_or_of_few_is_missing() -> None:
    line = [float(i) for i in range(30)]
    assert pearson(line, [2 * x for x in line]) == pytest.approx(1)
    assert pearson(line, [-x for x in line]) == pytest.approx(-1)
    assert pearson(line, [0.0] * 30) is None
    assert pearson(line, [0.3] * 30) is None
    assert pearson(line[:19], line[:19]) is None
    assert pearson([*line, None], [*line[:-1], None, 1.0]) == pytest.approx(1)
