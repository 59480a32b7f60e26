"""`skuwise agent status`: what the running agent does."""

from __future__ import annotations

import argparse

from ...rules.base.errors import EXIT_DONE
from ...rules.base.output import write_json, write_lines
from ..service.control import ask
from .options import add_running_agent, settings_of

EXAMPLES = ("skuwise agent status --format json",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_running_agent(parser)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")


def run(options: argparse.Namespace) -> int:
    answer = dict(ask(settings_of(options).control_socket, {"command": "status"}))
    answer.pop("ok", None)
    if options.format == "json":
        write_json(answer)
        return EXIT_DONE
    for name, value in answer.items():
        if value not in (None, ""):
            write_lines(f"{name:<20}  {value}")
    return EXIT_DONE
