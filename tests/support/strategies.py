"""Honest input, spoiled: what property tests give to readers of files and answers from outside."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

MOST = 1 << 16  # bytes of what is spoiled
NUMBERS = (
    *(str(n).encode() for n in (0, -1, 255, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**19, 10**309)),
    b"-0.0", b"1e308", b"1e309", b"-1e309", b"5e-324", b"NaN", b"-inf", b"Infinity", b"1_000", b"0x10", b"1e", b".5",
    b"--1", b"007", b"\xd9\xa3\xd9\xa4", b"\xc2\xb2", b"9" * 5000,
)  # fmt: skip
TEXTS = (
    b"\x00", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xae", b"\x1b[2J", b"\x9b", b"\x85",
    b"\r\n", b"\n", b"\t", b" ", b"'", b'"', b"\\", b"\\u0000", b"\\ud800", b"{", b"}", b"[", b"]", b"<", b"&", b"%s",
    b"{0}", b"../", b"=", b":", b",", b"|", b"#", b"null", b"true", b"None", b"=cmd|' /C calc'!A0", b"A" * 5000,
)  # fmt: skip
NESTS = ((b"[", b"]"), (b"{", b"}"), (b'{"a":', b"}"), (b"- ", b""), (b'"', b'"'))
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")

Change = Callable[[bytes], bytes]
_place = st.floats(0.0, 1.0)


def _flip(at: float, bit: int) -> Change:
    def change(data: bytes) -> bytes:
        place = int(at * max(len(data) - 1, 0))
        return data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :] if data else b"\x01"

    return change


def _put(at: float, text: bytes, over: int) -> Change:
    def change(data: bytes) -> bytes:
        place = int(at * len(data))
        return data[:place] + text + data[place + over :]

    return change


def _number(at: float, text: bytes) -> Change:
    def change(data: bytes) -> bytes:
        found = _NUMBER.search(data, int(at * len(data))) or _NUMBER.search(data)
        return data[: found.start()] + text + data[found.end() :] if found else data + text

    return change


def _nest(at: float, ends: tuple[bytes, bytes], depth: int, closed: bool) -> Change:
    return _put(at, ends[0] * depth + ends[1] * (depth if closed else 0), 0)


def _cut(at: float, tail: bool) -> Change:
    return lambda data: data[int(at * len(data)) :] if tail else data[: int(at * len(data))]


def spoiled(data: bytes, words: Sequence[bytes] = ()) -> st.SearchStrategy[bytes]:
    """`data` after one to four changes. `words`: what means something in this format."""
    change = st.one_of(
        st.builds(_number, _place, st.sampled_from(NUMBERS)),
        st.builds(_put, _place, st.sampled_from((*words, *TEXTS)), st.just(0)),
        st.builds(_put, _place, st.binary(max_size=16), st.sampled_from((0, 1, 16, 1000))),
        st.builds(_flip, _place, st.integers(0, 7)),
        st.builds(_cut, _place, st.booleans()),
        st.builds(_nest, _place, st.sampled_from(NESTS), st.sampled_from((3, 200, 5000)), st.booleans()),
    )

    def applied(changes: list[Change]) -> bytes:
        found = data
        for one in changes:
            found = one(found)[:MOST] if len(data) < MOST else one(found)
        return found

    return st.lists(change, min_size=1, max_size=4).map(applied)


def check(value: Any, depth: int = 0, *, texts: bool = True) -> None:
    """Fails where a number in `value` is not finite, or a text (where `texts`) holds control characters."""
    if isinstance(value, float):
        assert math.isfinite(value)
    elif isinstance(value, str):
        assert not texts or not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in value), value
    elif depth > 12:
        return
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            check(getattr(value, field.name), depth + 1, texts=texts)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            check(key, depth + 1, texts=texts)
            check(inner, depth + 1, texts=texts)
    elif isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        for inner in value:
            check(inner, depth + 1, texts=texts)
