"""What was probably meant: the nearest known names to a word that is none of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from .sanitize import QUOTED_MAX

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
