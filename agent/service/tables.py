"""Plain text tables for a terminal or a pipe; the agent's node has no Rich."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def clean(text: str) -> str:
    """`text` on one line, without control and formatting characters: it may come from a driver or a process name."""
    return "".join(c if unicodedata.category(c)[0] != "C" else "�" for c in text.replace("\n", " ").replace("\t", " "))


def clean_lines(text: str) -> str:
    """As `clean`, but the line breaks stay."""
    return "\n".join(clean(line) for line in text.split("\n"))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart, no line at the end. Every cell is cleaned."""
    lines = [[clean(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def quantity(value: float | None, unit: str) -> str:
    """`value` in `unit` as people read it: ratios as per cent, bytes in powers of 1000 with their prefix, - if None."""
    if value is None:
        return "-"
    if unit == "ratio":
        return f"{value * 100:.1f} %"
    if unit == "bitmask":
        return f"{int(value):#x}"
    suffix = {"bytes": "B", "bytes per second": "B/s", "hertz": "Hz", "watts": "W", "joules": "J", "celsius": "°C"}.get(
        unit, unit
    )
    if unit in ("bytes", "bytes per second", "hertz"):
        for prefix in ("", "k", "M", "G"):
            if abs(value) < 1000:
                return f"{value:.4g} {prefix}{suffix}"
            value /= 1000
        return f"{value:.4g} T{suffix}"
    return f"{value:.4g} {suffix}"
