"""A story in words: its head, then its sections in the order in which people read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .. import words
from ..moments import day, minute
from . import sections
from .accepted import accepted
from .brief import Brief, brief
from .page import Chart, Page, Section, Tile
from .sections import Lengths, change_words
from .story import Change, Story

_HINT_LENGTH = 320
KINDS, MONEY, FABRIC = "kinds", "money", "fabric"  # the charts' names


def page_of(story: Story, charts: Mapping[str, Chart], lengths: Lengths, left_out: Sequence[str] = ()) -> Page:
    """A mail in words, its lists cut to `lengths`. `charts` by name (`KINDS`, `MONEY`, `FABRIC`): those that say
    something about this story. `left_out`: lists that are too large to go with it.
    """
    if story.empty:
        return _empty(story)
    brevity = brevity_of(story)
    too_large = f"Too large for a mail: {', '.join(left_out)}; skuwise advise --format json tells it all."
    return headed(
        story,
        (
            kinds_section(
                "This week against last",
                story,
                charts.get(KINDS),
                () if story.has_before else ("There is no week before to compare with.",),
            ),
            sections.moves(story, brevity, lengths),
            *((sections.teams(story, lengths),) if len(story.teams) > 1 else ()),
            sections.idle(story, lengths),
            sections.fabric(story, charts.get(FABRIC), lengths),
            sections.coverage(story, brevity, lengths),
            accepted(story, brevity, lengths),
            sections.method(story, charts.get(MONEY)),
            sections.prices(story, lengths),
        ),
        (too_large,) if left_out else (),
    )


def brevity_of(story: Story) -> Brief:
    """What cuts the names of a story's sentences."""
    a = story.advice
    owners = (value for w in a.workloads for value in (w.owner.team, w.owner.user, w.owner.account, w.owner.namespace))
    nodes = (n for w in a.workloads for n in w.nodes)
    return Brief([*(w.name for w in a.workloads), *owners, *a.nodes, *nodes, story.team])


def headed(story: Story, parts: Sequence[Section], footer: Sequence[str] = ()) -> Page:
    """A report's sections under its head."""
    heading = f"{_whose(story)}: {_headline(story)}"
    a = story.advice
    return Page(
        title=f"{heading} ({day(a.start)})",
        heading=heading,
        window=words.window_words(a.start, a.end),
        summary=_summary(story),
        tiles=_tiles(story),
        sections=tuple(parts),
        footer=(*footer, _written(story)),
    )


def _empty(story: Story) -> Page:
    a = story.advice
    window, heading = words.window_words(a.start, a.end), f"{_whose(story)}: no GPU work seen"
    said = f"No GPU work was seen from {window}."
    if story.team is not None:
        said += (
            " Either there was none, or it is not told apart as this team's: the administrators' report shows what was "
            "seen of all teams, and what could not be."
        )
    return Page(f"{heading} ({day(a.start)})", heading, window, said, (), (), (_written(story),))


def _whose(story: Story) -> str:
    return "The fleet" if story.team is None else brief(story.team)


def _written(story: Story) -> str:
    when = minute(story.advice.generated_at)
    return f"Written by skuwise, {when}, from telemetry alone: nothing was changed on any node."


def kinds_words(kinds: Mapping[str, Change]) -> str:
    """GPU-hours by kind in a sentence: what their chart shows."""
    told = "; ".join(
        f"{kind} {sections.bare_hours(change.now)}"
        + (f", was {sections.bare_hours(change.before)}" if change.before is not None else "")
        for kind, change in kinds.items()
    )
    return f"GPU-hours by kind: {told}."


def kinds_section(title: str, story: Story, chart: Chart | None, said: Sequence[str] = ()) -> Section:
    """What the GPUs did, as a chart, or in words where one would show nothing."""
    told = (kinds_words(story.hours_by_kind),) if chart is None and story.hours_by_kind else ()
    return Section(title, (*said, *told), chart=chart)


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
        hint = " ".join(brief(note, _HINT_LENGTH) for note in story.advice.notes if words.about_prices(note))
        return f"{told}. {hint or 'No price is known.'} Open moves free {words.hours(_freed(story))} a month."
    told += f", {words.usd(s.cost_usd)} ({words.price_note(story.advice.prices)})."
    if not s.recoverable_usd_per_month:
        return f"{told} No cash is to be had back today."
    return f"{told} To be had back in cash: {words.recoverable(s)}."


def _tiles(story: Story) -> tuple[Tile, ...]:
    def tile(label: str, change: Change, say: Callable[[float | None], str]) -> Tile:
        was = f"was {say(change.before)}" if change.before is not None else ""
        return Tile(label, say(change.now), ", ".join(part for part in (was, change_words(change)) if part))

    hours = tile("GPU-hours", story.gpu_hours, sections.bare_hours)
    if story.cost_usd.now is None:
        return (
            replace(hours, label="Cost in GPU-hours"),
            Tile("Idle GPU-hours", sections.bare_hours(sum(h.gpu_hours for h in story.holdings))),
            Tile("GPU-hours to free a month", sections.bare_hours(_freed(story))),
        )
    spread = words.spread(story.recoverable_interval_usd_per_month)
    return (
        hours,
        tile("Cost", story.cost_usd, words.usd),
        tile("Of it wasted", story.wasted_usd, words.usd),
        Tile("Cash to gain a month", words.usd(story.recoverable_usd_per_month.now), spread.strip(" ()")),
    )


def _freed(story: Story) -> float:
    return sum(m.freed_gpu_hours_per_month for m in story.moves)
