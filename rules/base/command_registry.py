"""Commands and their subcommands: one module each, listed in one line, and loaded only when it is asked for."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

from .command import Command
from .parser import Parser, examples_text


def command_parser(prog: str, command: Command) -> Parser:
    """The parser of one command of the top level, with its options or subcommands. Raises as `configure_command`."""
    needs = (
        f"Requires the extra {command.extra!r}. In a checkout: pip install '.[{command.extra}]'"
        if command.extra
        else ""
    )
    parser = Parser(prog=prog, description=sentence(command.text), epilog=needs)
    configure_command(parser, command)
    return parser


def configure_command(parser: argparse.ArgumentParser, command: Command) -> None:
    """Load a command and give `parser` its options and its `run`, or its subcommands.

    Raises TypeError for a module that is no command.
    """
    module = importlib.import_module(command.module)
    group = getattr(module, "COMMANDS", None)
    examples = examples_text(getattr(module, "EXAMPLES", ()))
    if group is not None:
        actions = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_LazyParser)
        for name, one in group.items():
            actions.add_parser(name, help=one.text, description=sentence(one.text)).command = one
        more = f"Run '{parser.prog} COMMAND --help' for details."
        parser.epilog = "\n\n".join(part for part in (examples, more, parser.epilog) if part)
        return
    missing = [name for name in ("configure", "run") if not callable(getattr(module, name, None))]
    if missing:
        raise TypeError(f"{command.module} is listed as a command, but has no function {' and no '.join(missing)}")
    needs = parser.epilog
    parser.epilog = None
    module.configure(parser)
    parser.epilog = "\n\n".join(part for part in (parser.epilog, examples, needs) if part)
    parser.set_defaults(run=module.run)


def sentence(text: str) -> str:
    """A line of help as a sentence."""
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


class _LazyParser(Parser):
    """Gets its options when it is to parse: of a group's commands, only the one that is meant is loaded."""

    command: Command | None = None

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]  # noqa: ANN401 - as in argparse
        command, self.command = self.command, None
        if command is not None:
            configure_command(self, command)
        return super().parse_known_args(args, namespace)
