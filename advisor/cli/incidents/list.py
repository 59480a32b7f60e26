"""``skuwise incidents list``: what is open, the most severe and expensive first."""

from __future__ import annotations

import argparse
import time

from ....rules.base.errors import EXIT_DONE
from ....rules.base.output import write_json, write_stdout
from ...views.document.incident_table import as_dict, as_table, by_urgency
from .state_file import add_state, open_state

SCHEMA = "skuwise.incidents/1"

EXAMPLES = ("skuwise incidents list", "skuwise incidents list --all --format json")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="also list resolved incidents; they are kept for 90 days")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")
    add_state(parser)


def run(options: argparse.Namespace) -> int:
    """Print the incidents."""
    now, every = time.time(), open_state(options.state).listed(resolved_since=0.0)
    shown = [one for one in every if options.all or one.resolved_at is None]
    if options.format == "json":
        write_json({"schema": SCHEMA, "incidents": [as_dict(one, now) for one in by_urgency(shown)]})
    else:
        write_stdout(as_table(shown, len(every) - len(shown), now))
    return EXIT_DONE
