"""Slurm's lists of names: ``gpu[01-04,07],login1`` or ``/dev/nvidia[0-3]``, in the order in which they are written.

Slurm keeps that order, also within brackets: the second name of ``/dev/nvidia[6,2]`` is ``/dev/nvidia2``.
"""

from __future__ import annotations

import re

LIMIT = 4096
# Slurm's names have a few dimensions at most; a list made to be costly has thousands of brackets.
MAX_DIMENSIONS = 8
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_BRACKETS = re.compile(r"[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*")


def expand(text: str, limit: int = LIMIT) -> tuple[str, ...] | None:
    """Every name of the list; None where it is not such a list, holds more than `limit` names, or has more than
    `MAX_DIMENSIONS` brackets in one of them."""
    if not _BRACKETS.fullmatch(text):
        return None
    names: list[str] = []
    for item in _items(text):
        found = _names(item, limit - len(names)) if item.count("[") <= MAX_DIMENSIONS else None
        if found is None:
            return None
        names += found
    return tuple(names)


def _items(text: str) -> list[str]:
    """`text` at the commas that stand outside brackets."""
    items, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            items.append(text[start:place])
            start = place + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def _names(item: str, limit: int) -> list[str] | None:
    head, opening, rest = item.partition("[")
    if not opening:
        return [item] if limit > 0 else None
    inside, _, tail = rest.partition("]")
    tails = _names(tail, limit) if tail else [""]
    if tails is None:
        return None
    names: list[str] = []
    for part in inside.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            return None
        first, last = match.group(1), match.group(2) or match.group(1)
        count = int(last) - int(first) + 1
        if not 0 < count <= (limit - len(names)) // max(1, len(tails)):
            return None
        width = len(first)
        names += [f"{head}{number:0{width}d}{end}" for number in range(int(first), int(last) + 1) for end in tails]
    return names
