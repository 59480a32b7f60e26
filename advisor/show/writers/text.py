"""A page as text for a terminal, a pipe or the plain part of a mail.

Outside text passes through `clean` and enters as `rich.text.Text`, which parses no markup.
"""

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace

from rich import table as grids
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ....rules.base.sanitize import clean
from ..document import AsideBlock, Block, Bullets, Document, Figures, Link, Section, Table

_MIN_WIDTH, _MAIL_WIDTH = 60, 72
_INDENT = 2
_BAR_WIDTH = 24
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*\"""")  # by a shell


def document_text(document: Document, *, width: int = 100, color: bool = False, fold: bool = False) -> str:
    """The page; without `color` it has no escape sequence. `fold`: commands are folded as a shell reads them."""
    out = io.StringIO()
    console = Console(
        file=out, width=max(width, _MIN_WIDTH), force_terminal=color, color_system="standard" if color else None,
        markup=False, emoji=False, highlight=False, legacy_windows=False,
    )  # fmt: skip
    _title(console, document.heading or document.title, "=")
    for text in filter(None, (document.lead, document.window, document.summary)):
        _line(console, text)
    if document.link is not None:
        _block(console, document.link, 0, fold)
    if document.tiles:
        console.print()
        label_width = max(len(t.label) for t in document.tiles) + 2
        for t in document.tiles:
            value = f"{t.value}  ({t.change})" if t.change else t.value
            _hanging(console, value, _INDENT, f"{t.label:<{label_width}}")
            if t.meaning:
                _hanging(console, t.meaning, _INDENT + label_width)
    for section in document.sections:
        console.print()
        _section(console, section, 0, fold)
    for text in ("", *document.footer) if document.footer else ():
        _line(console, text)
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def mail_text(document: Document) -> str:
    """The page as a mail's plain text, its footer after the mark of a signature."""
    text = document_text(replace(document, footer=()), width=_MAIL_WIDTH, fold=True)
    footer = (textwrap.fill(clean(sentence), _MAIL_WIDTH) for sentence in document.footer)
    return "\n".join((text, "-- ", *footer, ""))


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(clean(text), style=style))


def _hanging(console: Console, text: str, by: int, lead: str = "") -> None:
    for part in Text(clean(text)).wrap(console, max(console.width - by - len(lead), _MIN_WIDTH // 4)):
        console.file.write(f"{' ' * by}{lead}{part.plain}\n")
        lead = " " * len(lead)


def _title(console: Console, title: str, rule: str) -> None:
    _line(console, title, "bold")
    if not console.is_terminal:
        _line(console, rule * min(len(clean(title)), console.width))


def _section(console: Console, section: Section, depth: int, fold: bool) -> None:
    if section.title and depth == 0:
        _title(console, section.title, "-")
    elif section.title:
        console.print(Padding(Text(clean(section.title), style="bold"), (0, 0, 0, _INDENT * (depth - 1))))
    for number, block in enumerate(section.blocks):
        pair = section.blocks[max(number - 1, 0) : number + 1]
        # Blank lines around tables, and around the blocks within a section.
        if number and any(isinstance(b, Table) or (isinstance(b, Section) and depth == 0) for b in pair):
            console.print()
        _block(console, block, depth, fold)


def _block(console: Console, block: Block, depth: int, fold: bool) -> None:
    by = _INDENT * depth
    match block:
        case Section():
            _section(console, block, depth + 1, fold)
        case Table():
            console.print(Padding(_grid(block), (0, 0, 0, by)))
            if block.more:
                _hanging(console, block.more, by)
        case Figures():
            rows, longest = block.rows, max(block.amounts, default=0.0) or 1.0
            if block.amounts:  # bars of ASCII characters, so that a C locale shows them
                width = max(len(value) for _, value in rows)
                bars = ("#" * round(_BAR_WIDTH * amount / longest) for amount in block.amounts)
                rows = [(name, f"{value:>{width}}  {bar}") for (name, value), bar in zip(rows, bars, strict=True)]
            _named(console, rows, by)
        case Bullets():
            for text in block.rows:
                _hanging(console, text, by, "- ")
        case AsideBlock():
            _hanging(console, block.text, by)
            for command in filter(None, map(clean, block.command.split("\n"))):
                for part in _folded(command, console.width - by - _INDENT) if fold else [command]:
                    console.file.write(f"{' ' * (by + _INDENT)}{part}\n")
        case Link():  # whole, however long: a folded address leads nowhere
            console.file.write(f"{' ' * by}{clean(block.text)}: {clean(block.url)}\n")
        case _:
            _hanging(console, block, by)


def _grid(block: Table) -> grids.Table:
    """A table whose cells are folded, never cut; rows of a group are indented under the row that sums them up."""
    out = grids.Table(box=None, pad_edge=False, header_style="underline")
    for index, head in enumerate(block.heads):
        out.add_column(head, overflow="fold", justify="right" if index in block.right else "left")
    for number, (first, *rest) in enumerate(block.rows):
        name = f"  {first}" if block.groups and number not in block.groups else first
        out.add_row(*(Text(clean(cell)) for cell in (name, *rest)))
    return out


def _named(console: Console, rows: Sequence[tuple[str, str]], by: int) -> None:
    width = max(len(clean(name)) for name, _ in rows)
    for name, value in rows:
        _hanging(console, value, by, f"{clean(name):<{width}}  ")


def _folded(command: str, width: int) -> list[str]:
    whole = _QUOTED.sub(lambda quoted: quoted[0].replace(" ", "\0"), command)
    lines = textwrap.wrap(
        whole, width - 2, subsequent_indent=" " * _INDENT, break_long_words=False, break_on_hyphens=False
    )
    return " \\\n".join(lines).replace("\0", " ").split("\n")
