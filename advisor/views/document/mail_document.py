"""A story in words: its head, then its sections in the order in which people read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...core import formatting as words
from ...core.timestamps import day, minute
from .. import coverage
from . import sections
from .outcomes_section import accepted
from .report_content import Change, Story
from .sections import Lengths, change_words
from .truncate import Brief, brief
from .types import Chart, Page, Section, Tile

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
        title=_subject(story, heading),
        heading=heading,
        window=coverage.window_words(a),
        summary=_summary(story),
        tiles=_tiles(story),
        sections=tuple(parts),
        footer=(*footer, _written(story)),
    )


def _empty(story: Story) -> Page:
    a = story.advice
    window, heading = coverage.window_words(a), f"{_whose(story)}: no GPU work observed"
    said = f"No GPU work was observed from {window}."
    if story.team is not None:
        said += (
            " Either there was none, or it is not told apart as this team's: the administrators' report shows what was "
            "observed of all teams, and what could not be."
        )
    return Page(_subject(story, heading), heading, window, said, (), (), (_written(story),))


def _subject(story: Story, heading: str) -> str:
    missing = coverage.short_words(story.advice)
    return f"{heading} ({'; '.join(part for part in (day(story.advice.start), missing) if part)})"


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
    told = f"{coverage.observed_time(story.advice)}; {coverage.size_words(s)}"
    if s.cost_usd is None:
        if s.nothing_judged:
            return f"{told}. {coverage.why_not_judged(s)}"
        hint = " ".join(brief(note.text, _HINT_LENGTH) for note in story.advice.notes if note.code in words.PRICE_NOTES)
        freed = f"Open recommendations free {words.hours(_freed(story))} a month."
        return f"{told}. {hint or 'No price is known.'} {freed}"
    told += f", {words.usd(s.cost_usd)} ({words.price_note(story.advice.prices)})."
    if s.nothing_judged and s.recoverable_usd_per_month is None:
        return f"{told} {coverage.why_not_judged(s)}"
    of = f" Waste was {coverage.judged_of(s)}." if s.partly_judged else ""
    if not s.recoverable_usd_per_month:
        return f"{told} No cash savings available now.{of}"
    return f"{told} Recoverable in cash: {words.recoverable(s)}.{of}"


def _tiles(story: Story) -> tuple[Tile, ...]:
    def tile(label: str, change: Change, say: Callable[[float | None], str]) -> Tile:
        was = f"was {say(change.before)}" if change.before is not None else ""
        return Tile(label, say(change.now), ", ".join(part for part in (was, change_words(change)) if part))

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
    return sum(m.freed_gpu_hours_per_month for m in story.moves)
