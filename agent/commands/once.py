"""`skuwise agent once`: one reading of every source."""

from __future__ import annotations

import argparse
import os

from ...rules.base.errors import EXIT_DONE
from ...rules.base.output import write_json, write_stdout
from ..base.clock import SystemClock
from ..service import once
from ..service.doctor import probe_node
from .options import LOOK_SECONDS, add_trees, settings_of

EXAMPLES = ("skuwise agent once", "skuwise agent once --format json")


def configure(parser: argparse.ArgumentParser) -> None:
    add_trees(parser)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")


def run(options: argparse.Namespace) -> int:
    seen = probe_node(settings_of(options), os.environ, SystemClock(), LOOK_SECONDS)
    agent = seen.agent
    if options.format == "json":
        write_json(once.reading_json(agent.node, agent.survey, seen.sampled, seen.uses))
    else:
        write_stdout(f"{once.reading_table(agent.node, agent.survey, seen.sampled)}\n")
    return EXIT_DONE
