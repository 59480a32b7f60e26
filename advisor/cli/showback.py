"""``skuwise showback``: what each team's GPUs cost, as rows for a FOCUS warehouse or a table."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...rules.base.errors import EXIT_DONE, NothingToDo, SkuwiseError
from ...rules.base.output import say, write_output
from ...rules.base.sanitize import clean
from .old_options import add_source
from .output import EVALUATING, cores, reading_telemetry, terminal_width, wants_color
from .price_options import rulebook_of
from .source_options import source_of

if TYPE_CHECKING:
    from ..billing.showback import Showback, Whose

FORMATS = ("table", "json", "csv")
BY = ("team", "workload", "namespace", "account")
# What a reader of rows must know of their dollars; the table prints all notes.
_MONEY = frozenset({
    "showback-without-price", "prices-missing", "prices-and-skus-missing", "region-assumed", "fabric-premium-assumed",
    "nodes-that-left",
})  # fmt: skip

EXAMPLES = (
    "skuwise showback --db node.db",
    "skuwise showback --db node.db --by workload --since 30d",
    "skuwise showback --db node.db --teams teams.toml --format csv --output showback.csv",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the options of showback."""
    add_source(parser)
    parser.add_argument("--format", choices=FORMATS, default="table", help="output format (default: table)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to FILE instead of stdout, all or nothing")
    parser.add_argument(
        "--by", choices=BY, default="team",
        help="what table and JSON sum up; rows of csv are the same for all (default: team, else owner)",
    )  # fmt: skip
    parser.add_argument(
        "--teams", type=Path, metavar="FILE",
        help="TOML file with teams and matchers (default: report.teams, else the team label)",
    )  # fmt: skip
    parser.add_argument(
        "--billing-account", metavar="ID", help="BillingAccountId of the rows (default: empty: telemetry has none)"
    )


def run(options: argparse.Namespace) -> int:
    """Read, judge, split, print. The only place of `showback` that knows the clock."""
    from ..billing import showback_sums
    from ..billing.showback import showback_of

    now, whose = time.time(), _whose(options)
    book = rulebook_of(options, now)
    with reading_telemetry(options) as reading:
        telling = replace(source_of(options, say, cores()), steps=reading.step)
        frame = telling.read(book.catalog, since=options.since, until=options.until, now=now)
        reading.stage(EVALUATING)
        showback = showback_of(frame, book, now=now, whose=whose)
    if showback.rows.empty:
        raise NothingToDo("No GPU-hours in this window.", "Choose a window with data, or run 'skuwise doctor'.")
    wrong = [name for name, check in showback_sums.node_checks(showback).items() if not check.closes]
    # Rows that do not sum to the nodes' price x hours replace no good file; JSON is what to report them with.
    if not wrong or options.format == "json":
        write_output(_content(showback, options), options.output, f"{len(showback.rows):,} rows written to {{output}}")
        for note in showback.notes if options.format != "table" else ():
            if note.code in _MONEY:
                say(clean(note.text))
    if wrong:
        raise SkuwiseError(
            f"The rows of {clean(wrong[0])} do not sum to its price x hours within 0.1 %.",
            "Report this with the output of --format json, and do not use its rows.",
        )
    return EXIT_DONE


def _whose(options: argparse.Namespace) -> Whose:
    """The team of a workload: by the teams file that is named or set, else its team label."""
    from ..notify.routes import load_routes
    from ..notify.settings import load_mail_settings

    file = options.teams or load_mail_settings(os.environ).teams
    if file is None:
        return lambda workload: workload.owner.team
    routes = load_routes(file)
    return lambda workload: routes.team_of(workload) or workload.owner.team


def _content(showback: Showback, options: argparse.Namespace) -> str:
    from ..billing import showback_output
    from ..show.writers.text import document_text

    match options.format:
        case "json":
            return showback_output.showback_json_text(showback, options.by, options.billing_account)
        case "csv":
            return showback_output.showback_csv(showback, options.billing_account)
        case _:
            document = showback_output.showback_document(showback, options.by)
            return document_text(document, width=terminal_width(), color=options.output is None and wants_color())
