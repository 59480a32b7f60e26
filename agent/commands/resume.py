"""`skuwise agent resume`: take the GPUs up again."""

from __future__ import annotations

import argparse

from ...rules.base.errors import EXIT_DONE
from ...rules.base.output import write_stdout
from ..service.control import ask
from .options import add_running_agent as configure
from .options import settings_of

__all__ = ["configure", "run"]

EXAMPLES = ("skuwise agent resume",)


def run(options: argparse.Namespace) -> int:
    ask(settings_of(options).control_socket, {"command": "resume"})
    write_stdout("The agent samples the GPUs again.\n")
    return EXIT_DONE
