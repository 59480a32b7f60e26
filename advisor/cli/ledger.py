"""``skuwise ledger``: what was recommended and what became of it."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...rules.base.errors import EXIT_DONE, NothingToDo, SkuwiseError, StoreError, UsageError
from ...rules.base.sanitize import clean
from ...rules.base.typed_fields import suggest
from ..core.timestamps import minute, parse_moment
from ..ledger.entries import Act, LedgerEntry, LedgerEvent
from ..ledger.file.paths import default_path, every_ledger, folder_of
from ..ledger.file.store import Ledger
from ..ledger.formatting import STATES, as_dict, as_text, entry_text
from ..ledger.identity import names_of
from ..ledger.records import Figures, Trial
from ..moves.recommendation_kinds import KINDS

SCHEMA = "skuwise.ledger/1"
# So many characters of an id are enough where they name one thing only (as for explain).
_PREFIX_MIN = 4
_TYPED_MAX = 2000
_WIDTH = 120


def configure(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the actions of ``skuwise ledger``."""
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    listing = _action(actions, "list", "what was recommended, its state, and who decided what, when and why")
    listing.add_argument("--state", choices=STATES, help="only what is in this state")
    listing.add_argument("--all", action="store_true", help="also what is blocked or expired")
    listing.add_argument("--format", choices=("table", "json"), default="table")
    listing.set_defaults(run=run_list)
    show = _action(actions, "show", "one recommendation: what was predicted, what was measured, and its history")
    show.set_defaults(run=run_show)
    accept = _action(actions, "accept", "it will be done; it counts until it is")
    accept.add_argument("--why", default=None, metavar="REASON")
    accept.set_defaults(run=run_accept)
    snooze = _action(actions, "snooze", "not now: it is not counted until then")
    snooze.add_argument("--until", required=True, metavar="DATE", help="RFC 3339 or a date, UTC")
    snooze.add_argument("--why", default=None, metavar="REASON")
    snooze.set_defaults(run=run_snooze)
    dismiss = _action(actions, "dismiss", "it will not be done; it is not counted any more")
    dismiss.add_argument("--why", required=True, metavar="REASON")
    dismiss.set_defaults(run=run_dismiss)
    trial = _action(actions, "trial", "one replica goes first: the next advice compares it with the rest")
    trial.add_argument("--replica", metavar="NAME", help="its name or id (default: whichever stands on the target)")
    trial.add_argument("--why", default=None, metavar="REASON")
    trial.set_defaults(run=run_trial)


def _action(actions: argparse._SubParsersAction, name: str, text: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text)
    if name != "list":
        parser.add_argument("id", metavar="ID", help="id of a recommendation, or its beginning")
    if name not in ("list", "show"):
        parser.add_argument("--by", metavar="NAME", help="who decided it (default: your user name)")
    parser.add_argument(
        "--ledger", type=Path, metavar="PATH",
        help="the ledger (default: every fleet's in $XDG_STATE_HOME/skuwise/ledgers, in ~/.local/state where that is "
        "not set)",
    )  # fmt: skip
    return parser


def run_list(options: argparse.Namespace) -> int:
    """Print the ledger."""
    now, width = time.time(), shutil.get_terminal_size((_WIDTH, 24)).columns
    every, texts, values = ledgers(options.ledger), [], []
    for one in every:
        shown = [e for e in one.entries if _shown(e, options.state, options.all, now)]
        values += [as_dict(e, now) | {"fleet": one.fleet} for e in shown]
        heading = f"Fleet {one.fleet or 'unknown'} ({clean(str(one.ledger.path))})\n" if len(every) > 1 else ""
        texts.append(heading + as_text(shown, len(one.entries) - len(shown), now, width))
    if options.format == "json":
        sys.stdout.write(json.dumps({"schema": SCHEMA, "recommendations": values}, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(texts))
    return EXIT_DONE


def run_show(options: argparse.Namespace) -> int:
    """Print one entry in full."""
    _, entry = held(ledgers(options.ledger), options.id)
    width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH)
    sys.stdout.write(entry_text(entry, time.time(), width))
    return EXIT_DONE


def run_accept(options: argparse.Namespace) -> int:
    return _decide(options, "accepted", None)


def run_snooze(options: argparse.Namespace) -> int:
    until = parse_moment(options.until)
    return _decide(options, "snoozed", until)


def run_dismiss(options: argparse.Namespace) -> int:
    return _decide(options, "dismissed", None)


def run_trial(options: argparse.Namespace) -> int:
    """Note that a trial begins. What it came to is noted by later advice."""
    now = time.time()
    ledger, entry = held(ledgers(options.ledger), options.id)
    check_trial(entry, now)
    begun = event_of("trial", now, options.by, None, options.why)
    trial = Trial(_storable(options.replica))
    ledger.add(entry.proposal.id, replace(begun, figures=Figures(trial=trial)))
    who = f"Replica {trial.replica}" if trial.replica else "One replica"
    print(  # noqa: T201
        f"{entry.proposal.id} ({clean(entry.proposal.action)}, {clean(entry.proposal.about)}) is on trial. "
        f"{clean(who)} goes to {clean(entry.proposal.target_config)}; 'skuwise advise' compares it with the rest.",
        file=sys.stderr,
    )
    return EXIT_DONE


def _decide(options: argparse.Namespace, act: Act, until: float | None) -> int:
    """Add a decision by whoever runs the command. The only place of the ledger that knows the clock and the user."""
    event = event_of(act, time.time(), options.by, until, options.why)
    ledger, entry = held(ledgers(options.ledger), options.id)
    ledger.add(entry.proposal.id, event)
    ending = f" until {minute(until)}" if until is not None else ""
    print(  # noqa: T201
        f"{entry.proposal.id} ({clean(entry.proposal.action)}, {clean(entry.proposal.about)}) is {act}{ending}.",
        file=sys.stderr,
    )
    return EXIT_DONE


def event_of(act: Act, now: float, by: str | None, until: float | None, why: str | None) -> LedgerEvent:
    """A decision as it is kept. `by` None: the user of this process. Raises UsageError where something is missing."""
    reason = _storable(why)
    if act == "snoozed" and (until is None or until <= now):
        past = f"{minute(until)} is past" if until is not None else "No end is given"
        raise UsageError(
            f"{past}, so nothing would be snoozed.",
            f"Give a date that is to come (--until); by the clock of this machine it is {minute(now)}.",
        )
    if act == "dismissed" and reason is None:
        raise UsageError("The reason is empty.", "Say why (--why): whoever finds this in a year will ask.")
    return LedgerEvent(act, now, _storable(by) or _user(), until, reason)


def check_trial(entry: LedgerEntry, now: float) -> None:
    """Raises UsageError where one replica cannot go first."""
    p, state = entry.proposal, entry.decision(now).state
    can_be_tried = [action for action, kind in KINDS.items() if kind.trial is not None]
    if p.action not in can_be_tried:
        raise UsageError(
            f"{p.id} is {p.action!r}: no single replica can go first.", f"A trial is for {', '.join(can_be_tried)}."
        )
    if p.ground is None or p.ground.time_ratio is None or p.ground.target.gpu_count == 0 or p.blocked:
        raise UsageError(f"{p.id} predicts no time that a replica could be held against.", "Look at it with 'show'.")
    if state in ("done", "expired"):
        raise UsageError(f"{p.id} is {state}: there is nothing left to try.", "'skuwise ledger list' shows what is.")


@dataclass(frozen=True, slots=True)
class Held:
    """A ledger with what stands in it. `fleet`: whose it is, in words; None: nothing tells."""

    ledger: Ledger
    fleet: str | None
    entries: tuple[LedgerEntry, ...]


def ledgers(asked: Path | None) -> list[Held]:
    """The ledger that was asked for, or those of all fleets. What cannot be read among several is said and left out.

    Raises UsageError where there is no place for one, NothingToDo where there is none yet, StoreError.
    """
    home = default_path(os.environ) if asked is None else None
    if asked is None and home is None:
        raise UsageError("There is no home folder for a ledger.", "Name one with --ledger.")
    found: list[Held] = []
    first: SkuwiseError | None = None
    for path in [asked] if asked is not None else every_ledger(home) if home is not None else []:
        ledger = Ledger(path)
        try:
            found.append(Held(ledger, names_of(ledger.fleets()) or None, ledger.entries()))
        except NothingToDo as error:
            first = first or error
        except StoreError as error:
            if asked is not None:
                raise
            first = error if not isinstance(first, StoreError) else first
            print(f"left out: {clean(str(error))}", file=sys.stderr)  # noqa: T201
    if found:
        return found
    where = folder_of(home) if home is not None else asked
    raise first or NothingToDo(
        f"There is no ledger in {where} yet.", "'skuwise advise' begins one and notes what it proposes."
    )


def held(every: Sequence[Held], asked: str) -> tuple[Ledger, LedgerEntry]:
    """The entry of an id, or of the beginning of one, and the ledger that holds it. Raises as `find` does."""
    entry = find([e for one in every for e in one.entries], asked)
    own = [one for one in every if entry in one.entries]
    return own[0].ledger, entry


def find(entries: Sequence[LedgerEntry], asked: str) -> LedgerEntry:
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


def _shown(entry: LedgerEntry, state: str | None, every: bool, now: float) -> bool:
    own = entry.decision(now).state
    if state is not None:
        return own == state
    return every or (own != "expired" and not (own == "proposed" and entry.proposal.blocked))


def _storable(text: str | None) -> str | None:
    """What a person typed as it is kept: a page at most, storable whatever the terminal gave. None: empty."""
    stripped = (text or "").strip()[:_TYPED_MAX]
    return stripped.encode("utf-8", "backslashreplace").decode("utf-8") or None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user here: a container's number
        return f"user {os.getuid()}"
