"""Seconds in bins as a column: cut, sorted, joined and kept as any other column."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from skuwise.advisor.core.histogram_array import WIDTH, BinsArray
from skuwise.advisor.telemetry.resolution import concat
from skuwise.advisor.telemetry.tables import to_table
from skuwise.agent.store.reading.queries import Query

QUERY = Query("", ("node",), ("ts",), ("x_bins",))


def cell(seconds: float) -> np.ndarray:
    return np.full(WIDTH, seconds)


def test_rows_are_taken_sorted_and_joined_with_their_bins() -> None:
    table = pd.DataFrame({"n": [2.0, 1.0, 3.0], "x_bins": BinsArray.of([cell(2), None, cell(3)])})
    ordered = table.sort_values("n", ignore_index=True)
    assert ordered["x_bins"].isna().tolist() == [True, False, False]
    assert ordered["x_bins"].iloc[0] is None
    assert ordered["x_bins"].iloc[2].tolist() == cell(3).tolist()
    joined = concat([ordered, pd.DataFrame({"n": [4.0]})], ["n", "x_bins"])
    assert joined["x_bins"].isna().tolist() == [True, False, False, True]
    assert np.nansum(joined["x_bins"].array.matrix, axis=1).tolist() == [0, 2 * WIDTH, 3 * WIDTH, 0]
    pd.testing.assert_frame_equal(joined.copy(), joined)
    assert joined[joined["n"] > 2]["x_bins"].array.matrix.shape == (2, WIDTH)


def test_what_is_no_array_of_all_bins_is_missing() -> None:
    assert BinsArray.of([None, 3.0, np.zeros(WIDTH - 1), cell(1)]).isna().tolist() == [True, True, True, False]


_BAD = ("[]", "[1]", "", "x", "[1,2", '{"a": 1}', "[" + ",".join(["-1"] * WIDTH) + "]", "[" + ",".join(["NaN"] * WIDTH)
        + "]", "[" + ",".join(["1"] * WIDTH) + "]\n[" + ",".join(["1"] * WIDTH) + "]", '"', "#", "1e999")  # fmt: skip
_GOOD = st.lists(st.integers(0, 3600) | st.sampled_from((0.5, 7.5)), min_size=WIDTH, max_size=WIDTH)


@given(st.lists(st.none() | st.sampled_from(_BAD) | _GOOD | st.integers() | st.binary(max_size=4), max_size=8))
def test_bad_cells_are_missing_and_spoil_no_others(cells: list[object]) -> None:
    told = [str(c).replace(" ", "") if isinstance(c, list) else c for c in cells]
    table = to_table([("n", 1.0, c) for c in told], QUERY)
    got = table["x_bins"].tolist() if len(cells) else []
    for given_cell, seconds in zip(cells, got, strict=True):
        if isinstance(given_cell, list):
            assert seconds.tolist() == given_cell
        else:
            assert seconds is None
