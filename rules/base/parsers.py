"""Every command of the command line with its parser, as values: for completions, the man page and the reference."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .command import Command
from .command_registry import command_parser, subparsers_of
from .parser import argument_name


class ParsedCommand(NamedTuple):
    """One command: its words (``("ledger", "list")``), its line of help, and its parser with all options."""

    words: tuple[str, ...]
    text: str
    parser: argparse.ArgumentParser


def every_parser(commands: Mapping[str, Command], prog: str = "skuwise") -> Iterator[ParsedCommand]:
    """Every command, and after a group its subcommands, in the order of the help. Loads every command's module;
    commands whose extra is not installed are left out.

    The commands of an installation are `skuwise.__main__.COMMANDS`.
    """
    for name, command in commands.items():
        try:
            parser = command_parser(f"{prog} {name}", command)
            inner = subparsers_of(parser)
        except ModuleNotFoundError:
            if not command.extra:
                raise
            continue
        yield ParsedCommand((name,), command.text, parser)
        texts = _helps(parser)
        for word, own in inner.items():
            yield ParsedCommand((name, word), texts.get(word, ""), own)


def _helps(parser: argparse.ArgumentParser) -> Mapping[str, str]:
    groups = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {one.dest: one.help or "" for group in groups for one in group._choices_actions}


@dataclass(frozen=True, slots=True)
class Option:
    """One option or positional of a command.

    `names`: its spellings, the short one first; a positional has none. `value`: what stands for its value; None: it is
    a switch. `kind`: what its value is: "choice" (of `choices`), "file", "folder" or "text". `required`: whether the
    command needs it; `repeats`: whether it may be given more than once.
    """

    names: tuple[str, ...]
    value: str | None
    help: str
    choices: tuple[str, ...] = ()
    kind: str = "text"
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
    switch = action.nargs == 0
    choices = tuple(str(one) for one in action.choices) if action.choices is not None else ()
    name = action.metavar if isinstance(action.metavar, str) else None
    value = None if switch else name or ("|".join(choices) if choices else argument_name(action).lstrip("-").upper())
    return Option(
        tuple(sorted(action.option_strings, key=len)), value, help_text(action), choices, _kind(value, choices),
        required=action.required, repeats=isinstance(action, argparse._AppendAction) or action.nargs in ("*", "+"),
    )  # fmt: skip


def help_text(action: argparse.Action) -> str:
    """The help of an option as argparse shows it, with its default filled in; "": it has none."""
    if not action.help:
        return ""
    values = {**vars(action), "prog": "skuwise"}
    return " ".join((action.help % values).split())


def _kind(value: str | None, choices: tuple[str, ...]) -> str:
    if choices:
        return "choice"
    word = value or ""
    if word.startswith(("FILE", "PATH", "ADVICE", "EXPORT")):
        return "file"
    return "folder" if word in ("DIR", "RULES") else "text"
