"""Reads ``premiums.yaml``: what an interconnect costs where no pair of prices says so. Assumed, and labelled so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..base.typed import Day, Text
from ..base.yaml_loader import read_named

Ratio = Annotated[float, Meta(ge=0, le=5)]


@dataclass(frozen=True, slots=True)
class Prior:
    """A prior: the node with the better interconnect costs `low` to `high` more (ratio of the node's price).

    `pairs` are the observations behind it, as sentences with their sources. `basis` is always "assumed": a prior
    stands in for a price that nobody has, and every text that uses one must say so.
    """

    low: Ratio
    likely: Ratio
    high: Ratio
    basis: Literal["assumed"]
    text: Text
    as_of: Day
    pairs: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        if not self.low <= self.likely <= self.high:
            raise ValueError("'low', 'likely' and 'high' are out of order", "Sort them.")


def load_premiums(rules_dir: Path | None = None) -> Mapping[str, Prior]:
    """Every prior by its id; a site's file replaces those it names."""
    return read_named(rules_dir, "premiums.yaml", Prior)
