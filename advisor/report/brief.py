"""Text from outside, made short for a reader: a name of 10 kB must neither fill a mail nor hide a sentence's end."""

from __future__ import annotations

from collections.abc import Iterable

from ...rules.plain import clean

NAME_MAX = 48
SENTENCE_MAX = 480
CUT = "…"


def brief(text: object, limit: int = NAME_MAX) -> str:
    """Clean text of at most `limit` characters; what was cut ends in the sign of it."""
    raw = str(text)
    # Cleaning only lengthens, and is slow on what is long.
    plain = clean(raw[: limit + 1])
    return plain if len(raw) <= limit and len(plain) <= limit else plain[: limit - 1].rstrip() + CUT


class Brief:
    """Makes sentences short that hold names: long names are cut first, so that the rest of a sentence survives them."""

    def __init__(self, names: Iterable[str | None]) -> None:
        # A name within another is cut after it.
        long = {name for name in names if name is not None and len(name) > NAME_MAX}
        self._long = sorted(long, key=lambda name: (-len(name), name))

    def sentence(self, text: str, limit: int = SENTENCE_MAX) -> str:
        if len(text) > NAME_MAX:
            for name in self._long:
                text = text.replace(name, name[: NAME_MAX - 1] + CUT)
        return brief(text, limit)
