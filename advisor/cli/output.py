"""The terminal and the machine of a command."""

from __future__ import annotations

import os
import shutil
import sys

from ...rules.base.output import plain

_WIDTH_OF_A_PIPE = 120


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def terminal_width(most: int | None = None) -> int:
    """Columns to print in, at most `most`."""
    columns = shutil.get_terminal_size((_WIDTH_OF_A_PIPE, 24)).columns
    return columns if most is None else min(columns, most)


def wants_color() -> bool:
    """Whether stdout is a terminal that takes colors, without NO_COLOR and SKUWISE_PLAIN."""
    dumb = os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not (dumb or os.environ.get("NO_COLOR") or plain())
