"""Values as SQL literals: what came from outside stays a value, whatever it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable


def text_literal(value: str) -> str:
    """A text literal. What a terminal or a reader could be fooled by is written in hexadecimal.

    A lone surrogate stands for bytes that were no UTF-8, which no comparison would find again: it becomes ``?``.
    """
    if value.isascii() and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return f"CAST(x'{value.encode('utf-8', 'replace').hex()}' AS TEXT)"


def number_literal(value: float | None) -> str:
    """A number to its last bit; NULL where it is missing or not finite."""
    if value is None or not math.isfinite(value):
        return "NULL"
    return repr(float(value))


def text_list(values: Iterable[str], between: str = " ") -> str:
    """``'a', 'b'``, for IN (...). Empty: NULL, which no value equals."""
    return f",{between}".join(text_literal(value) for value in dict.fromkeys(values)) or "NULL"
