"""``skuwise completion``: a script that completes commands, options and values in a shell."""

from __future__ import annotations

import argparse

from ..base.completion import SHELLS, completion
from ..base.errors import EXIT_DONE
from ..base.output import write_stdout
from ..base.parsers import every_parser

EXAMPLES = (
    "skuwise completion bash > skuwise.bash",
    "skuwise completion zsh > _skuwise",
    "skuwise completion fish > skuwise.fish",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SHELLS), help=f"one of {', '.join(SHELLS)}")


def run(options: argparse.Namespace) -> int:
    """Print the script. Loads every command of this installation."""
    write_stdout(completion(options.shell, every_parser(options.commands)))
    return EXIT_DONE
