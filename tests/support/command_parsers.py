"""Every command of the command line, as values."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc
from typing import NamedTuple

import click
from skuwise.__main__ import COMMANDS, Root


@dataclass(frozen=True, slots=True)
class Option:
    """One option or argument of a command.

    `names`: its spellings, the short one first; an argument has none. `value`: what stands for its value; None: it is
    a switch. `required`: whether the command needs it; `repeats`: whether it may be given more than once.
    """

    names: tuple[str, ...]
    value: str | None
    help: str
    choices: tuple[str, ...]
    required: bool
    repeats: bool


class ParsedCommand(NamedTuple):
    """One command: its words (``("ledger", "list")``), its line of help, its whole help, and its options."""

    words: tuple[str, ...]
    text: str
    help: str
    options: tuple[Option, ...]


def every_parser() -> Iterator[ParsedCommand]:
    """Every command, and after a group its subcommands, in the order of the help."""
    group = Root(COMMANDS)
    root = click.Context(group, info_name="skuwise")
    for name in COMMANDS:
        command = group.get_command(root, name)
        assert command is not None
        context = click.Context(command, root, info_name=name)
        yield _parsed((name,), context)
        if isinstance(command, click.Group):
            for word, subcommand in command.commands.items():
                yield _parsed((name, word), click.Context(subcommand, context, info_name=word))


def _parsed(words: tuple[str, ...], context: click.Context) -> ParsedCommand:
    command = context.command
    options = tuple(_option(param, context) for param in command.params)
    return ParsedCommand(words, (command.help or "").partition("\n")[0], command.get_help(context), options)


def _option(param: click.Parameter, context: click.Context) -> Option:
    choices = tuple(param.type.choices) if isinstance(param.type, click.Choice) else ()
    if isinstance(param, click.Argument):
        name = param.human_readable_name.upper().strip("[]")
        about = re.search(rf"^{name}: (.*?)\.$", cleandoc(context.command.help or ""), re.MULTILINE | re.DOTALL)
        return Option((), name, " ".join(about[1].split()) if about else "", choices, param.required, False)
    assert isinstance(param, click.Option)
    value = None if param.is_flag else param.make_metavar(context).strip("[]")
    names = tuple(sorted(param.opts, key=len))
    return Option(names, value, param.help or "", choices, param.required, param.multiple)
