"""A report of a week as a mail's page: its head, then its sections in the order in which people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...core import formatting as words
from ...core.timestamps import day
from ...ledger.outcomes import MoveOutcome
from .. import coverage
from . import head, mail_sections, sections
from .dashboard import NO_DASHBOARD, Dashboard
from .energy_section import energy_section
from .model import AsideBlock, Chart, Document, Link, Section, Table, section
from .reader_commands import NO_COMMANDS, ReaderCommands
from .report_content import FABRIC, KINDS, MONEY, Story
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
            mail_sections.recommendations(story, lengths, commands, dashboard),
            mail_sections.comparison(story, charts.get(KINDS)),
            *mail_sections.changes(story, lengths, commands),
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
