"""`skuwise agent run | once | doctor`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path

from ..rules.errors import EXIT_DONE, EXIT_NOTHING
from .clock import SystemClock
from .config import AgentConfig, load_config

# How long `once` and `doctor` watch: counters need two readings, and GPM samples must lie 100 ms apart.
_LOOK_SECONDS = 0.5


def configure(command: str, parser: argparse.ArgumentParser) -> None:
    """Add the agent's subcommands to `parser`."""
    del command
    subcommands = parser.add_subparsers(required=True, metavar="run|once|doctor")
    run = _subcommand(subcommands, "run", "sample until stopped, into a database", _run)
    run.add_argument("--db", metavar="PATH", help="the database file (default: /var/lib/skuwise/skuwise.db)")
    run.add_argument("--interval", metavar="SPAN", help="time between samples, 0.1s to 60s (default: 1s)")
    run.add_argument("--duration", metavar="SPAN", help="stop after this long (default: run until stopped)")
    for name, text, function in (
        ("once", "one reading of every source", _once),
        ("doctor", "what each source can read here, and if not, why and the remedy", _doctor),
    ):
        subcommand = _subcommand(subcommands, name, text, function)
        subcommand.add_argument("--format", choices=("table", "json"), default="table")


def _subcommand(
    subcommands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    function: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser = subcommands.add_parser(name, help=text, description=text)
    parser.add_argument("--config", metavar="FILE", help="settings from this file, in place of the usual ones")
    parser.add_argument("--path.sysfs", dest="path_sysfs", metavar="DIR", help="read this tree in place of /sys")
    parser.add_argument("--path.procfs", dest="path_procfs", metavar="DIR", help="read this tree in place of /proc")
    parser.set_defaults(run=function)
    return parser


def _settings(options: argparse.Namespace) -> AgentConfig:
    flags = {name: value for name, value in vars(options).items() if name not in ("run", "format")}
    return load_config(flags, os.environ)


def _run(options: argparse.Namespace) -> int:
    from .service.daemon import run_agent, say_on_stderr  # noqa: PLC0415 - `--help` and the others need no store

    config = _settings(options)
    kept = run_agent(config, os.environ, say_on_stderr)
    say_on_stderr(f"stopped after {kept} ticks, kept in {Path(config.db)}")
    return EXIT_DONE if kept else EXIT_NOTHING


def _once(options: argparse.Namespace) -> int:
    from .service import once  # noqa: PLC0415
    from .service.look import look  # noqa: PLC0415

    agent, sampled, uses = look(_settings(options), os.environ, SystemClock(), _LOOK_SECONDS)
    if options.format == "json":
        _print(json.dumps(once.as_json(agent.node, agent.survey, sampled, uses), indent=2, allow_nan=False))
    else:
        _print(once.as_table(agent.node, agent.survey, sampled))
    return EXIT_DONE


def _doctor(options: argparse.Namespace) -> int:
    from .service import doctor  # noqa: PLC0415
    from .service.look import look  # noqa: PLC0415

    agent, sampled, _ = look(_settings(options), os.environ, SystemClock(), _LOOK_SECONDS)
    found = doctor.examine(agent.survey, sampled)
    if options.format == "json":
        _print(json.dumps(doctor.as_rows(found), indent=2))
    else:
        _print(doctor.as_table(found))
    return EXIT_DONE


def _print(text: str) -> None:
    print(text)  # noqa: T201
