"""Plain tables for a terminal: aligned columns, no colours, no dependency."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .sanitize import clean


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Lines of aligned cells under a header; `right` are the indices of columns of numbers, aligned to the right.

    Every cell is cleaned: it may come from a driver, a process name or a site's file.
    """
    table = [[clean(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(header))]
    lines = [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    return "\n".join(lines)
