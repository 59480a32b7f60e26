"""``skuwise report``: the week's mails, as files (--preview) or sent (--send)."""

import os
import time
from dataclasses import replace
from pathlib import Path

from click import option

from ...rules.base.click_commands import FILE, FOLDER, command, exclusive
from ...rules.base.errors import EXIT_DONE, UsageError
from ...rules.base.output import say, write_stdout
from ...rules.base.sanitize import clean, suggest
from ..core.timestamps import minute
from . import options


@command(
    "skuwise report --db node.db --teams teams.toml --preview mails",
    "skuwise report --db node.db --teams teams.toml --send",
)
@options.source_options(required=False)
@option("--preview", type=FOLDER, help="write each mail to DIR as .eml and .html")
@option("--send", is_flag=True, help="send mails not sent yet; with report.send unset, list them")
@option("--teams", type=FILE, help="routes file: teams, their workloads and addresses")
@option("--only", metavar="TEAM", help="report for this team only")
@option("--week", type=options.MOMENT, help="week of this day, Monday to Monday, UTC (default: the last full week)")
@options.rulebook_options
@options.state_options(optional=True)
def report(
    source: options.SourceOptions,
    preview: Path | None,
    send: bool,
    teams: Path | None,
    only: str | None,
    week: float | None,
    rulebook: options.RulebookOptions,
    state: options.StateOptions,
) -> int:
    """Preview or send the weekly report, one mail per team."""
    from ..core.fleet_identity import fleet_of
    from ..notify.report import ReportJob, reported_week, team_letters, write_previews
    from ..notify.report import send as send_report
    from ..notify.routes import load_mail_settings, routes_of
    from ..notify.sending import Clocks

    exclusive(True, preview=preview, send=send)
    now, settings = time.time(), load_mail_settings(os.environ)
    routes = routes_of(settings, teams)
    names = [team.name for team in routes.teams]
    if only is not None and only not in names:
        raise UsageError(f"Unknown team {only!r}.", suggest(only, names) or "Use a team of the routes file.")
    source = source.or_settings()
    rules, prices = rulebook.rules or settings.rules, rulebook.prices or settings.prices
    rulebook = replace(rulebook, rules=rules, prices=prices)
    commands = options.reader_commands(source, rulebook, state, settings)
    chosen, book, is_named = reported_week(week, now), rulebook.load(now), week is not None
    job = ReportJob(settings, routes, source.open(), book, state.beside(), chosen, now, only, say, is_named, commands)
    if preview is not None:
        for path in write_previews(job, preview):
            write_stdout(f"{path}\n")
    elif chosen.end > now:
        raise UsageError(
            f"The week of {chosen.name} ends at {minute(chosen.end)}. An incomplete week is not sent.",
            "Use --preview, or set --week to an earlier week.",
        )
    elif settings.send:
        # The fleet of the telemetry names the state file, and that what was queued before: then no week has to be read.
        frame = job.source.read(book.catalog, since=options.IDENTITY_SECONDS, until=None, now=now)
        return send_report(job, state.to_write(fleet_of(frame)), os.environ, Clocks())
    else:
        for team, letter, _ in team_letters(job, job.teams):
            addresses = ", ".join(to.address for to in team.recipients) or "no recipient"
            say(f"would be sent to {addresses}: {clean(letter.subject)}")
        say("Dry run, nothing was sent. To send: set send = true in section [report] of skuwise.toml.")
    return EXIT_DONE
