"""Reads ``premiums.yaml``: what an interconnect costs where no pair of prices says so. Assumed, and labelled so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..base.typed_fields import Fields, read_named


@dataclass(frozen=True, slots=True)
class Prior:
    """A prior: the node with the better interconnect costs `low` to `high` more (ratio of the node's price).

    `pairs` are the observations behind it, as sentences with their sources. `basis` is always "assumed": a prior
    stands in for a price that nobody has, and every text that uses one must say so.
    """

    id: str
    low: float
    likely: float
    high: float
    basis: str
    text: str
    pairs: tuple[str, ...]
    as_of: str


def load_premiums(rules_dir: Path | None = None) -> Mapping[str, Prior]:
    """Every prior by its id; a site's file replaces those it names."""
    return read_named(rules_dir, "premiums.yaml", "premiums", "premium", _premium)


def _premium(name: str, entry: Fields) -> Prior:
    low, likely, high = (entry.number(key, minimum=0, maximum=5) for key in ("low", "likely", "high"))
    if not low <= likely <= high:
        raise entry.fault("likely", "'low', 'likely' and 'high' are out of order", "Sort them.")
    return Prior(
        name, low, likely, high, entry.text("basis", ("assumed",)), entry.text("text"), entry.texts("pairs"),
        entry.date("as_of"),
    )  # fmt: skip
