"""A page as text for a terminal, a pipe or the plain part of a mail.

Outside text passes through `clean` and enters as `rich.text.Text`, which parses no markup.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from rich import table as grids
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ....rules.base.sanitize import clean
from ..document import AsideBlock, Bars, Block, Bullets, Document, Figures, Link, Section, Table

MIN_WIDTH = 60
MAIL_WIDTH = 72
_INDENT = 2
_BAR_WIDTH = 24
# A word of a shell: plain characters, escaped ones and quoted strings.
_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")


def console_of(width: int, color: bool) -> tuple[io.StringIO, Console]:
    """A console `width` columns wide, and what it writes to; without `color` it writes no escape sequence."""
    out = io.StringIO()
    return out, Console(
        file=out, width=max(width, MIN_WIDTH), force_terminal=color, color_system="standard" if color else None,
        markup=False, emoji=False, highlight=False, legacy_windows=False,
    )  # fmt: skip


def written(out: io.StringIO) -> str:
    """What was written, without spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(clean(text), style=style))


def indented(console: Console, text: str, by: int = 2, style: str = "") -> None:
    console.print(Padding(Text(clean(text), style=style), (0, 0, 0, by)))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> grids.Table:
    """A table without frame whose cells are folded, never cut. `right`: indices of columns of numbers."""
    out = grids.Table(box=None, pad_edge=False, header_style="underline")
    for index, head in enumerate(heads):
        out.add_column(head, overflow="fold", justify="right" if index in right else "left")
    for row in rows:
        out.add_row(*(Text(clean(cell)) for cell in row))
    return out


def hanging(console: Console, text: str, by: int, lead: str = "") -> None:
    """Text folded under itself after `lead`, `by` columns from the left."""
    for part in Text(clean(text)).wrap(console, max(console.width - by - len(lead), MIN_WIDTH // 4)):
        console.file.write(f"{' ' * by}{lead}{part.plain}\n")
        lead = " " * len(lead)


def document_text(document: Document, *, width: int = 100, color: bool = False, fold: bool = False) -> str:
    """The page, `width` columns wide; without `color` it contains no escape sequence. `fold`: commands are folded as a
    shell reads them."""
    out, console = console_of(width, color)
    _title(console, document.heading, "=")
    for text in filter(None, (document.lead, document.window, document.summary)):
        line(console, text)
    if document.link is not None:
        _link(console, document.link, 0)
    if document.tiles:
        console.print()
        label_width = max(len(t.label) for t in document.tiles) + 2
        for t in document.tiles:
            hanging(console, f"{t.value}  ({t.change})" if t.change else t.value, _INDENT, f"{t.label:<{label_width}}")
            if t.meaning:
                hanging(console, t.meaning, _INDENT + label_width)
    for section in document.sections:
        console.print()
        _section(console, section, 0, fold)
    for text in ("", *document.footer) if document.footer else ():
        line(console, text)
    return written(out)


def mail_text(document: Document) -> str:
    """The page as a mail's plain text, its footer after the mark of a signature."""
    text = document_text(replace(document, footer=()), width=MAIL_WIDTH, fold=True)
    out, console = console_of(MAIL_WIDTH, color=False)
    for sentence in document.footer:
        line(console, sentence)
    return f"{text}\n-- \n{written(out)}"


def _title(console: Console, title: str, rule: str) -> None:
    """A heading: bold on a terminal, underlined elsewhere."""
    line(console, title, "bold")
    if not console.is_terminal:
        line(console, rule * min(len(clean(title)), console.width))


def _section(console: Console, section: Section, depth: int, fold: bool) -> None:
    if section.title and depth == 0:
        _title(console, section.title, "-")
    elif section.title:
        indented(console, section.title, _INDENT * (depth - 1), "bold")
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
            _table(console, block, by)
        case Figures():
            _named(console, block.rows, by)
        case Bars():
            _bars(console, block, by)
        case Bullets():
            for text in block.items:
                hanging(console, text, by, "- ")
        case AsideBlock():
            _aside(console, block, by, fold)
        case Link():
            _link(console, block, by)
        case _:
            hanging(console, block, by)


def _table(console: Console, block: Table, by: int) -> None:
    """Rows of a group are indented under the row that sums them up."""
    rows = [
        (f"  {first}", *rest) if block.groups and number not in block.groups else (first, *rest)
        for number, (first, *rest) in enumerate(block.rows)
    ]
    console.print(Padding(table(block.heads, rows, block.right), (0, 0, 0, by)))
    if block.more:
        hanging(console, block.more, by)


def _named(console: Console, rows: Sequence[tuple[str, str]], by: int) -> None:
    width = max(len(clean(name)) for name, _ in rows)
    for name, value in rows:
        hanging(console, value, by, f"{clean(name):<{width}}  ")


def _bars(console: Console, bars: Bars, by: int) -> None:
    """Bars of ASCII characters, so that a C locale shows them."""
    longest, width = max(value for _, value, _ in bars.rows), max(len(words) for _, _, words in bars.rows)
    rows = [
        (name, f"{words:>{width}}  {'#' * round(_BAR_WIDTH * value / longest) if longest > 0 else ''}")
        for name, value, words in bars.rows
    ]
    _named(console, rows, by)


def _link(console: Console, link: Link, by: int) -> None:
    """Whole, however long: a folded address leads nowhere."""
    console.file.write(f"{' ' * by}{clean(link.text)}: {clean(link.url)}\n")


def _aside(console: Console, aside: AsideBlock, by: int, fold: bool) -> None:
    """A sentence, and its command in lines of its own: in one line on a screen, folded for a shell in a mail."""
    hanging(console, aside.text, by)
    command = clean(aside.command)
    width = console.width - by - _INDENT
    for command_line in _command_lines(command, width) if fold else filter(None, [command]):
        console.file.write(f"{' ' * (by + _INDENT)}{command_line}\n")


def _command_lines(command: str, width: int) -> list[str]:
    """The lines of a command, joined by backslashes. A word longer than `width` has a line to itself."""
    lines: list[str] = []
    for word in _WORD.findall(command):
        if lines and len(lines[-1]) + len(word) + 3 <= width:  # a blank before it, a blank and a backslash after it
            lines[-1] += f" {word}"
        else:
            lines.append(f"{' ' * _INDENT if lines else ''}{word}")
    return [*(f"{part} \\" for part in lines[:-1]), *lines[-1:]]
