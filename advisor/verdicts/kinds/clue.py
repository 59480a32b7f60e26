"""One piece of evidence for a kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clue:
    """`weights` by kind (log-odds, 0 where a kind is not named), and the sentence a person reads."""

    weights: Mapping[str, float]
    reason: str
