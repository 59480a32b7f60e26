"""Commands and their subcommands: one module each, listed in one line, and loaded only when it is asked for."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

from .command import Command


def configure_command(parser: argparse.ArgumentParser, command: Command) -> None:
    """Load a command and give `parser` its options and its `run`, or its subcommands.

    Raises TypeError for a module that is no command.
    """
    module = importlib.import_module(command.module)
    group = getattr(module, "COMMANDS", None)
    if group is not None:
        actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION", parser_class=_LazyParser)
        for name, one in group.items():
            actions.add_parser(name, help=one.text, description=one.text).command = one
        return
    missing = [name for name in ("configure", "run") if not callable(getattr(module, name, None))]
    if missing:
        raise TypeError(f"{command.module} is listed as a command, but has no function {' and no '.join(missing)}")
    module.configure(parser)
    parser.set_defaults(run=module.run)


class _LazyParser(argparse.ArgumentParser):
    """Gets its options when it is to parse: of a group's commands, only the one that is meant is loaded."""

    command: Command | None = None

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]  # noqa: ANN401 - as in argparse
        command, self.command = self.command, None
        if command is not None:
            configure_command(self, command)
        return super().parse_known_args(args, namespace)
