"""The head and the foot of every page on an advice, whole or a team's part, as a page or as a mail."""

from __future__ import annotations

from ...core import formatting as words
from ...core.timestamps import day, minute
from ...core.worth import CAPACITY, RECOVERABLE, SLOWED, WASTED, selected
from .. import coverage
from ..aggregates import holdings
from ..document import Tile, brief
from ..titles import covered_hours, monthly, short_usd, usd_per_month
from .story import Change, Story

_HINT_LENGTH = 320


def subject(story: Story) -> str:
    """``GPU report, team nlp: $734k/month spend, $72k/month recoverable (10 %) (week of 2026-11-16)``."""
    missing = coverage.short_words(story.advice)
    notes = "; ".join(part for part in (f"week of {day(story.advice.start)}", missing) if part)
    team = "" if story.team is None else f", team {brief(story.team)}"
    return f"GPU report{team}: {_headline(story)} ({notes})"


def heading(story: Story) -> str:
    """The title of a page: the subject without the week."""
    return f"{'GPU fleet' if story.team is None else f'Team {brief(story.team)}'}: {_headline(story)}"


def _headline(story: Story) -> str:
    """Spend and recoverable cash, both per month."""
    a, s = story.advice, story.advice.summary
    if story.empty:
        return "no GPU work observed"
    spend, cash = monthly(s.cost_usd, a), s.recoverable_usd_per_month
    if spend is None:
        spent = f"{words.hours(monthly(s.gpu_hours, a) or 0.0)}/month"
        free = selected(a).capacity_gpu_hours
        gain = f"{words.hours(free)}/month recoverable" if free else ""
    else:
        spent = f"{short_usd(spend)}/month spend"
        share = f" ({words.percent(cash / spend)})" if cash and spend > 0 and cash / spend >= 0.005 else ""
        gain = f"{short_usd(cash)}/month recoverable{share}" if cash else ""
    if not gain and s.nothing_judged and not cash:
        gain = "savings not judged yet"
    elif not gain:
        gain = f"no savings available now{', not all judged' if coverage.open_verdicts(a) else ''}"
    return f"{spent}, {gain}"


def window(story: Story) -> str:
    """``2026-11-02 to 2026-11-16 UTC (14 of 14 days observed): all 16 GPUs, 5,376 GPU-hours``."""
    return f"{coverage.window_words(story.advice)}: {coverage.size_words(story.advice.summary)}"


def basis(story: Story) -> str:
    """The prices behind the dollars, or how to configure them; and what could not be judged."""
    a, s = story.advice, story.advice.summary
    if s.cost_usd is not None:
        prices = f"Costs are {words.price_note(a.prices)}. A month has 730 hours."
    else:
        hints = " ".join(brief(note, _HINT_LENGTH) for note in a.notes if note.code in words.PRICE_NOTES)
        prices = hints or "No price is known. Costs are in GPU-hours."
    return f"{prices} {coverage.extent_sentence(s)}".rstrip()


def tiles(story: Story, open_most: int = 2) -> tuple[Tile, ...]:
    """Spend, waste and savings per month, with the window's figures and what each sum means. `open_most`: lines on what
    was not judged."""
    a, s = story.advice, story.advice.summary
    hours, free = covered_hours(a), selected(a).capacity_gpu_hours
    days = f"{hours / 24:,.3g} days" if hours >= 48 else f"{hours:,.3g} h"
    capacity = f"up to {words.hours(free)}/month" if free else "none available now"
    covered = (
        Tile("Coverage", f"{coverage.observed_time(a)}; {coverage.gpus_words(s)}"),
        *(Tile("" if n else "Not judged", text) for n, text in enumerate(coverage.open_verdicts(a, open_most))),
    )

    def in_window(value: str, change: Change) -> str:
        return ", ".join(filter(None, (f"{value} in {days}", change.words)))

    def judged(label: str, value: str, change: str, meaning: str, is_known: bool = True) -> Tile:
        """A sum that needs verdicts: not zero where nothing was judged, and with its extent where some was."""
        if not is_known or (s.nothing_judged and label == "Capacity" and not free):
            return Tile(label, coverage.not_judged(s) if s.nothing_judged else "unknown", "", meaning)
        part = coverage.judged_of(s) if s.partly_judged else ""
        return Tile(label, value, "; ".join(filter(None, (change, part))), meaning)

    def month(value: float | None) -> str:
        return "unknown" if value is None else usd_per_month(monthly(value, a) or value)

    if s.cost_usd is None:
        idle = words.hours(sum(h.gpu_hours for h in holdings(a)))
        held = f"{words.hours(monthly(s.gpu_hours, a) or s.gpu_hours)}/month"
        return (
            Tile("GPU-hours", held, in_window(words.hours(s.gpu_hours), story.change("gpu_hours"))),
            judged("Idle", f"{idle} in {days}", "", "", not s.nothing_judged),
            judged("Capacity", capacity, "", CAPACITY),
            *covered,
        )
    cash, spread = s.recoverable_usd_per_month, words.spread(s.recoverable_interval_usd_per_month).strip(" ()")

    def waste(label: str, value: float | None, change: Change, meaning: str) -> Tile:
        amount = in_window(words.usd(value), change)
        return judged(label, month(value), amount, meaning if value else "", value is not None)

    return (
        Tile("Spend", month(s.cost_usd), in_window(words.usd(s.cost_usd), story.change("cost_usd"))),
        waste("Wasted", s.wasted_usd, story.change("wasted_usd"), WASTED),
        waste("Slowed", s.slowed_usd, story.change("slowed_usd"), SLOWED),
        judged("Recoverable", usd_per_month(cash or 0.0) if cash else "no cash savings available now",
               spread and f"{spread}, 10th to 90th percentile", RECOVERABLE if cash else "", cash is not None),
        *((judged("Capacity", capacity, "", CAPACITY),) if free else ()),
        *covered,
    )  # fmt: skip


def written(story: Story) -> str:
    """What wrote the page, when, and from what."""
    when = minute(story.advice.generated_at)
    return f"Written by skuwise, {when}, from telemetry alone: nothing was changed on any node."
