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
    joined = concat([ordered, table[:1]], ["n", "x_bins"])
    assert np.nansum(joined["x_bins"].array.matrix, axis=1).tolist() == [0, 2 * WIDTH, 3 * WIDTH, 2 * WIDTH]
    pd.testing.assert_frame_equal(joined.copy(), joined)
    assert joined[joined["n"] > 1]["x_bins"].array.matrix.shape == (3, WIDTH)


_BAD = ("[]", "[1]", "", "x", "[1,2", '{"a": 1}', "[" + ",".join(["-1"] * WIDTH) + "]", "[" + ",".join(["NaN"] * WIDTH)
        + "]", "[" + ",".join(["1"] * WIDTH) + "]\n[" + ",".join(["1"] * WIDTH) + "]", '"', "#", "1e999")  # fmt: skip
_GOOD = st.lists(st.integers(0, 3600) | st.sampled_from((0.5, 7.5)), min_size=WIDTH, max_size=WIDTH)


@given(st.lists(st.none() | _GOOD, max_size=8), st.sampled_from(_BAD) | st.integers() | st.binary(max_size=4))
def test_cells_are_seconds_or_missing_and_all_are_missing_beside_a_bad_one(
    cells: list[list[float] | None], bad: object
) -> None:
    told = [str(cell).replace(" ", "") if cell else None for cell in cells]
    got = to_table([("n", 1.0, cell) for cell in told], QUERY)["x_bins"].tolist() if cells else []
    assert [None if seconds is None else seconds.tolist() for seconds in got] == cells
    assert to_table([("n", 1.0, cell) for cell in [*told, bad]], QUERY)["x_bins"].isna().all()
