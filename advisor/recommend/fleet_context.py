"""What recommendations are built from, the one builder of them, and what somebody reads of their money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ...rules.catalog.types import Price
from ..classify.types import Verdicts
from ..core.advice_types import (
    Action,
    Configuration,
    Interval,
    Realisation,
    Recommendation,
    Rejected,
    Risk,
    SavingsBaseline,
)
from ..core.coded_text import CodedText
from ..core.formatting import dated, spread, usd
from ..core.ids import stable_id
from .evidence import EvidenceClaim
from .finding_context import FindingContext
from .groups import Group
from .move_context import Baseline, DrawnRecommendation, MoveContext
from .prediction import SAME_GPU, SIGMA_SAME_GPU, Array, Prediction, percentiles
from .pricing import Cash
from .rule_context import WEAK

SAME_SPEED = Prediction(1.0, SIGMA_SAME_GPU, SAME_GPU)


@dataclass(frozen=True)
class Saving:
    """What a move saves a month: joint draws in US dollars, the prices they rest on, and what a month costs that they
    are taken off (`paid_usd`)."""

    draws: Array
    prices: tuple[Price | None, ...]
    paid_usd: float | None
    realisation: Realisation
    date: str | None = None

    @classmethod
    def in_cash(cls, cash: Cash, draws: Array, paid_usd: float | None, *others: Price | None) -> Saving:
        """A saving on nodes that fall free. `others`: prices that it rests on beside theirs."""
        return cls(draws, (cash.price, *others), paid_usd, cash.realisation, cash.date)

    @cached_property
    def interval(self) -> Interval:
        return percentiles(self.draws)

    @property
    def sentence(self) -> str:
        """What the move saves or costs a month, with the price it rests on and when it is cash."""
        saved = self.interval.p50
        if saved <= 0:
            worse = f"Costs {usd(-saved)}/month more" if saved < 0 else "Saves nothing"
            return f"{worse}, {dated(self.prices)}."
        when = f" from {self.date}, when the commitment ends" if self.realisation == "cash-at" else ""
        return f"Saves {usd(saved)}/month{spread(self.interval)}{when}, {dated(self.prices)}."


def recommend(
    action: Action,
    *identity: str | None,
    text: str,
    source: Configuration,
    target: Configuration,
    risk: Risk,
    exclusive: str,
    would_change_if: tuple[CodedText, ...],
    findings: tuple[str, ...] = (),
    workload: str | None = None,
    saving: Saving | None = None,
    time_ratio: Interval | None = None,
    freed_gpu_hours_per_month: float = 0.0,
    energy_saving_kwh_per_month: Interval | None = None,
    realisation: Realisation = "capacity-freed",
    blocked_by: Sequence[CodedText] = (),
    rejected: tuple[Rejected, ...] = (),
    changes: tuple[CodedText, ...] = (),
    break_even: str | None = None,
    also: frozenset[str] = frozenset(),
    claim: EvidenceClaim | None = None,
    yardstick: SavingsBaseline | None = None,
) -> DrawnRecommendation:
    """A recommendation with its draws. `identity`: what its id rests on beside the action: whose it is, then where it
    leads from and to. `saving`: None where it claims no dollars, and then `realisation` says what it brings."""
    measured = yardstick or SavingsBaseline()
    return DrawnRecommendation(
        Recommendation(
            id=stable_id("r", identity[0], action, *identity[1:]),
            findings=findings,
            workload=workload,
            action=action,
            source=source,
            target=target,
            time_ratio=time_ratio,
            saving_usd_per_month=saving.interval if saving else None,
            freed_gpu_hours_per_month=freed_gpu_hours_per_month,
            energy_saving_kwh_per_month=energy_saving_kwh_per_month,
            realisation=saving.realisation if saving else realisation,
            risk=risk,
            blocked_by=tuple(blocked_by),
            rejected=rejected,
            changes=changes,
            would_change_if=would_change_if,
            prices=tuple(p.id for p in saving.prices if p is not None) if saving else (),
            text=text.strip(),
            break_even=break_even,
            available_from=saving.date if saving else None,
            yardstick=replace(measured, usd_per_month=saving.paid_usd) if saving else measured,
        ),
        saving.draws if saving else None,
        exclusive=exclusive,
        also=also,
        claim=claim,
    )


@dataclass(frozen=True)
class GroupContext:
    """One series that goes on, of sound signals and known kind: its baseline, and by rule what was found of it."""

    scene: MoveContext
    verdicts: Verdicts
    base: Baseline
    findings: Mapping[str, FindingContext] = field(default_factory=dict)

    @property
    def group(self) -> Group:
        return self.base.group

    def asking(self, action: Action) -> list[FindingContext]:
        """The findings that such a recommendation answers, the first reason first."""
        asked = [found for found in self.findings.values() if action in found.answered_by]
        return sorted(asked, key=lambda found: found.answered_by[action])

    def reasons(self, action: Action) -> tuple[str, ...]:
        """Their ids."""
        return tuple(found.finding.id for found in self.asking(action))

    def has_reason(self, action: Action) -> bool:
        """Whether one of them is reason enough to tell even that nothing can be done."""
        return any(found.answered_by[action] < WEAK for found in self.asking(action))

    def recommend(self, action: Action, *to: str | None, place: str = "place", **parts: Any) -> DrawnRecommendation:  # noqa: ANN401
        """A recommendation about this series (as `recommend`). `place`: what of it the recommendation claims."""
        lead = self.group.lead
        known = {"findings": self.reasons(action), "source": self.base.configuration, "target": self.base.configuration}
        return recommend(
            action, self.group.identity, lead.node_sku, *to, workload=lead.id,
            exclusive=f"{place}:{self.group.series_id}", **{**known, **parts},
        )  # fmt: skip


@dataclass(frozen=True)
class FleetContext:
    """Everything that recommendations are built from. `movable`: the series that may be moved; `found`: all findings,
    of whatever may not be moved as well."""

    scene: MoveContext
    verdicts: Verdicts
    groups: Sequence[Group]
    found: Sequence[FindingContext]
    movable: Sequence[GroupContext]
