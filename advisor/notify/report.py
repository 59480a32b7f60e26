"""The weekly report: two weeks are read, and the letter of each team is previewed, or queued once and sent."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ...rules.base.errors import EXIT_DONE, NothingToDo, SkuwiseError, UsageError
from ...rules.base.output import write_whole
from ...rules.base.sanitize import clean
from ..advise import read_and_reason
from ..core.advice_types import Advice, NotJudged, Reconciliation, Unobserved
from ..core.coded_text import CodedText
from ..core.energy_types import FleetEnergy, figures_of, sums_of_workloads
from ..core.timestamps import day, minute, span
from ..core.verdict_types import WorkloadVerdict
from ..core.worth import added_intervals, counted_recommendations, marked
from ..pipeline import WINDOW_NOTES
from ..recommend.waste import slowed_usd, wasted
from ..rulebook import Rulebook
from ..show.pages.story import story_of
from ..show.reader_links import NO_COMMANDS, ReaderCommands, ReaderLinks
from ..show.writers.csv import csv_text
from ..state.deliveries import known, queue
from ..state.file import State
from ..state.fleets import StateBeside
from ..state.ledger import LedgerEntry, decisions_of, mailed_since, note_mailed
from ..state.outcomes import followed
from ..telemetry.source import Source
from .letters import Letter, compose, file_names, message_id, message_to, report_letter
from .routes import ReportSettings, Routes, TeamRoute
from .sending import Clocks, carriers_of, send_due

T = TypeVar("T")
Team = str | None  # None: no team's, which is the administrators' business


def _grouped(values: Iterable[T], team_of: Callable[[T], Team]) -> dict[Team, tuple[T, ...]]:
    groups: dict[Team, list[T]] = {}
    for value in values:
        groups.setdefault(team_of(value), []).append(value)
    return {team: tuple(group) for team, group in groups.items()}


def split_by_team(
    advice: Advice,
    team_of: Callable[[WorkloadVerdict], Team],
    team_of_node: Callable[[str], Team] = lambda _: None,
    *,
    teams: Iterable[str] = (),
) -> Mapping[Team, Advice]:
    """The advice of every team that has something in it, of each of `teams` even where it has nothing, and of None:
    what is no team's. Findings and recommendations go with their workload, else with their nodes, where all these are
    one team's; a fabric with the one team whose workloads ran on its node. A team's dollars are those of the hours that
    its workloads held alone. GPUs that were not observed go with every team that ran on their node or owns it."""
    team_by_workload = {w.id: team_of(w) for w in advice.workloads}
    on_node: dict[str, set[Team]] = {}
    for w in advice.workloads:
        for node in w.nodes:
            on_node.setdefault(node, set()).add(team_by_workload[w.id])

    def owner(workload: str | None, others: Iterable[Team]) -> Team:
        return team_by_workload.get(workload) if workload is not None else _only(others)

    team_by_finding = {f.id: owner(f.workload, map(team_of_node, f.nodes)) for f in advice.findings}
    groups: dict[str, dict[Team, Any]] = {
        "workloads": _grouped(advice.workloads, lambda w: team_by_workload[w.id]),
        "findings": _grouped(advice.findings, lambda f: team_by_finding[f.id]),
        "recommendations": _grouped(
            advice.recommendations, lambda r: owner(r.workload, map(team_by_finding.get, r.findings))
        ),
        "fabrics": _grouped(advice.fabrics, lambda use: _only(on_node.get(use.node) or {team_of_node(use.node)})),
    }
    unobserved: dict[Team, list[Unobserved]] = {}
    for gpus in advice.summary.unobserved:
        for team in ({*on_node.get(gpus.node, ()), team_of_node(gpus.node)} - {None}) or {None}:
            unobserved.setdefault(team, []).append(gpus)
    parts: dict[Team, Advice] = {}
    for team in (*teams, *(team for group in groups.values() for team in group), *unobserved):
        if team not in parts:
            part = replace(advice, **{name: group.get(team, ()) for name, group in groups.items()})
            parts[team] = _part(part, tuple(unobserved.get(team, ())))
    return parts


def moves_by_team(moves: Sequence[LedgerEntry], parts: Mapping[Team, Advice]) -> Mapping[Team, tuple[LedgerEntry, ...]]:
    """The moves of each team: by their id where the advice still contains it, else by the workload's name, where one
    team alone has such a workload."""
    by_id = {r.id: team for team, part in parts.items() for r in part.recommendations}
    by_name: dict[str, set[Team]] = {}
    for team, part in parts.items():
        for w in part.workloads:
            by_name.setdefault(w.name, set()).add(team)

    def team_of(entry: LedgerEntry) -> Team:
        id_ = entry.recommendation.id
        return by_id[id_] if id_ in by_id else _only(by_name.get(entry.about, ()))

    return _grouped(moves, team_of)


def _only(teams: Iterable[Team]) -> Team:
    different = set(teams)
    return different.pop() if len(different) == 1 else None


def _part(part: Advice, unobserved: tuple[Unobserved, ...]) -> Advice:
    """The advice of one team. `part`: its workloads, findings, recommendations and fabrics; the rest is the fleet's."""
    fleet, workloads, findings, recommendations = part.summary, part.workloads, part.findings, part.recommendations
    costs = [w.cost_usd for w in workloads if w.cost_usd is not None]
    cost, gpu_hours = sum(costs) if costs else None, sum(w.gpu_hours for w in workloads)
    skus = {w.node_sku for w in workloads} | {c.node_sku for r in recommendations for c in (r.source, r.target)}
    price_ids = {f.price for f in findings} | {p for r in recommendations for p in r.prices}
    counted = counted_recommendations(recommendations)
    savings = [r.saving_usd_per_month for r in counted if r.saving_usd_per_month]
    gpus, nodes = {gpu for w in workloads for gpu in w.gpus}, {node for w in workloads for node in w.nodes}
    judged = None
    if part.standings and fleet.judged_gpu_count is not None:
        judged = len(gpus & {gpu for s in part.standings if s.node in nodes for gpu in s.judged})
    series = {w.id: w.series_id for w in workloads}
    waste = wasted((f, series.get(f.workload or "")) for f in findings)
    slowed = slowed_usd(findings)
    # Without a judged GPU waste is unknown, not zero.
    is_judged = cost is not None and judged != 0
    summary = replace(
        fleet,
        gpu_count=len(gpus) + sum(len(part.gpus) for part in unobserved),
        gpu_hours=gpu_hours,
        cost_usd=cost,
        wasted_usd=waste if is_judged or (cost is not None and waste) else None,
        slowed_usd=slowed if is_judged or (cost is not None and slowed) else None,
        recoverable_usd_per_month=sum(s.p50 for s in savings) if is_judged or counted else None,
        reconciliation=Reconciliation(cost, None, None, None, None, None, cost),
        recoverable_interval_usd_per_month=added_intervals(savings),
        unobserved=unobserved,
        observed_gpu_hours=gpu_hours,
        gpu_hours_by_use=None,
        judged_gpu_count=judged,
        energy=_energy(fleet.energy, workloads),
        waiting=None,  # the queue is the fleet's
    )
    return replace(
        part,
        summary=summary,
        prices=tuple(p for p in part.prices if p.id in price_ids or p.sku in skus),
        judged=(),
        not_judged=tuple(_not_judged(part.not_judged, workloads, nodes)),
        notes=tuple(note for note in part.notes if note.code in WINDOW_NOTES),
        waiting=(),
        market=None,
        nodes=tuple(sorted(nodes)),
        node_energy=(),  # a team's part of a node's power is no node's
    )


def _not_judged(
    not_judged: Iterable[NotJudged], workloads: Sequence[WorkloadVerdict], nodes: Collection[str]
) -> Iterator[NotJudged]:
    by_id = {w.id: w for w in workloads}
    for case in not_judged:
        shown = [by_id[id_] for id_ in case.workloads if id_ in by_id]
        if shown:
            gpus, there = {gpu for w in shown for gpu in w.gpus}, sorted({node for w in shown for node in w.nodes})
            yield replace(
                case, nodes=tuple(there), workloads=tuple(w.id for w in shown), gpu_count=len(gpus),
                usd_per_month=case.usd_per_month if len(shown) == len(case.workloads) else None,
            )  # fmt: skip
        elif not case.workloads and set(case.nodes) <= set(nodes):
            yield case


def _energy(fleet: FleetEnergy | None, workloads: Sequence[WorkloadVerdict]) -> FleetEnergy | None:
    parts = [w.energy for w in workloads if w.energy is not None]
    if fleet is None or len(parts) < len(workloads):
        return None
    figures = figures_of(parts)
    sums = sums_of_workloads((w.owner.user or w.owner.namespace or w.owner.account, w.energy) for w in workloads)
    return FleetEnergy(**figures, **sums, idle_held_kwh=figures["idle_kwh"], figures=fleet.figures)


BATCH = "report-"  # and the week: the batch of its messages
WEEK_SECONDS = 7 * 86400.0
_FIRST_MONDAY = 4 * 86400.0  # 1970-01-05
# Telemetry of a week is complete where it ends within so long of the week: the last hour is yet to be rolled up.
_LATE_SECONDS = 2 * 3600.0
# Data so many weeks old are not of the last week, whichever clock is right.
_MOST_BEHIND = 5
_WAIT_SECONDS = 150.0  # a pass of the watch sends for two minutes at most


@dataclass(frozen=True, slots=True)
class Week:
    """From Monday 00:00 to Monday 00:00, UTC, whatever the time zone of this machine. `start`: Unix seconds."""

    start: float

    @property
    def end(self) -> float:
        return self.start + WEEK_SECONDS

    @property
    def name(self) -> str:
        """The date of its Monday."""
        return day(self.start)


def reported_week(asked: float | None, now: float) -> Week:
    """The week in which `asked` lies, by default the last one that is over. Raises UsageError for one to come."""
    ts = now - WEEK_SECONDS if asked is None else asked
    week = Week(_FIRST_MONDAY + (ts - _FIRST_MONDAY) // WEEK_SECONDS * WEEK_SECONDS)
    if week.start >= now:
        raise UsageError(f"The week of {week.name} begins at {minute(week.start)}, which is to come.", "Name another.")
    return week


def check_over(week: Week, newest: float | None) -> None:
    """Raises SkuwiseError where the newest telemetry (Unix seconds; None: unknown) is of before the end of a week: by a
    clock that runs ahead, half a week would be reported as a whole, and the rest of it never."""
    if newest is not None and week.end - _MOST_BEHIND * WEEK_SECONDS <= newest < week.end - _LATE_SECONDS:
        raise SkuwiseError(
            f"The telemetry of the week of {week.name} is incomplete: the newest data is of {minute(newest)}.",
            f"Check this machine's clock and the collection of data. --week {week.name} reports the data there is.",
        )


@dataclass(frozen=True)
class ReportJob:
    """One run. `routes`: of `routes_of`; `beside`: decisions and earlier reports; `only`: one team's name; None: all.
    `now`: Unix seconds. `named`: this week was asked for; else it is the last one by the clock. `commands`: how readers
    run skuwise."""

    settings: ReportSettings
    routes: Routes
    source: Source
    book: Rulebook
    beside: StateBeside
    week: Week
    now: float
    only: str | None
    say: Callable[[str], None]
    named: bool = True
    commands: ReaderCommands = NO_COMMANDS

    @property
    def teams(self) -> tuple[TeamRoute, ...]:
        """All recipients of this run, the administrators first."""
        return tuple(team for team in (self.routes.fleet, *self.routes.teams) if self.only in (None, team.name))


def team_letters(
    job: ReportJob, teams: tuple[TeamRoute, ...], *, noting: bool = False
) -> Iterator[tuple[TeamRoute, Letter, tuple[str, ...]]]:
    """Read the week and the one before, and make the letters of `teams`, each with the ids of the recommendations that
    are to be noted as reported (none without a state file). `noting`: what they propose is recorded, so that its
    readers can decide on it."""
    job.say(f"reading the week of {job.week.name} (Monday to Monday, UTC) ...")
    job.beside.entries()  # what cannot be read is an error before the telemetry is read, which takes time
    advice = _read(job, job.week, job.beside)
    if job.week.end > job.now:
        text = f"The week is not over: this report ends at {minute(job.now)}."
        job.say(text)
        advice = replace(advice, notes=(CodedText("week-not-over", text, {"until_ts": job.now}), *advice.notes))
    job.say("reading the week before ...")
    ledger = replace(job.beside, say=lambda _: None).of(advice.fleet)  # what it says was said when the week was read
    before = None
    with suppress(NothingToDo):
        before = _read(job, Week(job.week.start - WEEK_SECONDS), ledger)
    # A week whose beginning is not known compares with no other.
    if before is None or any(note.code in WINDOW_NOTES for note in before.notes):
        before = None
        job.say("no complete data of the week before: nothing to compare with")
    if noting:
        replace(ledger, say=job.say).note(advice, job.now)
    entries = ledger.entries()
    if noting:  # what was noted may have shown that a recommendation was done, or went back
        advice = marked(advice, decisions_of(entries, job.now))
    moves = followed(entries, job.now)
    reported: Mapping[str, frozenset[str]] = {}
    if ledger.state is not None:
        # By weeks, not by the clock: what was reported exactly a cooldown ago is reported again. What this week's mail
        # reports is new to those who are yet to receive it.
        since = job.week.end - job.settings.cooldown_seconds + 1.0
        with ledger.state.reading() as db:
            reported = {team.name: mailed_since(db, _told_key(team), since, job.week.end) for team in teams}

    def split(whole: Advice) -> Mapping[str | None, Advice]:
        names = [team.name for team in job.routes.teams]
        return split_by_team(whole, job.routes.team_of, job.routes.team_of_node, teams=names)

    parts, parts_before = split(advice), split(before) if before is not None else None
    moves_of = moves_by_team(moves, parts)
    links = ReaderLinks(job.commands, job.settings.dashboard_url)
    for team in teams:
        about: dict[str, Any] = {"reported": reported.get(team.name, frozenset())}
        part, part_before, part_moves = advice, before, moves
        if team.name:
            about["team"], part, part_before = team.name, parts[team.name], (parts_before or {}).get(team.name)
            part_moves = moves_of.get(team.name, ())
        elif job.routes.teams:
            about |= {"teams": parts, "teams_before": parts_before}
        story = story_of(part, part_before, part_moves, **about)
        if job.settings.no_data == "short" or not story.empty:
            yield team, report_letter(story, links), story.proposed if ledger.state is not None else ()


def _read(job: ReportJob, week: Week, beside: StateBeside) -> Advice:
    until = min(week.end, job.now)
    since = until - week.start
    return read_and_reason(job.source, job.book, since=since, until=until, now=job.now, ledger=beside)[1].advice


def _told_key(team: TeamRoute) -> str:
    return f"team {team.name}" if team.name else "the fleet"


def send(job: ReportJob, state: State, environ: Mapping[str, str], clocks: Clocks) -> int:
    """Queue the messages that the week does not have yet, then send what is due. Raises SkuwiseError where somebody has
    yet to receive a message or never will."""
    if not any(team.recipients for team in job.teams):
        raise UsageError("No recipients configured.", "Set administrators in [report] or in the routes.")
    carriers, faults = carriers_of(job.settings, job.teams, environ)
    if faults:
        raise faults[0]
    batch = BATCH + job.week.name
    with state.reading() as db:
        queued = known(db, batch)
    teams = tuple(team for team in job.teams if not queued.issuperset(team.recipients))
    if teams:
        if not job.named:
            check_over(job.week, job.source.newest(job.now))
        for team, letter, proposed in team_letters(job, teams, noting=True):
            at = clocks.now().wall_seconds
            messages = [message_to(to, letter, batch, job.routes, at) for to in team.recipients]
            with state.writing() as db:
                queue(db, messages, at)
                note_mailed(db, _told_key(team), proposed, at, job.week.end)
    limits = {"mails_per_minute": job.settings.mails_per_minute, "only_team": job.only, "batch_prefix": BATCH}
    with state.alone("Another sender", wait_seconds=_WAIT_SECONDS):
        tally = send_due(state, carriers, clocks, say=job.say, **limits)
    job.say(f"sent to {tally.sent}; {tally.waiting} waiting; {len(tally.refused)} refused")
    faults = [str(error) for error in tally.down]
    if tally.refused:
        faults.append(f"Refused for good: {'; '.join(map(clean, tally.refused))}.")
    if tally.waiting:
        # A span, no moment: it is true whatever this machine's clock says.
        when = f" once {span(tally.soonest_seconds)} have passed" if tally.soonest_seconds else ""
        faults.append(f"{tally.waiting} waiting: the next run of the same command tries again{when}.")
    if faults:
        raise SkuwiseError(" ".join(faults))
    return EXIT_DONE


def write_previews(job: ReportJob, folder: Path) -> Iterator[Path]:
    """Write every letter of `job` into `folder`, and a list of them; yield each file as it is there.

    What lies there under the same name is replaced, and no link is followed. Raises SkuwiseError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SkuwiseError(f"Cannot create the folder {folder}: {error.strerror}.", "Use another folder.") from error
    teams = [team.name for team in job.teams]
    names = dict(zip(teams, file_names(teams), strict=True))
    for team, letter, _ in team_letters(job, job.teams):
        id_ = message_id(BATCH + job.week.name, team.name, "", job.routes)
        message = compose(letter, job.routes, team.to, message_id=id_, date=job.now)
        for ending, text in ((".eml", message.decode("ascii")), (".html", letter.html)):
            path = folder / f"{names[team.name]}{ending}"
            write_whole(path, text, into_devices=False)
            yield path
    index = folder / "index.csv"  # a file's name may not be its team's
    rows = [{"team": team, "mail": f"{name}.eml", "page": f"{name}.html"} for team, name in names.items()]
    write_whole(index, csv_text(("team", "mail", "page"), rows), into_devices=False)
    yield index
