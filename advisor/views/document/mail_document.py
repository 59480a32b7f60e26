"""A report of a week as a mail's page: its head, then its sections in the order in which people read them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...core import formatting as words
from ...core.timestamps import day
from ...state.outcomes import MoveOutcome
from .. import coverage
from ..titles import Row, left_out_words, monthly
from . import head, sections
from .advice_page import no_recommendation
from .dashboard import NO_DASHBOARD, Dashboard
from .energy_section import energy_section
from .model import AsideBlock, Chart, Document, Figures, Link, Section, Table, section
from .reader_commands import NO_COMMANDS, ReaderCommands
from .report_content import FABRIC, KINDS, MONEY, Change, Story
from .truncate import Brevity, Lengths


@dataclass(frozen=True, slots=True)
class ReaderLinks:
    """Where the reader of a mail goes on: the commands that print details, and the site's dashboard."""

    commands: ReaderCommands = NO_COMMANDS
    dashboard: Dashboard = NO_DASHBOARD


NO_LINKS = ReaderLinks()


def mail_document(
    story: Story,
    charts: Mapping[str, Chart],
    lengths: Lengths,
    left_out: Sequence[str] = (),
    links: ReaderLinks = NO_LINKS,
) -> Document:
    """The page, its lists cut to `lengths`. `charts` by name: those that say something about this story. `left_out`:
    lists that are too large to go with it.
    """
    a = story.advice
    commands = links.commands.of_window(a.start, min(a.end, a.generated_at))
    dashboard = replace(links.dashboard, team=story.team or "", start=a.start, end=a.end)
    if story.empty:
        return _empty(story)
    lengths = replace(lengths, brevity=_brevity(story))
    too_large = f"Too large for a mail: {', '.join(left_out)}. To print it: {commands.advise('--format', 'json')}"
    return Document(
        title=head.subject(story),
        heading=head.heading(story),
        window=head.window(story),
        summary=head.basis(story),
        tiles=head.tiles(story),
        link=Link("Dashboard", dashboard.page) if dashboard.page else None,
        sections=(
            recommendations(story, lengths, commands, dashboard),
            comparison(story, charts.get(KINDS)),
            *changes(story, lengths, commands),
            *((sections.teams(story, lengths),) if len(story.teams) > 1 else ()),
            sections.idle(story, lengths),
            sections.fabric(story, charts.get(FABRIC), lengths),
            *energy_section(story, lengths, narrow=True),
            sections.coverage(story, lengths),
            accepted(story.outcomes, lengths, commands),
            sections.method(story, charts.get(MONEY)),
            sections.prices(a.prices, lengths),
        ),
        footer=(*((too_large,) if left_out else ()), head.written(story)),
    )  # fmt: skip


def _brevity(story: Story) -> Brevity:
    """What cuts the names of a story's sentences."""
    a = story.advice
    owners = (value for w in a.workloads for value in (w.owner.team, w.owner.user, w.owner.account, w.owner.namespace))
    nodes = (n for w in a.workloads for n in w.nodes)
    return Brevity([*(w.name for w in a.workloads), *owners, *a.nodes, *nodes, story.team])


def _empty(story: Story) -> Document:
    window = coverage.window_words(story.advice)
    said = f"No GPU work was observed from {window}."
    if story.team is not None:
        said += (
            " Either there was none, or telemetry does not show that it is this team's. The administrators' report "
            "lists all teams and what was not observed."
        )
    title, heading = head.subject(story), head.heading(story)
    return Document(title, heading, window, said, (), (), (head.written(story),))


def accepted(outcomes: Sequence[MoveOutcome], lengths: Lengths, commands: ReaderCommands) -> Section:
    title = "Accepted recommendations and their savings"
    if not outcomes:
        return section(title, "No accepted or completed recommendation is on record.")

    def row(o: MoveOutcome) -> tuple[str, ...]:
        when = o.done_at if o.done_at is not None else o.accepted_at
        saving, ratio = o.predicted_saving_usd_per_month, o.predicted_time_ratio
        told = _figures(
            saving.p50 if saving else None, o.predicted_freed_gpu_hours_per_month or None, ratio.p50 if ratio else None
        )
        real = _figures(o.realised_saving_usd_per_month, o.realised_freed_gpu_hours_per_month, o.realised_time_ratio)
        to = "nothing held" if o.to_config == words.NONE else lengths.name(o.to_config, 80)
        change = f"{lengths.sentence(o.about, 80)}: {lengths.name(o.from_config, 80)} to {to}"
        return (
            f"{change}. {lengths.sentence(o.why, 240)}" if o.why else change,
            f"{o.state}{f', {day(when)}' if when is not None else ''}", told or words.NONE,
            real or lengths.sentence(o.reason_missing or words.NONE, 160), lengths.name(o.id),
        )  # fmt: skip

    shown = outcomes[: lengths.rows]
    return section(
        title,
        _saved(outcomes),
        Table(("recommendation", "state", "predicted", "measured", "id"), tuple(map(row, shown)), (),
              lengths.more(outcomes, lengths.rows)),
        AsideBlock("History and figures:", commands.ledger_list()),
    )  # fmt: skip


def _saved(outcomes: Sequence[MoveOutcome]) -> str:
    """The savings that were measured and last: what was reverted saves nothing any more."""
    done = [o for o in outcomes if o.state == "done" and o.realised_saving_usd_per_month is not None]
    if not done:
        return ""
    real = sum(o.realised_saving_usd_per_month or 0.0 for o in done)
    predicted = [o.predicted_saving_usd_per_month for o in done]
    known = sum(p.p50 for p in predicted if p is not None)
    of = f", of {words.usd(known)} predicted." if None not in predicted else "."
    moves = "1 recommendation was measured" if len(done) == 1 else f"{len(done)} recommendations were measured"
    return f"{moves}: {words.usd(real)}/month saved{of}"


def _figures(usd: float | None, freed: float | None, ratio: float | None) -> str:
    """Dollars, else GPU-hours, and the time; empty where none is known."""
    gain = f"{words.usd(usd)}/month" if usd is not None else f"{words.hours(freed)}/month" if freed is not None else ""
    return ", ".join(part for part in (gain, f"x{ratio:.2f} the time" if ratio is not None else "") if part)


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
        _week_figures(story) if story.has_before else None,
        told,
        chart,
    )


def _week_figures(story: Story) -> Table:
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
