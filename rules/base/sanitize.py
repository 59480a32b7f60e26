"""Text from outside, made plain: no control or invisible characters, bounded in length; and the nearest known names."""

from __future__ import annotations

import codecs
import json
import unicodedata
from collections.abc import Iterable

# C*: controls, format characters (bidirectional overrides, zero width), surrogates, private use, unassigned.
# Zl, Zp: line and paragraph separators.
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

# Names and words in files are far shorter; the beginning of a longer text is enough to find it.
QUOTED_MAX = 80
_NEAR = 3
_CUTOFF, _LOOSE_CUTOFF = 0.6, 0.45  # of `difflib`, 0 to 1


def clean(text: object) -> str:
    """Outside text made harmless for one line of a terminal or file: controls, escapes and invisible marks are shown.

    Control characters (ESC, newlines, C1), line separators, lone surrogates and format characters (bidirectional
    overrides, zero-width) become ``\\xNN`` or ``\\uNNNN``: visible, and without effect.
    """
    try:
        plain = str(text)
    except ValueError:  # Python writes no whole number of more than 4,300 digits, which TOML and YAML can
        return "a number of thousands of digits"
    return plain if plain.isprintable() else "".join(_visible(character) for character in plain)


def quoted(text: str) -> str:
    """Outside text in quotation marks, for a sentence; long text is cut."""
    return repr(text if len(text) <= QUOTED_MAX else f"{text[: QUOTED_MAX - 1]}…")


def suggest(word: str, names: Iterable[str], *, loosely: bool = False) -> str:
    """A remedy with the nearest `names`; "" where nothing is similar. `loosely`: then the least dissimilar, too."""
    import difflib  # noqa: PLC0415 - only errors need it

    names, word = list(names), word[:QUOTED_MAX]
    near = difflib.get_close_matches(word, names, n=_NEAR, cutoff=_CUTOFF)
    if loosely and not near:
        near = difflib.get_close_matches(word, names, n=1, cutoff=_LOOSE_CUTOFF)
    return f"Did you mean {' or '.join(name[:QUOTED_MAX] for name in near)}?" if near else ""


def _visible(character: str) -> str:
    if unicodedata.category(character) in INVISIBLE:
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


# For `errors=` of an encoding: missing characters become \\uNNNN, as in JSON, so that JSON stays JSON.
ESCAPED = "skuwise-escaped"
codecs.register_error(ESCAPED, _escape)
