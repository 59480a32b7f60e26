"""A story in words: its head, then its sections in the order in which people read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .. import words
from ..moments import day, minute
from . import sections
from .brief import Brief, brief
from .page import Chart, Page, Section, Tile
from .sections import change_words
from .story import Change, Story

KINDS, MONEY, FABRIC = "kinds", "money", "fabric"  # the charts' names


def page_of(story: Story, charts: Mapping[str, Chart]) -> Page:
    """The report in words. `charts` by name (`KINDS`, `MONEY`, `FABRIC`): those that say something about this story."""
    a = story.advice
    brevity = Brief(
        [*(w.name for w in a.workloads), *(value for w in a.workloads for value in (w.owner.team, w.owner.user,
         w.owner.account, w.owner.namespace)), *a.nodes, story.team, *(n for w in a.workloads for n in w.nodes)]
    )  # fmt: skip
    whose = "The fleet" if story.team is None else brief(story.team)
    window = words.window_words(a.start, a.end)
    footer = (f"Written by skuwise, {minute(a.generated_at)}, from telemetry alone: nothing was changed on any node.",)
    if story.empty:
        said = (
            f"No GPU work of {whose if story.team is not None else 'the fleet'} was seen from {window}. That is either "
            "so, or its workloads are not told apart as its own: look at the routes, and at the coverage in the "
            "administrators' report."
        )
        title = f"{whose}: no GPU work seen, {day(a.start)} to {day(a.end)}"
        return Page(title, f"{whose}: no GPU work seen", window, said, (), (), footer)
    return Page(
        title=f"{whose}: {_headline(story)}, {day(a.start)} to {day(a.end)}",
        heading=f"{whose}: {_headline(story)}",
        window=window,
        summary=_summary(story),
        tiles=_tiles(story),
        sections=(
            *_this_week(story, charts.get(KINDS)),
            sections.moves(story, brevity),
            *((sections.teams(story),) if story.teams else ()),
            sections.idle(story),
            sections.fabric(story, charts.get(FABRIC)),
            sections.coverage(story, brevity),
            sections.accepted(story, brevity),
            sections.method(story, charts.get(MONEY)),
        ),
        footer=footer,
    )


def _this_week(story: Story, chart: Chart | None) -> tuple[Section, ...]:
    said = () if story.has_before else ("There is no week before to compare with.",)
    return (Section("This week against last", said, chart=chart),) if said or chart else ()


def _headline(story: Story) -> str:
    spent = words.usd(story.cost_usd.now) if story.cost_usd.now is not None else words.hours(story.gpu_hours.now)
    cash = story.recoverable_usd_per_month.now
    if cash:
        return f"{spent} of GPUs, {words.usd(cash)} a month to gain" if story.cost_usd.now is not None else spent
    return f"{spent} of GPUs" if story.cost_usd.now is not None else spent


def _summary(story: Story) -> str:
    s = story.advice.summary
    gpus = "1 GPU" if s.gpu_count == 1 else f"{s.gpu_count:,} GPUs"
    told = f"{gpus}, {words.hours(s.gpu_hours)}"
    if s.cost_usd is None:
        return f"{told}. No price is known. Open moves free {words.hours(_freed(story))} a month."
    told += f", {words.usd(s.cost_usd)} ({words.price_note(story.advice.prices)})."
    return f"{told} To be had back in cash: {words.recoverable(s)}."


def _tiles(story: Story) -> tuple[Tile, ...]:
    def tile(label: str, change: Change, say: Callable[[float | None], str]) -> Tile:
        was = f"was {say(change.before)}" if change.before is not None else ""
        return Tile(label, say(change.now), ", ".join(part for part in (was, change_words(change)) if part))

    hours = tile("GPU-hours", story.gpu_hours, sections.bare_hours)
    if story.cost_usd.now is None:
        return (
            hours,
            Tile("Cost", "unknown", "no price is known"),
            Tile("Idle GPU-hours", sections.bare_hours(sum(h.gpu_hours for h in story.holdings))),
            Tile("GPU-hours to free a month", sections.bare_hours(_freed(story))),
        )
    return (
        hours,
        tile("Cost", story.cost_usd, words.usd),
        tile("Of it wasted", story.wasted_usd, words.usd),
        Tile(
            "Cash to gain a month", words.usd(story.recoverable_usd_per_month.now),
            words.spread(story.recoverable_interval_usd_per_month).strip(),
        ),
    )  # fmt: skip


def _freed(story: Story) -> float:
    return sum(m.freed_gpu_hours_per_month for m in story.moves)
