"""Advice to stdout or a file, and what a command knows of its terminal and its machine."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from ...rules.base.output import write_output
from ...rules.base.progress import Progress, plain, progress
from ..core.advice_types import Advice
from ..show.page_options import PageOptions
from ..show.writers.formats import render

# What follows the reading of telemetry.
EVALUATING = "evaluating workloads"
_WIDTH_OF_A_PIPE = 120


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def terminal_width(most: int | None = None) -> int:
    """Columns to print in, at most `most`."""
    columns = shutil.get_terminal_size((_WIDTH_OF_A_PIPE, 24)).columns
    return columns if most is None else min(columns, most)


def wants_color() -> bool:
    """Whether stdout is a terminal that takes colors, and neither NO_COLOR nor SKUWISE_PLAIN is set."""
    dumb = os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not (dumb or os.environ.get("NO_COLOR") or plain(os.environ))


def reading_telemetry(options: argparse.Namespace) -> Progress:
    """Progress of reading what the options name, on stderr."""
    return progress("reading telemetry", "databases" if options.prometheus is None else "measures")


def print_advice(advice: Advice, options: argparse.Namespace, page: PageOptions | None = None) -> None:
    """The advice in `options.format`, to the file `options.output` or to stdout. `page`: what of it a text shows."""
    color = options.output is None and wants_color()
    text = render(advice, options.format, width=terminal_width(), color=color, page=page)
    write_output(text, options.output)
