"""Numbers by what they measure. The bounds stand with the type, for whoever reads a value from a file; a value in
memory is a plain number."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Amount = Annotated[float, Meta(ge=0.0)]  # of hours, or of dollars paid: none is below zero
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Moment = Annotated[float, Meta(ge=0.0, le=253_402_300_800.0)]  # Unix seconds, up to the year 10000
