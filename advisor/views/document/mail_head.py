"""The head of a mail: its subject, its headline and its tiles, all of one period: a month."""

from __future__ import annotations

from ...core import formatting as words
from ...core.timestamps import day, minute
from .. import coverage
from ..titles import monthly, usd_per_month
from . import sections
from .model import Tile
from .report_content import Change, Story
from .truncate import brief

_HINT_LENGTH = 320


def subject(story: Story) -> str:
    """``GPU report, team nlp: $72k/month recoverable of $734k/month (week of 2026-11-16)``."""
    missing = coverage.short_words(story.advice)
    notes = "; ".join(part for part in (f"week of {day(story.advice.start)}", missing) if part)
    return f"GPU report{_of_team(story, ', team ')}: {headline(story)} ({notes})"


def heading(story: Story) -> str:
    """The subject as a page's title: without the week, which stands above it."""
    told = headline(story)
    who = "GPU fleet" if story.team is None else f"Team {brief(story.team)}"
    return f"{who}: {told}"


def headline(story: Story) -> str:
    """What can be recovered of what is spent, both a month."""
    s = story.advice.summary
    if story.empty:
        return "no GPU work observed"
    spend = monthly(story.cost_usd.now, story.advice)
    if spend is None:
        freed, used = freed_hours(story), monthly(s.gpu_hours, story.advice) or 0.0
        of = f"{words.hours(used)}/month"
        if s.nothing_judged and not freed:
            return f"{of}, savings not judged yet"
        return f"{words.hours(freed)}/month recoverable of {of}" if freed else f"no savings found, {of}"
    of, saved = f"{short_usd(spend)}/month", s.recoverable_usd_per_month
    if saved:
        return f"{short_usd(saved)}/month recoverable of {of}"
    if s.nothing_judged and saved is None:
        return f"{of} spend, savings not judged yet"
    return f"{of} spend, no cash savings available now"


def summary(story: Story) -> str:
    """What was observed, what the dollars rest on, and what could not be judged."""
    a, s = story.advice, story.advice.summary
    seen = f"{coverage.size_words(s)}."
    seen = seen[:1].upper() + seen[1:]
    if s.cost_usd is None:
        if s.nothing_judged:
            return f"{seen} {coverage.why_not_judged(s)}"
        hint = " ".join(brief(note, _HINT_LENGTH) for note in a.notes if note.code in words.PRICE_NOTES)
        return f"{seen} {hint or 'No price is known.'}"
    told = f"{seen} Costs are {words.price_note(a.prices)}."
    if s.nothing_judged and s.recoverable_usd_per_month is None:
        return f"{told} {coverage.why_not_judged(s)}"
    return f"{told} Waste was {coverage.judged_of(s)}." if s.partly_judged else told


def tiles(story: Story) -> tuple[Tile, ...]:
    """Spend, waste and savings a month, with the week's figures in smaller type."""
    s = story.advice.summary

    def judged(label: str, value: str, change: str = "") -> Tile:
        """What is no zero where nothing was judged, and says of how many GPUs it is known where some were."""
        if s.nothing_judged:
            return Tile(label, "not judged", f"possible from {minute(s.judged_from)}" if s.judged_from else "")
        of = coverage.judged_of(s) if s.partly_judged else ""
        return Tile(label, value, ", ".join(part for part in (change, of) if part))

    hours = Tile("GPU-hours this week", sections.bare_hours(s.gpu_hours), since_last_week(story.gpu_hours))
    if s.cost_usd is None:
        idle = sum(h.gpu_hours for h in story.holdings)
        return (
            hours,
            judged("Idle GPU-hours this week", sections.bare_hours(idle)),
            judged("Recoverable GPU-hours", f"{words.hours(freed_hours(story), '').strip()}/month"),
        )
    spread = words.spread(story.recoverable_interval_usd_per_month).strip(" ()")
    return (
        Tile("Spend", _month(story, story.cost_usd.now), _week(story.cost_usd)),
        judged("Wasted", _month(story, s.wasted_usd), _week(story.wasted_usd)),
        judged("Recoverable", usd_per_month(s.recoverable_usd_per_month or 0.0), spread and f"{spread} (10th to 90th)")
        if s.recoverable_usd_per_month is not None
        else judged("Recoverable", "unknown"),
        hours,
    )


def short_usd(value: float) -> str:
    """Dollars for a headline: ``$734k``, ``$1.23M``; below $10,000 as they are."""
    if abs(value) < 1e4:
        return words.usd(round(value)) if abs(value) >= 1 else words.usd(value)
    if abs(value) < 999_500:
        return f"${value / 1e3:,.0f}k"
    return f"${value / 1e6:,.3g}M" if abs(value) < 999.5e6 else f"${value / 1e6:,.0f}M"


def since_last_week(change: Change) -> str:
    """``+4 % on last week``; empty where the two cannot be compared."""
    told = sections.change_words(change)
    return "" if not told else "same as last week" if told == sections.AS_BEFORE else f"{told} on last week"


def freed_hours(story: Story) -> float:
    """GPU-hours a month that the listed recommendations free."""
    return sum(m.recommendation.freed_gpu_hours_per_month for m in story.moves)


def _month(story: Story, value: float | None) -> str:
    told = monthly(value, story.advice)
    return usd_per_month(told) if told is not None else "unknown"


def _week(change: Change) -> str:
    told = f"{words.usd(change.now)} this week" if change.now is not None else ""
    return ", ".join(part for part in (told, since_last_week(change)) if part)


def _of_team(story: Story, lead: str) -> str:
    return "" if story.team is None else f"{lead}{brief(story.team)}"
