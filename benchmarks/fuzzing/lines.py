"""Texts of lines and fields spoiled as such: settings, tables, pages of metrics, files of /proc."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from .spoil import MAX_BYTES, NUMBERS, TEXTS, spoiled, times
from .target import Mutator, Seed

_VALUE = re.compile(rb"([=:]\s*|\s)([^\s=:]+)\s*$")
_QUOTED = re.compile(rb'"[^"\n]*"')


def _drop(draw: random.Random, lines: list[bytes]) -> None:
    if lines:
        del lines[draw.randrange(len(lines))]


def _again(draw: random.Random, lines: list[bytes]) -> None:
    if lines:
        line = draw.choice(lines)
        place = draw.randrange(len(lines) + 1)
        lines[place:place] = [line] * draw.choice((1, 1, 1, 3, 500))


def _swap(draw: random.Random, lines: list[bytes]) -> None:
    if lines:
        a, b = draw.randrange(len(lines)), draw.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]


def _join(draw: random.Random, lines: list[bytes]) -> None:
    if len(lines) > 1:
        place = draw.randrange(len(lines) - 1)
        lines[place : place + 2] = [lines[place] + lines[place + 1]]


def _indent(draw: random.Random, lines: list[bytes]) -> None:
    if lines:
        place = draw.randrange(len(lines))
        lines[place] = draw.choice((b" ", b"  ", b"\t", b"- ", b"    ", b"#")) + lines[place]


def _dedent(draw: random.Random, lines: list[bytes]) -> None:
    if lines:
        place = draw.randrange(len(lines))
        lines[place] = lines[place].lstrip()


def _value(draw: random.Random, lines: list[bytes]) -> None:
    if not lines:
        return
    place = draw.randrange(len(lines))
    new = draw.choice(NUMBERS) if draw.random() < 0.5 else draw.choice(TEXTS)
    found = _VALUE.search(lines[place])
    if found:
        lines[place] = lines[place][: found.start(2)] + new + lines[place][found.end(2) :]
    else:
        lines[place] += new


def _quoted(draw: random.Random, lines: list[bytes]) -> None:
    if not lines:
        return
    place = draw.randrange(len(lines))
    found = _QUOTED.search(lines[place])
    if found:
        inside = found.group()[1:-1]
        new = draw.choice((draw.choice(TEXTS), draw.choice(NUMBERS), inside + draw.choice(TEXTS), inside * 50))
        lines[place] = lines[place][: found.start() + 1] + new + lines[place][found.end() - 1 :]


_CHANGES: tuple[Callable[[random.Random, list[bytes]], None], ...] = (
    _drop, _again, _swap, _join, _indent, _dedent, _value, _value, _value, _quoted, _quoted,
)  # fmt: skip


def by_lines(*words: bytes) -> Mutator:
    """Half of the mutations spoil lines and values, the rest bytes; `words`: what means something in this format."""

    def mutate(draw: random.Random, seed: Seed, seeds: Sequence[Seed]) -> bytes:
        if draw.random() < 0.5:
            return spoiled(draw, seed.data, seeds, words)
        lines = seed.data.split(b"\n")
        for _ in range(times(draw)):
            if words and draw.random() < 0.25:
                lines.insert(draw.randrange(len(lines) + 1), draw.choice(words))
            else:
                draw.choice(_CHANGES)(draw, lines)
        return b"\n".join(lines)[:MAX_BYTES]

    return mutate


def by_cells(delimiter: bytes, *words: bytes) -> Mutator:
    """Tables: cells and whole columns too."""
    plain = by_lines(*words)

    def mutate(draw: random.Random, seed: Seed, seeds: Sequence[Seed]) -> bytes:
        if draw.random() < 0.4:
            return plain(draw, seed, seeds)
        rows = [line.split(delimiter) for line in seed.data.split(b"\n")]
        for _ in range(times(draw)):
            _cell(draw, rows, words)
        return b"\n".join(delimiter.join(row) for row in rows)[:MAX_BYTES]

    return mutate


def _cell(draw: random.Random, rows: list[list[bytes]], words: Sequence[bytes]) -> None:
    row = draw.choice(rows)
    if not row:
        return
    column = draw.randrange(len(row))
    what = draw.randrange(9)
    if what == 0:
        del row[column]
    elif what == 1:
        row.insert(column, draw.choice(row))
    elif what == 2:
        other = draw.choice(rows)
        if other:
            row[column] = draw.choice(other)
    elif what == 3:
        row[column] = b'"' + row[column]
    elif what == 4:  # a whole column
        new = draw.choice(NUMBERS) if draw.random() < 0.5 else draw.choice(TEXTS)
        for own in rows[1:]:
            if column < len(own):
                own[column] = new
    elif what == 5:
        row[column] += draw.choice(TEXTS)
    elif what == 6 and words:
        row[column] = draw.choice(words)
    else:
        row[column] = draw.choice(NUMBERS) if draw.random() < 0.6 else draw.choice(TEXTS)
