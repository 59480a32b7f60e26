"""How long the lists of a page are, and text from outside made short for a reader.

A name of 10 kB must neither fill a mail nor hide a sentence's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...rules.base.sanitize import clean
from .document import Bullets

NAME_MAX = 48
SENTENCE_MAX = 480
CUT = "…"


def brief(text: object, limit: int = NAME_MAX) -> str:
    """Clean text of at most `limit` characters; what was cut ends in the sign of it."""
    raw = str(text)
    # Cleaning only lengthens, and is slow on what is long.
    plain = clean(raw[: limit + 1])
    return plain if len(raw) <= limit and len(plain) <= limit else plain[: limit - 1].rstrip() + CUT


class Brevity:
    """Makes texts short. In sentences, long names are cut first, so that the rest of a sentence survives them."""

    def __init__(self, names: Iterable[str | None]) -> None:
        long = {name for name in names if name is not None and len(name) > NAME_MAX}
        self._long = sorted(long, key=len, reverse=True)  # one may be within another

    def sentence(self, text: object, limit: int = SENTENCE_MAX) -> str:
        text = str(text)
        for name in self._long:
            text = text.replace(name, name[: NAME_MAX - 1] + CUT)
        return brief(text, limit)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the lists of a page are. `phases`: sentences on workloads that change; `whole`: every part and every run
    apart; `rest`: where what is cut off stands."""

    rows: int
    phases: int
    whole: bool = False
    rest: str = "--format json lists them all"

    def more(self, every: Sequence[object], shown: int) -> str:
        """How many a list does not show, and where they stand; empty where it shows all."""
        return f"and {len(every) - shown} more: {self.rest}." if len(every) > shown else ""

    def bulleted(self, lines: Sequence[str], shown: int | None = None) -> Bullets:
        """The first of the lines, and how many there are beside; None: all."""
        shown = len(lines) if shown is None else shown
        rest = self.more(lines, shown)
        return Bullets((*lines[:shown], *((rest,) if rest else ())))


WHOLE, SCREEN = Lengths(10**9, 10**9, whole=True), Lengths(30, 8)
