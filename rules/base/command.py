"""What a list of commands says of each."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """One command: its module, one line of help, and the extra of the installation that it needs ("": none).

    The module, or the object in it that is named as in ``module:object``, has `configure`, which gives a parser its
    options, and `run`, which takes them and returns the exit status; a group has `COMMANDS` instead, by the names of
    its subcommands. `EXAMPLES` are commands to paste, for the end of its help. What does not run long leaves its
    garbage to its end. The module of a click command (`is_click`) has its group instead, by the command's name.
    """

    module: str
    text: str
    extra: str = ""
    runs_long: bool = False
    is_click: bool = False
