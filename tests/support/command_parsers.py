"""Every command of the command line with its parser, as values."""

import argparse
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import click
from skuwise.rules.base.command import Command
from skuwise.rules.base.command_registry import argument_name, command_parser, configure_command


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


class ParsedCommand(NamedTuple):
    """One command: its words (``("ledger", "list")``), its line of help, its whole help, and its options."""

    words: tuple[str, ...]
    text: str
    help: str
    options: tuple[Option, ...]


def every_parser(commands: Mapping[str, Command]) -> Iterator[ParsedCommand]:
    """Every command, and after a group its subcommands, in the order of the help."""
    for name, command in commands.items():
        if command.is_click:
            yield from _clicked(name, command)
            continue
        parser = command_parser(f"skuwise {name}", command)
        yield ParsedCommand((name,), command.text, parser.format_help(), options_of(parser))
        for group in (action for action in parser._actions if isinstance(action, argparse._SubParsersAction)):
            texts = {choices_action.dest: choices_action.help or "" for choices_action in group._choices_actions}
            for word, own in group.choices.items():
                configure_command(own, own.command)
                yield ParsedCommand((name, word), texts[word], own.format_help(), options_of(own))


def _clicked(name: str, command: Command) -> Iterator[ParsedCommand]:
    group = getattr(importlib.import_module(command.module), name)
    for words, one in ((name,), group), *(((name, word), own) for word, own in group.commands.items()):
        context = click.Context(one, info_name=f"skuwise {' '.join(words)}")
        options = tuple(_clicked_option(param, one.help or "") for param in one.get_params(context))
        yield ParsedCommand(words, (one.help or "").partition("\n")[0], one.get_help(context), options)


def _clicked_option(param: click.Parameter, about: str) -> Option:
    choices = tuple(param.type.choices) if isinstance(param.type, click.Choice) else ()
    if isinstance(param, click.Argument):
        name = (param.name or "").upper()
        match = re.search(rf"^{name}: (.*)\.$", about, re.MULTILINE)  # click has no help of arguments
        return Option((), name, match[1] if match else "", required=param.required)
    assert isinstance(param, click.Option)
    value = param.metavar or ("|".join(choices) if choices else (param.name or "").upper())
    switch = param.is_flag or "--help" in param.opts
    return Option(tuple(sorted(param.opts, key=len)), None if switch else value, param.help or "", choices)


def options_of(parser: argparse.ArgumentParser) -> tuple[Option, ...]:
    """The options and positionals of a parser, in the order of its help; --help among them, subcommands not."""
    return tuple(
        _option(action)
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction) and action.help != argparse.SUPPRESS
    )


def _option(action: argparse.Action) -> Option:
    choices = tuple(str(choice) for choice in action.choices) if action.choices is not None else ()
    name = action.metavar if isinstance(action.metavar, str) else None
    named = name or ("|".join(choices) if choices else argument_name(action).lstrip("-").upper())
    text = " ".join((action.help % {**vars(action), "prog": "skuwise"}).split()) if action.help else ""
    return Option(
        tuple(sorted(action.option_strings, key=len)), None if action.nargs == 0 else named, text, choices,
        required=action.required, repeats=isinstance(action, argparse._AppendAction) or action.nargs in ("*", "+"),
    )  # fmt: skip
