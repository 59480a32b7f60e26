"""One mail's contents, before anybody is addressed: what rendering gives and sending takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Image:
    """A picture shown within the HTML as ``cid:NAME``. `name`: letters, digits, dots and dashes; `png`: its bytes."""

    name: str
    png: bytes
    alt: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file beside the text. `media_type` as in ``text/csv``."""

    name: str
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Letter:
    """`subject` is one line without control characters; `text` alone is a full report too."""

    subject: str
    html: str
    text: str
    images: tuple[Image, ...] = ()
    attachments: tuple[Attachment, ...] = ()
