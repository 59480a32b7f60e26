"""Commands on click: options as dataclasses, one sentence and a remedy for what is mistyped, exit statuses."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import reduce, update_wrapper
from pathlib import Path
from typing import Any

import click
from click.core import augment_usage_errors

from .errors import EXIT_USAGE, UsageError
from .output import program, say
from .sanitize import clean, quoted, suggest

Decorator = Callable[[Any], Any]


class Command(click.Command):
    """A command whose every error of usage has its context."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with augment_usage_errors(ctx):
            return super().parse_args(ctx, args)


class Group(click.Group):
    """A group that lists its commands as they are written."""

    command_class = Command

    def __init__(self, name: str | None = None, **about: Any) -> None:  # noqa: ANN401 - as click's
        about = {"epilog": f"Run 'skuwise {name} COMMAND --help' for details."} | about
        super().__init__(name, no_args_is_help=False, subcommand_metavar="COMMAND ...", **about)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click's
        return list(self.commands)


class Choice(click.Choice[str]):
    """One of some words; an error suggests the nearest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        if value in self.choices:
            return value
        near = suggest(value, self.choices) or f"Use {' or '.join(self.choices)}."
        raise click.UsageError(f"Invalid value {quoted(value)}{_label(param, ' for ')}. {near}", ctx)


class Parsed(click.ParamType):
    """The value that a function makes of a word, `metavar` in the help. The function raises UsageError for a word that
    it cannot read."""

    def __init__(self, parse: Callable[[str], Any], metavar: str) -> None:
        self.name, self._parse = metavar, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        try:
            return self._parse(value) if isinstance(value, str) else value
        except UsageError as error:
            raise click.UsageError(f"Invalid{_label(param)}: {error}", ctx) from error


PATH, FILE, FOLDER = (click.Path(path_type=Path) for _ in range(3))  # of paths that need not exist
PATH.name, FILE.name, FOLDER.name = "PATH", "FILE", "DIR"


def command(*example_lines: str) -> Callable[[Callable[..., int]], click.Command]:
    """Make a command of a function that returns the exit status. Its docstring is the help, which ends with
    `example_lines`."""
    return click.command(cls=Command, epilog=examples(*example_lines))


def examples(*lines: str) -> str:
    """The end of a command's help: commands to paste."""
    return "\n".join(["\b", "Examples:" if len(lines) > 1 else "Example:", *lines])


def format_option(*formats: str) -> Decorator:
    """``--format``, which the command gets as `form`; the first of `formats` is the default."""
    text = f"output format (default: {formats[0]})"
    return click.option("--format", "form", type=Choice(formats), default=formats[0], help=text)


def into(
    parameter: str, kind: Callable[..., Any], *options: Decorator, check: Callable[[Any], None] = lambda _: None
) -> Decorator:
    """Hand several options to a command as one dataclass of `kind`, the argument `parameter`. The options have the
    names of its fields; a field without an option keeps its default. `check` raises UsageError."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type] - a dataclass

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(**values: Any) -> Any:  # noqa: ANN401 - as the command's
            made = kind(**{name: values.pop(name) for name in names if name in values})
            check(made)
            return function(**values, **{parameter: made})

        return joined(*options)(update_wrapper(run, function))

    return decorate


def joined(*options: Decorator) -> Decorator:
    """Several options as one decorator, in their order."""
    return lambda function: reduce(lambda decorated, option: option(decorated), reversed(options), function)


def exclusive(required: bool = False, **flags: object) -> None:
    """Refuse two options that exclude each other. `flags`: values by parameter names; None, False and () are not set.
    Raises click.UsageError; where one is `required`, for none too."""
    options = {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
    used = [name for name, value in options.items() if value not in (None, False, ())]
    if len(used) > 1 or (required and not used):
        wrong = f"{used[0]} and {used[1]} exclude each other." if used else f"One of {', '.join(options)} is required."
        raise click.UsageError(wrong, click.get_current_context(silent=True))


def typed_with(old: str = "", new: str = "") -> str:
    """The command line that runs, quoted for a shell, with `old` replaced by `new`."""
    words: Sequence[str] = getattr(click.get_current_context(silent=True), "obj", None) or [old]
    return f"{program()} {shlex.join(new if word == old else word for word in words)}"


def run_click(root: click.Command, prog: str, arguments: Sequence[str], typed: Sequence[str] = ()) -> int:
    """Run a command. Returns its exit status; a mistyped word is printed on stderr, with status 2. `typed`: what
    `typed_with` repeats."""
    try:
        return int(root.main(list(arguments), prog_name=prog, standalone_mode=False, obj=list(typed)) or 0)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.UsageError as error:
        sentence = error.format_message().rstrip(".")
        if isinstance(error, click.NoSuchOption):
            params = error.ctx.command.params if error.ctx is not None else []
            near = suggest(error.option_name, [name for param in params for name in param.opts], loosely=True)
            sentence = f"Unknown option {quoted(error.option_name)}. {near}".rstrip(" .")
        elif isinstance(error, click.NoSuchCommand) and error.ctx is not None:
            commands = error.ctx.command.list_commands(error.ctx)  # type: ignore[attr-defined] - of a group
            near = suggest(error.command_name, commands) or f"Commands: {', '.join(commands)}"
            sentence = f"Unknown command {quoted(f'{error.ctx.command_path} {error.command_name}')}. {near}"
        end = "" if sentence.endswith("?") else "."
        path = prog if error.ctx is None else error.ctx.command_path
        say(f"skuwise: {clean(sentence)}{end} Run '{path} --help' for usage.")
        return EXIT_USAGE


def _label(param: click.Parameter | None, before: str = " ") -> str:
    if param is None:
        return ""
    return before + (max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name)
