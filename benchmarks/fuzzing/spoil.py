"""Bytes spoiled without knowing what they mean: flips, cuts, copies, splices, odd numbers, odd text."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Sequence

from .target import Mutator, Seed

MAX_BYTES = 1 << 17
_INTEGERS = (0, 1, -1, 2, 7, 8, 16, 31, 32, 64, 100, 127, 128, 255, 256, 4095, 4096, 32767, 32768, 65535, 65536,
             2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**31),
             -(2**63), 10**18, 10**19, 10**30, 10**308, 10**309, 10**400)  # fmt: skip
NUMBERS: tuple[bytes, ...] = (
    *(str(n).encode() for n in _INTEGERS),
    b"0.0", b"-0.0", b"-0", b"1e308", b"1e309", b"-1e309", b"5e-324", b"1e-400", b"NaN", b"nan", b"inf", b"-inf",
    b"Infinity", b"-Infinity", b"1_000", b"0x10", b"0b1", b"0o7", b"1e", b"1.", b".5", b"+1", b"--1", b"1,5", b"1e5",
    b"00", b"007", b"\xd9\xa3\xd9\xa4", b"\xc2\xb2", b"9" * 400, b"9" * 5000, b"1." + b"0" * 400 + b"1",
)  # fmt: skip
TEXTS: tuple[bytes, ...] = (
    b"\x00", b"\xff", b"\xc3", b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\xff\xfe",
    b"\xe2\x80\xae", b"\xe2\x80\x8b", b"\xe2\x80\xa8", b"\x1b[2J", b"\x1b]0;x\x07", b"\x9b", b"\x85", b"\x0b", b"\x0c",
    b"\r", b"\n", b"\r\n", b"\t", b"\x7f", b" ", b"", b"'", b'"', b"`", b"\\", b"\\u0000", b"\\ud800", b"{", b"}",
    b"[", b"]", b"(", b")", b"<", b">", b"&", b"%s", b"%n", b"{0}", b"../", b"=", b":", b";", b",", b"|", b"#",
    b"null", b"true", b"false", b"None", b"=cmd|' /C calc'!A0", b"A" * 300, b"A" * 70000, b"\xf0\x9f\x92\xa9",
    b"i\xcc\x87", b"\xc4\xb0", b"\xef\xac\x81",
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_.-]*")


def times(draw: random.Random) -> int:
    """How many changes one mutation makes: mostly one or two."""
    count = 1
    while count < 16 and draw.random() < 0.45:
        count += 1
    return count


def _at(draw: random.Random, data: bytes) -> int:
    return draw.randrange(len(data) + 1)


def _block(draw: random.Random, data: bytes) -> tuple[int, int]:
    start = _at(draw, data)
    length = min(int(2 ** draw.uniform(0, 12)), len(data) - start)
    return start, start + length


def flip(draw: random.Random, data: bytes) -> bytes:
    if not data:
        return b"\x01"
    place = draw.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :]


def replace_byte(draw: random.Random, data: bytes) -> bytes:
    place = _at(draw, data)
    byte = draw.choice((0, 255, 0x80, 0x7F, 0x0A, 0x22, 0x5C, 0x2C)) if draw.random() < 0.5 else draw.randrange(256)
    return data[:place] + bytes([byte]) + data[place + 1 :]


def cut(draw: random.Random, data: bytes) -> bytes:
    return data[: _at(draw, data)] if draw.random() < 0.8 else data[_at(draw, data) :]


def remove(draw: random.Random, data: bytes) -> bytes:
    start, end = _block(draw, data)
    return data[:start] + data[end:]


def repeat(draw: random.Random, data: bytes) -> bytes:
    start, end = _block(draw, data)
    count = draw.choice((1, 1, 1, 2, 10, 1000))
    return data[:end] + data[start:end] * min(count, MAX_BYTES // max(1, end - start)) + data[end:]


def move(draw: random.Random, data: bytes) -> bytes:
    start, end = _block(draw, data)
    block, rest = data[start:end], data[:start] + data[end:]
    place = _at(draw, rest)
    return rest[:place] + block + rest[place:]


def insert_text(draw: random.Random, data: bytes) -> bytes:
    place = _at(draw, data)
    return data[:place] + draw.choice(TEXTS) + data[place:]


def insert_random(draw: random.Random, data: bytes) -> bytes:
    place = _at(draw, data)
    return data[:place] + draw.randbytes(draw.randrange(1, 33)) + data[place:]


def packed_integer(draw: random.Random, data: bytes) -> bytes:
    size, code = draw.choice(((1, "b"), (2, "h"), (4, "i"), (8, "q")))
    number = draw.choice((0, 1, -1, 2 ** (size * 8 - 1) - 1, -(2 ** (size * 8 - 1)), 16, 64, 100, 127))
    place = draw.randrange(max(1, len(data) - size + 1))
    return data[:place] + struct.pack(draw.choice("<>") + code, number) + data[place + size :]


def other_number(draw: random.Random, data: bytes) -> bytes:
    found = _near(draw, _NUMBER, data)
    if found is None:
        return insert_text(draw, data)
    return data[: found[0]] + draw.choice(NUMBERS) + data[found[1] :]


def other_word(draw: random.Random, data: bytes) -> bytes:
    found = _near(draw, _WORD, data)
    if found is None:
        return insert_text(draw, data)
    own = data[found[0] : found[1]]
    new = draw.choice((draw.choice(TEXTS), draw.choice(NUMBERS), own + own, own[:-1], own.upper(), own.swapcase(), b""))
    return data[: found[0]] + new + data[found[1] :]


def nest(draw: random.Random, data: bytes) -> bytes:
    opening, closing = draw.choice(((b"[", b"]"), (b"{", b"}"), (b"(", b")"), (b'{"a":', b"}"), (b"- ", b""),
                                    (b"[[", b"]]"), (b'"', b'"')))  # fmt: skip
    depth = draw.choice((3, 20, 200, 1100, 5000))
    place = _at(draw, data)
    return data[:place] + opening * depth + closing * draw.choice((0, depth)) + data[place:]


def _near(draw: random.Random, pattern: re.Pattern[bytes], data: bytes) -> tuple[int, int] | None:
    """A match at or behind a random place: cheap on long inputs."""
    found = pattern.search(data, _at(draw, data)) or pattern.search(data)
    return found.span() if found else None


_CHANGES = (flip, flip, replace_byte, replace_byte, cut, remove, repeat, move, insert_text, insert_text, insert_random,
            packed_integer, other_number, other_number, other_word, other_word, nest)  # fmt: skip


def splice(draw: random.Random, data: bytes, other: bytes) -> bytes:
    """The beginning of one, the end of the other."""
    return data[: _at(draw, data)] + other[_at(draw, other) :]


def spoiled(draw: random.Random, data: bytes, others: Sequence[Seed], words: Sequence[bytes] = ()) -> bytes:
    """One mutation. `words`: what means something in this format."""
    if draw.random() < 0.06:
        data = splice(draw, data, draw.choice(others).data)
    for _ in range(times(draw)):
        if words and draw.random() < 0.2:
            place = _at(draw, data)
            data = data[:place] + draw.choice(words) + data[place:]
        else:
            data = draw.choice(_CHANGES)(draw, data)
        data = data[:MAX_BYTES]
    return data


def by_bytes(*words: bytes) -> Mutator:
    """A mutator that knows nothing but these words."""

    def mutate(draw: random.Random, seed: Seed, seeds: Sequence[Seed]) -> bytes:
        return spoiled(draw, seed.data, seeds, words)

    return mutate
