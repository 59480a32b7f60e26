"""``skuwise ledger show``: what was predicted, what was measured, and its history."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from ....rules.base.errors import EXIT_DONE, StoreError
from ....rules.base.output import say, write_stdout
from ....rules.base.sanitize import clean
from ....rules.base.typed_again import typed_with
from ...ledger.entries import LedgerEntry
from ...ledger.file.store import Ledger
from ...ledger.formatting import entry_text
from ...ledger.plans.standing import standing_of
from ...ledger.plans.words import step_mention
from ..output import terminal_width
from .entries import add_id, find_entry, open_ledgers

_WIDTH_MAX = 120

EXAMPLES = ("skuwise ledger show r-5603c79e",)


def configure(parser: argparse.ArgumentParser) -> None:
    add_id(parser)


def run(options: argparse.Namespace) -> int:
    every, now = open_ledgers(options.ledger), time.time()
    ledger, entry = find_entry(every, options.id, typed_with(options, options.id))
    entries = next(one.entries for one in every if one.ledger is ledger)
    write_stdout(entry_text(entry, now, terminal_width(_WIDTH_MAX), _in_plan(ledger, entries, entry, now)))
    return EXIT_DONE


def _in_plan(ledger: Ledger, entries: Sequence[LedgerEntry], entry: LedgerEntry, now: float) -> str | None:
    """The step of the plan that is followed; None: it is none. A damaged plan is said, and the rest is shown."""
    try:
        kept = [plan for plan in ledger.plans() if plan.state == "followed"]
    except StoreError as error:
        say(f"no plan: {clean(str(error))}")
        return None
    told = (step_mention(standing_of(plan, entries, now), entry.proposal.id) for plan in kept)
    return next((one for one in told if one is not None), None)
