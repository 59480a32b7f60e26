"""Values as literals of SQL and PromQL: what came from outside stays a value, whatever it holds."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What a pattern of RE2 would not take as it is.
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


def sql_text(value: str) -> str:
    """A text literal. What a terminal or a reader could be fooled by is written in hexadecimal.

    A lone surrogate stands for bytes that were no UTF-8, which no comparison would find again: it becomes ``?``.
    """
    if value.isascii() and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return f"CAST(x'{value.encode('utf-8', 'replace').hex()}' AS TEXT)"


def sql_list(values: Iterable[str]) -> str:
    """``'a', 'b'``, for IN (...). Empty: NULL, which no value equals."""
    return ", ".join(map(sql_text, values)) or "NULL"


def promql_pattern(values: Iterable[str], ending: str = "") -> str:
    """A double-quoted pattern that any of these values matches whole, followed by what the pattern `ending` does."""
    pattern = "|".join(_SPECIAL.sub(r"\\\g<0>", value) for value in values)
    return promql_text(f"({pattern}){ending}" if ending else pattern)


def promql_text(value: str) -> str:
    """A double-quoted string, with Go's escapes."""
    return '"' + "".join(map(_go, value.encode("utf-8", "replace").decode())) + '"'


def _go(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isascii() and letter.isprintable():
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08x}"
