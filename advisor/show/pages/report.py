"""A report of a week as one page of a mail: what to do, what changed, waste by team, and what accepted recommendations
brought. Evidence, energy, prices and method stand on the whole page that goes with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core import formatting as words
from ...core.timestamps import day
from ...state.outcomes import MoveOutcome
from .. import coverage
from ..dashboard import NO_DASHBOARD, Dashboard
from ..document import AsideBlock, Document, Link, Section, Table, section
from ..reader_commands import NO_COMMANDS, ReaderCommands
from ..titles import Row, left_out_words, monthly
from ..truncate import Brevity, brief
from . import head
from .advice import no_recommendation
from .story import LISTED_MAX, Story, TeamRow

_CHANGES_MAX = 5  # new, resolved and done, each
# A new sentence, not the dot of a figure or an abbreviation within one.
_SENTENCE_ENDS = re.compile(r"(?<=[\w)%][.])\s+(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class ReaderLinks:
    """Where the reader of a mail goes on: the commands that print details, and the site's dashboard."""

    commands: ReaderCommands = NO_COMMANDS
    dashboard: Dashboard = NO_DASHBOARD


NO_LINKS = ReaderLinks()


def report_document(story: Story, rows: int, attached: Sequence[str] = (), links: ReaderLinks = NO_LINKS) -> Document:
    """The page. `rows`: of each list, teams four times as many; `attached`: names of the files that go with it."""
    a = story.advice
    if story.empty:
        return _empty(story)
    commands = links.commands.of_window(a.start, min(a.end, a.generated_at))
    dashboard = replace(links.dashboard, team=story.team or "", start=a.start, end=a.end)
    brevity = _brevity(story)
    page, lists = ([one for one in attached if one.endswith(".html") == whole] for whole in (True, False))
    parts = (
        _recommendations(story, brevity, commands, dashboard),
        _changes(story, brevity, min(rows, _CHANGES_MAX)),
        _teams(story, 4 * rows) if len(story.teams) > 1 else None,
        _accepted(story.outcomes, brevity, rows, commands) if story.outcomes else None,
        section(
            "Evidence, energy, prices and method",
            " ".join(f"The whole page is attached: {one}." for one in page),
            f"Attached lists: {', '.join(lists)}." if lists else "",
            Link("Dashboard", dashboard.link()) if dashboard.template else None,
            AsideBlock(f"The whole advice{commands.where}:", f"{commands.advice('advise')} --all"),
        ),
    )
    return Document(
        title=head.subject(story),
        heading=head.heading(story),
        window=head.window(story),
        summary=head.basis(story),
        tiles=head.tiles(story),
        link=Link("Dashboard", dashboard.link()) if dashboard.template else None,
        sections=tuple(part for part in parts if part is not None),
        footer=(head.written(story),),
        lead=" ".join(note.text for note in a.notes if note.code == "week-not-over"),
    )


def _brevity(story: Story) -> Brevity:
    """What cuts the names of a story's sentences."""
    a = story.advice
    owners = (value for w in a.workloads for value in (w.owner.team, w.owner.user, w.owner.account, w.owner.namespace))
    nodes = (n for w in a.workloads for n in w.nodes)
    return Brevity([*(w.name for w in a.workloads), *owners, *a.nodes, *nodes, story.team])


def _empty(story: Story) -> Document:
    window = coverage.window_words(story.advice)
    text = f"No GPU work was observed from {window}."
    if story.team is not None:
        text += (
            " Either there was none, or telemetry does not show that it is this team's. The administrators' report "
            "lists all teams and what was not observed."
        )
    return Document(head.subject(story), head.heading(story), window, text, (), (), (head.written(story),))


def _recommendations(story: Story, brevity: Brevity, commands: ReaderCommands, dashboard: Dashboard) -> Section:
    """The first ten in the order of every list, each with the command that accepts it."""
    shown = story.listed[:LISTED_MAX]
    new = set(story.proposed)

    def card(number: int, row: Row) -> Section:
        r = row.recommendation
        finding = next((f for f in story.advice.findings if f.id in r.findings), None)
        workload = next((w for w in story.advice.workloads if w.id == r.workload), None)
        nodes = sorted(finding.nodes) if finding is not None else list(workload.nodes if workload is not None else ())
        url = dashboard.link(workload.name if workload is not None else "", nodes[0] if nodes else "")
        evidence = _SENTENCE_ENDS.split(finding.text)[0] if finding is not None else r.text
        told = ", in an earlier report" if r.id in story.told else ""
        return section(
            f"{number}. {brevity.sentence(row.title, 120)}: {row.gain}",
            brevity.sentence(evidence, 240) if r.id in new else "",
            AsideBlock(
                f"{brief(row.id)}: {brevity.sentence(row.terms, 240)}{told}",
                "" if row.accepted else commands.stored("ledger accept", r.id),
            ),
            Link("Dashboard", url) if url else None,
        )

    first = next((row for row in shown if not row.accepted), None)
    how = f"To accept one, run its command{f' on {commands.host}' if commands.host else ''}."
    return section(
        "Recommendations",
        no_recommendation(story) if not shown else "" if first is None else how,
        *(card(number, row) for number, row in enumerate(shown, 1)),
        left_out_words(story.rows, len(story.listed) - len(shown)),
        AsideBlock("Evidence and calculation of one:", commands.advice("explain", first.id))
        if first is not None
        else None,
    )


def _changes(story: Story, brevity: Brevity, shown: int) -> Section:
    """New, resolved and done since last week, `shown` of each."""
    c, title = story.changes, "Changes since last week"
    if not c.compared and not c.done:
        return section(title, "No complete data of the week before: nothing to compare with.")
    done = [
        _what(o, brevity)
        + (f" (saves {words.usd(o.realised_saving_usd_per_month)}/month, measured)"
           if o.realised_saving_usd_per_month is not None else "")
        for o in c.done
    ]  # fmt: skip
    rows = []
    for what, lines in (("New", c.new), ("Resolved", c.resolved), ("Done", done)):
        texts = [brevity.sentence(line, 160) for line in lines[:shown]]
        texts += filter(None, [_more(lines, shown)])
        rows += [(what if not n else "", text) for n, text in enumerate(texts)]
    if not rows:
        return section(title, "No finding is new or resolved.")
    smaller = f"{words.counted(c.smaller, 'smaller change')} not listed." if c.smaller else ""
    return section(title, Table(("change", "what"), tuple(rows)), AsideBlock(smaller))


def _teams(story: Story, shown: int) -> Section:
    """What each team spends, wastes and can recover, all a month; GPU-hours where no price is known."""

    def row(r: TeamRow) -> tuple[str, ...]:
        s, name = r.part.summary, "(no team)" if r.team is None else brief(r.team, 32)
        if not priced:
            return name, words.bare_hours(monthly(s.gpu_hours, story.advice))
        sums = (monthly(usd, story.advice) for usd in (s.cost_usd, s.wasted_usd, s.slowed_usd))
        told = (*sums, s.recoverable_usd_per_month)
        return name, *("not judged" if usd is None and s.nothing_judged else words.usd(usd) for usd in told)

    priced = words.has_prices(story.advice.summary)
    heads = ("team", "spend", "wasted", "slowed", "recoverable") if priced else ("team", "GPU-hours")
    rows = tuple(map(row, story.teams[:shown]))
    return section(
        "Waste by team, a month" if priced else "Teams, a month",
        Table(heads, rows, tuple(range(1, len(heads))), _more(story.teams, shown)),
        AsideBlock("A team's figures are those of the hours that its workloads held alone."),
    )


def _accepted(outcomes: Sequence[MoveOutcome], brevity: Brevity, shown: int, commands: ReaderCommands) -> Section:
    """What was accepted, and what it brought: savings that were measured and last."""

    def row(o: MoveOutcome) -> tuple[str, ...]:
        when = o.done_at if o.done_at is not None else o.accepted_at
        saving, ratio = o.predicted_saving_usd_per_month, o.predicted_time_ratio
        predicted = _figures(
            saving.p50 if saving else None, o.predicted_freed_gpu_hours_per_month or None, ratio.p50 if ratio else None
        )
        real = _figures(o.realised_saving_usd_per_month, o.realised_freed_gpu_hours_per_month, o.realised_time_ratio)
        state = f"{o.state}{f' {day(when)}' if when is not None else ''}, {brief(o.id)}"
        change = f"{_what(o, brevity)} ({state})"
        return (
            f"{change}. {brevity.sentence(o.why, 160)}" if o.why else change, predicted or words.NONE,
            real or brevity.sentence(o.reason_missing or words.NONE, 160),
        )  # fmt: skip

    done = [o for o in outcomes if o.state == "done" and o.realised_saving_usd_per_month is not None]
    predicted = [o.predicted_saving_usd_per_month for o in done]
    known = sum(p.p50 for p in predicted if p is not None)
    moves = "1 recommendation was measured" if len(done) == 1 else f"{len(done)} recommendations were measured"
    real = words.usd(sum(o.realised_saving_usd_per_month or 0.0 for o in done))
    return section(
        "Accepted recommendations and their savings",
        f"{moves}: {real}/month saved{'.' if None in predicted else f', of {words.usd(known)} predicted.'}"
        if done else "",
        Table(("recommendation", "predicted", "measured"), tuple(map(row, outcomes[:shown])), (),
              _more(outcomes, shown)),
        AsideBlock(f"History and figures{commands.where}:", commands.stored("ledger list")),
    )  # fmt: skip


def _more(every: Sequence[object], shown: int) -> str:
    return f"and {len(every) - shown} more: see the whole advice." if len(every) > shown else ""


def _what(o: MoveOutcome, brevity: Brevity) -> str:
    """``chat-7: 8 x H100-SXM5 to 4 x H100-SXM5``."""
    to = "nothing held" if o.to_config == words.NONE else brief(o.to_config, 80)
    return f"{brevity.sentence(o.about, 80)}: {brief(o.from_config, 80)} to {to}"


def _figures(usd: float | None, freed: float | None, ratio: float | None) -> str:
    """Dollars, else GPU-hours, and the time; empty where none is known."""
    gain = f"{words.usd(usd)}/month" if usd is not None else f"{words.hours(freed)}/month" if freed is not None else ""
    return ", ".join(part for part in (gain, f"x{ratio:.2f} the time" if ratio is not None else "") if part)
