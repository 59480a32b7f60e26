"""``skuwise man``: the manual page of every command, as roff."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from ... import __doc__ as about
from ... import __version__
from ..base.errors import EXIT_DONE
from ..base.man_page import man_page
from ..base.output import write_stdout
from ..base.parsers import every_parser

EXAMPLES = ("skuwise man > skuwise.1",)


def configure(parser: argparse.ArgumentParser) -> None:
    """It has no options."""


def run(options: argparse.Namespace) -> int:
    """Print the page. Loads every command of this installation."""
    today = datetime.now(UTC).date().isoformat()
    write_stdout(man_page(every_parser(options.commands), __version__, (about or "").strip(), today))
    return EXIT_DONE
