"""A page as text for a terminal, a pipe or a mail's reader of plain text.

All outside text passes through `clean` and enters as `rich.text.Text`, which knows no markup.
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
from ..document import AsideBlock, Block, Bullets, Chart, Document, Figures, Link, Section, Table

MIN_WIDTH = 60


def console_of(width: int, color: bool) -> tuple[io.StringIO, Console]:
    """A console `width` columns wide, and what it writes to; without `color` it writes no escape sequence at all."""
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


def indented(console: Console, text: str, by: int = 2) -> None:
    console.print(Padding(Text(clean(text)), (0, 0, 0, by)))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> grids.Table:
    """A table without frame whose cells are folded, never cut. `right`: indices of columns of numbers."""
    out = grids.Table(box=None, pad_edge=False, header_style="underline")
    for index, head in enumerate(heads):
        out.add_column(head, overflow="fold", justify="right" if index in right else "left")
    for row in rows:
        out.add_row(*(Text(clean(cell)) for cell in row))
    return out


def hanging(console: Console, text: str, by: int, lead: str = "") -> None:
    """Text folded under itself behind `lead`, `by` columns from the left."""
    margin = " " * by
    for part in Text(clean(text)).wrap(console, max(console.width - by - len(lead), MIN_WIDTH // 4)):
        console.file.write(f"{margin}{lead}{part.plain}\n")
        lead = " " * len(lead)


# A word of a shell: runs of plain characters, escaped ones and quoted strings.
_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")


def command_lines(command: str, width: int) -> list[str]:
    """The lines of a command. No word is broken: one that is longer than `width` has a line of its own."""
    lines: list[str] = []
    for part in _parts(command, width - _INDENT - 2):
        room = width - 2 - (_INDENT if len(lines) > 1 else 0)  # a blank and the backslash
        if lines and len(lines[-1]) + 1 + len(part) <= room:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    last = len(lines) - 1
    return [" " * (_INDENT if n else 0) + line + (" \\" if n < last else "") for n, line in enumerate(lines)]


def _parts(command: str, room: int) -> list[str]:
    """The words of a command, an option with its value together where they fit."""
    parts: list[str] = []
    for word in _WORD.findall(command):
        last = parts[-1] if parts else ""
        if last.startswith("--") and " " not in last and not word.startswith("-") and len(last) + len(word) < room:
            parts[-1] = f"{last} {word}"
        else:
            parts.append(word)
    return parts


MAIL_WIDTH = 72
_INDENT = 2


def document_text(document: Document, *, width: int = 100, color: bool = False, fold: bool = False) -> str:
    """The whole page, `width` columns wide; without `color` it holds no escape sequence at all. `fold`: commands are
    folded, as a shell reads them, too."""
    out, console = console_of(width, color)
    _title(console, document.heading, "=")
    for text in filter(None, (document.lead, document.window, document.summary)):
        line(console, text)
    if document.link is not None:
        _block(console, document.link, 0)
    if document.tiles:
        console.print()
        width = max(len(t.label) for t in document.tiles) + 2
        for t in document.tiles:
            hanging(console, f"{t.value}  ({t.change})" if t.change else t.value, _INDENT, f"{t.label:<{width}}")
            if t.meaning:
                hanging(console, t.meaning, _INDENT + width)
    for section in document.sections:
        console.print()
        _section(console, section, 0, fold)
    for text in ("", *document.footer) if document.footer else ():
        line(console, text)
    return written(out)


def mail_text(document: Document) -> str:
    """The page as a mail's plain text, its footer behind the mark of a signature."""
    text = document_text(replace(document, footer=()), width=MAIL_WIDTH, fold=True)
    out, console = console_of(MAIL_WIDTH, color=False)
    for sentence in document.footer:
        line(console, sentence)
    return f"{text}\n-- \n{written(out)}"


def sections_text(sections: Iterable[Section], width: int) -> str:
    """Sections by themselves."""
    out, console = console_of(width, color=False)
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


def _section(console: Console, section: Section, depth: int, fold: bool = False) -> None:
    if depth == 0:
        _title(console, section.title, "-")
    else:
        console.print(Padding(Text(clean(section.title), style="bold"), (0, 0, 0, _INDENT * (depth - 1))))
    before: Block | None = None
    for block in section.blocks:
        if before is not None and (_apart(block, depth) or _apart(before, depth)):
            console.print()
        _block(console, block, depth, fold)
        before = block


def _apart(block: Block, depth: int) -> bool:
    """Whether a blank line stands before and after it."""
    return isinstance(block, Table) or (isinstance(block, Section) and depth == 0)


def _block(console: Console, block: Block, depth: int, fold: bool = False) -> None:
    by = _INDENT * depth
    match block:
        case Section():
            _section(console, block, depth + 1, fold)
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
            _aside(console, block, by, fold)
        case Link():
            # Whole, however long: an address that is folded leads nowhere.
            console.file.write(f"{' ' * by}{clean(block.text)}: {clean(block.url)}\n")
        case _:
            hanging(console, block, by)


def _aside(console: Console, aside: AsideBlock, by: int, fold: bool) -> None:
    """A sentence, and its command in lines of its own: whole on a screen, where a folded one cannot be pasted; in a
    mail folded so that a shell reads it as one."""
    hanging(console, aside.text, by)
    commands = [clean(command) for command in aside.command.split("\n") if command]
    if fold:
        commands = [part for command in commands for part in command_lines(command, console.width - by - _INDENT)]
    for command_line in commands:
        console.file.write(f"{' ' * (by + _INDENT)}{command_line}\n")
