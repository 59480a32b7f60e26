"""The monthly worth of recommendations, the one selection that every list shows, and the meaning of the sums.

Gains compare in US dollars a month: cash as it is, GPU-hours at the price of their node, energy at its price. Where no
price is known, a GPU-hour counts as `USD_PER_GPU_HOUR` and a kWh as `USD_PER_KWH`, for the minimum alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from .advice_types import COUNTED_RISKS, Advice, Decision, Interval, Recommendation, Summary
from .scalars import added

WASTED = "paid for and not used: idle GPUs, and links and GPU tiers beyond the need"
SLOWED = "paid while work waited for a slow link or a fault; not in Wasted: a fix may recover less"
RECOVERABLE = "cash from open and accepted recommendations of low risk; alternatives count once"
CAPACITY = "GPU-hours that such recommendations free for other work, without cash"

HOURS_PER_MONTH = 730.0
USD_PER_GPU_HOUR, USD_PER_KWH = 2.5, 0.10  # an older data-center GPU, and industrial power
MIN_SAVING_USD, MIN_SAVING_SHARE = 100.0, 0.01  # where the rules set none (rules/reporting.yaml)
# Codes of a change to a more expensive fabric, and of the reasons for one (advisor/recommend/moves/move_sku.py).
DEARER_FABRIC = "fabric-added"
FABRIC_REASONS = frozenset({"fabric-included", "fabric-needed", "fabric-cheaper"})


def added_intervals(parts: Iterable[Interval]) -> Interval | None:
    """Sums by percentile, exact if all parts turn out well or badly together; None without parts."""
    intervals = list(parts)
    sums = (added(i.p10 for i in intervals), added(i.p50 for i in intervals), added(i.p90 for i in intervals))
    return Interval(*sums) if intervals else None


def compatible(recommendations: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
    """The recommendations that no earlier one excludes."""
    chosen: dict[str, Recommendation] = {}
    excluded: set[str] = set()
    for r in recommendations:
        if r.id not in excluded and chosen.keys().isdisjoint(r.excludes):
            chosen[r.id] = r
            excluded.update(r.excludes)
    return tuple(chosen.values())


def excluded_by_decisions(recommendations: Sequence[Recommendation]) -> frozenset[str]:
    """Ids that are no longer available, because one that excludes them was accepted or done."""
    settled = {r.id: r.excludes for r in recommendations if r.decision and r.decision.state in ("accepted", "done")}
    rivals = {rival for excludes in settled.values() for rival in excludes}
    rest = (r for r in recommendations if r.id not in settled)
    return frozenset(r.id for r in rest if r.id in rivals or not settled.keys().isdisjoint(r.excludes))


def counted_recommendations(recommendations: Sequence[Recommendation]) -> tuple[Recommendation, ...]:
    """Those whose cash enters a sum: of alternatives the best, the largest first."""
    out = excluded_by_decisions(recommendations)
    return compatible(sorted((r for r in recommendations if r.counts and r.id not in out), key=lambda r: r.rank))


def min_saving(summary: Summary, usd: float = MIN_SAVING_USD, share: float = MIN_SAVING_SHARE) -> float:
    """The lesser of `usd` and that share of a month's spend, US dollars a month."""
    hours = summary.window_hours or 0.0
    spend = summary.cost_usd if summary.cost_usd is not None else summary.gpu_hours * USD_PER_GPU_HOUR
    if hours <= 0 or spend <= 0:
        return usd
    return min(usd, share * spend / hours * HOURS_PER_MONTH)


class Worth:
    """Gains of one advice's recommendations. `minimum`: below it lists omit one, US dollars a month."""

    def __init__(self, advice: Advice) -> None:
        summary = advice.summary
        minimum = summary.min_saving_usd_per_month
        self.minimum = min_saving(summary) if minimum is None else minimum
        self._prices: dict[str, float] = {}  # workload or SKU -> US dollars a GPU-hour; of a SKU the highest
        for w in advice.workloads:
            if w.cost_usd is None or w.gpu_hours <= 0:
                continue
            price = self._prices[w.id] = w.cost_usd / w.gpu_hours
            for sku in filter(None, (w.node_sku, w.gpu_sku)):
                self._prices[sku] = max(self._prices.get(sku, price), price)
        priced = summary.cost_usd is not None and summary.gpu_hours > 0
        self._mean = (summary.cost_usd or 0.0) / summary.gpu_hours if priced else None

    def gpu_hour_usd(self, r: Recommendation) -> float | None:
        """The price of a GPU-hour of the workload, its node or its GPU, else the fleet's mean."""
        keys = (r.workload or "", r.source.node_sku or "", r.source.gpu_sku or "")
        return next((self._prices[key] for key in keys if key in self._prices), self._mean)

    def usd(self, r: Recommendation) -> Interval:
        """The monthly worth: claimed dollars alone; else freed hours, else energy."""
        if r.saving_usd_per_month is not None:
            return r.saving_usd_per_month
        if r.freed_gpu_hours_per_month > 0:
            price = self.gpu_hour_usd(r)
            value = r.freed_gpu_hours_per_month * (USD_PER_GPU_HOUR if price is None else price)
            return Interval(value, value, value)
        kwh = r.energy_saving_kwh_per_month or Interval(0.0, 0.0, 0.0)
        return Interval(kwh.p10 * USD_PER_KWH, kwh.p50 * USD_PER_KWH, kwh.p90 * USD_PER_KWH)


@dataclass(frozen=True, slots=True)
class Selection:
    """The recommendations of one advice, each in one group, by rank."""

    worth: Worth
    shown: tuple[Recommendation, ...]  # what every list has
    small: tuple[Recommendation, ...]  # below the minimum, or uncertain
    blocked: tuple[Recommendation, ...]
    decided: tuple[Recommendation, ...]  # dismissed, snoozed or done
    excluded: tuple[Recommendation, ...]  # by one that was accepted or done

    @property
    def alternatives(self) -> Mapping[str, str]:
        """Shown ones that an earlier one rules out: id -> id of the earlier one."""
        kept = {r.id: r for r in compatible(self.shown)}
        excluded_by = {rival: r.id for r in reversed(kept.values()) for rival in r.excludes}
        rest = [r for r in self.shown if r.id not in kept]
        return {r.id: excluded_by.get(r.id) or next(exclude for exclude in r.excludes if exclude in kept) for r in rest}

    @property
    def capacity_gpu_hours(self) -> float:
        """See `CAPACITY`; a month's."""
        every = sorted((*self.shown, *self.small), key=lambda r: r.rank)
        available = compatible(r for r in every if r.risk in COUNTED_RISKS)
        return sum(r.freed_gpu_hours_per_month for r in available if r.saving_usd_per_month is None)


def selected(advice: Advice) -> Selection:
    """The recommendations that lists of an advice show, and those that they leave out."""
    worth, out = Worth(advice), excluded_by_decisions(advice.recommendations)

    def group(r: Recommendation) -> str:
        if r.set_aside:
            return "decided"
        if r.blocked_by:
            return "blocked"
        if r.id in out:
            return "excluded"
        # Its gain is certain and reaches the minimum, and a more expensive fabric has a reason. A team's part of an
        # advice shows what the whole does.
        gain, codes = worth.usd(r), {change.code for change in r.changes}
        explained = DEARER_FABRIC not in codes or codes & FABRIC_REASONS
        reaches = gain.p50 > 0 and gain.p50 >= worth.minimum and gain.p10 > 0 and explained
        return "shown" if (reaches if r.shown is None else r.shown) else "small"

    groups: dict[str, tuple[Recommendation, ...]]
    groups = dict.fromkeys(("shown", "small", "blocked", "decided", "excluded"), ())
    for r in sorted(advice.recommendations, key=lambda r: r.rank):
        groups[group(r)] += (r,)
    return Selection(worth, **groups)


def marked(advice: Advice, decisions: Mapping[str, Decision] | None = None) -> Advice:
    """The advice with its recommendations ranked and marked as shown or not.

    `decisions` replace its own; if they change which cash counts, the sum becomes that of the medians.
    """
    ranked = [replace(r, shown=None) for r in advice.recommendations]
    if decisions is not None:
        ranked = [replace(r, decision=decisions.get(r.id)) for r in ranked]
        cash = counted_recommendations(ranked)
        if {r.id for r in cash} != {r.id for r in counted_recommendations(advice.recommendations)}:
            total = added_intervals(r.saving_usd_per_month for r in cash if r.saving_usd_per_month is not None)
            before = advice.summary.recoverable_usd_per_month
            usd = total.p50 if total is not None else None if before is None else 0.0
            sums = {"recoverable_usd_per_month": usd, "recoverable_interval_usd_per_month": total}
            advice = replace(advice, summary=replace(advice.summary, **sums))
    advice = replace(advice, recommendations=tuple(sorted(ranked, key=lambda r: r.rank)))
    shown = {r.id for r in selected(advice).shown}
    return replace(advice, recommendations=tuple(replace(r, shown=r.id in shown) for r in advice.recommendations))
