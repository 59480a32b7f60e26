"""What a reading is judged by: limits by kind of holder, thresholds, and what GPUs draw at rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...rules.models.resting_power import RestingPowers
from ...rules.policy.watch import WatchRules
from ..core.recent import HolderKind


class Limits(Protocol):
    """Limits by kind of holder; the settings are one such thing."""

    def limit_seconds(self, holder: HolderKind) -> float:
        """How long this kind may hold GPUs without using them, seconds."""
        ...


@dataclass(frozen=True)
class Criteria:
    """`rules`: thresholds (rules/watch.yaml); `resting`: power at rest by SKU."""

    limits: Limits
    rules: WatchRules
    resting: RestingPowers
