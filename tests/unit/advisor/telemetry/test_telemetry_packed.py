"""What one process read of files reaches another as it was, and nothing else passes for it."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.core.histogram_array import WIDTH, BinsArray
from skuwise.advisor.telemetry.sqlite.database import Parts
from skuwise.advisor.telemetry.sqlite.ipc import read_told, write_told
from skuwise.advisor.telemetry.tables import empty_table
from skuwise.rules.base.errors import StoreError

NOTE = CodedText("a-note", "a note", {"rows": 3, "share": 0.5, "of": None})


def table() -> pd.DataFrame:
    return pd.DataFrame({
        "node": pd.Series(["n1", None, "ü\ud800\n"], dtype=object),
        "ts": [1.0, np.nan, 3.5],
        "x_bins": BinsArray.of([np.arange(float(WIDTH)), None, np.zeros(WIDTH)]),
        "kind": pd.Series([None, None, None], dtype=object),
        "mean": [0.25, -0.0, 1e300],
    })  # fmt: skip


def packed(told: dict) -> bytes:
    stream = io.BytesIO()
    write_told(told, stream)
    return stream.getvalue()


def test_tables_notes_and_errors_come_back_as_they_were() -> None:
    parts = Parts(
        {"gpu": [table(), empty_table(["a", "b"])], "text": [table()[["node"]]]},
        [NOTE],
    )
    told = {Path("a.db"): parts, Path("b.db"): StoreError("Broken.", "Fix it."), Path("c.db"): Parts()}
    back = read_told(io.BytesIO(packed(told)))
    assert list(back) == list(told)
    one, other = parts, back[Path("a.db")]
    assert isinstance(other, Parts)
    assert other.notes == [NOTE] and other.notes[0].fields == NOTE.fields
    assert list(other.tables) == ["gpu", "text"]
    for name in one.tables:
        for mine, its in zip(one.tables[name], other.tables[name], strict=True):
            pd.testing.assert_frame_equal(its, mine)
    error = back[Path("b.db")]
    assert isinstance(error, StoreError)
    assert (error.message, error.remedy) == ("Broken.", "Fix it.")


def test_what_ends_early_or_is_something_else_is_refused() -> None:
    whole = packed({Path("a.db"): Parts({"gpu": [table()]})})
    for end in (0, 5, whole.index(b"\n") + 1, whole.index(b"\n") + 60, len(whole) - 1):
        with pytest.raises(ValueError):
            read_told(io.BytesIO(whole[:end]))
    for other in (
        b"7\n",
        b'[{"path": "a", "notes": [], "tables": []}]\n',
        b'[{"path": 3}]\n',
        b'[{"path": "a", "error": ["SystemExit", "", ""]}]\n',
    ):
        with pytest.raises(ValueError):
            read_told(io.BytesIO(other))
