"""``skuwise ledger list`` and ``show``: which recommendations there are, and which one an id means."""

from __future__ import annotations

import argparse
import shlex
import time
from types import SimpleNamespace

from ....rules.base.errors import EXIT_DONE, NothingToDo, UsageError
from ....rules.base.output import write_json, write_stdout
from ....rules.base.sanitize import clean
from ....rules.base.typed_again import program, typed_with
from ...core.formatting import usd
from ...core.naming import AmbiguousError, Named, matching, unknown
from ...core.timestamps import day
from ...show.ledger_words import STATES, as_dict, as_text, entry_text
from ...state import ledger
from ...state.file import State
from ...state.ledger import LedgerEntry
from ..output import terminal_width
from ..source_options import add_source_choice, source_arguments
from ..state_options import KnownState, add_state, known_states

SCHEMA = "skuwise.ledger/1"
_SHOW_WIDTH_MAX = 120


def add_place(parser: argparse.ArgumentParser) -> None:
    """Which ledger is meant: that of a file, or of the fleet whose telemetry is named."""
    add_state(add_source_choice(parser, required=False, identity=True))


def add_id(parser: argparse.ArgumentParser) -> None:
    """Which recommendation of which ledger is meant."""
    parser.add_argument(
        "id", metavar="ID", help="recommendation: its ID (4 characters or more), its workload or its node"
    )
    add_place(parser)


def place_arguments(options: argparse.Namespace) -> str:
    """The options that name the ledger again, for a command line that somebody may copy."""
    if options.state is not None:
        return f"--state {shlex.quote(str(options.state))}"
    return source_arguments(options) if options.db or options.prometheus else ""


def open_ledgers(options: argparse.Namespace) -> list[tuple[KnownState, tuple[LedgerEntry, ...]]]:
    """The ledger that was asked for, or those of all fleets, with its state file. Raises as `known_states`."""
    found: list[tuple[KnownState, tuple[LedgerEntry, ...]]] = []
    for state in known_states(options):
        with state.state.reading() as db:
            found.append((state, ledger.entries(db)))
    return found


def find_entry(options: argparse.Namespace) -> tuple[State, LedgerEntry]:
    """The entry of an id or its beginning, of a workload's or node's name, or of ``name@node``, as `add_id`'s options
    ask; and its state file. Raises AmbiguousError for several, UsageError for none, NothingToDo where the ledger is
    empty."""
    asked, entries = options.id, [(known.state, entry) for known, own in open_ledgers(options) for entry in own]
    if not entries:
        raise NothingToDo("The ledger is empty.", f"Run '{program()} advise' to record recommendations.")
    names: dict[str, Named] = {}
    for _, entry in entries:
        r, nodes = entry.recommendation, entry.snapshot.yardstick.nodes if entry.snapshot is not None else ()
        cost = f"saves {usd(r.saving_usd_per_month.p50)}/month" if r.saving_usd_per_month else ""
        last = day(entry.last_proposed)
        names[r.id] = Named(r.id, f"{r.action} of {entry.about}", entry.about, nodes, (), last, cost)
    candidates = list(names.values())
    found = matching(asked, candidates)
    if not found:
        raise unknown(asked, candidates, "in the ledger", f"'{program()} ledger list --all' lists every ID.")
    if len(found) > 1:
        raise AmbiguousError(asked, found, typed_with(options, asked))
    same = [pair for pair in entries if pair[1].recommendation.id == found[0].id]
    if len(same) > 1:
        raise UsageError(
            f"{found[0].id} is in {len(same)} ledgers: two fleets have work of the same name.",
            f"Select one with --state PATH; '{program()} ledger list' shows their paths.",
        )
    return same[0]


def _configure_list(parser: argparse.ArgumentParser) -> None:
    add_place(parser)
    parser.add_argument(
        "--status", choices=STATES,
        help="only recommendations in this state (default: all but blocked and expired ones)",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help="also list blocked and expired recommendations")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")


def _list(options: argparse.Namespace) -> int:
    if str(options.state) in STATES and not options.state.exists():
        raise UsageError("--state names the state file.", f"Use --status {options.state}.")

    def is_listed(entry: LedgerEntry) -> bool:
        state = entry.decision(now).state
        if options.status is not None:
            return state == options.status
        is_blocked = state == "proposed" and bool(entry.recommendation.blocked_by)
        return options.all or (state != "expired" and not is_blocked)

    now, width = time.time(), terminal_width()
    ledgers, texts, values = open_ledgers(options), [], []
    for known, entries in ledgers:
        shown = [entry for entry in entries if is_listed(entry)]
        values += [as_dict(entry, now) | {"fleet": known.fleet} for entry in shown]
        path = clean(str(known.state.path))
        heading = f"Fleet {known.fleet or 'unknown'} ({path})\n" if len(ledgers) > 1 else ""
        texts.append(heading + as_text(shown, len(entries) - len(shown), now, width))
    if options.format == "json":
        write_json({"schema": SCHEMA, "recommendations": values})
    else:
        write_stdout("\n".join(texts))
    return EXIT_DONE


def _show(options: argparse.Namespace) -> int:
    _, entry = find_entry(options)
    write_stdout(entry_text(entry, time.time(), terminal_width(_SHOW_WIDTH_MAX)))
    return EXIT_DONE


list_command = SimpleNamespace(
    configure=_configure_list, run=_list,
    EXAMPLES=("skuwise ledger list", "skuwise ledger list --status accepted --format json"),
)  # fmt: skip
show_command = SimpleNamespace(configure=add_id, run=_show, EXAMPLES=("skuwise ledger show r-5603c79e",))
