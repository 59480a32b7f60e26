"""Which ledgers there are, and which entry of them an id means."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ....rules.base.errors import NothingToDo, SkuwiseError, StoreError, UsageError
from ....rules.base.output import say
from ....rules.base.sanitize import clean
from ....rules.base.suggestions import suggest
from ...ledger.entries import LedgerEntry
from ...ledger.file.paths import default_ledger_path, every_ledger, folder_of
from ...ledger.file.store import Ledger
from ...ledger.identity import names_of

# So many characters of an id are enough where they name one thing only (as for explain).
_PREFIX_MIN = 4


def add_place(parser: argparse.ArgumentParser) -> None:
    """Which ledger is meant."""
    parser.add_argument(
        "--ledger", type=Path, metavar="PATH",
        help="the ledger (default: every fleet's in $XDG_STATE_HOME/skuwise/ledgers, in ~/.local/state where that is "
        "not set)",
    )  # fmt: skip


def add_id(parser: argparse.ArgumentParser) -> None:
    """Which recommendation of which ledger is meant."""
    parser.add_argument("id", metavar="ID", help="id of a recommendation, or its beginning")
    add_place(parser)


@dataclass(frozen=True, slots=True)
class LedgerEntries:
    """A ledger with what stands in it. `fleet`: whose it is, in words; None: nothing tells."""

    ledger: Ledger
    fleet: str | None
    entries: tuple[LedgerEntry, ...]


def open_ledgers(asked: Path | None) -> list[LedgerEntries]:
    """The ledger that was asked for, or those of all fleets. What cannot be read among several is said and left out.

    Raises UsageError where there is no place for one, NothingToDo where there is none yet, StoreError.
    """
    home = default_ledger_path(os.environ) if asked is None else None
    if asked is None and home is None:
        raise UsageError("There is no home folder for a ledger.", "Name one with --ledger.")
    found: list[LedgerEntries] = []
    first: SkuwiseError | None = None
    for path in [asked] if asked is not None else every_ledger(home) if home is not None else []:
        ledger = Ledger(path)
        try:
            found.append(LedgerEntries(ledger, names_of(ledger.fleets()) or None, ledger.entries()))
        except NothingToDo as error:
            first = first or error
        except StoreError as error:
            if asked is not None:
                raise
            first = error if not isinstance(first, StoreError) else first
            say(f"left out: {clean(str(error))}")
    if found:
        return found
    where = folder_of(home) if home is not None else asked
    raise first or NothingToDo(
        f"There is no ledger in {where} yet.", "'skuwise advise' begins one and notes what it proposes."
    )


def find_entry(every: Sequence[LedgerEntries], asked: str) -> tuple[Ledger, LedgerEntry]:
    """The entry of an id, or of the beginning of one, and the ledger that holds it. Raises as `entry_of_id` does."""
    entry = entry_of_id([e for one in every for e in one.entries], asked)
    own = [one for one in every if entry in one.entries]
    return own[0].ledger, entry


def entry_of_id(entries: Sequence[LedgerEntry], asked: str) -> LedgerEntry:
    """The entry of an id, or of the beginning of one. Raises UsageError where that is not one, NothingToDo for none."""
    if not entries:
        raise NothingToDo("The ledger holds no recommendation yet.", "'skuwise advise' notes what it proposes.")
    ids = list(dict.fromkeys(e.proposal.id for e in entries))
    found = [e for e in entries if e.proposal.id == asked] or [
        e for e in entries if len(asked) >= _PREFIX_MIN and e.proposal.id.startswith(asked)
    ]
    if len(found) == 1:
        return found[0]
    names = list(dict.fromkeys(e.proposal.id for e in found))
    if len(names) == 1:
        raise UsageError(
            f"{names[0]} stands in {len(found)} ledgers: two fleets have work of the same name.",
            "Name the ledger with --ledger; 'skuwise ledger list' shows them.",
        )
    if found:
        raise UsageError(
            f"{asked!r} means {len(found)} recommendations: {', '.join(names)}.",
            "Give one of these ids.",
        )
    near = suggest(asked, ids) or "'skuwise ledger list --all' lists every id."
    raise UsageError(f"The ledger knows no recommendation {asked!r}.", near)
