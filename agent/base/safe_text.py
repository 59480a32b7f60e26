"""Text from outside made fit to keep: one line, printable, bounded."""

import unicodedata

from ...rules.base.sanitize import INVISIBLE

NAME_LIMIT = 256


def clean_text(raw: str | bytes, limit: int = NAME_LIMIT) -> str:
    """`raw` on one line, without control and invisible characters, cut to `limit`; what is not UTF-8 becomes U+FFFD."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    if not (text.isascii() and text.isprintable()):
        text = "".join(" " if c in "\t\n\r" else c for c in text)
        text = "".join(c for c in text if unicodedata.category(c) not in INVISIBLE)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
