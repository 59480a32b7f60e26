"""Honest input, spoiled: what property tests give to readers of files and answers from outside."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
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


def _changed(data: bytes, at: float, text: bytes, over: int | None) -> bytes:
    """`text` in place of `over` bytes at a share of the data, or of the next number after it (`over` None)."""
    place = int(at * len(data))
    if over is not None:
        return data[:place] + text + data[place + over :]
    match = _NUMBER.search(data, place) or _NUMBER.search(data)
    return data[: match.start()] + text + data[match.end() :] if match else data + text


def _nested(ends: tuple[bytes, bytes], depth: int, closed: bool) -> bytes:
    return ends[0] * depth + ends[1] * (depth if closed else 0)


def spoiled(data: bytes, words: Sequence[bytes] = ()) -> st.SearchStrategy[bytes]:
    """`data` after one to four changes. `words`: what means something in this format."""
    nested = st.builds(_nested, st.sampled_from(NESTS), st.sampled_from((3, 200, 5000)), st.booleans())
    change = st.tuples(st.floats(0.0, 1.0), st.one_of(
        st.tuples(st.sampled_from(NUMBERS), st.none()),
        st.tuples(st.sampled_from((*words, *TEXTS)) | nested, st.just(0)),
        st.tuples(st.binary(max_size=16), st.sampled_from((0, 1, 16, 1000, MOST))),
    ))  # fmt: skip

    def applied(changes: Sequence[tuple[float, tuple[bytes, int | None]]]) -> bytes:
        result = data
        for at, (text, over) in changes:
            result = _changed(result, at, text, over)
            result = result[:MOST] if len(data) < MOST else result
        return result

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
