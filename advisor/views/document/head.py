"""The head of a page on an advice: its subject, its figures, and what they rest on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...core import formatting as words
from ...core.timestamps import day, minute
from .. import coverage
from . import sections
from .model import Tile
from .report_content import Change, Story
from .truncate import brief

_HINT_LENGTH = 320


def subject(story: Story, heading: str) -> str:
    """The heading with its day, and what was not observed: for a subject line."""
    missing = coverage.short_words(story.advice)
    return f"{heading} ({'; '.join(part for part in (day(story.advice.start), missing) if part)})"


def whose(story: Story) -> str:
    return "The fleet" if story.team is None else brief(story.team)


def written(story: Story) -> str:
    when = minute(story.advice.generated_at)
    return f"Written by skuwise, {when}, from telemetry alone: nothing was changed on any node."


def headline(story: Story) -> str:
    spent = words.usd(story.cost_usd.now) if story.cost_usd.now is not None else words.hours(story.gpu_hours.now)
    cash = story.recoverable_usd_per_month.now
    if cash:
        return f"{spent} of GPUs, {words.usd(cash)} a month to gain" if story.cost_usd.now is not None else spent
    return f"{spent} of GPUs" if story.cost_usd.now is not None else spent


def summary(story: Story, lead: str = "") -> str:
    """The costs, what they rest on, and what is recoverable. `lead`: what stands before, without a full stop."""
    s = story.advice.summary
    if s.cost_usd is None:
        before = f"{lead}. " if lead else ""
        if s.nothing_judged:
            return f"{before}{coverage.why_not_judged(s)}"
        hint = " ".join(brief(note, _HINT_LENGTH) for note in story.advice.notes if note.code in words.PRICE_NOTES)
        freed = f"Open recommendations free {words.hours(_freed(story))} a month."
        return f"{before}{hint or 'No price is known.'} {freed}"
    cost = f"{words.usd(s.cost_usd)} ({words.price_note(story.advice.prices)})."
    told = f"{lead}, {cost}" if lead else f"Cost {cost}"
    if s.nothing_judged and s.recoverable_usd_per_month is None:
        return f"{told} {coverage.why_not_judged(s)}"
    of = f" Waste was {coverage.judged_of(s)}." if s.partly_judged else ""
    if not s.recoverable_usd_per_month:
        return f"{told} No cash savings available now.{of}"
    return f"{told} Recoverable in cash: {words.recoverable(s)}.{of}"


def tiles(story: Story) -> tuple[Tile, ...]:
    def tile(label: str, change: Change, say: Callable[[float | None], str]) -> Tile:
        was = f"was {say(change.before)}" if change.before is not None else ""
        return Tile(label, say(change.now), ", ".join(part for part in (was, sections.change_words(change)) if part))

    def judged(label: str, value: str, change: str = "") -> Tile:
        """What is no zero where nothing was judged, and says of how many GPUs it is known where some were."""
        if s.nothing_judged:
            return Tile(label, "not judged", f"possible from {minute(s.judged_from)}" if s.judged_from else "")
        of = coverage.judged_of(s) if s.partly_judged else ""
        return Tile(label, value, ", ".join(part for part in (change, of) if part))

    s = story.advice.summary
    hours = tile("GPU-hours", story.gpu_hours, sections.bare_hours)
    if story.cost_usd.now is None:
        return (
            replace(hours, label="Cost in GPU-hours"),
            judged("Idle GPU-hours", sections.bare_hours(sum(h.gpu_hours for h in story.holdings))),
            judged("GPU-hours to free a month", sections.bare_hours(_freed(story))),
        )
    wasted = tile("Of it wasted", story.wasted_usd, words.usd)
    spread = words.spread(story.recoverable_interval_usd_per_month)
    return (
        hours,
        tile("Cost", story.cost_usd, words.usd),
        judged("Of it wasted", wasted.value, wasted.change),
        judged("Recoverable a month", words.usd(story.recoverable_usd_per_month.now), spread.strip(" ()")),
    )


def _freed(story: Story) -> float:
    return sum(m.recommendation.freed_gpu_hours_per_month for m in story.moves)
