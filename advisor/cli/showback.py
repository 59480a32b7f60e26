"""``skuwise showback``: what each team's GPUs cost, as rows for a FOCUS warehouse or a table."""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path

from ...rules.base.errors import EXIT_DONE, NothingToDo, SkuwiseError
from ...rules.base.output import say, write_output
from ...rules.base.sanitize import clean
from .options import add_source
from .output import EVALUATING, cores, reading_telemetry, terminal_width, wants_color
from .price_options import rulebook_of
from .source_options import source_of

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
    """Read, judge, split, print."""
    from ..billing import showback_page as page  # noqa: PLC0415
    from ..billing.showback import showback_of  # noqa: PLC0415
    from ..notify.routes import load_routes  # noqa: PLC0415
    from ..notify.settings import load_mail_settings  # noqa: PLC0415
    from ..show.writers.text import document_text  # noqa: PLC0415

    now = time.time()
    file = options.teams or load_mail_settings(os.environ).teams
    routes = None if file is None else load_routes(file)
    book = rulebook_of(options, now)
    with reading_telemetry(options) as reading:
        source = replace(source_of(options, say, cores()), steps=reading.step)
        frame = source.read(book.catalog, since=options.since, until=options.until, now=now)
        reading.stage(EVALUATING)
        showback = showback_of(
            frame, book, now=now, team_of=lambda w: (routes.team_of(w) if routes else None) or w.owner.team
        )
    if showback.rows.empty:
        raise NothingToDo("No GPU-hours in this window.", "Choose a window with data, or run 'skuwise doctor'.")
    closes = page.node_checks(showback)["closes"]
    wrong = list(closes.index[~closes])
    # Rows that do not sum to the nodes' price x hours replace no good file; JSON is what to report them with.
    if not wrong or options.format == "json":
        if options.format == "json":
            content = json.dumps(page.showback_json(showback, options.by, options.billing_account), indent=2) + "\n"
        elif options.format == "csv":
            content = page.showback_csv(showback, options.billing_account)
        else:
            document, color = page.showback_document(showback, options.by), options.output is None and wants_color()
            content = document_text(document, width=terminal_width(), color=color)
        write_output(content, options.output, f"{len(showback.rows):,} rows written to {{output}}")
        for note in showback.notes if options.format != "table" else ():
            if note.code in _MONEY:
                say(clean(note.text))
    if wrong:
        raise SkuwiseError(
            f"The rows of {clean(wrong[0])} do not sum to its price x hours within 0.1 %.",
            "Report this with the output of --format json, and do not use its rows.",
        )
    return EXIT_DONE
