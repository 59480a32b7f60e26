"""Every command of the command line, as click has it."""

from collections.abc import Iterator

import click
from skuwise.__main__ import COMMANDS, Root


def every_command() -> Iterator[tuple[tuple[str, ...], click.Context]]:
    """The words of each command (``("ledger", "list")``), after a group its subcommands, in the order of the help."""
    group = Root(COMMANDS)
    root = click.Context(group, info_name="skuwise")
    for name in COMMANDS:
        command = group.get_command(root, name)
        assert command is not None
        context = click.Context(command, root, info_name=name)
        yield (name,), context
        for word, subcommand in command.commands.items() if isinstance(command, click.Group) else ():
            yield (name, word), click.Context(subcommand, context, info_name=word)
