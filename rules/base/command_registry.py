"""Commands and their subcommands: one module each, listed in one line, and loaded only when it is asked for."""

from __future__ import annotations

import argparse
import importlib
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from .command import Command
from .errors import EXIT_USAGE
from .sanitize import clean, quoted, suggest

_NOUNS = {int: "a whole number", float: "a number"}
_LISTED = 12


class HelpFormatter(argparse.HelpFormatter):
    """As argparse's; lines of a text that begin with a space (examples, lists) stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = (line if line.startswith(" ") else textwrap.fill(line, width) for line in text.splitlines())
        return "\n".join(f"{indent}{line}" for line in filled)


class _SentenceError(argparse.ArgumentError):
    """An error that is whole sentences already."""


class Parser(argparse.ArgumentParser):
    """A parser that ends with exit status 2 and ``skuwise: SENTENCE REMEDY`` on stderr."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as argparse's
        kwargs.setdefault("formatter_class", HelpFormatter)
        super().__init__(*args, **kwargs)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]  # noqa: ANN401 - as in argparse
        """As argparse's; but what is not known is an error here, where the options of the command are known."""
        for word in args or ():
            if word == "--":
                break
            # Before what is missing: a mistyped option is why it is missing.
            if word.startswith("--") and " " not in word and not self._takes(word.partition("=")[0]):
                self._refuse(word)
        found, left = super().parse_known_args(args, namespace)
        if left:
            self._refuse(left[0])
        return found, left

    def error(self, message: str) -> NoReturn:
        """Print one sentence, where `message` is none, and where the options are listed."""
        sentence = message[:1].upper() + message[1:]
        ending = "" if sentence.endswith((".", "?", "!")) else "."
        self.exit(EXIT_USAGE, f"skuwise: {clean(sentence)}{ending} Run '{self.prog} --help' for usage.\n")

    def _takes(self, name: str) -> bool:
        if any(isinstance(action, argparse._SubParsersAction) for action in self._actions):
            return True  # a subcommand's own parser knows
        return any(string_action.startswith(name) for string_action in self._option_string_actions)

    def _match_argument(self, action: argparse.Action, arg_strings_pattern: str) -> int:
        try:
            return super()._match_argument(action, arg_strings_pattern)
        except argparse.ArgumentError:
            if action.nargs is not None or not action.option_strings:
                raise
            value = action.metavar if isinstance(action.metavar, str) else "VALUE"
            raise _SentenceError(None, f"{argument_name(action)} needs a value: {value}.") from None

    def _refuse(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            self.error(f"Unexpected argument {quoted(word)}.")
        name = word.partition("=")[0]
        near = suggest(name, self._option_string_actions, loosely=True)
        self.error(f"Unknown option {quoted(name)}. {near}".strip())

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401 - as argparse's
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        near = suggest(str(value), known)
        if isinstance(action, argparse._SubParsersAction):
            listed = near or f"Commands: {', '.join(known)}."
            raise _SentenceError(None, f"Unknown command {quoted(f'{self.prog} {value}')}. {listed}")
        shown = f"Use {_alternatives(known)}." if len(known) <= _LISTED else ""
        what = f"Invalid value {quoted(str(value))} for {argument_name(action)}."
        raise _SentenceError(None, " ".join(part for part in (what, near or shown) if part))

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:  # noqa: ANN401 - as argparse's
        convert = self._registry_get("type", action.type, action.type)
        try:
            return convert(arg_string)  # type: ignore[operator] - argparse's registry gives callables
        except argparse.ArgumentTypeError as error:
            raise _SentenceError(None, f"Invalid {argument_name(action)}: {error}") from None
        except (TypeError, ValueError):
            noun = _NOUNS.get(action.type, "a valid value")  # type: ignore[arg-type] - other types have no noun
            sentence = f"Invalid value {quoted(arg_string)} for {argument_name(action)}: expected {noun}."
            raise _SentenceError(None, sentence) from None


def argument_name(action: argparse.Action) -> str:
    """An option by its long name, a positional by its metavar."""
    if action.option_strings:
        return max(action.option_strings, key=len)
    return action.metavar if isinstance(action.metavar, str) else action.dest


def _alternatives(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def examples_text(examples: Iterable[str]) -> str:
    """Commands as the end of a help text shows them."""
    lines = [f"  {example}" for example in examples]
    return "\n".join(["examples:" if len(lines) > 1 else "example:", *lines]) if lines else ""


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
    path, _, name = command.module.partition(":")
    module: Any = importlib.import_module(path)
    module = getattr(module, name, module)
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


def old_command(name: str, module: str):  # noqa: ANN201 - until all commands are click's
    import click

    def run(words):  # noqa: ANN001, ANN202
        options = command_parser(f"skuwise {name}", Command(module, name)).parse_args(words)
        options.typed = [name, *words]
        return int(options.run(options))

    return click.Command(
        name,
        callback=run,
        params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
