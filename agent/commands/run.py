"""`skuwise agent run`: sample until stopped, into a database."""

from __future__ import annotations

import argparse
import os

from ...rules.base.errors import EXIT_DONE, EXIT_FAILED, EXIT_NOTHING
from ..service.daemon import run_agent, say_on_stderr
from .options import add_trees, settings_of

EXAMPLES = (
    "skuwise agent run --db node.db --interval 1s --duration 30s",
    "skuwise agent run --db node.db --listen 9400",
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_trees(parser)
    parser.add_argument("--db", metavar="PATH", help="database file (default: /var/lib/skuwise/skuwise.db)")
    parser.add_argument("--interval", metavar="SPAN", help="time between samples, 0.1s to 60s (default: 1s)")
    parser.add_argument(
        "--socket", metavar="PATH", help="control socket for pause, resume and status (default: beside the database)"
    )
    parser.add_argument(
        "--duration", metavar="SPAN", help="stop after this time, as in 30s or 2h (default: run until stopped)"
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="serve Prometheus metrics; a PORT alone listens on loopback (default: off)",
    )


def run(options: argparse.Namespace) -> int:
    config = settings_of(options)
    outcome = run_agent(config, os.environ, say_on_stderr, lambda: settings_of(options))
    say_on_stderr(f"stopped after {outcome.kept} ticks, kept in {config.db}")
    if outcome.restart is not None:
        return EXIT_FAILED  # so that a supervisor that restarts on failure starts it again
    return EXIT_NOTHING if config.duration_seconds is not None and not outcome.kept else EXIT_DONE
