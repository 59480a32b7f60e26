"""A page as a value, before any format: headed sections of sentences, figures, tables, lists and charts.

A page is built once and written by each format. Its texts come from anywhere and are not escaped: each writer escapes
what it writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure of the head. `change`: against the week before, or how far it is known, in words; `meaning`: what the
    sum contains, in a sentence."""

    label: str
    value: str
    change: str = ""
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts. `right`: indices of columns of numbers; `more`: what was cut off, and where it stands."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()
    more: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """Named values, one a line."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AsideBlock:
    """A sentence that may stand in smaller type, and a command to copy behind it."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """An http or https address that a reader may open, with its name in words."""

    text: str
    url: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture, and in `alt` what it says, for whoever does not see it. `name`: letters; `width`, `height`: CSS px."""

    name: str
    png: bytes
    alt: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a title; of an empty title without a heading. A section within another is one finding or move."""

    title: str
    blocks: tuple[Block, ...]


# A bare text is a sentence or a paragraph of them.
Block = Union[str, Table, Figures, Bullets, AsideBlock, Link, Chart, Section]  # noqa: UP007 - Section is named before it is there


def section(title: str, *blocks: Block | None) -> Section:
    """A section of the blocks that hold something: None, empty texts, lists and tables are left out."""
    return Section(title, tuple(block for block in blocks if block is not None and not _empty(block)))


def _empty(block: Block) -> bool:
    match block:
        case str():
            return not block
        case AsideBlock():
            return not block.text
        case Link():
            return not block.url
        case Table() | Figures():
            return not block.rows
        case Bullets():
            return not block.items
        case _:
            return False


@dataclass(frozen=True, slots=True)
class Document:
    """A whole page. `title` serves as a mail's subject, `heading` stands above, `lead` right below it; `summary` is
    what a mail client shows before it is opened; `link`: to the site's dashboard."""

    title: str
    heading: str
    window: str
    summary: str
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    footer: tuple[str, ...] = ()
    link: Link | None = None
    lead: str = ""
