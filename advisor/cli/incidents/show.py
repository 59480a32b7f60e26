"""``skuwise incidents show``: one incident with its evidence, its cost so far and its history."""

from __future__ import annotations

import argparse
import time

from ....rules.base.errors import EXIT_DONE
from ....rules.base.output import write_json, write_stdout
from ...views.document.incident_table import as_dict, as_text
from ..output import terminal_width
from .state_file import add_id, asked_incident, open_state

SCHEMA = "skuwise.incident/1"
_WIDTH_MAX = 120

EXAMPLES = ("skuwise incidents show i-5603c79e", "skuwise incidents show i-5603c79e --format json")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")
    add_id(parser)


def run(options: argparse.Namespace) -> int:
    one, now = asked_incident(options, open_state(options.state)), time.time()
    if options.format == "json":
        write_json({"schema": SCHEMA, "incident": as_dict(one, now)})
    else:
        write_stdout(as_text(one, now, terminal_width(_WIDTH_MAX)))
    return EXIT_DONE
