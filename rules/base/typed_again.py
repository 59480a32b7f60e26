"""Commands that people paste: how skuwise is called here, and the command line that was typed with another word."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

_NAME = "skuwise"


def typed_with(options: argparse.Namespace, old: str) -> Callable[[str], str]:
    """Gives the command line that `options` were parsed from, quoted for a shell, with `old` replaced by a word."""
    typed: list[str] = getattr(options, "typed", [old])

    def line(new: str) -> str:
        return f"{program()} {shlex.join(new if word == old else word for word in typed)}"

    return line


def program() -> str:
    """``skuwise`` where the shell finds this installation by that name; else what does call it."""
    called = Path(sys.argv[0])
    found = shutil.which(_NAME)
    if called.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m {_NAME}"
    if called.name != _NAME or (found is not None and Path(found).resolve() == called.resolve()):
        return _NAME
    return shlex.quote(str(called))
