"""Cells of a frame as plain values; missing is None."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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


def added(values: Iterable[float]) -> float:
    """The sum, rounded to the six decimals of the JSON."""
    return round(math.fsum(values), 6)


def sum_if_all(values: Iterable[float | None]) -> float | None:
    """The sum; None where a value is unknown."""
    terms = list(values)
    return None if None in terms else added(v for v in terms if v is not None)


def peak(spans: Iterable[tuple[float, float, float]]) -> float:
    """The largest sum of overlapping spans (begin, end, amount), 0 without any. Adjacent spans do not overlap."""
    edges = [edge for begin, end, amount in spans for edge in ((begin, amount), (end, -amount))]
    highest = level = 0.0
    for _, change in sorted(edges):
        level += change
        highest = max(highest, level)
    return highest


def most_at_once(spans: Iterable[tuple[float, float]], slack_seconds: float) -> int:
    """The most spans (begin, end) at one time. Overlaps of up to `slack_seconds`, as of a replacement, do not count."""
    return round(peak((begin, max(end - slack_seconds, begin + 1.0), 1.0) for begin, end in spans))
