"""``skuwise ledger list``: what was recommended, its state, and who decided what, when and why."""

from __future__ import annotations

import argparse
import time

from ....rules.base.errors import EXIT_DONE
from ....rules.base.output import write_json, write_stdout
from ....rules.base.sanitize import clean
from ...state.entries import LedgerEntry
from ...views.document.ledger_words import STATES, as_dict, as_text
from ..output import terminal_width
from .entries import add_place, open_ledgers

SCHEMA = "skuwise.ledger/1"

EXAMPLES = ("skuwise ledger list", "skuwise ledger list --state accepted --format json")


def configure(parser: argparse.ArgumentParser) -> None:
    add_place(parser)
    parser.add_argument(
        "--state", choices=STATES, help="only recommendations in this state (default: all but blocked and expired ones)"
    )
    parser.add_argument("--all", action="store_true", help="also list blocked and expired recommendations")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")


def run(options: argparse.Namespace) -> int:
    """Print the ledger."""
    now, width = time.time(), terminal_width()
    every, texts, values = open_ledgers(options), [], []
    for one in every:
        shown = [e for e in one.entries if _shown(e, options.state, options.all, now)]
        values += [as_dict(e, now) | {"fleet": one.fleet} for e in shown]
        heading = f"Fleet {one.fleet or 'unknown'} ({clean(str(one.ledger.path))})\n" if len(every) > 1 else ""
        texts.append(heading + as_text(shown, len(one.entries) - len(shown), now, width))
    if options.format == "json":
        write_json({"schema": SCHEMA, "recommendations": values})
    else:
        write_stdout("\n".join(texts))
    return EXIT_DONE


def _shown(entry: LedgerEntry, state: str | None, every: bool, now: float) -> bool:
    own = entry.decision(now).state
    if state is not None:
        return own == state
    return every or (own != "expired" and not (own == "proposed" and entry.proposal.blocked))
