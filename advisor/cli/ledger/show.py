"""``skuwise ledger show``: what was predicted, what was measured, and its history."""

from __future__ import annotations

import argparse
import time

from ....rules.base.errors import EXIT_DONE
from ....rules.base.output import write_stdout
from ....rules.base.typed_again import typed_with
from ...views.document.ledger_words import entry_text
from ..output import terminal_width
from .entries import add_id, find_entry, open_ledgers

_WIDTH_MAX = 120

EXAMPLES = ("skuwise ledger show r-5603c79e",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_id(parser)


def run(options: argparse.Namespace) -> int:
    _, entry = find_entry(open_ledgers(options), options.id, typed_with(options, options.id))
    write_stdout(entry_text(entry, time.time(), terminal_width(_WIDTH_MAX)))
    return EXIT_DONE
