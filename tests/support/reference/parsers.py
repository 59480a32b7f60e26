"""Every command of the command line with its parser, as values."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from skuwise.rules.base.command import Command
from skuwise.rules.base.command_registry import argument_name, command_parser, configure_command


class ParsedCommand(NamedTuple):
    """One command: its words (``("ledger", "list")``), its line of help, and its parser with all options."""

    words: tuple[str, ...]
    text: str
    parser: argparse.ArgumentParser


def every_parser(commands: Mapping[str, Command]) -> Iterator[ParsedCommand]:
    """Every command, and after a group its subcommands, in the order of the help."""
    for name, command in commands.items():
        parser = command_parser(f"skuwise {name}", command)
        yield ParsedCommand((name,), command.text, parser)
        for group in (action for action in parser._actions if isinstance(action, argparse._SubParsersAction)):
            texts = {one.dest: one.help or "" for one in group._choices_actions}
            for word, own in group.choices.items():
                configure_command(own, own.command)
                yield ParsedCommand((name, word), texts[word], own)


@dataclass(frozen=True, slots=True)
class Option:
    """One option or positional of a command.

    `names`: its spellings, the short one first; a positional has none. `value`: what stands for its value; None: it is
    a switch. `required`: whether the command needs it; `repeats`: whether it may be given more than once.
    """

    names: tuple[str, ...]
    value: str | None
    help: str
    choices: tuple[str, ...] = ()
    required: bool = False
    repeats: bool = False


def options_of(parser: argparse.ArgumentParser) -> tuple[Option, ...]:
    """The options and positionals of a parser, in the order of its help; --help among them, subcommands not."""
    return tuple(
        _option(action)
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction) and action.help != argparse.SUPPRESS
    )


def _option(action: argparse.Action) -> Option:
    choices = tuple(str(one) for one in action.choices) if action.choices is not None else ()
    name = action.metavar if isinstance(action.metavar, str) else None
    named = name or ("|".join(choices) if choices else argument_name(action).lstrip("-").upper())
    text = " ".join((action.help % {**vars(action), "prog": "skuwise"}).split()) if action.help else ""
    return Option(
        tuple(sorted(action.option_strings, key=len)), None if action.nargs == 0 else named, text, choices,
        required=action.required, repeats=isinstance(action, argparse._AppendAction) or action.nargs in ("*", "+"),
    )  # fmt: skip
