"""What a recommendation is worth a month, which of them every list shows, and what the sums beside them mean.

`selected` is the one selection: tables, pages, mails, screens and the plan show its `shown`, in its order, and count
the rest. Gains are compared in US dollars a month: cash as it is; GPU-hours at what their node costs; energy at its
price. Where no price is known, a GPU-hour counts as `USD_PER_GPU_HOUR` and a kilowatt-hour as `USD_PER_KWH`: for the
minimum alone, never printed. Nothing here changes a sum of the advice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from .advice_types import COUNTED_RISKS, Advice, Decision, Interval, Recommendation, Summary
from .totals import added_intervals


def counted_recommendations(recommendations: Sequence[Recommendation]) -> tuple[Recommendation, ...]:
    """Those whose cash enters a sum, the best of each that exclude one another, the largest first."""
    out = excluded_by_decisions(recommendations)
    return compatible(sorted((r for r in recommendations if r.counts and r.id not in out), key=lambda r: r.rank))


def excluded_by_decisions(ways: Iterable[Recommendation]) -> frozenset[str]:
    """Ids of those that cannot be had any more, since one that excludes them was accepted or done."""
    ways = list(ways)
    settled = {r.id: r.excludes for r in ways if r.decision is not None and r.decision.state in ("accepted", "done")}
    rivals = {exclude for excludes in settled.values() for exclude in excludes}
    return frozenset(
        r.id for r in ways if r.id not in settled and (r.id in rivals or not settled.keys().isdisjoint(r.excludes))
    )


def compatible(recommendations: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
    """Of ways in their order, those that no earlier one excludes."""
    chosen: dict[str, Recommendation] = {}
    excluded: set[str] = set()
    for r in recommendations:
        if r.id not in excluded and chosen.keys().isdisjoint(r.excludes):
            chosen[r.id] = r
            excluded.update(r.excludes)
    return tuple(chosen.values())


# What the sums mean, on every surface that shows them.
WASTED = "paid for and not used: idle GPUs, and links and GPU tiers beyond the need"
SLOWED = "paid while work waited for a slow link or a fault; not in Wasted: a fix may recover less"
RECOVERABLE = "cash from open and accepted recommendations of low risk; alternatives count once"
CAPACITY = "GPU-hours that such recommendations free for other work, without cash"

_GROUPS = ("shown", "small", "blocked", "decided", "excluded")
HOURS_PER_MONTH = 730.0
# Stand-ins where no price is known: an older data-center GPU, and industrial power.
USD_PER_GPU_HOUR, USD_PER_KWH = 2.5, 0.10
MIN_SAVING_USD, MIN_SAVING_SHARE = 100.0, 0.01  # where the rules set none (rules/reporting.yaml)
# Codes of a change to the dearer fabric, and of the reasons for one (advisor/recommend/moves/move_sku.py).
DEARER_FABRIC = "fabric-added"
FABRIC_REASONS = frozenset({"fabric-included", "fabric-needed", "fabric-cheaper"})


def min_saving(summary: Summary, usd: float = MIN_SAVING_USD, share: float = MIN_SAVING_SHARE) -> float:
    """The lesser of `usd` and that share of a month's spend, US dollars a month; an infinite share: `usd` alone."""
    hours = summary.window_hours or 0.0
    spend = summary.cost_usd if summary.cost_usd is not None else summary.gpu_hours * USD_PER_GPU_HOUR
    if hours <= 0 or spend <= 0 or math.isinf(share):
        return usd
    return min(usd, share * spend / hours * HOURS_PER_MONTH)


class Worth:
    """The gains of one advice's recommendations, compared. `minimum`: of lists, US dollars a month."""

    def __init__(self, advice: Advice) -> None:
        summary = advice.summary
        told = summary.min_saving_usd_per_month
        self.minimum = min_saving(summary) if told is None else told
        self._prices: dict[str, float] = {}  # workload or SKU -> US dollars a GPU-hour; of a SKU the highest
        for w in advice.workloads:
            if w.cost_usd is None or w.gpu_hours <= 0:
                continue
            price = self._prices[w.id] = w.cost_usd / w.gpu_hours
            for sku in (w.node_sku, w.gpu_sku):
                if sku is not None:
                    self._prices[sku] = max(self._prices.get(sku, price), price)
        priced = summary.cost_usd is not None and summary.gpu_hours > 0
        self._mean = (summary.cost_usd or 0.0) / summary.gpu_hours if priced else None

    def gpu_hour_usd(self, r: Recommendation) -> float | None:
        """What a GPU-hour of its source costs: the workload's, its node's, its GPU's, else the fleet's mean."""
        keys = (r.workload or "", r.source.node_sku or "", r.source.gpu_sku or "")
        return next((self._prices[key] for key in keys if key in self._prices), self._mean)

    def usd(self, r: Recommendation) -> Interval:
        """What it is worth a month. What it claims in dollars counts alone; else freed hours, else energy."""
        if r.saving_usd_per_month is not None:
            return r.saving_usd_per_month
        if r.freed_gpu_hours_per_month > 0:
            price = self.gpu_hour_usd(r)
            value = r.freed_gpu_hours_per_month * (USD_PER_GPU_HOUR if price is None else price)
            return Interval(value, value, value)
        kwh = r.energy_saving_kwh_per_month or Interval(0.0, 0.0, 0.0)
        return Interval(kwh.p10 * USD_PER_KWH, kwh.p50 * USD_PER_KWH, kwh.p90 * USD_PER_KWH)

    def reaches(self, r: Recommendation) -> bool:
        """Whether its gain is sure and reaches the minimum, and no dearer fabric lacks its reason."""
        gain = self.usd(r)
        codes = {change.code for change in r.changes}
        unexplained = DEARER_FABRIC in codes and not codes & FABRIC_REASONS
        return gain.p50 > 0 and gain.p50 >= self.minimum and gain.p10 > 0 and not unexplained


@dataclass(frozen=True, slots=True)
class Selection:
    """The recommendations of one advice, each in one group, by rank. `shown`: what every list has; `small`: below the
    minimum or uncertain; `decided`: dismissed, snoozed or done; `excluded`: by one that was accepted or done."""

    shown: tuple[Recommendation, ...]
    small: tuple[Recommendation, ...]
    blocked: tuple[Recommendation, ...]
    decided: tuple[Recommendation, ...]
    excluded: tuple[Recommendation, ...]
    worth: Worth

    @property
    def alternatives(self) -> Mapping[str, str]:
        """Ids of shown ones that cannot be carried out with an earlier one, each with that one's id."""
        kept = {r.id: r for r in compatible(self.shown)}
        excluded_by: dict[str, str] = {}
        for one in kept.values():
            for rival in one.excludes:
                excluded_by.setdefault(rival, one.id)
        rest = [r for r in self.shown if r.id not in kept]
        return {r.id: excluded_by.get(r.id) or next(exclude for exclude in r.excludes if exclude in kept) for r in rest}

    @property
    def capacity_gpu_hours(self) -> float:
        """See `CAPACITY`; a month's."""
        every = sorted((*self.shown, *self.small), key=lambda r: r.rank)
        ways = compatible(r for r in every if r.risk in COUNTED_RISKS)
        return sum(r.freed_gpu_hours_per_month for r in ways if r.saving_usd_per_month is None)


def selected(advice: Advice) -> Selection:
    """What lists of an advice show and leave out."""
    worth = Worth(advice)
    out = excluded_by_decisions(advice.recommendations)
    groups: dict[str, list[Recommendation]] = {name: [] for name in _GROUPS}
    for r in sorted(advice.recommendations, key=lambda r: r.rank):
        if r.set_aside:
            name = "decided"
        elif r.blocked_by:
            name = "blocked"
        elif r.id in out:
            name = "excluded"
        else:
            # A team's part of an advice shows what the whole does.
            name = "shown" if (worth.reaches(r) if r.shown is None else r.shown) else "small"
        groups[name].append(r)
    return Selection(**{name: tuple(same) for name, same in groups.items()}, worth=worth)


def marked(advice: Advice, decisions: Mapping[str, Decision] | None = None) -> Advice:
    """The advice with its recommendations ranked and marked as shown or not. `decisions`: in place of its own; where
    other cash counts by them, its sum is that of the medians."""
    ways = [replace(r, shown=None) for r in advice.recommendations]
    if decisions is not None:
        ways = [replace(r, decision=decisions.get(r.id)) for r in ways]
        cash = counted_recommendations(ways)
        if {r.id for r in cash} != {r.id for r in counted_recommendations(advice.recommendations)}:
            total = added_intervals(r.saving_usd_per_month for r in cash if r.saving_usd_per_month is not None)
            known = advice.summary.recoverable_usd_per_month is not None or total is not None
            usd = total.p50 if total is not None else 0.0 if known else None
            summary = replace(
                advice.summary, recoverable_usd_per_month=usd, recoverable_interval_usd_per_month=total
            )  # fmt: skip
            advice = replace(advice, summary=summary)
    advice = replace(advice, recommendations=tuple(sorted(ways, key=lambda r: r.rank)))
    shown = {r.id for r in selected(advice).shown}
    return replace(advice, recommendations=tuple(replace(r, shown=r.id in shown) for r in advice.recommendations))
