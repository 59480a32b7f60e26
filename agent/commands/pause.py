"""`skuwise agent pause`: let go of the GPUs for a while."""

from __future__ import annotations

import argparse

from ...rules.base.errors import EXIT_DONE, EXIT_FAILED
from ...rules.base.output import write_stdout
from ..base.durations import parse_duration
from ..service.control import ask
from .options import add_running_agent, settings_of

EXAMPLES = ("skuwise agent pause --for 10m",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_running_agent(parser)
    parser.add_argument(
        "--for", dest="pause_for", metavar="SPAN", default="10m", help="length of the pause, 1h at most (default: 10m)"
    )


def run(options: argparse.Namespace) -> int:
    path = settings_of(options).control_socket
    answer = ask(path, {"command": "pause", "seconds": parse_duration(options.pause_for)})
    if answer.get("released"):
        write_stdout(
            f"GPUs released. The agent samples them again in {options.pause_for}, or after 'skuwise agent resume'.\n"
        )
        return EXIT_DONE
    write_stdout("The driver does not answer. The agent releases the GPUs as soon as it does.\n")
    return EXIT_FAILED
