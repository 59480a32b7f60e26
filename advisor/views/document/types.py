"""The parts that a report is made of, whether it is shown as HTML or as plain text: words, short and clean."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure of the head. `change`: against the week before, in words."""

    label: str
    value: str
    change: str = ""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table. `right`: indices of columns of numbers; `more`: what was cut off, and where it stands."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()
    more: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """One move, or one finding with its ways out: what it is, the sentences it stands on, its figures, what would
    overturn it, and the command that tells more."""

    title: str
    sentences: tuple[str, ...]
    figures: tuple[tuple[str, str], ...]
    wrong_if: str
    command: str
    sheet: Sheet | None = None
    bullets: tuple[str, ...] = ()


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
    """One part of the story. Its parts are read in the order in which they stand here."""

    title: str
    sentences: tuple[str, ...] = ()
    chart: Chart | None = None
    cards: tuple[Card, ...] = ()
    sheet: Sheet | None = None
    bullets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report. `summary` is what a mail client shows before it is opened; `title` serves as the subject, too;
    `heading` stands above."""

    title: str
    heading: str
    window: str
    summary: str
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    footer: tuple[str, ...]
