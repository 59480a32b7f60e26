"""The sections that a mail begins with: what to do, and this week compared with the last."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...core import formatting as words
from ..titles import Row, left_out_words, monthly
from . import sections
from .advice_page import no_recommendation
from .dashboard import Dashboard
from .model import AsideBlock, Chart, Figures, Link, Section, Table, section
from .reader_commands import ReaderCommands
from .report_content import Change, Story
from .truncate import Lengths

# A new sentence, not the dot of a figure or an abbreviation within one.
_SENTENCE_ENDS = re.compile(r"(?<=[\w)%][.])\s+(?=[A-Z])")

_OF_CHANGES = 5  # new, resolved and done, each


def recommendations(
    story: Story, lengths: Lengths, commands: ReaderCommands, dashboard: Dashboard | None = None
) -> Section:
    """The recommendations in the order of every list: the first new ones in full; those in an earlier report, accepted
    ones and all others in a line each."""
    full = set(story.told_in_full)
    cards = [row for row in story.listed if row.recommendation.id in full]
    others = [row for row in story.listed if row.recommendation.id not in full]

    def card(number: int, row: Row) -> Section:
        r = row.recommendation
        found = next((f for f in story.advice.findings if f.id in r.findings), None)
        own = next((w for w in story.advice.workloads if w.id == r.workload), None)
        nodes = sorted(found.nodes) if found is not None else list(own.nodes if own is not None else ())
        name = own.name if own is not None else ""
        url = dashboard.of(name, nodes[0] if nodes else "") if dashboard is not None else ""
        alternative = f"Instead of {row.instead_of}: not both." if row.instead_of else ""
        return section(
            f"{number}. {lengths.sentence(row.title, 120)}: {row.gain}",
            lengths.sentence(_SENTENCE_ENDS.split(found.text)[0] if found is not None else r.text),
            alternative,
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
            AsideBlock(commands.lead, commands.explain(r.id)),
        )

    def line(row: Row) -> tuple[str, ...]:
        told = " (in an earlier report)" if row.recommendation.id in story.told else ""
        return f"{lengths.sentence(row.title, 120)}{told}", row.remarks, lengths.name(row.id)

    return section(
        "Recommendations",
        no_recommendation(story) if not story.listed else "" if cards else
        "Nothing new this week. Still open from earlier reports:",
        *(card(number, row) for number, row in enumerate(cards, 1)),
        Table(
            ("other recommendations", "gain", "id"), tuple(map(line, others[: lengths.moves])), (),
            lengths.more(others, lengths.moves),
        ),
        left_out_words(story.rows),
        AsideBlock("All recommendations:", commands.advise("--all")) if story.rows else None,
    )  # fmt: skip


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
        return what, value, before, change.words

    def hours(change: Change) -> tuple[str, str]:
        return words.bare_hours(change.now), words.bare_hours(change.before)

    def month(change: Change) -> tuple[str, str]:
        return words.usd(monthly(change.now, story.advice)), words.usd(monthly(change.before, story.advice))

    recoverable = story.recoverable_usd_per_month
    kwh = tuple(f"{value:,.0f}" if value is not None else "unknown" for value in (story.kwh.now, story.kwh.before))
    rows = (
        row("Spend, $/month", story.cost_usd, *month(story.cost_usd)),
        row("Wasted, $/month", story.wasted_usd, *month(story.wasted_usd)),
        row("Slowed, $/month", story.slowed_usd, *month(story.slowed_usd)),
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
