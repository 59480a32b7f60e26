"""Names that may be kept: what looks like a command line, an address or a key is none."""

from __future__ import annotations

import re

from ..base.safe_text import clean_text

_NUMBER = re.compile(r"[\d.e+-]{1,12}", re.ASCII)
_NOT_A_NAME = re.compile(r"://|[@'\"`{}$\\]")
_RUN = re.compile(r"[A-Za-z0-9]{12,}", re.ASCII)
_LETTERS = re.compile(r"[A-Z]?[a-z]{3,}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def plain_name(text: str) -> str:
    """A name that a person gave to work, up to where it looks like a command line or a secret; may be empty."""
    kept: list[str] = []
    for word in clean_text(text).split():
        name, equals, value = word.partition("=")
        is_setting = not equals or _NUMBER.fullmatch(value) is not None
        is_option = word.startswith("-") and len(word) > 1
        if is_option or not is_setting or _NOT_A_NAME.search(word) or is_opaque(name):
            break
        kept.append(word)
    return " ".join(kept)


def is_opaque(name: str) -> bool:
    """Whether a name looks like a key: a UUID, or a long run of letters and digits that are no words."""
    return _UUID.search(name) is not None or any(map(_is_random, _RUN.findall(name)))


def _is_random(run: str) -> bool:
    kinds = sum(any(map(test, run)) for test in (str.isdigit, str.islower, str.isupper))
    in_words = sum(map(len, _LETTERS.findall(run)))
    return in_words <= 0.6 * len(run) and (kinds == 3 or (kinds == 2 and len(run) >= 16))
