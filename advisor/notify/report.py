"""One run of the report: what is read, for whom, what the settings say. It reads; it knows no clock and no mail."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...rules.base.errors import EXIT_DONE, NothingToDo, SkuwiseError, StoreError, UsageError
from ...rules.base.output import write_whole
from ...rules.base.sanitize import clean
from ..advise import read_and_advise
from ..core.advice_types import Advice, Fleet
from ..core.coded_text import CodedText
from ..core.timestamps import minute, span
from ..core.worth import marked
from ..pipeline import WINDOW_NOTES
from ..render.charts import Words
from ..rulebook import Rulebook
from ..state.ledger import LedgerSync
from ..state.ledger_file import Ledger
from ..state.outbox import Outbox
from ..state.outcomes import move_outcomes
from ..state.parcel import Channel, Parcel
from ..telemetry.source import Source
from ..views.document.dashboard import Dashboard
from ..views.document.mail_document import ReaderLinks
from ..views.document.reader_commands import NO_COMMANDS, ReaderCommands
from ..views.document.report_content import story_of
from .by_team import outcomes_of, split_by_team
from .carriers import WEBHOOK, carriers_of
from .delivery import Clocks, Tally, send_waiting
from .letter import Letter
from .mime import NOBODY, Envelope, compose, file_names, inlined, message_id
from .report_letters import letter_of, preview_index
from .routes import Routes, TeamRoute
from .settings import ReportSettings
from .webhook import payload
from .weeks import WEEK_SECONDS, Week, check_over

# Who is told of the whole fleet: the administrators.
FLEET = TeamRoute("", ())


@dataclass(frozen=True, slots=True)
class Report:
    """What one team is told; the fleet's has the team "". `told`: the ids of the moves that
    it tells in full; `fleet`: whose ledger notes them."""

    team: TeamRoute
    letter: Letter
    told: tuple[str, ...]
    fleet: Fleet | None = None


@dataclass(frozen=True)
class ReportJob:
    """`only`: one team's name; None: all. `now`: Unix seconds; `beside`: the ledger. `named`: somebody asked for
    this week; else it is the last one by the clock. `commands`: how readers of the letters run skuwise."""

    settings: ReportSettings
    routes: Routes
    source: Source
    book: Rulebook
    beside: LedgerSync
    week: Week
    now: float
    only: str | None
    say: Callable[[str], None]
    named: bool = True
    commands: ReaderCommands = NO_COMMANDS

    @property
    def fleet(self) -> TeamRoute:
        """Who is told of the whole fleet."""
        to = self.routes.administrators or self.settings.administrators
        return replace(FLEET, to=to, webhook_url_file=self.settings.webhook_url_file)

    @property
    def teams(self) -> tuple[TeamRoute, ...]:
        """Who is told anything in this run, the fleet's administrators first."""
        return tuple(team for team in (self.fleet, *self.routes.teams) if self.only in (None, team.name))

    @property
    def list_unsubscribe(self) -> str:
        """Whom to ask to be left out: what the settings say, or the first administrator."""
        to = self.fleet.to
        return self.settings.list_unsubscribe or (f"mailto:{to[0]}?subject=unsubscribe" if to else "")

    def reports(self, teams: tuple[TeamRoute, ...], *, noting: bool = False) -> Iterator[Report]:
        """Read the week and the one before, and make the letters of `teams`. `noting`: the ledger notes what they
        propose, so that whoever reads of a move can decide on it."""
        self.say(f"reading the week of {self.week.name} (Monday to Monday, UTC) ...")
        self.beside.check()
        advice = self._read(self.week, self.beside)
        if self.week.end > self.now:
            self.say(f"the week is not over: this report ends at {minute(self.now)}")
            unfinished = CodedText(
                "week-not-over",
                f"The week is not over: this report ends at {minute(self.now)}.",
                {"until_ts": self.now},
            )
            advice = replace(advice, notes=(unfinished, *advice.notes))
        self.say("reading the week before ...")
        own = self._quiet(advice.fleet)
        before = self._before(own)
        if noting:
            self.beside.note(advice, self.now)
            own = self._quiet(advice.fleet)  # it may have been begun just now
        if noting:
            # What was noted may have shown that a recommendation was done, or went back.
            advice = marked(advice, own.decisions(self.now))
        parts, parts_before = self._parts(advice), self._parts(before) if before is not None else None
        outcomes, lettering = move_outcomes(own.entries(), self.now), Words()
        links = ReaderLinks(self.commands, Dashboard(self.settings.dashboard_url))
        for team in teams:
            told = self._was_told(own, team.name)
            if team.name == FLEET.name:
                divided = bool(self.routes.teams)
                story = story_of(
                    advice, before, outcomes, teams=parts if divided else None,
                    teams_before=parts_before if divided else None, told=told,
                )  # fmt: skip
            else:
                story = story_of(
                    parts[team.name], None if parts_before is None else parts_before[team.name],
                    outcomes_of(outcomes, parts, team.name), team=team.name, told=told,
                )  # fmt: skip
            if self.settings.no_data == "short" or not story.empty:
                letter = letter_of(story, links=links, lettering=lettering)
                yield Report(team, letter, story.told_in_full, advice.fleet)

    def _parts(self, advice: Advice) -> Mapping[str | None, Advice]:
        names = [team.name for team in self.routes.teams]
        return split_by_team(advice, self.routes.whose, self.routes.whose_node, teams=names)

    def check_over(self) -> None:
        """Raises NotOverError where the last week by the clock is not over by the telemetry."""
        if not self.named:
            check_over(self.week, self.source.newest(self.now))

    def note_told(self, report: Report, now: float) -> None:
        """Note what a team was told of: within the cooldown it is not told again at length."""
        own = self._quiet(report.fleet)
        if own.path is None or not report.told:
            return
        try:
            own.written().note_mailed(_key(report.team.name), report.told, now, week_end=self.week.end)
        except StoreError as error:
            self.say(f"not noted in the ledger: {error}")

    def _read(self, week: Week, beside: LedgerSync) -> Advice:
        until = min(week.end, self.now)
        _, advice = read_and_advise(
            self.source, self.book, since=until - week.start, until=until, now=self.now, ledger=beside,
        )  # fmt: skip
        return advice

    def _before(self, own: LedgerSync) -> Advice | None:
        """The week before, by the ledger of this one; None where nothing of it is known, or its beginning is not: that
        compares with no week."""
        try:
            before = self._read(Week(self.week.start - WEEK_SECONDS), own)
        except NothingToDo:
            self.say("no data of the week before: nothing to compare with")
            return None
        if any(note.code in WINDOW_NOTES for note in before.notes):
            self.say("the data of the week before is incomplete: nothing to compare with")
            return None
        return before

    def _quiet(self, fleet: Fleet | None) -> LedgerSync:
        """The fleet's ledger. What cannot be read of it was said when the week was read."""
        return replace(self.beside, named=False, say=lambda _: None).of(fleet)

    def _was_told(self, own: LedgerSync, team: str) -> frozenset[str]:
        """What it was told before. What this week's own letter told is new to whoever is yet to receive it."""
        if own.path is None:
            return frozenset()
        try:
            # By weeks, not by the clock: what was told exactly a cooldown ago is told again.
            since = self.week.end - self.settings.cooldown_seconds + 1.0
            return Ledger(own.path).mailed_since(_key(team), since, self.week.end)
        except StoreError:
            return frozenset()


def _key(team: str) -> str:
    return f"team {team}" if team else "the fleet"


# A pass of the watch sends from the same outbox for two minutes at most.
_WAIT_SECONDS = 150.0


def send(job: ReportJob, outbox: Outbox, environ: Mapping[str, str], time: Clocks) -> int:
    """Queue what was never queued of the week, then send what waits. Raises SkuwiseError where somebody has yet to
    receive something or never will."""
    if not any(_expected(team) for team in job.teams):
        raise UsageError("No recipients configured.", "Set administrators in [report] or in the routes.")
    carriers = carriers_of(job.settings, job.teams, environ)
    with outbox.sending(wait_seconds=_WAIT_SECONDS):
        # Names the routes by which a week is queued: where they change, it is looked at again.
        routed = hashlib.sha256(json.dumps([_expected(team) for team in job.teams]).encode()).hexdigest()
        if not outbox.is_queued(job.week.name, routed):
            job.check_over()
            _queue(job, outbox, time)
            outbox.note_queued(job.week.name, routed, time.now().wall_seconds)
        tally = send_waiting(
            outbox, carriers, only=job.only, clock=time.now, sleep=time.sleep,
            mails_per_minute=job.settings.mails_per_minute, say=job.say,
        )  # fmt: skip
    return _told(tally, job.say)


def _told(tally: Tally, say: Callable[[str], None]) -> int:
    say(f"sent to {tally.sent}; {tally.waiting} waiting; {len(tally.refused)} refused")
    faults = [str(error) for error in tally.down]
    if tally.refused:
        faults.append(f"Refused for good: {'; '.join(clean(one) for one in tally.refused)}.")
    if tally.waiting:
        # A span, no moment: it is true whatever this machine's clock says.
        when = f" once {span(tally.soonest_seconds)} have passed" if tally.soonest_seconds else ""
        faults.append(f"{tally.waiting} waiting in the outbox: the next run of the same command tries again{when}.")
    if faults:
        raise SkuwiseError(" ".join(faults))
    return EXIT_DONE


def _queue(job: ReportJob, outbox: Outbox, time: Clocks) -> None:
    sender = job.settings.sender or NOBODY
    known = outbox.known(job.week.name)
    teams = tuple(team for team in job.teams if any(one not in known for one in _expected(team)))
    if not teams:
        return
    for report in job.reports(teams, noting=True):
        team, letter = report.team, report.letter
        id_ = message_id(job.week.name, team.name, sender)
        at = time.now().wall_seconds
        contents: dict[Channel, tuple[bytes, tuple[str, ...]]] = {}
        if team.to:
            envelope = Envelope(sender, team.to, job.list_unsubscribe)
            contents["mail"] = (compose(letter, envelope, message_id=id_, date=at), team.to)
        if team.webhook_url_file:
            contents["webhook"] = (payload(letter), (WEBHOOK,))
        for channel, (content, to) in contents.items():
            outbox.queue(Parcel(job.week.name, team.name, channel, id_, letter.subject, content, to), at)
        job.note_told(report, at)


def _expected(team: TeamRoute) -> list[tuple[str, str, str]]:
    """(team, channel, recipient) of all that a team is to receive in a week."""
    mails = [(team.name, "mail", address) for address in team.to]
    return mails + ([(team.name, "webhook", WEBHOOK)] if team.webhook_url_file else [])


def write_previews(job: ReportJob, folder: Path) -> Iterator[Path]:
    """Write every letter of `job` into `folder`, and a list of them; yield each file as it is there.

    What lies there under the same name is replaced, and no link is followed. Raises SkuwiseError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SkuwiseError(f"Cannot create the folder {folder}: {error.strerror}.", "Use another folder.") from error
    sender = job.settings.sender or NOBODY
    teams = [team.name for team in job.teams]
    names = dict(zip(teams, file_names(teams), strict=True))
    for report in job.reports(job.teams):
        id_ = message_id(job.week.name, report.team.name, sender)
        envelope = Envelope(sender, report.team.to, job.list_unsubscribe)
        message = compose(report.letter, envelope, message_id=id_, date=job.now)
        for ending, text in ((".eml", message.decode("ascii")), (".html", inlined(report.letter))):
            path = folder / f"{names[report.team.name]}{ending}"
            write_whole(path, text, into_devices=False)
            yield path
    index = folder / "index.csv"
    write_whole(index, preview_index(teams, [names[team] for team in teams]), into_devices=False)
    yield index
