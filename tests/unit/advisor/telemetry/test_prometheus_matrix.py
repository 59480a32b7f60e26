"""Answers to range queries read from their text: the same as read as JSON, or not read at all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.telemetry.prometheus.client.errors import TooMuchError
from skuwise.advisor.telemetry.prometheus.client.matrix_text import LabelBook, matrix_text
from skuwise.advisor.telemetry.prometheus.client.range_planner import MAX_VALUES, parts_of, pieces_of, stretches_of
from skuwise.advisor.telemetry.prometheus.client.response import (
    MAX_CELLS,
    MAX_LABEL,
    Grid,
    SeriesAnswer,
    ServerAnswer,
    read_matrix,
)

HOUR = 3600.0
GRID = Grid(HOUR, 5 * HOUR, HOUR)
nan = float("nan")
Series = tuple[Mapping[str, str], Sequence[tuple[object, str]]]


def body_of(*series: Series, **beside: object) -> bytes:
    """As servers write it: no blanks."""
    rows = [{"metric": labels, "values": values} for labels, values in series]
    told = {"status": "success", "data": {"resultType": "matrix", "result": rows}, **beside}
    return json.dumps(told, separators=(",", ":")).encode()


def from_text(body: bytes, kept: tuple[str, ...] | None = None, book: LabelBook | None = None) -> ServerAnswer | None:
    parts = matrix_text(bytearray(body))
    return None if parts is None else parts.read(GRID, kept, book or LabelBook())


def assert_same(one: ServerAnswer, other: ServerAnswer) -> None:
    assert (one.answer.labels, one.notes, one.left_out) == (other.answer.labels, other.notes, other.left_out)
    assert np.array_equal(one.answer.values, other.answer.values, equal_nan=True)


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(("NaN", "+Inf", "-Inf", "1e+06", "5e-324", "1.7976931348623157e308", "-0")),
)
LABELS = st.dictionaries(
    st.sampled_from(("a", "b", "values", "é")), st.text(max_size=8) | st.just("x" * (MAX_LABEL + 1)), max_size=3
)
SAMPLES = st.dictionaries(st.integers(1, 5), NUMBERS, min_size=1).map(
    lambda told: [(n * 3600 if n % 2 else n * 3600.0, told[n]) for n in sorted(told)]
)
ANSWERS = st.lists(st.tuples(LABELS, SAMPLES), min_size=1, max_size=5)


@given(ANSWERS, st.sampled_from((None, ("a", "b"))), st.sampled_from(({}, {"warnings": ["w"]}, {"isPartial": True})))
def test_an_answer_from_its_text_is_the_one_from_its_json(
    series: list[Series], kept: tuple[str, ...] | None, beside: dict[str, object]
) -> None:
    body = body_of(*series, **beside)
    found = from_text(body, kept)
    assert found is not None
    assert_same(found, read_matrix(orjson.loads(body), GRID, kept))


WHOLE = body_of(({"a": "x", "b": "y"}, [(3600, "0.5"), (7200, "NaN")]), ({"a": "z"}, [(3600, "1e+06"), (10800, "-2")]))


@given(
    st.lists(
        st.tuples(st.integers(0, len(WHOLE)), st.integers(0, 4), st.text('0,"[]{}:.eE+-NaIn_ values', max_size=3)),
        min_size=1, max_size=3,
    )
)  # fmt: skip
def test_a_damaged_answer_is_read_as_its_json_is_or_left_to_be_refused(edits: list[tuple[int, int, str]]) -> None:
    body = WHOLE
    for at, gone, put in edits:
        body = body[:at] + put.encode() + body[at + gone :]
    found = from_text(body)
    if found is not None:
        assert_same(found, read_matrix(orjson.loads(body), GRID))


@pytest.mark.parametrize(
    "part",
    [
        '[3600,"1_0"]', '[3600,"x"]', '[3600,1"5"]', '[3600,"1","2"]', '[3600]', '["3600","1"]', '[3600,"1"],[]', "",
    ],
)  # fmt: skip
def test_what_is_no_sample_is_not_read_from_the_text(part: str) -> None:
    body = WHOLE.replace(b'[3600,"0.5"]', part.encode())
    assert body != WHOLE and from_text(body) is None


def test_a_cut_answer_and_one_with_blanks_are_left_to_the_reader_of_json() -> None:
    assert from_text(WHOLE) is not None
    assert [matrix_text(WHOLE[:end]) for end in range(len(WHOLE))] == [None] * len(WHOLE)
    assert matrix_text(json.dumps(json.loads(WHOLE)).encode()) is None


def test_moments_beside_the_grid_are_left_to_be_refused_and_too_many_series_are_refused() -> None:
    assert from_text(WHOLE.replace(b"10800", b"10900")) is None
    assert from_text(WHOLE.replace(b"10800", b"99999999999999999999")) is None
    parts = matrix_text(WHOLE)
    assert parts is not None
    with pytest.raises(TooMuchError, match="2 time series"):
        parts.read(Grid(0.0, MAX_CELLS * HOUR, HOUR), None, LabelBook())


def test_labels_are_one_object_in_all_answers_and_made_harmless() -> None:
    book = LabelBook()
    body = body_of(*(({"a": f"{n}\x1b[31m", "c": "d"}, [(3600, "1")]) for n in range(3)))
    first, second = from_text(body, ("a",), book), from_text(body.replace(b'"1"', b'"2"'), ("a",), book)
    assert first is not None and second is not None
    assert first.answer.labels == ({"a": "0[31m"}, {"a": "1[31m"}, {"a": "2[31m"})
    assert all(one is other for one, other in zip(first.answer.labels, second.answer.labels, strict=True))
    every = from_text(body, None, book)
    assert every is not None and every.answer.labels[1] == {"a": "1[31m", "c": "d"}


def test_stretches_are_the_pieces_in_their_order_as_large_as_an_answer_may_be() -> None:
    whole = Grid(5 * HOUR, 5 * HOUR + 335 * HOUR, HOUR)
    for series in (1, 800, 8000, MAX_VALUES):
        pieces = pieces_of(whole, series)
        stretches = stretches_of(pieces, series)
        assert [piece for stretch in stretches for piece in stretch] == pieces
        sizes = [sum(piece.count for piece in stretch) * series for stretch in stretches]
        assert all(size <= MAX_VALUES for size in sizes)
        assert all(
            size + stretch[0].count * series > MAX_VALUES for size, stretch in zip(sizes, stretches[1:], strict=False)
        )


def test_an_answer_over_several_days_is_theirs_and_series_without_a_value_are_not_in_a_day() -> None:
    days = [Grid(HOUR, 2 * HOUR, HOUR), Grid(3 * HOUR, 3 * HOUR, HOUR), Grid(4 * HOUR, 5 * HOUR, HOUR)]
    labels = ({"a": "all"}, {"a": "late"}, {"a": "not numbers"})
    values = np.array([[1.0, 2, 3, 4, 5], [nan, nan, nan, 4, nan], [nan] * 5])
    parts = parts_of(SeriesAnswer(labels, values), days)
    assert [piece for piece, _ in parts] == days
    assert [[one["a"] for one in part.labels] for _, part in parts] == [
        ["all", "not numbers"], ["all", "not numbers"], ["all", "late", "not numbers"],
    ]  # fmt: skip
    assert [part.values[0].tolist() for _, part in parts] == [[1, 2], [3], [4, 5]]
    assert parts_of(SeriesAnswer(labels, values), days[:1])[0][1].labels is labels
