"""Numbers by what they measure. The bounds stand with the type, for whoever reads a value from a file; a value in
memory is a plain number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Final

YEAR_10000: Final = 253_402_300_800.0  # Unix seconds: what no date is written of any more


@dataclass(frozen=True, slots=True)
class Within:
    """What a number may be, both ends included."""

    least: float
    most: float = math.inf


Amount = Annotated[float, Within(0.0)]  # of hours, or of dollars paid: none is below zero
Share = Annotated[float, Within(0.0, 1.0)]
Moment = Annotated[float, Within(0.0, YEAR_10000)]  # Unix seconds
