"""A report of a week as a mail's page: its head, then its sections in the order in which people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .. import coverage
from . import footer, mail_head, mail_sections, sections
from .dashboard import NO_DASHBOARD, Dashboard
from .energy_section import energy_section
from .model import Chart, Document, Link
from .outcomes import accepted
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
        title=mail_head.subject(story),
        heading=mail_head.heading(story),
        window=coverage.window_words(a),
        summary=mail_head.summary(story),
        tiles=mail_head.tiles(story),
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
        footer=(*((too_large,) if left_out else ()), footer.written(story)),
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
    title, heading = mail_head.subject(story), mail_head.heading(story)
    return Document(title, heading, window, said, (), (), (footer.written(story),))
