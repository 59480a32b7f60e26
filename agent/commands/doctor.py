"""`skuwise agent doctor`: what each source can read here."""

from __future__ import annotations

import argparse
import os

from ...rules.base.errors import EXIT_DONE
from ...rules.base.output import write_json, write_stdout
from ..base.clock import SystemClock
from ..service.doctor import examine
from .options import LOOK_SECONDS, add_trees, settings_of

EXAMPLES = ("skuwise agent doctor",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_trees(parser)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")


def run(options: argparse.Namespace) -> int:
    rows, table = examine(settings_of(options), os.environ, SystemClock(), LOOK_SECONDS)
    if options.format == "json":
        write_json(rows)
    else:
        write_stdout(f"{table}\n")
    return EXIT_DONE
