"""``skuwise monitoring dashboards``: one JSON file for each Grafana dashboard."""

from __future__ import annotations

import argparse
from pathlib import Path

from ....rules.base.errors import EXIT_DONE, UsageError
from ....rules.base.output import say, write_whole
from ....rules.base.sanitize import clean
from ...monitoring.boards import BOARDS
from ...monitoring.grafana import board_text

EXAMPLES = ("skuwise monitoring dashboards --output dashboards",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the JSON files")


def run(options: argparse.Namespace) -> int:
    """Write the files. Raises UsageError where the folder cannot be made."""
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"Cannot create the folder {clean(str(options.output))}: {error.strerror}.", "Set --output to another one."
        ) from error
    for board in BOARDS:
        path = options.output / f"{board.uid}.json"
        write_whole(path, board_text(board))
        say(f"written to {clean(str(path))}")
    return EXIT_DONE
