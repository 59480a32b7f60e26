"""The model of a page, before any format: headed sections of sentences, figures, tables, lists and bars.

Texts are not escaped: each writer escapes what it writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Union

from ...rules.base.sanitize import clean

NAME_MAX = 48


class Tile(NamedTuple):
    """One figure of the head. `change`: against the week before, or its interval; `meaning`: what the sum contains."""

    label: str
    value: str
    change: str = ""
    meaning: str = ""


class Table(NamedTuple):
    """A table of texts. `right`: indices of columns of numbers; `more`: what was cut off, and where to find it;
    `groups`: indices of rows that sum up the rows after them, empty where no row does."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()
    more: str = ""
    groups: tuple[int, ...] = ()


class Figures(NamedTuple):
    """Named values, one per line. `amounts`: the lengths of their bars; empty: without bars."""

    rows: tuple[tuple[str, str], ...]
    amounts: tuple[float, ...] = ()


class Bullets(NamedTuple):
    rows: tuple[str, ...]


class AsideBlock(NamedTuple):
    """A sentence in smaller type, and commands to copy after it, one a line."""

    text: str
    command: str = ""


class Link(NamedTuple):
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
Block = Union[str, Table, Figures, Bullets, AsideBlock, Link, Section]  # noqa: UP007 - Section is defined above


def section(title: str, *blocks: Block | None, id: str = "") -> Section:
    """A section of the blocks that are not empty."""
    filled = (block for block in blocks if block is not None and getattr(block, "rows", getattr(block, "text", block)))
    return Section(title, tuple(filled), id)


@dataclass(frozen=True, slots=True)
class Document:
    """A page. `title` is a mail's subject, `heading` the title on the page (empty: the same), `lead` the sentence below
    it; `summary` is what a mail client shows before the mail is opened; `link`: to the site's dashboard."""

    title: str
    heading: str = ""
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
