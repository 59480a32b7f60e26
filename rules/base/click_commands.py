"""Groups of click commands, run as the other commands are: one sentence and a remedy for what is mistyped."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from .errors import EXIT_USAGE
from .sanitize import clean, quoted, suggest


class Group(click.Group):
    """A group that suggests the nearest command for one that it does not know."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's. Raises UsageError for an unknown command."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            known = self.list_commands(ctx)
            near = suggest(name, known) or f"Commands: {', '.join(known)}."
            raise click.UsageError(f"Unknown command {quoted(f'{ctx.command_path} {name}')}. {near}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click's
        """The commands in the order in which they were written."""
        return list(self.commands)


def examples(*lines: str) -> str:
    """The end of a command's help: commands to paste."""
    return "\n".join(["\b", "Examples:" if len(lines) > 1 else "Example:", *lines])


def run_click(group: click.Group, prog: str, arguments: Sequence[str]) -> int:
    """Run one command of `group`. Returns its exit status; what is mistyped is told on stderr, with status 2."""
    try:
        return int(group.main(list(arguments), prog_name=prog, standalone_mode=False) or 0)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        path = prog if context is None else context.command_path
        print(f"skuwise: {clean(_sentence(error))} Run '{path} --help' for usage.", file=sys.stderr)  # noqa: T201
        return EXIT_USAGE


def _sentence(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):
        known = [name for param in error.ctx.command.params for name in param.opts] if error.ctx else []
        near = suggest(error.option_name, [*known, "--help"], loosely=True)
        return f"Unknown option {quoted(error.option_name)}. {near}".strip()
    text = error.format_message()
    return text if text.endswith((".", "?")) else f"{text}."
