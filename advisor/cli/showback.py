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
from .options import add_source
from .output import EVALUATING, cores, reading_telemetry, terminal_width, wants_color
from .price_options import rulebook_of
from .source_options import source_of

if TYPE_CHECKING:
    from ..billing.showback import Showback, Whose

FORMATS = ("table", "json", "csv")
BY = ("team", "workload", "namespace", "account")

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
        help="what table and JSON sum up; rows of csv are the same for all (default: team)",
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
    from ..billing.showback import showback_of  # noqa: PLC0415

    now, whose = time.time(), _whose(options)
    book = rulebook_of(options, now)
    with reading_telemetry(options) as reading:
        telling = replace(source_of(options, say, cores()), steps=reading.step)
        frame = telling.read(book.catalog, since=options.since, until=options.until, now=now)
        reading.stage(EVALUATING)
        showback = showback_of(frame, book, now=now, whose=whose)
    if not showback.rows:
        raise NothingToDo("No GPU-hours in this window.", "Choose a window with data, or run 'skuwise doctor'.")
    if options.format == "json":
        # Written in any case: it is what to report.
        _write(showback, options)
        _check(showback)
    else:
        # Checked first: the last good file stays.
        _check(showback)
        _write(showback, options)
    return EXIT_DONE


def _whose(options: argparse.Namespace) -> Whose:
    """The team of a workload: by the teams file that is named or set, else what its labels tell."""
    from ..mail.routes import load_routes  # noqa: PLC0415
    from ..mail.settings import load_mail_settings  # noqa: PLC0415

    file = options.teams or load_mail_settings(os.environ).teams
    if file is None:
        return lambda workload: workload.owner.team
    routes = load_routes(file)
    return lambda workload: routes.whose(workload) or workload.owner.team


def _write(showback: Showback, options: argparse.Namespace) -> None:
    write_output(_content(showback, options), options.output, f"{len(showback.rows):,} rows written to {{output}}")
    if options.format != "table":
        for note in showback.notes:
            if note.code in _MONEY:
                say(clean(note.text))


# What a reader of rows must know of their dollars; the table prints all notes.
_MONEY = frozenset({
    "showback-without-price", "prices-missing", "prices-and-skus-missing", "region-assumed", "fabric-premium-assumed",
    "nodes-that-left",
})  # fmt: skip


def _content(showback: Showback, options: argparse.Namespace) -> str:
    from ..billing.focus_rows import Billing  # noqa: PLC0415

    billing = Billing(options.billing_account)
    match options.format:
        case "json":
            from ..billing.showback_json import render_showback_json  # noqa: PLC0415

            return render_showback_json(showback, options.by, billing)
        case "csv":
            from ..billing.showback_document import showback_csv  # noqa: PLC0415

            return showback_csv(showback, billing)
        case _:
            from ..billing.showback_document import showback_document  # noqa: PLC0415
            from ..render.text import document_text  # noqa: PLC0415

            color = options.output is None and wants_color()
            return document_text(showback_document(showback, options.by), width=terminal_width(), color=color)


def _check(showback: Showback) -> None:
    """Raises SkuwiseError where the rows do not sum to the nodes' price x hours: nothing may rest on them."""
    from ..billing.showback_sums import node_checks  # noqa: PLC0415

    open_ones = [name for name, check in node_checks(showback).items() if not check.closes]
    if open_ones:
        raise SkuwiseError(
            f"The rows of {clean(open_ones[0])} do not sum to its price x hours within 0.1 %.",
            "Report this with the output of --format json, and do not use its rows.",
        )
