"""The entries of one list in a large JSON object, one at a time: the list as a whole takes ten times its text, and a
hostile one thirty times."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator

# A value is looked for in the first piece, then in the next: a job has some 6 kB, and a small one costs little.
_PIECES = (1 << 9, 1 << 15, 1 << 22)
_BLANKS = b" \t\r\n"
_BOM = codecs.BOM_UTF8


def list_entries(document: bytes, name: str) -> Iterator[object]:
    """The entries of the list `name` of an object. Raises ValueError for what is no JSON, or has a value of more than
    4 MiB apart from that list; KeyError where there is no such list."""
    found = False
    at = _expect(document, len(_BOM) if document.startswith(_BOM) else 0, b"{")
    closed = document[at : at + 1] == b"}"
    while not closed:
        key, at = _value(document, at)
        if not isinstance(key, str):
            raise ValueError("a name is no text")
        at = _expect(document, at, b":")
        if key != name:
            _, at = _value(document, at)
        elif found:
            raise ValueError("the list appears twice")
        elif document[at : at + 1] != b"[":
            raise KeyError(name)
        else:
            found = True
            at = _skip(document, at + 1)
            ended = document[at : at + 1] == b"]"
            while not ended:
                one, at = _value(document, at)
                yield one
                ended, at = _more(document, at, b"]")
            at = _skip(document, at + 1)
        closed, at = _more(document, at, b"}")
    if _skip(document, at + 1) != len(document):
        raise ValueError("more comes after the object")
    if not found:
        raise KeyError(name)


def _more(document: bytes, at: int, end: bytes) -> tuple[bool, int]:
    """Whether the end stands here, and where that is or what comes after the comma."""
    if document[at : at + 1] == end:
        return True, at
    return False, _expect(document, at, b",")


def _expect(document: bytes, at: int, sign: bytes) -> int:
    at = _skip(document, at)
    if document[at : at + 1] != sign:
        raise ValueError(f"{sign!r} is missing")
    return _skip(document, at + 1)


def _skip(document: bytes, at: int) -> int:
    while at < len(document) and document[at] in _BLANKS:
        at += 1
    return at


def _value(document: bytes, at: int) -> tuple[object, int]:
    """The value that begins here, and where what comes after it begins."""
    for size in _PIECES:
        whole = at + size >= len(document)
        text, _ = codecs.utf_8_decode(document[at : at + size], "strict", whole)
        try:
            value, end = _DECODER.raw_decode(text)
        except RecursionError:
            raise ValueError("nested too deep") from None
        except ValueError:
            if whole:
                raise
            continue
        if whole or end < len(text):  # a number may go on
            return value, _skip(document, at + len(text[:end].encode("utf-8", "surrogatepass")))
    raise ValueError("a value is too long")


_DECODER = json.JSONDecoder()
