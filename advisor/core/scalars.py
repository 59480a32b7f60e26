"""Cells of a frame as plain values; missing is None."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pandas as pd

Record = Mapping[str, Any]


def records(table: pd.DataFrame) -> list[Record]:
    """One mapping per row, by column name."""
    return cast("list[Record]", table.to_dict("records"))


def known(value: float | None) -> float | None:
    """A number; None where it is missing."""
    return None if value is None or math.isnan(value) else float(value)


def text(value: object) -> str | None:
    """A text that is not empty."""
    return value if isinstance(value, str) and value else None


def whole(value: float | None) -> int | None:
    """A count."""
    return None if value is None or math.isnan(value) else round(value)


def numpy_hook(value: Any) -> Any:  # noqa: ANN401
    """For msgspec's `enc_hook`: NumPy's scalars as Python's, arrays as None."""
    return value.item() if getattr(value, "ndim", None) == 0 else None
