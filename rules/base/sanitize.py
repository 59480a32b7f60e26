"""Text from outside, made plain: no control or invisible characters, bounded in length; and the nearest known names."""

import codecs
import json
import unicodedata
from collections.abc import Iterable
from typing import Any

# C*: controls, format characters (bidirectional overrides, zero width), surrogates, private use, unassigned.
# Zl, Zp: line and paragraph separators.
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

# Names and words in files are far shorter; the beginning of a longer text is enough to find it.
QUOTED_MAX = 80


def clean(text: object) -> str:
    """Outside text for one line of a terminal or file: control characters (ESC, newlines, C1), line separators, lone
    surrogates and format characters (bidirectional, zero-width) become ``\\xNN`` or ``\\uNNNN``, without effect."""
    try:
        plain = str(text)
    except ValueError:  # Python writes no whole number of more than 4,300 digits, which TOML and YAML can
        return "a number of thousands of digits"
    return plain if plain.isprintable() else "".join(_visible(character) for character in plain)


def _visible(character: str) -> str:
    if unicodedata.category(character) not in INVISIBLE:
        return character
    return f"\\x{ord(character):02x}" if character <= "\xff" else character.encode("unicode_escape").decode()


def quoted(text: str) -> str:
    """Outside text in quotation marks, for a sentence; long text is cut."""
    return repr(text if len(text) <= QUOTED_MAX else f"{text[: QUOTED_MAX - 1]}…")


def suggest(word: str, names: Iterable[str], *, loosely: bool = False) -> str:
    """A remedy with the nearest `names`; "" where nothing is similar. `loosely`: then the least dissimilar, too."""
    import difflib  # noqa: PLC0415 - only errors need it

    names, word = list(names), word[:QUOTED_MAX]
    near = difflib.get_close_matches(word, names) or (loosely and difflib.get_close_matches(word, names, 1, 0.45))
    return f"Did you mean {' or '.join(name[:QUOTED_MAX] for name in near)}?" if near else ""


def _escape(error: Any) -> tuple[str, int]:  # noqa: ANN401 - an error of encoding
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


# For `errors=` of an encoding: missing characters become \\uNNNN, as in JSON, so that JSON stays JSON.
ESCAPED = "skuwise-escaped"
codecs.register_error(ESCAPED, _escape)
