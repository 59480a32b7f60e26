"""What a recommendation is worth a month in US dollars, and which of them lists and mails show.

One key compares all of them: cash as it is; GPU-hours at what their node costs; energy at its price. Where no price is
known, a GPU-hour counts as `USD_PER_GPU_HOUR` and a kilowatt-hour as `USD_PER_KWH`: for order and the minimum alone,
never printed. Nothing here changes a sum of the advice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from .advice_types import Advice, Interval, Recommendation, Summary

HOURS_PER_MONTH = 730.0
# Stand-ins where no price is known: an older data-center GPU, and industrial power.
USD_PER_GPU_HOUR, USD_PER_KWH = 2.5, 0.10
# Where the rules set none (rules/reporting.yaml).
MIN_SAVING_USD, MIN_SAVING_SHARE = 100.0, 0.01
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
    """The gains of one advice's recommendations, compared."""

    def __init__(self, advice: Advice) -> None:
        told = advice.summary.min_saving_usd_per_month
        self.minimum = min_saving(advice.summary) if told is None else told
        self._own: dict[str, float] = {}
        skus: dict[str, list[float]] = {}
        for w in advice.workloads:
            if w.cost_usd is None or w.gpu_hours <= 0:
                continue
            self._own[w.id] = w.cost_usd / w.gpu_hours
            for sku in (w.node_sku, w.gpu_sku):
                if sku is not None:
                    skus.setdefault(sku, []).append(self._own[w.id])
        self._skus = {sku: max(each) for sku, each in skus.items()}
        summary = advice.summary
        priced = summary.cost_usd is not None and summary.gpu_hours > 0
        self._mean = (summary.cost_usd or 0.0) / summary.gpu_hours if priced else None

    def gpu_hour_usd(self, r: Recommendation) -> float | None:
        """What a GPU-hour of its source costs: the workload's, its node's, its GPU's, else the fleet's mean."""
        for known, key in ((self._own, r.workload), (self._skus, r.source.node_sku), (self._skus, r.source.gpu_sku)):
            if key is not None and key in known:
                return known[key]
        return self._mean

    def usd(self, r: Recommendation) -> Interval:
        """What it is worth a month. What it claims in dollars counts alone; else freed hours, else energy."""
        if r.saving_usd_per_month is not None:
            return r.saving_usd_per_month
        if r.freed_gpu_hours_per_month > 0:
            price = self.gpu_hour_usd(r)
            value = r.freed_gpu_hours_per_month * (USD_PER_GPU_HOUR if price is None else price)
            return Interval(value, value, value)
        kwh = r.energy_saving_kwh_per_month
        if kwh is None:
            return Interval(0.0, 0.0, 0.0)
        return Interval(kwh.p10 * USD_PER_KWH, kwh.p50 * USD_PER_KWH, kwh.p90 * USD_PER_KWH)

    def shows(self, r: Recommendation) -> bool:
        """Whether lists and mails show it: unblocked, at or above the minimum, a gain that is sure to be one, and no
        move to a dearer fabric without its reason."""
        gain = self.usd(r)
        codes = {one.code for one in r.changes}
        unexplained = DEARER_FABRIC in codes and not codes & FABRIC_REASONS
        return not r.blocked_by and gain.p50 > 0 and gain.p50 >= self.minimum and gain.p10 > 0 and not unexplained

    def key(self, r: Recommendation) -> tuple[float, str]:
        """The order of lists: what is worth most first."""
        return (-self.usd(r).p50, r.id)

    def ranked(self, every: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
        return tuple(sorted(every, key=self.key))


def marked(advice: Advice) -> Advice:
    """The advice with each recommendation told to be shown or not."""
    worth = Worth(advice)
    ways = tuple(replace(r, shown=worth.shows(r)) for r in advice.recommendations)
    return replace(advice, recommendations=ways)
