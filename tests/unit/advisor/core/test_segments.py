"""Figures of many segments at once are those of plain numpy on each segment alone."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.core.ids import short_ids
from skuwise.advisor.core.segments import Segments, group_highest, group_means, grouped

# Each draw has segments of no rows, of one, and of more than numpy sums in turn; and values that repeat or are missing.
VALUES = st.one_of(st.just(math.nan), st.sampled_from([0.0, 0.25, 1.0]), st.floats(-1e6, 1e6, allow_subnormal=False))
SEGMENTS = st.lists(st.lists(VALUES, max_size=20), max_size=8)


def known(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def of_each(parts, figure):
    """The figure of what is known of each part; NaN where nothing is."""
    rest = [known(np.array(part, dtype=float)) for part in parts]
    return [float(figure(values)) if len(values) else math.nan for values in rest]


def same(found, wanted) -> bool:
    return np.array_equal(np.asarray(found), np.array(wanted, dtype=float), equal_nan=True)


def joined(parts) -> tuple[Segments, np.ndarray]:
    return Segments.of_lengths([len(part) for part in parts]), np.array(
        [v for part in parts for v in part], dtype=float
    )


@given(SEGMENTS)
def test_figures_of_segments_are_those_of_each_alone_to_the_last_bit(parts) -> None:
    segments, values = joined(parts)
    assert same(segments.mean(values), of_each(parts, np.mean))
    assert same(segments.deviation(values), of_each(parts, np.std))
    assert same(segments.highest(values), of_each(parts, np.max))
    assert same(segments.lowest(values), of_each(parts, np.min))
    assert same(segments.median(values), of_each(parts, np.median))
    for share in (10, 90, 95):
        assert same(segments.quantile(values, share / 100), of_each(parts, lambda v, q=share: np.percentile(v, q)))
    rest = np.nan_to_num(values)
    assert same(segments.total(rest), [np.sum(np.nan_to_num(np.array(part, dtype=float))) for part in parts])


@given(SEGMENTS, st.integers(0, 9))
def test_means_by_weight_leave_out_what_is_missing_or_weighs_nothing(parts, seed) -> None:
    segments, values = joined(parts)
    weights = np.random.default_rng(seed).choice([0.0, 60.0, 3600.0], len(values))
    wanted = []
    for first, end in zip(segments.bounds[:-1], segments.bounds[1:], strict=True):
        ok = ~np.isnan(values[first:end])
        own, by = values[first:end][ok], weights[first:end][ok]
        wanted.append((own * by).sum() / by.sum() if by.sum() > 0 else math.nan)
    assert same(segments.mean(values, weights), wanted)


@given(SEGMENTS)
def test_chosen_rows_stay_in_their_segments(parts) -> None:
    segments, values = joined(parts)
    chosen = values > 0
    counts = [int((np.array(part, dtype=float) > 0).sum()) for part in parts]
    assert segments.where(chosen).lengths.tolist() == segments.count(chosen).tolist() == counts
    assert segments.any(chosen).tolist() == [count > 0 for count in counts]
    assert segments.all(chosen).tolist() == [count == len(part) for count, part in zip(counts, parts, strict=True)]
    assert segments.spread(np.arange(len(parts))).tolist() == segments.number.tolist()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5), VALUES), max_size=30))
def test_rows_of_one_owner_and_key_are_a_group_wherever_they_stand(rows) -> None:
    owner, keys = (np.array([row[n] for row in rows], dtype=np.intp) for n in (0, 1))
    values = np.array([row[2] for row in rows], dtype=float)
    groups = grouped(owner, keys, 4)
    pairs = sorted(set(zip(owner.tolist(), keys.tolist(), strict=True)))
    assert list(zip(groups.each.number.tolist(), groups.keys.tolist(), strict=True)) == pairs
    assert [pairs[n] for n in groups.of_row] == list(zip(owner.tolist(), keys.tolist(), strict=True))
    of_pair = [[row[2] for row in rows if row[:2] == pair] for pair in pairs]
    assert group_means(values, groups.of_row, len(groups)) == pytest.approx(of_each(of_pair, np.mean), nan_ok=True)
    assert same(group_highest(values, groups.of_row, len(groups)), of_each(of_pair, np.max))


def test_ids_that_begin_alike_keep_more_digits() -> None:
    near, other, far = "w-7d371f986d36691d", "w-7d371f986dff691d", "w-1111111111111111"
    found = short_ids([near, other, far, near])
    assert found == {near: "w-7d371f986d36", other: "w-7d371f986dff", far: "w-11111111"}
    assert all(full.startswith(short) for full, short in found.items())


def test_one_id_that_is_the_beginning_of_another_stays_whole() -> None:
    assert short_ids(["w-7d371f98", "w-7d371f98aa"]) == {"w-7d371f98": "w-7d371f98", "w-7d371f98aa": "w-7d371f98aa"}
