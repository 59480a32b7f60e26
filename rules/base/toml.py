"""The one reader of TOML: of the settings and of the report's routes. Bounded before it is parsed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from .errors import UsageError
from .files import read_text

MAX_BYTES = 1 << 20
# Each part of a dotted key costs the parser as much as all before it: a line of 30,000 takes it minutes.
MAX_DOTS = 64
_MANY_DOTS = re.compile(rf"^(?:[^.\n]*\.){{{MAX_DOTS + 1}}}", re.MULTILINE)
# Strings and comments, whose dots and digits are nobody's keys or numbers. One that is not closed ends with its line or
# the file, so that the search never turns back.
_TEXTS = re.compile(
    r"""(?s:\"{3}(?:\\.|[^\\])*?(?:\"{3}|\\?\Z)|'{3}.*?(?:'{3}|\Z)|"(?:\\.|[^"\\\n])*(?:"|(?=\n)|\\?\Z)|'[^'\n]*(?:'|(?=\n)|\Z))|\#[^\n]*"""
)
_MAX_DIGITS = 4000  # of a number; Python's own limit is 4300
_MANY_DIGITS = re.compile(rf"[0-9][0-9_]{{{_MAX_DIGITS}}}")
_FAULTS = ((_MANY_DOTS, f"more than {MAX_DOTS} dots"), (_MANY_DIGITS, "a number that is too long"))


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The tables of a file; `what` names it in errors (``The configuration file /etc/...``).

    Raises FileNotFoundError where there is none, UsageError for anything but TOML within the bounds.
    """
    try:
        text = read_text(path, MAX_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        remedy = (
            "Check its permissions." if isinstance(error, PermissionError) else "Name an ordinary file of UTF-8 text."
        )
        raise UsageError(f"{what} cannot be read: {error.strerror}.", remedy) from error
    bare = _TEXTS.sub(lambda found: "\n" * found[0].count("\n"), text)
    for pattern, fault in _FAULTS:
        if match := pattern.search(bare):
            line = bare.count("\n", 0, match.start()) + 1
            raise UsageError(f"{what} cannot be read: line {line} has {fault}.", "Correct the line.")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{what} cannot be read: it is nested too deeply.", "Flatten its values.") from None
    except ValueError as error:  # tomllib's own among them
        raise UsageError(f"{what} is not valid TOML: {error}.", "Fix the file or remove it.") from None
