"""``skuwise ledger accept``, ``snooze``, ``dismiss`` and ``reopen``: decisions, by whom, until when and why."""

from __future__ import annotations

import argparse
import getpass
import os
import time
from functools import partial
from types import SimpleNamespace

from ....rules.base.errors import EXIT_DONE, UsageError
from ....rules.base.output import say
from ....rules.base.sanitize import clean
from ....rules.base.typed_again import program
from ...core.timestamps import minute, parse_moment
from ...state import ledger
from ...state.file import sqlite_text
from ...state.ledger import Act, LedgerEvent
from .entries import add_id, find_entry, place_arguments

_TYPED_MAX = 2000


def _configure(parser: argparse.ArgumentParser, act: Act) -> None:
    add_id(parser)
    parser.add_argument("--by", metavar="NAME", help="name of the person who decides (default: your user name)")
    parser.add_argument("--why", required=act == "dismissed", metavar="REASON", help="reason of the decision")
    if act == "snoozed":
        parser.add_argument("--until", required=True, metavar="DATE", help="end of the snooze: a date or RFC 3339, UTC")


def _decide(options: argparse.Namespace, act: Act) -> int:
    """Add a decision by whoever runs the command, and print what follows from it. The only place of the ledger that
    knows the clock and the user. Raises UsageError for one that is taken back where there is none."""
    now, until = time.time(), parse_moment(options.until) if act == "snoozed" else None
    event = decision_event(act, now, options.by, until, options.why)
    state, entry = find_entry(options)
    r, standing = entry.recommendation, entry.decision(now).state
    if act == "reopened" and standing not in ("accepted", "dismissed", "snoozed"):
        raise UsageError(
            f"{r.id} is {standing}: there is no decision to take back.", f"See '{program()} ledger show {r.id}'."
        )
    with state.writing() as db:
        ledger.add(db, r.id, event)
    ending = f" until {minute(until)}" if until is not None else ""
    say(f"{r.id} ({clean(r.action)}, {clean(entry.about)}) is {act}{ending}.")
    if act == "accepted":
        from ...patches.build import next_step

        say(next_step(entry, program(), place_arguments(options)))
    return EXIT_DONE


def decision_event(act: Act, now: float, by: str | None, until: float | None, why: str | None) -> LedgerEvent:
    """A decision as it is kept. `by` None: the user of this process. Raises UsageError where something is missing."""
    reason = typed_text(why)
    if act == "snoozed" and (until is None or until <= now):
        past = f"{minute(until)} is in the past" if until is not None else "No end of the snooze is given"
        raise UsageError(f"{past}.", f"Set --until to a future date; the time of this machine is {minute(now)}.")
    if act == "dismissed" and reason is None:
        raise UsageError("The reason is empty.", "Set --why to the reason of the decision.")
    return LedgerEvent(act, now, deciding_user(by), until, reason)


def deciding_user(by: str | None) -> str:
    """Who decides, as it is kept: the name that was typed, else the user of this process."""
    if named := typed_text(by):
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user here: a container's number
        return f"user {os.getuid()}"


def typed_text(text: str | None) -> str | None:
    """What a person typed as it is kept: a page at most, storable whatever the terminal gave. None: empty."""
    return sqlite_text((text or "").strip()[:_TYPED_MAX]) or None


def _command(act: Act, example: str) -> SimpleNamespace:
    return SimpleNamespace(configure=partial(_configure, act=act), run=partial(_decide, act=act), EXAMPLES=(example,))


accept = _command("accepted", "skuwise ledger accept r-5603c79e --by ann")
snooze = _command("snoozed", "skuwise ledger snooze r-5603c79e --until 2027-01-15")
dismiss = _command("dismissed", "skuwise ledger dismiss r-5603c79e --why 'reserved until March'")
reopen = _command("reopened", "skuwise ledger reopen r-5603c79e --why 'the launch is over'")
