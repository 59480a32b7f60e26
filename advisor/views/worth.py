"""Which recommendations lists and mails show, in which order, and what the rest adds up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..core.advice_types import Advice, Recommendation
from ..core.exclusions import compatible
from ..core.worth import Worth


@dataclass(frozen=True, slots=True)
class Folded:
    """Recommendations that a list leaves out: how many, and what they gain a month, those that exclude one another
    counted once: US dollars claimed, GPU-hours freed and energy saved where no dollars are claimed. `minimum`: the gain
    in US dollars a month below which one is left out."""

    count: int
    usd_per_month: float
    gpu_hours_per_month: float
    kwh_per_month: float
    minimum: float


def worth_showing(r: Recommendation, advice: Advice) -> bool:
    """Whether lists and mails show it: its gain reaches the minimum and is sure to be one."""
    return r.shown if r.shown is not None else Worth(advice).shows(r)


def is_open(r: Recommendation) -> bool:
    """Whether it waits for a decision: not blocked, and not accepted, dismissed, snoozed or done."""
    return not r.blocked_by and (r.decision is None or r.decision.state in ("proposed", "regressed"))


def shown_recommendations(advice: Advice) -> tuple[Recommendation, ...]:
    """The open ones that are worth showing, what is worth most first, none that an earlier or an accepted one
    excludes."""
    worth = Worth(advice)
    settled = [r for r in advice.recommendations if r.decision is not None and r.decision.state in ("accepted", "done")]
    ranked = worth.ranked(r for r in advice.recommendations if is_open(r) and worth.shows(r))
    ids = {r.id for r in settled}
    return tuple(r for r in compatible((*settled, *ranked)) if r.id not in ids)


def folded(advice: Advice, shown: Iterable[Recommendation] = ()) -> Folded:
    """The open ones with a gain that are not worth showing. `shown`: are left out as well."""
    worth, known = Worth(advice), {r.id for r in shown}
    rest = [r for r in small_recommendations(advice) if r.id not in known]
    usd = hours = kwh = 0.0
    for r in compatible(rest):
        if r.saving_usd_per_month is not None:
            usd += r.saving_usd_per_month.p50
        elif r.freed_gpu_hours_per_month > 0:
            hours += r.freed_gpu_hours_per_month
        elif r.energy_saving_kwh_per_month is not None:
            kwh += r.energy_saving_kwh_per_month.p50
    return Folded(len(rest), usd, hours, kwh, worth.minimum)


def small_recommendations(advice: Advice) -> tuple[Recommendation, ...]:
    """The open ones that gain something and are not worth showing, what is worth most first."""
    worth = Worth(advice)
    open_ = (r for r in advice.recommendations if is_open(r) and not worth.shows(r) and worth.usd(r).p50 > 0)
    return worth.ranked(open_)
