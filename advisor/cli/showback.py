"""``skuwise showback``: what each team's GPUs cost, as FOCUS rows or a table."""

import json
import os
import time
from pathlib import Path

from click import option

from ...rules.base.click_commands import FILE, Choice, command
from ...rules.base.errors import EXIT_DONE, NothingToDo, SkuwiseError
from ...rules.base.output import Progress, say
from ...rules.base.sanitize import clean
from .options import OutputOptions, Telemetry, output_options, telemetry_options

_BY = ("team", "workload", "namespace", "account")
# Notes on the dollars of rows, for stderr; the table prints all notes.
_MONEY_NOTES = ("showback-", "prices-", "region-", "fabric-premium-", "nodes-that-left")


@command(
    "skuwise showback --db node.db",
    "skuwise showback --db node.db --by workload --since 30d",
    "skuwise showback --db node.db --teams teams.toml --format csv --output showback.csv",
)
@telemetry_options()
@output_options("table", "json", "csv")
@option(
    "--by",
    type=Choice(_BY),
    default="team",
    help="what table and JSON sum up; rows of csv are the same for all (default: team, else owner)",
)
@option("--teams", type=FILE, help="TOML file with teams and matchers (default: report.teams, else the team label)")
@option("--billing-account", metavar="ID", help="BillingAccountId of the rows (default: empty: telemetry has none)")
def showback(
    telemetry: Telemetry, output: OutputOptions, by: str, teams: Path | None, billing_account: str | None
) -> int:
    """Split the cost of nodes by team, in FOCUS columns."""
    from ..billing import showback_page as page
    from ..billing.showback import showback_of
    from ..notify.routes import load_mail_settings, routes_of

    now, routes = time.time(), routes_of(load_mail_settings(os.environ), teams)
    book = telemetry.rulebook.load(now)
    with Progress("reading telemetry", telemetry.source.unit) as reading:
        source = telemetry.source.open(reading.step)
        frame = source.read(book.catalog, since=telemetry.since, until=telemetry.until, now=now)
        reading.stage("evaluating workloads")
        split = showback_of(frame, book, now=now, team_of=lambda w: routes.team_of(w) or w.owner.team)
    if split.rows.empty:
        raise NothingToDo("No GPU-hours in this window.", "Choose a window with data, or run 'skuwise doctor'.")
    closes = page.node_checks(split)["closes"]
    wrong = list(closes.index[~closes])
    # Rows that do not sum to the nodes' price x hours replace no good file; JSON is what to report them with.
    if not wrong or output.form == "json":
        match output.form:
            case "json":
                output.write(json.dumps(page.showback_json(split, by, billing_account), indent=2) + "\n")
            case "csv":
                output.write(page.showback_csv(split, billing_account))
            case _:
                output.write(page.showback_document(split, by))
        for note in split.notes if output.form != "table" else ():
            if note.code.startswith(_MONEY_NOTES):
                say(clean(note.text))
    if wrong:
        raise SkuwiseError(
            f"The rows of {clean(wrong[0])} do not sum to its price x hours within 0.1 %.",
            "Report this with the output of --format json, and do not use its rows.",
        )
    return EXIT_DONE
