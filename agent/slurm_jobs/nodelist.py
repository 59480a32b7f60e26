"""Slurm's node lists: ``gpu-[001-004,007],login1`` (slurm.conf(5), NodeName; scontrol(1), show hostnames)."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product

# No cluster has more nodes; a list of more is refused before it is written out.
MAX_NODES = 65_536
_PART = re.compile(r"(?P<text>[A-Za-z0-9._-]+)|\[(?P<ranges>[0-9,-]{1,4096})\]")
_RANGE = re.compile(r"(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?")


@lru_cache(maxsize=4096)
def expanded(node_list: str) -> frozenset[str] | None:
    """The nodes of a list; None for what is none, or names more than `MAX_NODES`."""
    found: set[str] = set()
    for one in _split(node_list):
        names = _names(one, MAX_NODES - len(found))
        if names is None:
            return None
        found.update(names)
    return frozenset(found) or None


def _split(node_list: str) -> list[str]:
    """At the commas that stand outside brackets."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(node_list):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append(node_list[start:at])
            start = at + 1
    return [*parts, node_list[start:]]


def _names(one: str, most: int) -> list[str] | None:
    choices: list[list[str]] = []
    count, at = 1, 0
    while at < len(one):
        found = _PART.match(one, at)
        if found is None:
            return None
        at = found.end()
        choice = [found["text"]] if found["text"] else _numbers(found["ranges"], most)
        if choice is None:
            return None
        count *= len(choice)
        if count > most:
            return None
        choices.append(choice)
    return ["".join(parts) for parts in product(*choices)] if choices else None


def _numbers(ranges: str, most: int) -> list[str] | None:
    """``001-003,7`` as texts, with the leading zeros of each range's beginning."""
    found: list[str] = []
    for one in ranges.split(","):
        match = _RANGE.fullmatch(one)
        if match is None:
            return None
        first, last = int(match["first"]), int(match["last"] or match["first"])
        if last < first or len(found) + last - first + 1 > most:
            return None
        width = len(match["first"])
        found += [f"{number:0{width}d}" for number in range(first, last + 1)]
    return found
