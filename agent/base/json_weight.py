"""How much memory JSON may take once it is read, told before it is read.

A byte of `[],[],[]` takes 30 bytes of lists, so the size of a text says nothing. Its signs are counted, those within
texts too: too high where texts hold brackets, never too low. Weights are of CPython 3.11 to 3.14 on 64 bits, measured
with orjson 3.13 and json (tests/unit/agent/test_json_weight.py measures again): bytes of an empty list with its place
in a list that grows, of a small mapping and the one that is made of it, of a number, of a text apart from its letters.
"""

from __future__ import annotations

_LIST = 96
_MAPPING = 300
_VALUE = 48
_QUOTE = 32  # half a text: each has two


def json_memory_bytes(text: bytes | bytearray) -> int:
    """Bytes of memory for the text itself and all that is made of it, at the most."""
    return (
        (1 + _letter(text)) * len(text)
        + _LIST * text.count(b"[")
        + _MAPPING * text.count(b"{")
        + _VALUE * text.count(b",")
        + _QUOTE * text.count(b'"')
    )


def _letter(text: bytes | bytearray) -> int:
    """Bytes that a letter may take: one that is not ASCII has every other of its text take two, one beyond the Basic
    Multilingual Plane (UTF-8 from 0xF0 on, or a pair of surrogates) four."""
    if text.isascii():
        return 4 if b"\\ud" in text or b"\\uD" in text else 2 if b"\\u" in text else 1
    return 4 if b"\\u" in text or any(lead in text for lead in (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")) else 2
