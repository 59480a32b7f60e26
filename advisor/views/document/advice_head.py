"""The head of an advice: what the fleet costs a month, what is wasted and recoverable, and the coverage."""

from __future__ import annotations

from ...core import formatting as words
from ...core.advice_types import Advice
from ...core.exclusions import compatible
from .. import coverage
from ..titles import covered_hours, monthly, usd_per_month
from ..worth import shown_recommendations
from .model import Tile
from .truncate import brief

_HINT_LENGTH = 320


def heading(advice: Advice) -> str:
    """``GPU fleet: $2.2M/month spend, $26k/month recoverable (1 %)``."""
    s = advice.summary
    spend = monthly(s.cost_usd, advice)
    if not s.gpu_count and not advice.workloads:
        return "GPU fleet: no GPU observed"
    if spend is None:
        hours = monthly(s.gpu_hours, advice)
        return f"GPU fleet: {words.hours(hours if hours is not None else s.gpu_hours)}/month"
    told = f"GPU fleet: {short_usd(spend)}/month spend"
    cash = s.recoverable_usd_per_month
    if not cash:
        return told
    share = f" ({words.percent(cash / spend)})" if spend > 0 and cash / spend >= 0.005 else ""
    return f"{told}, {short_usd(cash)}/month recoverable{share}"


def short_usd(value: float) -> str:
    """``$2.2M``, ``$734k``, ``$8,123``: for a headline."""
    for unit, sign in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * unit or (sign == "M" and abs(value) >= unit):
            return f"${value / unit:,.0f}{sign}" if abs(value) >= 10 * unit else f"${value / unit:,.1f}{sign}"
    return words.usd(value)


def basis(advice: Advice) -> str:
    """What the dollars rest on; without any, what to set to get them."""
    if advice.summary.cost_usd is not None:
        return f"Costs are {words.price_note(advice.prices)}. A month has 730 hours."
    hints = [brief(note, _HINT_LENGTH) for note in advice.notes if note.code in words.PRICE_NOTES]
    return " ".join(hints) if hints else "No price is known. Costs are in GPU-hours."


def figures(advice: Advice) -> tuple[Tile, ...]:
    """Spend, waste and savings of a month, with the window's figures in brackets, and the coverage."""
    s = advice.summary
    days = _days(advice)
    covered = Tile("Coverage", f"{coverage.observed_time(advice)}; {_judged(advice)}")
    if s.cost_usd is None:
        return (Tile("GPU-hours", _hours(s.gpu_hours, advice), f"{words.hours(s.gpu_hours)} in {days}"), covered)

    def tile(label: str, value: float | None) -> Tile:
        if value is None:
            return Tile(label, coverage.not_judged(s) if s.nothing_judged else "unknown")
        month = monthly(value, advice)
        return Tile(label, usd_per_month(value if month is None else month), f"{words.usd(value)} in {days}")

    return (
        tile("Spend", s.cost_usd),
        tile("Wasted", s.wasted_usd),
        Tile("Recoverable", *_recoverable(advice)),
        covered,
    )


def _recoverable(advice: Advice) -> tuple[str, str]:
    s = advice.summary
    cash = s.recoverable_usd_per_month
    if cash is None:
        return (coverage.not_judged(s) if s.nothing_judged else "unknown"), ""
    free = freed_hours(advice)
    also = f"also up to {words.hours(free)}/month of capacity" if free > 0 else ""
    spread = words.spread(s.recoverable_interval_usd_per_month).strip(" ()")
    told = f"{usd_per_month(cash)} in cash" if cash else "no cash savings available now"
    return told, "; ".join(part for part in (spread, also) if part)


def freed_hours(advice: Advice) -> float:
    """GPU-hours a month that the shown recommendations free without dollars, those that exclude one another once."""
    ways = compatible(shown_recommendations(advice))
    return sum(r.freed_gpu_hours_per_month for r in ways if r.saving_usd_per_month is None)


def _hours(value: float, advice: Advice) -> str:
    month = monthly(value, advice)
    return f"{words.hours(value if month is None else month)}/month"


def _days(advice: Advice) -> str:
    hours = covered_hours(advice)
    return f"{hours / 24:,.3g} days" if hours >= 48 else f"{hours:,.3g} h"


def _judged(advice: Advice) -> str:
    s = advice.summary
    gpus = coverage.gpus_words(s)
    return f"{gpus}; waste {coverage.judged_of(s)}" if s.partly_judged else gpus
