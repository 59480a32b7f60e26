"""Columns of a query as arrays, with what cannot be a measurement made missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....agent.store.reading.queries import Query
from ....rules.base.sanitize import clean
from ..packing import Texts, Unpacked
from ..plausible import impossible_rows, outside
from .grids import Floats

_MOST_TEXT = 4096


@dataclass(frozen=True)
class Columns:
    """`numbers`: by name, NaN where missing; `codes`: by name the place of each cell's text in `texts`, -1: missing."""

    count: int
    numbers: Mapping[str, Floats]
    codes: Mapping[str, npt.NDArray[np.int64]]
    texts: Mapping[str, tuple[str, ...]]

    def text(self, name: str, row: int) -> str | None:
        """One cell of text; None: missing."""
        code = int(self.codes[name][row])
        return self.texts[name][code] if code >= 0 else None

    def number(self, name: str, row: int) -> float | None:
        """One number; None: missing."""
        value = float(self.numbers[name][row])
        return value if np.isfinite(value) else None

    def coded(self, name: str, places: Mapping[str, int]) -> npt.NDArray[np.int64]:
        """The texts of a column as their places in a mapping; -1 for one that is not in it."""
        own = np.array([places.get(text, -1) for text in self.texts[name]] or [-1], dtype=np.int64)
        codes = self.codes[name]
        return np.where(codes >= 0, own[np.clip(codes, 0, None)], -1)

    def table(self) -> pd.DataFrame:
        """The same as a table: texts as objects."""
        cells = {
            name: np.array([*self.texts[name], None], dtype=object)[self.codes[name]] for name in self.codes
        }  # fmt: skip
        return pd.DataFrame({**cells, **self.numbers})


def columns_of(told: Unpacked, query: Query) -> Columns:
    """The columns that a process gave for `query`; rows of an impossible time are left out. Raises ValueError."""
    coded = [column for column in told.columns if isinstance(column, Texts)]
    plain = [column for column in told.columns if isinstance(column, np.ndarray)]
    if told.count and (len(coded) != len(query.text) + len(query.bins) or len(plain) != len(query.numbers)):
        raise ValueError("other columns")
    if not told.count:
        none = np.empty(0)
        codes = {name: np.empty(0, dtype=np.int64) for name in query.text}
        return Columns(0, dict.fromkeys(query.numbers, none), codes, dict.fromkeys(query.text, ()))
    block = np.array([np.asarray(column, dtype=np.float64) for column in plain]) if plain else np.empty((0, told.count))
    block[~np.isfinite(block)] = np.nan
    keep = ~impossible_rows(query.numbers, block)
    for n, where in outside(query.numbers, block):
        block[n][where] = np.nan
    return Columns(
        int(keep.sum()),
        {name: block[n][keep] for n, name in enumerate(query.numbers)},
        {name: column.codes[keep] for name, column in zip(query.text, coded, strict=False)},
        {name: tuple(map(_text, column.distinct)) for name, column in zip(query.text, coded, strict=False)},
    )


def _text(raw: bytes) -> str:
    """A text from a file, without what would steer a terminal."""
    return clean(raw[:_MOST_TEXT].decode("utf-8", "replace"))
