"""``skuwise report``: the week's mails, as files (--preview) or sent (--send)."""

from __future__ import annotations

import argparse
import os
import socket
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...agent.base.clock import SystemClock
from ...rules.base.errors import EXIT_DONE, NothingToDo, UsageError
from ...rules.base.output import say, write_stdout
from ...rules.base.sanitize import clean, suggest
from ..core.fleet_identity import fleet_of
from ..core.timestamps import minute, parse_moment
from ..notify.report import NotOverError, ReportJob, Week, reported_week, send, team_letters, write_previews
from ..notify.routes import routes_of
from ..notify.sending import Clocks
from ..notify.settings import ReportSettings, load_mail_settings
from .price_options import add_prices, add_rules, rulebook_of
from .reader_commands import reader_commands
from .source_options import add_source_choice
from .state_options import IDENTITY_SECONDS, add_state, beside, fleet_state
from .watch_options import watched_source

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
        "--week", metavar="DATE", help="week of this day, Monday to Monday, UTC (default: the last full week)"
    )
    add_rules(parser)
    add_prices(parser)
    add_state(parser, optional=True)


def run(options: argparse.Namespace) -> int:
    """Read two weeks, write to each team. The only place of it that knows the clock."""
    now, settings = time.time(), load_mail_settings(os.environ)
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
    if settings.send:
        return _send(options, job)
    for team, letter, _ in team_letters(job, job.teams):
        names = ", ".join(to.address for to in team.recipients) or "no recipient"
        say(f"would be sent to {names}: {clean(letter.subject)}")
    say("Dry run, nothing was sent. To send: set send = true in section [report] of skuwise.toml.")
    return EXIT_DONE


def _send(options: argparse.Namespace, job: ReportJob) -> int:
    """Send the week; where it is not over by the telemetry, the last one that is, and raise NotOverError: the next run
    tries this one again."""
    # Whose telemetry it is tells the state file, and that what was queued before: then no week has to be read.
    frame = job.source.read(job.book.catalog, since=IDENTITY_SECONDS, until=None, now=job.now)
    state, clocks = fleet_state(options, fleet_of(frame)), Clocks(SystemClock().now, time.sleep)
    try:
        return send(job, state, os.environ, clocks)
    except NotOverError as early:
        with suppress(NothingToDo):
            send(replace(job, week=reported_week(None, early.newest), named=True), state, os.environ, clocks)
        raise


def _job(options: argparse.Namespace, settings: ReportSettings, week: Week, now: float) -> ReportJob:
    """What the options ask for; what they leave open, the settings say."""
    routes = routes_of(settings, options.teams)
    names = [team.name for team in routes.teams]
    if options.only is not None and options.only not in names:
        raise UsageError(
            f"Unknown team {options.only!r}.", suggest(options.only, names) or "Use a team of the routes file."
        )
    options.rules, options.prices = options.rules or settings.rules, options.prices or settings.prices
    return ReportJob(
        settings, routes, watched_source(options), rulebook_of(options, now), beside(options), week, now,
        options.only, say, options.week is not None, reader_commands(options, settings, socket.gethostname()),
    )  # fmt: skip
