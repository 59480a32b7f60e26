"""A terminal's page as text: what all renders for a terminal or a pipe are written with.

All outside text passes through `clean` and enters as `rich.text.Text`, which knows no markup.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...rules.base.sanitize import clean

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


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> Table:
    """A table without frame whose cells are folded, never cut. `right`: indices of columns of numbers."""
    out = Table(box=None, pad_edge=False, header_style="underline")
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
