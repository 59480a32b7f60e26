"""Sums that do not depend on the order of what is summed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import astuple

from .advice_types import Interval


def added(values: Iterable[float]) -> float:
    """The sum to six decimals, as JSON keeps it: so the order leaves no trace."""
    return round(math.fsum(values), 6)


def added_intervals(parts: Iterable[Interval]) -> Interval | None:
    """Percentile by percentile: right where all parts turn out well or badly together. None: there are no parts."""
    columns = list(zip(*(astuple(i) for i in parts), strict=True))
    return Interval(*map(added, columns)) if columns else None


def sum_if_all(values: Iterable[float | None]) -> float | None:
    """The sum; None where one is not known."""
    known = list(values)
    return added(v for v in known if v is not None) if None not in known else None
