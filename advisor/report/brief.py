"""Text from outside, made short for a reader: a name of 10 kB must neither fill a mail nor hide a sentence's end."""

from __future__ import annotations

from collections.abc import Iterable

from ...rules.plain import clean

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
        # By their beginning, for a fleet has thousands of them; of those that begin alike, the longest first.
        self._long: dict[str, list[str]] = {}
        long = {name for name in names if name is not None and len(name) > NAME_MAX}
        for name in sorted(long, key=len, reverse=True):
            self._long.setdefault(name[:_KEY], []).append(name)

    def sentence(self, text: str, limit: int = SENTENCE_MAX) -> str:
        parts, done, at = [], 0, 0
        while self._long and at <= len(text) - _KEY:
            name = next((n for n in self._long.get(text[at : at + _KEY], ()) if text.startswith(n, at)), None)
            if name is None:
                at += 1
                continue
            parts += [text[done:at], name[: NAME_MAX - 1] + CUT]
            done = at = at + len(name)
        return brief("".join((*parts, text[done:])), limit)
