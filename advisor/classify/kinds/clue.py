"""One piece of evidence for a kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...core.coded_text import CodedText


@dataclass(frozen=True, slots=True)
class Clue:
    """`weights` by kind (log-odds, 0 where a kind is not named), and why."""

    weights: Mapping[str, float]
    reason: CodedText
