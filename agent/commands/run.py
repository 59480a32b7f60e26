"""`skuwise agent run`: sample until stopped, into a database."""

from __future__ import annotations

import argparse
import os

from ...rules.base.errors import EXIT_DONE, EXIT_FAILED, EXIT_NOTHING
from ..service.runtime.daemon import run_agent, say_on_stderr
from .options import add_trees, settings_of


def configure(parser: argparse.ArgumentParser) -> None:
    add_trees(parser)
    parser.add_argument("--db", metavar="PATH", help="the database file (default: /var/lib/skuwise/skuwise.db)")
    parser.add_argument("--interval", metavar="SPAN", help="time between samples, 0.1s to 60s (default: 1s)")
    parser.add_argument("--socket", metavar="PATH", help="where pause, resume and status reach this agent")
    parser.add_argument("--duration", metavar="SPAN", help="stop after this long (default: run until stopped)")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="serve metrics there; a bare PORT is on loopback (default: off)"
    )


def run(options: argparse.Namespace) -> int:
    config = settings_of(options)
    outcome = run_agent(config, os.environ, say_on_stderr, lambda: settings_of(options))
    say_on_stderr(f"stopped after {outcome.kept} ticks, kept in {config.db}")
    if outcome.restart is not None:
        return EXIT_FAILED  # so that a supervisor that restarts on failure starts it again
    return EXIT_NOTHING if config.duration_seconds is not None and not outcome.kept else EXIT_DONE
