"""Text from outside, made short for a reader: a name of 10 kB must neither fill a mail nor hide a sentence's end."""

from __future__ import annotations

from collections.abc import Iterable

from ....rules.base.sanitize import clean

NAME_MAX = 48
SENTENCE_MAX = 480
CUT = "…"
_KEY = NAME_MAX + 1  # no name that is cut is shorter


def brief(text: object, limit: int = NAME_MAX) -> str:
    """Clean text of at most `limit` characters; what was cut ends in the sign of it."""
    raw = str(text)
    # Cleaning only lengthens, and is slow on what is long.
    plain = clean(raw[: limit + 1])
    return plain if len(raw) <= limit and len(plain) <= limit else plain[: limit - 1].rstrip() + CUT


class Brief:
    """Makes sentences short that hold names: long names are cut first, so that the rest of a sentence survives them."""

    def __init__(self, names: Iterable[str | None]) -> None:
        self._long = {name for name in names if name is not None and len(name) > NAME_MAX}
        # A fleet has thousands, and many begin alike: a text is looked through once, not once for each of them.
        self._lengths: dict[str, list[int]] = {}
        for start, length in sorted({(name[:_KEY], -len(name)) for name in self._long}):
            self._lengths.setdefault(start, []).append(-length)

    def sentence(self, text: str, limit: int = SENTENCE_MAX) -> str:
        parts, done, at = [], 0, 0
        while self._long and at <= len(text) - _KEY:
            lengths = self._lengths.get(text[at : at + _KEY], ())
            length = next((n for n in lengths if text[at : at + n] in self._long), None)
            if length is None:
                at += 1
                continue
            parts += [text[done:at], text[at : at + NAME_MAX - 1] + CUT]
            done = at = at + length
        return brief("".join((*parts, text[done:])), limit)
