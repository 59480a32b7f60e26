"""The model of a page, before any format: headed sections of sentences, figures, tables, lists and bars.

Texts are not escaped: each writer escapes what it writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ...rules.base.sanitize import clean

NAME_MAX = 48


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure of the head. `change`: against the week before, or its interval; `meaning`: what the sum contains."""

    label: str
    value: str
    change: str = ""
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts. `right`: indices of columns of numbers; `more`: what was cut off, and where to find it;
    `groups`: indices of rows that sum up the rows after them, empty where no row does."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()
    more: str = ""
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """Named values, one per line."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Bars:
    """Amounts to compare: a name, the amount that sets the bar's length, and its value in words."""

    rows: tuple[tuple[str, float, str], ...]


@dataclass(frozen=True, slots=True)
class Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AsideBlock:
    """A sentence in smaller type, and commands to copy after it, one a line."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """An http or https address with its name."""

    text: str
    url: str


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a title; of an empty title without a heading. A section within another is one finding or
    recommendation. `id`: what the section is about; ids on an HTML page link to it."""

    title: str
    blocks: tuple[Block, ...]
    id: str = ""


# A bare text is a paragraph.
Block = Union[str, Table, Figures, Bars, Bullets, AsideBlock, Link, Section]  # noqa: UP007 - Section is defined above


def section(title: str, *blocks: Block | None, id: str = "") -> Section:
    """A section of the blocks that are not empty."""
    return Section(title, tuple(block for block in blocks if block is not None and _has_content(block)), id)


def _has_content(block: Block) -> bool:
    if isinstance(block, Bullets):
        return bool(block.items)
    return bool(block.rows if isinstance(block, (Table, Figures, Bars)) else getattr(block, "text", block))


@dataclass(frozen=True, slots=True)
class Document:
    """A page. `title` is a mail's subject, `heading` the title on the page, `lead` the sentence below it; `summary` is
    what a mail client shows before the mail is opened; `link`: to the site's dashboard."""

    title: str
    heading: str
    window: str = ""
    summary: str = ""
    tiles: tuple[Tile, ...] = ()
    sections: tuple[Section, ...] = ()
    footer: tuple[str, ...] = ()
    link: Link | None = None
    lead: str = ""


def brief(text: object, limit: int = NAME_MAX) -> str:
    """Clean text from outside of at most `limit` characters: a name of 10 kB must not fill a mail."""
    raw = str(text)
    # Cleaning lengthens text and is slow on long text.
    plain = clean(raw[: limit + 1])
    return plain if len(raw) <= limit and len(plain) <= limit else f"{plain[: limit - 1].rstrip()}…"
