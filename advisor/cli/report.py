"""``skuwise report``: the week's mails, as files (--preview) or sent (--send)."""

from __future__ import annotations

import argparse
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...agent.model import Instant
from ...rules.base.errors import EXIT_DONE, NothingToDo, UsageError
from ...rules.base.output import say, write_stdout
from ...rules.base.sanitize import clean
from ...rules.base.suggestions import suggest
from ..core.timestamps import minute, parse_moment
from ..notify.report import Clocks, ReportJob, send, write_previews
from ..notify.routes import Routes, load_routes
from ..notify.settings import ReportSettings, load_mail_settings
from ..notify.weeks import NotOverError, Week, reported_week
from ..state.outbox import Outbox, default_outbox
from ..telemetry.source import Source
from .options import add_ledger, ledger_beside
from .output import cores
from .price_options import add_prices, rulebook_of
from .reader_commands import reader_commands
from .source_options import add_source_choice, source_of

EXAMPLES = (
    "skuwise report --db node.db --teams teams.toml --preview mails",
    "skuwise report --db node.db --teams teams.toml --send",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of ``skuwise report``."""
    add_source_choice(parser, required=False)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--preview", type=Path, metavar="DIR", help="write each mail to DIR as .eml and .html")
    what.add_argument("--send", action="store_true", help="send mails not sent yet; with report.send unset, list them")
    parser.add_argument("--teams", type=Path, metavar="FILE", help="routes file: teams, their workloads and addresses")
    parser.add_argument("--only", metavar="TEAM", help="report for this team only")
    parser.add_argument(
        "--week",
        metavar="DATE",
        help="week that contains this day, Monday to Monday, UTC (default: the last full week)",
    )
    parser.add_argument(
        "--rules", type=Path, metavar="DIR", help="folder of site rules, which override the built-in ones"
    )
    add_prices(parser)
    add_ledger(parser)


def run(options: argparse.Namespace) -> int:
    """Read two weeks, write to each team. The only place of it that knows the clock."""
    now, environ = time.time(), os.environ
    settings = load_mail_settings(environ)
    week = reported_week(parse_moment(options.week) if options.week else None, now)
    job = _job(options, settings, week, now)
    if options.preview is not None:
        for path in write_previews(job, options.preview):
            write_stdout(f"{path}\n")
        return EXIT_DONE
    if week.end > now:
        raise UsageError(
            f"The week of {week.name} ends at {minute(week.end)}. An incomplete week is not sent.",
            "Use --preview, or set --week to an earlier week.",
        )
    if not settings.send:
        for report in job.reports(job.teams):
            webhook = ("its webhook",) if report.team.webhook_url_file else ()
            told = ", ".join((*report.team.to, *webhook)) or "no recipient"
            say(f"would be sent to {told}: {clean(report.letter.subject)}")
        say("Dry run, nothing was sent. To send: set send = true in section [report] of skuwise.toml.")
        return EXIT_DONE
    return _send(job, Outbox(settings.outbox or default_outbox(environ)), environ)


def _send(job: ReportJob, outbox: Outbox, environ: Mapping[str, str]) -> int:
    """Send the week; where it is not over by the telemetry, the last one that is, and raise NotOverError: the next run
    tries this one again."""
    clocks = Clocks(_clocks, time.sleep)
    try:
        return send(job, outbox, environ, clocks)
    except NotOverError as early:
        with suppress(NothingToDo):
            send(replace(job, week=reported_week(None, early.newest), named=True), outbox, environ, clocks)
        raise


def _clocks() -> Instant:
    """The wall clock, and the one that runs since boot and goes on while the machine sleeps."""
    return Instant(time.time(), time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)))


def _job(options: argparse.Namespace, settings: ReportSettings, week: Week, now: float) -> ReportJob:
    """What the options ask for; what they leave open, the settings say."""
    file = options.teams or settings.teams
    routes = load_routes(file) if file is not None else Routes()
    names = [team.name for team in routes.teams]
    if options.only is not None and options.only not in names:
        raise UsageError(
            f"Unknown team {options.only!r}.", suggest(options.only, names) or "Use a team of the routes file."
        )
    options.ledger = options.ledger or (None if options.no_ledger else settings.ledger)
    options.rules, options.prices = options.rules or settings.rules, options.prices or settings.prices
    source = _source(options, settings)
    return ReportJob(
        settings, routes, source, rulebook_of(options, now), ledger_beside(options), week, now, options.only, say,
        options.week is not None, reader_commands(options, settings, socket.gethostname()),
    )  # fmt: skip


def _source(options: argparse.Namespace, settings: ReportSettings) -> Source:
    if options.db is None and options.prometheus is None:
        if not settings.db and not settings.prometheus:
            raise UsageError("No telemetry source configured.", "Use --db or --prometheus, or set report.db.")
        if settings.db and settings.prometheus:
            raise UsageError("Both report.db and report.prometheus are set.", "Remove one of them.")
        options.db, options.prometheus = list(settings.db) or None, settings.prometheus or None
        options.match = options.match or list(settings.match)
    return source_of(options, say, cores())
