"""Text from outside, made plain: what neither a terminal nor a reader's eye can be fooled by."""

from __future__ import annotations

import codecs
import difflib
import unicodedata
from collections.abc import Iterable

# C*: controls, format characters (bidirectional overrides, zero width), surrogates, private use, unassigned.
# Zl, Zp: line and paragraph separators.
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

# Names and words of a file are far shorter; of what is not, its beginning tells where to look.
QUOTED_MAX = 80


def clean(text: object) -> str:
    """Outside text made harmless for one line of a terminal or file: controls, escapes and invisible marks are shown.

    Control characters (ESC, newlines, C1), line separators, lone surrogates and format characters (bidirectional
    overrides, zero-width) become ``\\xNN`` or ``\\uNNNN``: visible, and without effect.
    """
    plain = text if isinstance(text, str) else _written(text)
    if plain.isprintable():  # which nothing of INVISIBLE is
        return plain
    return "".join(_visible(character) for character in plain)


def _written(value: object) -> str:
    """A value of a file as text. Python writes no whole number of more than 4,300 digits, which TOML and YAML can."""
    try:
        return str(value)
    except ValueError:
        return "a number of thousands of digits"


def quoted(text: str) -> str:
    """Outside text in quotation marks, for a sentence: what is long is cut, so that the sentence stays one."""
    return repr(text if len(text) <= QUOTED_MAX else f"{text[: QUOTED_MAX - 1]}…")


def _visible(character: str) -> str:
    if unicodedata.category(character) in INVISIBLE:
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end


# For `errors=` of an encoding: what it lacks becomes \\uNNNN, as JSON writes it, so that JSON stays JSON.
ESCAPED = "skuwise-escaped"
codecs.register_error(ESCAPED, _escape)


_NEAR = 3
_LOOSE = 0.45


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The known names most like `word`, the nearest first; none where nothing is like it."""
    cut = word[:QUOTED_MAX]
    near = difflib.get_close_matches(cut, list(known), n=_NEAR, cutoff=0.6)
    return [one[:QUOTED_MAX] for one in near]


def suggest(word: str, known: Iterable[str], *, loosely: bool = False) -> str:
    """A remedy that names what was probably meant. `loosely`: where nothing is like it, the least unlike it."""
    known = list(known)
    near = nearest(word, known)
    if loosely and not near:
        near = difflib.get_close_matches(word[:QUOTED_MAX], known, n=1, cutoff=_LOOSE)
    return f"Did you mean {' or '.join(near)}?" if near else ""
