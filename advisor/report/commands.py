"""``skuwise report``: the week's letters, shown (--preview) or sent (--send)."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from email.headerregistry import Address
from pathlib import Path

from ...rules.errors import EXIT_DONE, NothingToDo, SkuwiseError, StoreError, UsageError
from ...rules.fields import suggest
from ...rules.plain import clean
from ..commands import (
    add_ledger,
    cores,
    ledger_beside,
    no_garbage_collection,
    read_and_advise,
    say,
    write_stdout,
    write_whole,
)
from ..credentials import secret
from ..ledger.outcomes import Outcome, outcomes
from ..ledger.store import Ledger
from ..mail.message import Envelope, compose, file_names, inlined, message_id
from ..mail.outbox import Channel, Outbox, Parcel, default_outbox
from ..mail.routes import Routes, Team, load_routes
from ..mail.sending import Carrier, Tally, send_waiting
from ..mail.settings import ReportSettings, check_webhook, load_settings
from ..mail.smtp import SmtpCarrier
from ..mail.webhook import WebhookCarrier, payload
from ..model import Advice
from ..moments import minute, parse_moment
from ..source import Source, add_source_choice, source_of
from .weekly import FLEET, Making, Report
from .weeks import WEEK_SECONDS, Week, reported_week

_PREVIEW_SENDER = Address("skuwise", addr_spec="skuwise@localhost")


def configure_report(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of ``skuwise report``."""
    add_source_choice(parser, required=False)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--preview", type=Path, metavar="DIR", help="write each letter there as .eml and .html")
    what.add_argument("--send", action="store_true", help="send what was not sent yet; without report.send, say what")
    parser.add_argument("--teams", type=Path, metavar="FILE", help="routes: which team's what is, and its addresses")
    parser.add_argument("--only", metavar="TEAM", help="this team alone")
    parser.add_argument(
        "--week", metavar="DATE", help="the week with this day, Monday to Monday, UTC (default: the last that is over)"
    )
    parser.add_argument("--rules", type=Path, metavar="DIR", help="your own rules, laid out like ours, over ours")
    parser.add_argument("--prices", type=Path, metavar="FILE", help="your own prices, before list prices")
    add_ledger(parser)
    parser.set_defaults(run=run_report)


def run_report(options: argparse.Namespace) -> int:
    """Read two weeks, write to each team. The only place of it that knows the clock."""
    now = time.time()
    settings = load_settings(os.environ)
    week = reported_week(parse_moment(options.week) if options.week else None, now)
    job = _job(options, settings, week, now)
    if options.preview is not None:
        return _preview(job, options.preview)
    if week.end > now:
        raise UsageError(
            f"The week of {week.name} is over at {minute(week.end)}; half a week is not sent.",
            "Use --preview, or name the week before.",
        )
    return _send(job, os.environ) if settings.send else _dry_run(job)


@dataclass(frozen=True)
class _Job:
    """One run: what is read, for whom, and what the settings say. `only`: one team's name; None: all."""

    settings: ReportSettings
    routes: Routes
    source: Source
    options: argparse.Namespace
    week: Week
    now: float
    only: str | None

    def wanted(self, team: str) -> bool:
        return self.only is None or team == self.only

    @property
    def fleet(self) -> Team:
        """Who is told of the whole fleet."""
        to = self.routes.administrators or self.settings.administrators
        return replace(FLEET, to=to, webhook_url_file=self.settings.webhook_url_file)

    @property
    def teams(self) -> tuple[Team, ...]:
        """Who is told anything in this run."""
        return tuple(team for team in (self.fleet, *self.routes.teams) if self.wanted(team.name))


def _job(options: argparse.Namespace, settings: ReportSettings, week: Week, now: float) -> _Job:
    if options.db is None and options.prometheus is None:
        options.db = list(settings.db) or None
        options.prometheus = None if settings.db else settings.prometheus or None
        options.match = options.match or list(settings.match)
    if options.db is None and options.prometheus is None:
        raise UsageError("Nothing to report on is named.", "Give --db or --prometheus, or set report.db.")
    options.rules = options.rules or settings.rules
    options.prices = options.prices or settings.prices
    options.ledger = options.ledger or (None if options.no_ledger else settings.ledger)
    file = options.teams or settings.teams
    routes = load_routes(file) if file is not None else Routes()
    names = [team.name for team in routes.teams]
    if options.only is not None and options.only not in names:
        raise UsageError(
            f"There is no team {options.only!r} in the routes.", suggest(options.only, names) or "Name one that is."
        )
    return _Job(settings, routes, source_of(options, say, cores()), options, week, now, options.only)


def _preview(job: _Job, folder: Path) -> int:
    """Write every letter, and print the names of the files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SkuwiseError(f"{folder} cannot be made: {error.strerror}.", "Name another folder.") from error
    sender = job.settings.sender or _PREVIEW_SENDER
    names = dict(zip((t.name for t in job.teams), file_names([t.name for t in job.teams]), strict=True))
    for report in _reports(job, noting=False):
        message = compose(
            report.letter,
            Envelope(sender, _team(job, report).to, _unsubscribe(job)),
            message_id=message_id(job.week.name, report.team.name, sender), date=job.now,
        )  # fmt: skip
        for ending, text in ((".eml", message.decode("ascii")), (".html", inlined(report.letter))):
            path = folder / f"{names[report.team.name]}{ending}"
            write_whole(path, text)
            write_stdout(f"{path}\n")
    return EXIT_DONE


def _dry_run(job: _Job) -> int:
    """Make every letter and say to whom it would go."""
    for report in _reports(job, noting=False):
        team = _team(job, report)
        told = ", ".join((*team.to, *(("its webhook",) if team.webhook_url_file else ()))) or "nobody"
        say(f"would be sent to {told}: {clean(report.letter.subject)}")
    say("Nothing was sent: set send = true in [report] of the settings once the previews please you.")
    return EXIT_DONE


def _send(job: _Job, environ: Mapping[str, str]) -> int:
    """Queue what was never queued, then send what waits."""
    outbox = Outbox(job.settings.outbox or default_outbox(environ))
    carriers = _carriers(job, environ)
    with outbox.sending():
        routed = _digest(job)
        if not outbox.is_queued(job.week.name, routed):
            _queue(job, outbox)
            outbox.note_queued(job.week.name, routed, time.time())
        tally = send_waiting(
            outbox, carriers, only=job.only, clock=time.time, sleep=time.sleep,
            mails_per_minute=job.settings.mails_per_minute, say=say,
        )  # fmt: skip
    return _told(tally)


def _told(tally: Tally) -> int:
    """What a run came to: done, or an error that says who has yet to receive something, who will not, and why."""
    say(f"sent to {tally.sent}; {tally.waiting} waiting; {len(tally.refused)} refused")
    faults = [str(error) for error in tally.down]
    if tally.refused:
        faults.append(f"Refused for good: {'; '.join(clean(one) for one in tally.refused)}.")
    if tally.waiting:
        faults.append(f"{tally.waiting} wait in the outbox for the next run of the same command.")
    if faults:
        raise SkuwiseError(" ".join(faults))
    return EXIT_DONE


def _queue(job: _Job, outbox: Outbox) -> None:
    known = outbox.known(job.week.name)
    asked = {team.name for team in job.teams if any(one not in known for one in _expected(team))}
    if not asked:
        return
    sender = job.settings.sender or _PREVIEW_SENDER
    for report in _reports(job, noting=True, wanted=asked.__contains__):
        team = _team(job, report)
        id_ = message_id(job.week.name, team.name, sender)
        queued_at = time.time()

        def parcel(channel: Channel, content: bytes, to: tuple[str, ...]) -> Parcel:
            return Parcel(job.week.name, team.name, channel, id_, report.letter.subject, content, to)  # noqa: B023

        if team.to:
            envelope = Envelope(sender, team.to, _unsubscribe(job))
            content = compose(report.letter, envelope, message_id=id_, date=queued_at)
            outbox.queue(parcel("mail", content, team.to), queued_at)
        if team.webhook_url_file:
            outbox.queue(parcel("webhook", payload(report.letter), ("webhook",)), queued_at)
        _note_told(job, report, queued_at)


def _expected(team: Team) -> list[tuple[str, str, str]]:
    """(team, channel, recipient) of all that a team is to receive in a week."""
    mails = [(team.name, "mail", address) for address in team.to]
    return mails + ([(team.name, "webhook", "webhook")] if team.webhook_url_file else [])


def _digest(job: _Job) -> str:
    """Names the routes by which a week is queued: where they change, it is looked at again."""
    routed = [_expected(team) for team in job.teams]
    return hashlib.sha256(json.dumps(routed).encode()).hexdigest()


def _carriers(job: _Job, environ: Mapping[str, str]) -> dict[Channel, Carrier]:
    """The ways that the settings and routes name. Secrets are read here, before anything is made or sent."""
    settings, teams = job.settings, job.teams
    if not any(_expected(team) for team in teams):
        raise UsageError("Nobody is named who is told.", "Set administrators in [report] or in the routes.")
    carriers: dict[Channel, Carrier] = {}
    if settings.smtp_host or any(team.to for team in teams):
        file = settings.smtp_password_file
        carriers["mail"] = SmtpCarrier(settings, secret(file, environ, private=True) if file else "")
    urls = {
        team.name: check_webhook(secret(team.webhook_url_file, environ, private=True), team.webhook_url_file)
        for team in teams
        if team.webhook_url_file
    }
    if urls:
        carriers["webhook"] = WebhookCarrier(
            urls, timeout_seconds=settings.smtp_timeout_seconds, proxy=settings.webhook_proxy
        )
    return carriers


def _team(job: _Job, report: Report) -> Team:
    return job.fleet if report.team.name == FLEET.name else report.team


def _unsubscribe(job: _Job) -> str:
    """Whom to ask to be left out: what the settings say, or the first administrator."""
    to = job.fleet.to
    return job.settings.list_unsubscribe or (f"mailto:{to[0]}?subject=unsubscribe" if to else "")


def _reports(job: _Job, *, noting: bool, wanted: Callable[[str], bool] | None = None) -> Iterator[Report]:
    """Read the week and the one before and make the letters. `noting`: the ledger notes what they propose."""
    beside = ledger_beside(job.options)
    decisions = beside.decisions(job.now)

    def read(week: Week) -> Advice:
        with no_garbage_collection():
            return read_and_advise(
                job.source, since=week.covered_until(job.now) - week.start, until=week.covered_until(job.now),
                rules_dir=job.options.rules, prices=job.options.prices, now=job.now, decisions=decisions,
            )[1]  # fmt: skip

    say(f"reading the week of {job.week.name} (Monday 00:00 to Monday 00:00, UTC) ...")
    advice = read(job.week)
    if job.week.end > job.now:
        sentence = f"The week is not over: it is told up to {minute(job.now)}."
        say(sentence)
        advice = replace(advice, notes=(sentence, *advice.notes))
    say("reading the week before ...")
    try:
        before = read(Week(job.week.start - WEEK_SECONDS))
    except NothingToDo:
        before = None
    if noting:
        beside.note(advice, job.now)
    making = Making(
        advice, before, _outcomes(beside.path, job.now), job.routes, lambda team: _was_told(job, team),
        with_empty=job.settings.no_data == "short",
    )  # fmt: skip
    return making.reports(wanted or job.wanted)


def _outcomes(ledger: Path | None, now: float) -> tuple[Outcome, ...]:
    try:
        return outcomes(Ledger(ledger).entries(), now) if ledger is not None else ()
    except (NothingToDo, StoreError):
        return ()  # said already, when the decisions were asked for


def _was_told(job: _Job, team: str) -> frozenset[str]:
    path = ledger_beside(job.options).path
    try:
        return Ledger(path).mailed_since(_key(team), job.now - job.settings.cooldown_seconds) if path else frozenset()
    except StoreError:
        return frozenset()


def _note_told(job: _Job, report: Report, now: float) -> None:
    path = ledger_beside(job.options).path
    if path is None or not report.told:
        return
    try:
        Ledger(path).note_mailed(_key(report.team.name), report.told, now)
    except StoreError as error:
        say(f"not noted in the ledger: {error}")


def _key(team: str) -> str:
    return f"team {team}" if team else "the fleet"
