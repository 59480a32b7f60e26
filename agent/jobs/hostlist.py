"""Slurm's lists of names: ``gpu[01-04,07],login1`` or ``/dev/nvidia[0-3]``, in the order in which they are written.

Slurm keeps that order, also within brackets: the second name of ``/dev/nvidia[6,2]`` is ``/dev/nvidia2``.
"""

from __future__ import annotations

import re
from itertools import product
from math import prod

LIMIT = 4096
# Slurm's names have a few dimensions at most; a list made to be costly has thousands of brackets.
MAX_DIMENSIONS = 8
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_BRACKETS = re.compile(r"[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*")
_ITEM = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")  # up to a comma that stands outside brackets
_INSIDE = re.compile(r"\[([^\]]*)\]")


def expand(text: str, limit: int = LIMIT) -> tuple[str, ...] | None:
    """Every name of the list; None where it is not such a list, holds more than `limit` names, or has more than
    `MAX_DIMENSIONS` brackets in one of them."""
    if not _BRACKETS.fullmatch(text):
        return None
    names: list[str] = []
    for item in filter(None, (item.strip() for item in _ITEM.findall(text))):
        pieces = [[piece] for piece in _INSIDE.split(item)]
        if len(pieces) > 2 * MAX_DIMENSIONS + 1:
            return None
        pieces[1::2] = [_numbers(inside, limit) for (inside,) in pieces[1::2]]
        if not 0 < prod(map(len, pieces)) <= limit - len(names):
            return None
        names += map("".join, product(*pieces))
    return tuple(names)


def _numbers(inside: str, limit: int) -> list[str]:
    """``01-03,7`` as 01, 02, 03, 7; none where it is no such list."""
    numbers: list[str] = []
    for match in map(_PART.fullmatch, map(str.strip, inside.split(","))):
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        if not 0 <= int(last) - int(first) < limit - len(numbers):
            return []
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return numbers
