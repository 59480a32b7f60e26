"""The command line that was typed, once more with another word: for commands that people paste."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable


def typed_with(options: argparse.Namespace, old: str) -> Callable[[str], str]:
    """Gives the command line that `options` were parsed from, quoted for a shell, with `old` replaced by a word."""
    typed: list[str] = getattr(options, "typed", ["skuwise", old])

    def line(new: str) -> str:
        return shlex.join(new if word == old else word for word in typed)

    return line
