"""Statistics of many segments at once are those of numpy on each segment; short ids stay unique."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.core.ids import short_ids
from skuwise.advisor.core.segments import Segments, group_highest, group_means, grouped

# Segments without rows, with one and with many; values that repeat or are missing.
VALUES = st.one_of(st.just(math.nan), st.sampled_from([0.0, 0.25, 1.0]), st.floats(-1e6, 1e6, allow_subnormal=False))
SEGMENTS = st.lists(st.lists(VALUES, max_size=20), max_size=8)


def of_each(parts, figure):
    """The figure of the known values of each part; NaN where there are none."""
    rest = [[value for value in part if not math.isnan(value)] for part in parts]
    wanted = [float(figure(values)) if values else math.nan for values in rest]
    return pytest.approx(wanted, rel=1e-9, abs=1e-5, nan_ok=True)


@given(SEGMENTS, st.integers(0, 9))
def test_statistics_of_segments_are_those_of_each_alone(parts, seed) -> None:
    segments = Segments.of_lengths([len(part) for part in parts])
    values = np.array([value for part in parts for value in part], dtype=float)
    for figure, of_numpy in (("mean", np.mean), ("deviation", np.std), ("highest", np.max), ("lowest", np.min),
                             ("median", np.median)):  # fmt: skip
        assert getattr(segments, figure)(values).tolist() == of_each(parts, of_numpy)
    for share in (10, 90, 95):
        assert segments.quantile(values, share / 100).tolist() == of_each(parts, lambda v, q=share: np.percentile(v, q))
    assert segments.total(np.nan_to_num(values)).tolist() == pytest.approx([np.nansum(part) for part in parts])
    weights = np.random.default_rng(seed).choice([0.0, 60.0, 3600.0], len(values))
    means = segments.mean(values, weights)
    for n, (first, end) in enumerate(zip(segments.bounds[:-1], segments.bounds[1:], strict=True)):
        counts = ~np.isnan(values[first:end]) & (weights[first:end] > 0)
        wanted = np.average(values[first:end][counts], weights=weights[first:end][counts]) if counts.any() else math.nan
        assert means[n] == pytest.approx(wanted, abs=1e-9, nan_ok=True)
    chosen = values > 0
    counts = [sum(value > 0 for value in part) for part in parts]
    assert segments.where(chosen).lengths.tolist() == segments.count(chosen).tolist() == counts
    assert segments.all(chosen).tolist() == [count == len(part) for count, part in zip(counts, parts, strict=True)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5), VALUES), max_size=30))
def test_rows_of_one_owner_and_key_are_a_group_wherever_they_are(rows) -> None:
    owner, keys = (np.array([row[n] for row in rows], dtype=np.intp) for n in (0, 1))
    values = np.array([row[2] for row in rows], dtype=float)
    groups = grouped(owner, keys, 4)
    pairs = sorted(set(zip(owner.tolist(), keys.tolist(), strict=True)))
    assert list(zip(groups.each.number.tolist(), groups.keys.tolist(), strict=True)) == pairs
    assert [pairs[n] for n in groups.of_row] == list(zip(owner.tolist(), keys.tolist(), strict=True))
    of_pair = [[row[2] for row in rows if row[:2] == pair] for pair in pairs]
    assert group_means(values, groups.of_row, len(groups)).tolist() == of_each(of_pair, np.mean)
    assert group_highest(values, groups.of_row, len(groups)).tolist() == of_each(of_pair, np.max)


def test_ids_that_begin_alike_keep_more_digits() -> None:
    near, other, far = "w-7d371f986d36691d", "w-7d371f986dff691d", "w-1111111111111111"
    assert short_ids([near, other, far, near]) == {near: "w-7d371f986d36", other: "w-7d371f986dff", far: "w-11111111"}
    assert short_ids(["w-7d371f98", "w-7d371f98aa"]) == {"w-7d371f98": "w-7d371f98", "w-7d371f98aa": "w-7d371f98aa"}
