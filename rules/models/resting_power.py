"""Reads ``resting_power.yaml``: what a GPU draws at rest while a CUDA context is held on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..base.typed import Day, Text
from ..base.yaml_loader import packaged_rules, read


@dataclass(frozen=True, slots=True)
class Watts:
    """From the least to the most."""

    low: Annotated[float, Meta(ge=0, le=2000)]
    high: Annotated[float, Meta(ge=0, le=2000)]

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("'low' is above 'high'", "Swap them.")


@dataclass(frozen=True, slots=True)
class Shares(Watts):
    """The same as shares of the power limit, and who says so."""

    source: Text
    as_of: Day

    def __post_init__(self) -> None:
        Watts.__post_init__(self)
        if self.high > 1:
            raise ValueError("a share is at most 1", "Correct it.")


@dataclass(frozen=True, slots=True)
class RestingPower:
    """Lowest and highest draw of one GPU at rest with a context held, in watts.

    `basis`: published (somebody measured it) or assumed (taken from comparable parts).
    """

    watts: Watts
    basis: Literal["published", "assumed"]
    source: Text
    as_of: Day


@dataclass(frozen=True, slots=True)
class RestingPowers:
    """`gpus`: by SKU. `shares`: of the power limit, for a GPU that has no entry."""

    gpus: Mapping[str, RestingPower]
    shares: Shares


def load_resting_power(file: Traversable | Path | None = None) -> RestingPowers:
    """The table that ships, or that of a file. Raises RulesError, with file and key, for what is not strictly that."""
    return read(file or packaged_rules().joinpath("resting_power.yaml"), RestingPowers)
