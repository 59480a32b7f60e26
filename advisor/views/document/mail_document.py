"""A report of a week as a mail's page: its head, then its sections in the order in which people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .. import coverage
from . import head, sections
from .energy_section import energy_section
from .model import Chart, Document
from .outcomes import accepted
from .report_content import FABRIC, KINDS, MONEY, Story
from .truncate import Brevity, Lengths


def mail_document(
    story: Story, charts: Mapping[str, Chart], lengths: Lengths, left_out: Sequence[str] = ()
) -> Document:
    """The page, its lists cut to `lengths`. `charts` by name: those that say something about this story. `left_out`:
    lists that are too large to go with it.
    """
    if story.empty:
        return _empty(story)
    lengths = replace(lengths, brevity=_brevity(story))
    too_large = f"Too large for a mail: {', '.join(left_out)}; skuwise advise --format json tells it all."
    a = story.advice
    heading = f"{head.whose(story)}: {head.headline(story)}"
    return Document(
        title=head.subject(story, heading),
        heading=heading,
        window=coverage.window_words(a),
        summary=head.summary(story, f"{coverage.observed_time(a)}; {coverage.size_words(a.summary)}"),
        tiles=head.tiles(story),
        sections=(
            sections.kinds(
                "This week against last", story, charts.get(KINDS),
                "" if story.has_before else "There is no week before to compare with.",
            ),
            sections.moves(story, lengths),
            *((sections.teams(story, lengths),) if len(story.teams) > 1 else ()),
            sections.idle(story, lengths),
            sections.fabric(story, charts.get(FABRIC), lengths),
            *energy_section(story, lengths, narrow=True),
            sections.coverage(story, lengths),
            accepted(story.outcomes, lengths),
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
    window, heading = coverage.window_words(story.advice), f"{head.whose(story)}: no GPU work observed"
    said = f"No GPU work was observed from {window}."
    if story.team is not None:
        said += (
            " Either there was none, or it is not told apart as this team's: the administrators' report shows what was "
            "observed of all teams, and what could not be."
        )
    return Document(head.subject(story, heading), heading, window, said, (), (), (head.written(story),))
