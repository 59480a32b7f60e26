"""The one reader of TOML: of the settings and of the report's routes. Bounded before it is parsed.

Python's parser keeps no positions. Tables as read remember their text; `line_of` looks there when something is wrong.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate
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
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+')"""
_NAMED = re.compile(rf"[ \t]*+(\[{{0,2}})[ \t]*+({_PART}(?:[ \t]*\.[ \t]*{_PART})*)[ \t]*+[=\]]")
_PARTS = re.compile(_PART)
_FAULTS = ((_MANY_DOTS, f"more than {MAX_DOTS} dots"), (_MANY_DIGITS, "a number that is too long"))


class TomlText:
    """The text of a valid file, and on which line each key of it is named first."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def lines(self) -> Mapping[tuple[str, ...], int]:
        """The path of a key -> its line, from 1. Keys of inline tables and of lists of tables are left out."""
        found: dict[tuple[str, ...], int] = {}
        above: tuple[str, ...] | None = ()
        open_lists = 0
        for number, line in enumerate(_TEXTS.sub(_without_lines, self._text).split("\n"), 1):
            named = _NAMED.match(line) if open_lists == 0 else None
            bare = _TEXTS.sub("", line)
            open_lists += bare.count("[") - bare.count("]")
            if named is None:
                continue
            path = tuple(_plain(part) for part in _PARTS.findall(named[2]))
            if named[1]:
                # Tables of a list share their path: a line would be the first one's.
                above = path if named[1] == "[" else None
            elif above is None:
                continue
            else:
                path = above + path
            for part in accumulate(((one,) for one in path), tuple.__add__):
                found.setdefault(part, number)
        return found


def _without_lines(found: re.Match[str]) -> str:
    """Quoted keys stay; comments and texts of several lines, which may hold what looks like keys, do not."""
    return found[0] if found[0][:3] not in ('"""', "'''") and found[0][0] != "#" else "\n" * found[0].count("\n")


def _plain(part: str) -> str:
    if part[0] == "'":
        return part[1:-1]
    return tomllib.loads(f"key = {part}")["key"] if part[0] == '"' else part


class TomlTable(dict[str, Any]):
    """A table as read, which knows where in the file it is."""

    def __init__(self, values: Mapping[str, Any], text: TomlText, path: tuple[str, ...] = ()) -> None:
        super().__init__({k: TomlTable(v, text, (*path, k)) if isinstance(v, dict) else v for k, v in values.items()})
        self._text, self._path = text, path

    def line(self, key: str) -> int | None:
        """The line that names `key` first; None where that is not known."""
        return self._text.lines.get((*self._path, key))


def line_of(values: object, key: str) -> str:
    """What follows a file's name where `key` of these values is wrong: ``:12``, or nothing where that is not known."""
    line = values.line(key) if isinstance(values, TomlTable) else None
    return f":{line}" if line else ""


def read_toml(path: Path, what: str) -> TomlTable:
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
        if found := pattern.search(bare):
            line = bare.count("\n", 0, found.start()) + 1
            raise UsageError(f"{what} cannot be read: line {line} has {fault}.", "Correct the line.")
    try:
        return TomlTable(tomllib.loads(text), TomlText(text))
    except RecursionError:
        raise UsageError(f"{what} cannot be read: it is nested too deeply.", "Flatten its values.") from None
    except ValueError as error:  # tomllib's own among them
        raise UsageError(f"{what} is not valid TOML: {error}.", "Fix the file or remove it.") from None
