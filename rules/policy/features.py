"""Reads ``features.yaml``: what custom rules may ask for, and what the advisor forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from ..base.typed import Text
from ..base.yaml_loader import packaged_rules, read


@dataclass(frozen=True, slots=True)
class Feature:
    """A figure of one workload over the whole window."""

    unit: Literal[
        "ratio", "hours", "seconds", "count", "correlation", "watts", "0 or 1", "count per day", "ticks per second"
    ]  # fmt: skip
    meaning: Text


@dataclass(frozen=True, slots=True)
class _File:
    features: Mapping[str, Feature]


@cache
def load_features() -> Mapping[str, Feature]:
    """The features by name, read once: files of the package do not change under a running program."""
    return read(packaged_rules().joinpath("features.yaml"), _File).features
