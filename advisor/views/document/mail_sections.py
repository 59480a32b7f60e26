"""The sections that a mail begins with: what to do, and this week compared with the last."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import formatting as words
from .. import coverage as cover
from ..titles import monthly
from ..worth import folded
from . import sections
from .dashboard import Dashboard
from .model import AsideBlock, Chart, Figures, Link, Section, Table, section
from .reader_commands import ReaderCommands
from .report_content import TOLD_IN_FULL, Change, Story
from .select_moves import Move
from .truncate import Lengths

_OF_CHANGES = 5  # new, resolved and done, each


def recommendations(
    story: Story, lengths: Lengths, commands: ReaderCommands, dashboard: Dashboard | None = None
) -> Section:
    """The recommendations worth most in full; those in an earlier report, and all others, in a line each."""
    new = [m for m in story.moves if not m.told]
    others = [*new[TOLD_IN_FULL:], *(m for m in story.moves if m.told)]
    if not story.moves:
        return section("Recommendations", _none(story), _folded(story))

    def row(m: Move) -> tuple[str, ...]:
        told = " (in an earlier report)" if m.told else ""
        return f"{lengths.sentence(m.title, 120)}{told}", m.gain, lengths.name(m.id)

    return section(
        "Recommendations",
        "" if new else "Nothing new this week. Still open from earlier reports:",
        *(_card(number, m, lengths, commands, dashboard) for number, m in enumerate(new[:TOLD_IN_FULL], 1)),
        Table(
            ("other recommendations", "gain", "id"), tuple(map(row, others[: lengths.moves])), (),
            lengths.more(others, lengths.moves),
        ),
        _folded(story),
        AsideBlock("All recommendations:", commands.advise("--all")) if others else None,
    )  # fmt: skip


def _card(number: int, m: Move, lengths: Lengths, commands: ReaderCommands, dashboard: Dashboard | None) -> Section:
    r = m.recommendation
    url = dashboard.of(m.workload, m.node) if dashboard is not None else ""
    return section(
        f"{number}. {lengths.sentence(m.title, 120)}: {m.gain}",
        lengths.sentence(m.evidence or r.text),
        Figures(
            (
                ("Gain", sections.gain(r)),
                ("Kind of gain", sections.realisation_words(r.realisation, r.available_from, lengths)),
                *((("Predicted time", words.time_words(r.time_ratio)),) if r.time_ratio is not None else ()),
                ("Risk", r.risk),
            )
        ),
        AsideBlock(sections.wrong_if(r.would_change_if, lengths)),
        Link("Dashboard", url) if url else None,
        AsideBlock(commands.lead, commands.explain(m.id)),
    )


def _none(story: Story) -> str:
    s = story.advice.summary
    if s.nothing_judged and s.gpu_count:
        return f"No recommendation yet. {cover.why_not_judged(s)}"
    blocked = sum(bool(r.blocked_by) for r in story.advice.recommendations)
    if blocked:
        return f"No open recommendation. {words.counted(blocked, 'recommendation')} blocked."
    if s.partly_judged:
        return f"No recommendation for the GPUs that were judged ({cover.judged_of(s)})."
    return "No open recommendation."


def _folded(story: Story) -> str:
    """What is below the minimum gain, counted."""
    rest = folded(story.advice)
    if not rest.count:
        return ""
    many = f"{rest.count} smaller recommendations are" if rest.count > 1 else "1 smaller recommendation is"
    priced = words.has_prices(story.advice.summary)
    least = f" (below {words.usd(rest.minimum)}/month, or uncertain)" if priced else ""
    return f"{many} not listed{least}."


def comparison(story: Story, chart: Chart | None) -> Section:
    """This week against the last: figures, and GPU-hours by kind."""
    told = sections.kinds_words(story.hours_by_kind) if chart is None and story.hours_by_kind else ""
    return section(
        "This week compared with last week",
        "" if story.has_before else "No complete data of the week before: nothing to compare with.",
        _figures(story) if story.has_before else None,
        told,
        chart,
    )


def _figures(story: Story) -> Table:
    def row(what: str, change: Change, value: str, before: str) -> tuple[str, ...] | None:
        if change.now is None and change.before is None:
            return None
        return what, value, before, sections.change_words(change)

    def hours(change: Change) -> tuple[str, str]:
        return sections.bare_hours(change.now), sections.bare_hours(change.before)

    def month(change: Change) -> tuple[str, str]:
        return words.usd(monthly(change.now, story.advice)), words.usd(monthly(change.before, story.advice))

    recoverable = story.recoverable_usd_per_month
    kwh = tuple(f"{value:,.0f}" if value is not None else "unknown" for value in (story.kwh.now, story.kwh.before))
    rows = (
        row("Spend, $/month", story.cost_usd, *month(story.cost_usd)),
        row("Wasted, $/month", story.wasted_usd, *month(story.wasted_usd)),
        row("Recoverable, $/month", recoverable, words.usd(recoverable.now), words.usd(recoverable.before)),
        row("GPU-hours, this week", story.gpu_hours, *hours(story.gpu_hours)),
        row("Energy, kWh this week", story.kwh, *kwh),
    )
    return Table(("", "this week", "last week", "change"), tuple(r for r in rows if r is not None), (1, 2, 3))


def changes(story: Story, lengths: Lengths, commands: ReaderCommands) -> tuple[Section, ...]:
    """New, resolved and done since last week; nothing where there is no week before and nothing was done."""
    c = story.changes
    if not c.compared and not c.done:
        return ()
    done = [
        f"{lengths.sentence(o.about, 80)}: {o.action}"
        + (f" (saves {words.usd(o.realised_saving_usd_per_month)}/month, measured)"
           if o.realised_saving_usd_per_month is not None else "")
        for o in c.done
    ]  # fmt: skip
    rows = [*_rows("New", c.new, lengths), *_rows("Resolved", c.resolved, lengths), *_rows("Done", done, lengths)]
    if not rows:
        return (section("Changes since last week", "No finding is new or resolved."),)
    smaller = words.counted(c.smaller, "smaller change")
    return (
        section(
            "Changes since last week",
            Table(("change", "what"), tuple(rows)),
            AsideBlock(f"{smaller} not listed.") if c.smaller else None,
            AsideBlock("History:", commands.ledger_list()) if done else None,
        ),
    )


def _rows(what: str, lines: Sequence[str], lengths: Lengths) -> list[tuple[str, str]]:
    shown = min(_OF_CHANGES, lengths.rows)
    rows = [(what if not n else "", lengths.sentence(one, 160)) for n, one in enumerate(lines[:shown])]
    more = lengths.more(lines, shown)
    return [*rows, ("" if rows else what, more)] if more else rows
