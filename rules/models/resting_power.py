"""Reads ``resting_power.yaml``: what a GPU draws at rest while a CUDA context is held on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType

from ..base.sanitize import quoted
from ..base.typed_fields import Fields, packaged_fields

BASES = ("published", "assumed")


@dataclass(frozen=True, slots=True)
class RestingPower:
    """Lowest and highest draw of one GPU at rest with a context held, in watts.

    `basis`: published (somebody measured it) or assumed (taken from comparable parts).
    """

    low_watts: float
    high_watts: float
    basis: str
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class RestingPowers:
    """`gpus`: by SKU. `low_share`, `high_share`: shares of the power limit, for a GPU that has no entry."""

    gpus: Mapping[str, RestingPower]
    low_share: float
    high_share: float


def load_resting_power(file: Traversable | Path | None = None) -> RestingPowers:
    """The table that ships, or that of a file. Raises RulesError, with file and line, for what is not strictly that."""
    top = packaged_fields(file, "resting_power.yaml")
    shares = top.subtable("shares")
    low, high = _bounds(shares, 1.0)
    shares.text("source")
    shares.date("as_of")
    gpus = {
        name: RestingPower(
            *_bounds(entry.subtable("watts"), 2000.0), entry.text("basis", BASES), entry.text("source"),
            entry.date("as_of"),
        )
        for name, entry in top.subtable("gpus").entries(lambda name: f"GPU {quoted(name)}")
    }  # fmt: skip
    top.done()
    return RestingPowers(MappingProxyType(gpus), low, high)


def _bounds(fields: Fields, most: float) -> tuple[float, float]:
    low, high = fields.number("low", minimum=0, maximum=most), fields.number("high", minimum=0, maximum=most)
    if not low <= high:
        raise fields.fault("low", "'low' is above 'high'", "Swap them.")
    return low, high
