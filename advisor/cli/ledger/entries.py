"""Which ledgers there are, and which entry of them an id means."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....rules.base.errors import NothingToDo, SkuwiseError, StoreError, UsageError
from ....rules.base.output import say
from ....rules.base.sanitize import clean
from ....rules.base.typed_again import program
from ...core.formatting import usd
from ...core.naming import AmbiguousError, Named, matching, unknown
from ...core.timestamps import day
from ...state.entries import LedgerEntry
from ...state.fleets import names_of
from ...state.ledger_file import Ledger
from ...state.paths import default_ledgers, every_ledger, ledger_of
from ..source_options import add_source_choice, source_arguments, source_of

# Telemetry of so long tells whose it is (seconds): one GPU or the name of the cluster is enough.
_IDENTITY_SECONDS = 3600.0


def add_place(parser: argparse.ArgumentParser) -> None:
    """Which ledger is meant: a file, or that of the fleet whose telemetry is named."""
    add_source_choice(parser, required=False, identity=True).add_argument(
        "--ledger", type=Path, metavar="PATH",
        help="ledger file (default: in $XDG_STATE_HOME/skuwise/ledgers that of the fleet of --db or --prometheus, else "
        "those of all fleets)",
    )  # fmt: skip


def place_arguments(options: argparse.Namespace) -> str:
    """The options that name the ledger again, for a command line that somebody may copy."""
    if options.ledger is not None:
        return f"--ledger {shlex.quote(str(options.ledger))}"
    return source_arguments(options) if options.db or options.prometheus else ""


def add_id(parser: argparse.ArgumentParser) -> None:
    """Which recommendation of which ledger is meant."""
    parser.add_argument(
        "id", metavar="ID", help="recommendation: its ID (4 characters or more), its workload or its node"
    )
    add_place(parser)


@dataclass(frozen=True, slots=True)
class LedgerEntries:
    """A ledger with what stands in it. `fleet`: whose it is, in words; None: nothing tells."""

    ledger: Ledger
    fleet: str | None
    entries: tuple[LedgerEntry, ...]


def open_ledgers(options: argparse.Namespace) -> list[LedgerEntries]:
    """The ledger that was asked for, or those of all fleets. What cannot be read among several is said and left out.
    Raises UsageError where there is no place for one, NothingToDo where there is none yet, SkuwiseError."""
    asked, home = options.ledger, default_ledgers(os.environ) if options.ledger is None else None
    if asked is None and home is None:
        raise UsageError("No home folder for a ledger.", "Set --ledger PATH.")
    if home is not None and (options.db or options.prometheus):
        asked = _ledger_of_source(options, home)
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
    raise first or NothingToDo(f"No ledger in {home or asked} yet.", "Run 'skuwise advise' to create it.")


def _ledger_of_source(options: argparse.Namespace, home: Path) -> Path:
    from ....rules.catalog.loader import load_catalog  # noqa: PLC0415 - read where it is needed
    from ...core.fleet_identity import fleet_of  # noqa: PLC0415

    source = source_of(options, lambda _: None, 1)
    frame = source.read(load_catalog(), since=_IDENTITY_SECONDS, until=None, now=time.time())
    path, left_out = ledger_of(home, fleet_of(frame))
    for sentence in left_out:
        say(sentence)
    if not path.exists():
        again = f"Run '{program()} advise {source_arguments(options)}' to create it."
        raise NothingToDo("This fleet has no ledger yet.", again)
    return path


def find_entry(every: Sequence[LedgerEntries], asked: str, command: Callable[[str], str]) -> tuple[Ledger, LedgerEntry]:
    """The entry of an id or its beginning, of a workload's or node's name, or of ``name@node``; and its ledger.

    `command` gives the command line for an id, for the list of candidates. Raises AmbiguousError for several,
    UsageError for none, NothingToDo where the ledger is empty.
    """
    entries = [entry for one in every for entry in one.entries]
    if not entries:
        raise NothingToDo("The ledger is empty.", "Run 'skuwise advise' to record recommendations.")
    names = {entry.proposal.id: _named(entry) for entry in entries}
    found = matching(asked, list(names.values()))
    if not found:
        raise unknown(asked, list(names.values()), "in the ledger", "'skuwise ledger list --all' lists every ID.")
    if len(found) > 1:
        raise AmbiguousError(asked, found, command)
    same = [entry for entry in entries if entry.proposal.id == found[0].id]
    if len(same) > 1:
        raise UsageError(
            f"{found[0].id} is in {len(same)} ledgers: two fleets have work of the same name.",
            "Select one ledger with --ledger PATH; 'skuwise ledger list' shows their paths.",
        )
    return next(one.ledger for one in every if same[0] in one.entries), same[0]


def _named(entry: LedgerEntry) -> Named:
    p = entry.proposal
    nodes = p.ground.yardstick.nodes if p.ground is not None else ()
    cost = f"saves {usd(p.saving_usd_per_month)}/month" if p.saving_usd_per_month else ""
    return Named(p.id, f"{p.action} of {p.about}", p.about, nodes, (), day(entry.last_proposed), cost)
