"""A page as text for a terminal, a pipe or a mail's reader of plain text.

All outside text passes through `clean` and enters as `rich.text.Text`, which knows no markup.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ...rules.base.sanitize import clean
from ..views.document.model import AsideBlock, Block, Bullets, Chart, Document, Figures, Section, Table
from .console import console_of, hanging, line, table, written

MAIL_WIDTH = 72
_INDENT = 2


def document_text(document: Document, *, width: int = 100, color: bool = False) -> str:
    """The whole page, `width` columns wide; without `color` it holds no escape sequence at all."""
    out, console = console_of(width, color)
    _title(console, document.heading, "=")
    for text in filter(None, (document.window, document.summary)):
        line(console, text)
    if document.tiles:
        tiles = tuple((t.label, f"{t.value}  ({t.change})" if t.change else t.value) for t in document.tiles)
        console.print()
        _block(console, Figures(tiles), 1)
    for one in document.sections:
        console.print()
        _section(console, one, 0)
    for text in ("", *document.footer) if document.footer else ():
        line(console, text)
    return written(out)


def mail_text(document: Document) -> str:
    """The page as a mail's plain text, its footer behind the mark of a signature."""
    text = document_text(replace(document, footer=()), width=MAIL_WIDTH)
    out, console = console_of(MAIL_WIDTH, color=False)
    for sentence in document.footer:
        line(console, sentence)
    return f"{text}\n-- \n{written(out)}"


def sections_text(sections: Iterable[Section], *, width: int = 100, color: bool = False) -> str:
    """Sections by themselves."""
    out, console = console_of(width, color)
    for number, one in enumerate(sections):
        if number:
            console.print()
        _section(console, one, 0)
    return written(out)


def _title(console: Console, title: str, rule: str) -> None:
    """A heading: bold on a terminal, underlined where nothing can be bold."""
    line(console, title, "bold")
    if not console.is_terminal:
        line(console, rule * min(len(clean(title)), console.width))


def _section(console: Console, section: Section, depth: int) -> None:
    if depth == 0:
        _title(console, section.title, "-")
    else:
        console.print(Padding(Text(clean(section.title), style="bold"), (0, 0, 0, _INDENT * (depth - 1))))
    before: Block | None = None
    for block in section.blocks:
        if before is not None and (_apart(block, depth) or _apart(before, depth)):
            console.print()
        _block(console, block, depth)
        before = block


def _apart(block: Block, depth: int) -> bool:
    """Whether a blank line stands before and after it."""
    return isinstance(block, Table) or (isinstance(block, Section) and depth == 0)


def _block(console: Console, block: Block, depth: int) -> None:
    by = _INDENT * depth
    match block:
        case Section():
            _section(console, block, depth + 1)
        case Table():
            console.print(Padding(table(block.heads, block.rows, block.right), (0, 0, 0, by)))
            if block.more:
                hanging(console, block.more, by)
        case Figures():
            width = max(len(clean(name)) for name, _ in block.rows)
            for name, value in block.rows:
                hanging(console, value, by, f"{clean(name):<{width}}  ")
        case Bullets():
            for item in block.items:
                hanging(console, item, by, "- ")
        case Chart():
            hanging(console, block.alt, by)
        case AsideBlock():
            hanging(console, block.text, by)
            if block.command:
                # Whole, however long: what is folded cannot be pasted.
                console.file.write(f"{' ' * (by + _INDENT)}{clean(block.command)}\n")
        case _:
            hanging(console, block, by)
