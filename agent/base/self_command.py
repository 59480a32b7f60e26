"""The agent's own child processes: what is heavy runs beside the agent, not in it."""

from __future__ import annotations

import sys


def child_command(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs `module` of this installation in a process of its own.

    ``-P``: with ``-m`` alone Python would look for code in the current folder first, which may be anybody's.

    The self-contained build has no interpreter: there `sys.executable` is the program itself, and its entry
    (deploy/standalone/entry.py) takes both for skuwise's own modules as an interpreter would.
    """
    return (sys.executable, "-P", "-m", module, *arguments)
