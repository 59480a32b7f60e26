"""Text from outside, shortened for a reader. A name of 10 kB must not fill a mail or hide the end of a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from ...rules.base.sanitize import clean

NAME_MAX = 48
SENTENCE_MAX = 480
CUT = "…"


def brief(text: object, limit: int = NAME_MAX) -> str:
    """Clean text of at most `limit` characters; an ellipsis ends text that was cut."""
    raw = str(text)
    # Cleaning lengthens text and is slow on long text.
    plain = clean(raw[: limit + 1])
    return plain if len(raw) <= limit and len(plain) <= limit else plain[: limit - 1].rstrip() + CUT


class Brevity:
    """Shortens sentences. Long names are cut first, so that the rest of the sentence stays."""

    def __init__(self, names: Iterable[str | None]) -> None:
        long = {name for name in names if name is not None and len(name) > NAME_MAX}
        self._long = sorted(long, key=len, reverse=True)  # one name may contain another

    def sentence(self, text: object, limit: int = SENTENCE_MAX) -> str:
        text = str(text)
        for name in self._long:
            text = text.replace(name, name[: NAME_MAX - 1] + CUT)
        return brief(text, limit)
