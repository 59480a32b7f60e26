"""A report of a week as one page of a mail: what to do, what changed, waste by team, and what accepted recommendations
brought. Evidence, energy, prices and method stand on the whole page that goes with it."""

import re
from collections.abc import Sequence
from dataclasses import replace

from ...core import formatting as words
from ...core.advice_types import Advice, Finding
from ...core.timestamps import day
from ...core.worth import USD_PER_GPU_HOUR, Worth
from ...recommend.moves import BY_ACTION
from ...state.ledger import LedgerEntry, configuration_words
from .. import coverage
from ..document import AsideBlock, Document, Link, Section, Table, brief, section
from ..reader_links import NO_LINKS, ReaderCommands, ReaderLinks
from ..titles import Row, Titles, finding_title, left_out_words, monthly
from .advice import no_recommendation
from .story import (
    LISTED_MAX,
    Story,
    TeamRow,
    mail_subject,
    page_heading,
    price_basis,
    tiles,
    window_words,
    written_words,
)

_CHANGES_MAX = 5  # new, resolved and done, each
# A new sentence, not the dot of a figure or an abbreviation within one.
_SENTENCE_ENDS = re.compile(r"(?<=[\w)%][.])\s+(?=[A-Z])")


def report_document(story: Story, rows: int, attached: Sequence[str] = (), links: ReaderLinks = NO_LINKS) -> Document:
    """The page. `rows`: of each list, teams four times as many; `attached`: names of the files that go with it."""
    a = story.advice
    frame = {"title": mail_subject(story), "heading": page_heading(story), "footer": (written_words(story),)}
    if story.empty:
        text = f"No GPU work was observed from {coverage.window_words(a)}."
        if story.team is not None:
            text += " Either there was none, or telemetry does not show that it is this team's."
        return Document(**frame, window=coverage.window_words(a), summary=text)
    links = links.of_window(story.team or "", a.start, a.end, a.generated_at)
    commands, link = links.commands, Link("Dashboard", links.link()) if links.dashboard else None
    page, lists = ([name for name in attached if name.endswith(".html") == whole] for whole in (True, False))
    parts = (
        _recommendations(story, links),
        _changes(story, min(rows, _CHANGES_MAX)),
        _teams(story, 4 * rows) if len(story.teams) > 1 else None,
        _accepted(story, rows, commands) if story.moves else None,
        section(
            "Evidence, energy, prices and method",
            " ".join(f"The whole page is attached: {name}." for name in page),
            f"Attached lists: {', '.join(lists)}." if lists else "",
            link,
            AsideBlock(f"The whole advice{commands.where}:", f"{commands.advice('advise')} --all"),
        ),
    )
    return Document(
        **frame,
        window=window_words(story),
        summary=price_basis(story),
        tiles=tiles(story),
        link=link,
        sections=tuple(part for part in parts if part is not None),
        lead=" ".join(note.text for note in a.notes if note.code == "week-not-over"),
    )


def _recommendations(story: Story, links: ReaderLinks) -> Section:
    shown, commands, new = story.listed[:LISTED_MAX], links.commands, set(story.proposed)
    findings = {f.id: f for f in story.advice.findings}
    workloads = {w.id: w for w in story.advice.workloads}

    def card(number: int, row: Row) -> Section:
        r = row.recommendation
        finding = next((findings[id_] for id_ in r.findings if id_ in findings), None)
        workload = workloads.get(r.workload or "")
        nodes = sorted(finding.nodes) if finding is not None else workload.nodes if workload is not None else ()
        url = links.link(workload.name if workload is not None else "", nodes[0] if nodes else "")
        evidence = _SENTENCE_ENDS.split(finding.text)[0] if finding is not None else r.text
        earlier = ", in an earlier report" if r.id in story.reported else ""
        return section(
            f"{number}. {brief(row.title, 120)}: {row.gain}",
            brief(evidence, 240) if r.id in new else "",
            AsideBlock(
                f"{brief(row.id)}: {brief(row.terms, 240)}{earlier}",
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
        AsideBlock("Evidence and calculation of one:", commands.advice("explain", first.id)) if first else None,
    )


def _changes(story: Story, shown: int) -> Section:
    advice, before, title, smaller = story.advice, story.before, "Changes since last week", 0
    lists: dict[str, list[str]] = {}
    if before is not None:
        now, earlier = _by_resource(advice), _by_resource(before)
        for what, a, ours, others in (("New", advice, now, earlier), ("Resolved", before, earlier, now)):
            differing = [f for key, f in ours.items() if key not in others]
            lists[what] = _largest(differing, a)
            smaller += len(differing) - len(lists[what])
    lists["Done"] = []
    for entry in story.moves:
        real = entry.realised
        if real is not None and advice.start <= real.since < advice.end:
            saves = real.saving_usd_per_month
            measured = f" (saves {words.usd(saves)}/month, measured)" if saves is not None else ""
            lists["Done"].append(f"{_what(entry)}{measured}")
    rows = []
    for what, lines in lists.items():
        texts = [*(brief(line, 160) for line in lines[:shown]), *filter(None, [_more(lines, shown)])]
        rows += [(what if not n else "", text) for n, text in enumerate(texts)]
    if not rows:
        nothing = "No complete data of the week before: nothing to compare with."
        return section(title, nothing if before is None else "No finding is new or resolved.")
    more = f"{words.counted(smaller, 'smaller change')} not listed." if smaller else ""
    return section(title, Table(("change", "what"), tuple(rows)), AsideBlock(more))


def _by_resource(advice: Advice) -> dict[tuple[str, str], Finding]:
    titles, merged = Titles(advice), dict[tuple[str, str], Finding]()
    for f in advice.findings:
        key = f.rule, titles.resource(f)
        if (same := merged.get(key)) is not None:
            usd = f.cost_usd if same.cost_usd is None else same.cost_usd + (f.cost_usd or 0.0)
            f = replace(same, cost_usd=usd, gpu_hours=same.gpu_hours + f.gpu_hours)  # noqa: PLW2901 - the sum of both
        merged[key] = f
    return merged


def _largest(findings: Sequence[Finding], advice: Advice) -> list[str]:
    def cost(f: Finding) -> float:
        """A month's, US dollars; where no price is known, by the stand-in that only orders."""
        usd = f.gpu_hours * USD_PER_GPU_HOUR if advice.summary.cost_usd is None else f.cost_usd
        return monthly(usd, advice) or 0.0

    large = [f for f in findings if cost(f) >= Worth(advice).minimum]
    return [finding_title(f, advice) for f in sorted(large, key=lambda f: (-cost(f), f.id))]


def _teams(story: Story, shown: int) -> Section:
    def row(team: TeamRow) -> tuple[str, ...]:
        s, name = team[1].summary, "(no team)" if team[0] is None else brief(team[0], 32)
        if not priced:
            return name, words.bare_hours(monthly(s.gpu_hours, story.advice))
        sums = (monthly(usd, story.advice) for usd in (s.cost_usd, s.wasted_usd, s.slowed_usd))
        figures = (*sums, s.recoverable_usd_per_month)
        return name, *("not judged" if usd is None and s.nothing_judged else words.usd(usd) for usd in figures)

    priced = story.advice.summary.cost_usd is not None
    heads = ("team", "spend", "wasted", "slowed", "recoverable") if priced else ("team", "GPU-hours")
    rows = tuple(map(row, story.teams[:shown]))
    return section(
        "Waste by team, a month" if priced else "Teams, a month",
        Table(heads, rows, tuple(range(1, len(heads))), _more(story.teams, shown)),
        AsideBlock("A team's figures are those of the hours that its workloads held alone."),
    )


def _accepted(story: Story, shown: int, commands: ReaderCommands) -> Section:
    measured = [e.realised for e in story.moves if e.decision(story.advice.generated_at).state == "done"]
    done = [real for real in measured if real is not None and real.saving_usd_per_month is not None]
    predicted = [real.predicted_saving_usd_per_month for real in done]
    total = sum(p.p50 for p in predicted if p is not None)
    count = "1 recommendation was measured" if len(done) == 1 else f"{len(done)} recommendations were measured"
    saving = words.usd(sum(real.saving_usd_per_month or 0.0 for real in done))
    saved = f"{count}: {saving}/month saved{'.' if None in predicted else f', of {words.usd(total)} predicted.'}"
    rows = tuple(_move_row(entry, story.advice.generated_at) for entry in story.moves[:shown])
    return section(
        "Accepted recommendations and their savings",
        saved if done else "",
        Table(("recommendation", "predicted", "measured"), rows, (), _more(story.moves, shown)),
        AsideBlock(f"History and figures{commands.where}:", commands.stored("ledger list")),
    )


def _move_row(entry: LedgerEntry, now: float) -> tuple[str, str, str]:
    r, snapshot, decision, real = entry.recommendation, entry.snapshot, entry.decision(now), entry.realised
    saving, ratio = (snapshot.saving_usd_per_month, snapshot.time_ratio) if snapshot is not None else (None, None)
    free = r.freed_gpu_hours_per_month or None
    predicted = _figures(saving.p50 if saving else None, free, ratio.p50 if ratio else None) or words.NONE
    measured, when = "", decision.since
    missing = "not done yet" if snapshot is not None else "no baseline stored: it was always blocked"
    if real is not None:
        before, after = real.gpu_hours_per_month_before, real.gpu_hours_per_month_after
        # A move that frees none by itself is measured by its time.
        frees = r.action in BY_ACTION and BY_ACTION[r.action].frees
        freed = before - after if frees and before is not None and after is not None else None
        measured = _figures(real.saving_usd_per_month, freed, real.time_ratio)
        missing, when = real.saving_missing or real.time_missing or words.NONE, real.since
    why = next((e.why for e in reversed(entry.events) if e.act not in ("proposed", "expired")), None)
    change = f"{_what(entry)} ({decision.state} {day(when)}, {brief(r.id)})"
    return f"{change}. {brief(why, 160)}" if why else change, predicted, measured or brief(missing, 160)


def _more(every: Sequence[object], shown: int) -> str:
    return f"and {len(every) - shown} more: see the whole advice." if len(every) > shown else ""


def _what(entry: LedgerEntry) -> str:
    r = entry.recommendation
    source, target = (brief(configuration_words(c), 80) for c in (r.source, r.target))
    return f"{brief(entry.about, 80)}: {source} to {'nothing held' if target == words.NONE else target}"


def _figures(usd: float | None, freed: float | None, ratio: float | None) -> str:
    gain = f"{words.usd(usd)}/month" if usd is not None else f"{words.hours(freed)}/month" if freed is not None else ""
    return ", ".join(filter(None, (gain, f"x{ratio:.2f} the time" if ratio is not None else "")))
