"""``skuwise ledger``: recommendations, and the decisions on them: by whom, until when and why."""

from __future__ import annotations

import getpass
import os
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click import option

from ...rules.base.click_commands import (
    Choice,
    Decorator,
    Group,
    examples,
    exclusive,
    format_option,
    into,
    joined,
    typed_with,
)
from ...rules.base.errors import EXIT_DONE, NothingToDo, UsageError
from ...rules.base.output import program, say, write_json, write_stdout
from ...rules.base.sanitize import clean
from ..core.timestamps import day, minute
from .options import MOMENT, SourceOptions, StateOptions, fleet_options, state_options, terminal_width, words

if TYPE_CHECKING:
    from ..state.file import State
    from ..state.ledger import Act, LedgerEntry, LedgerEvent

STATES = ("regressed", "proposed", "accepted", "done", "snoozed", "dismissed", "expired")
_TYPED_MAX = 2000


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """Which ledger is meant: that of the file `state`, or of the fleet of `source`; neither: all fleets'."""

    source: SourceOptions
    state: StateOptions

    def ledgers(self) -> list[tuple[State, str, tuple[LedgerEntry, ...]]]:
        """The state files with the names of their fleets and their entries. Raises as `StateOptions.every`."""
        from ..state.ledger import entries

        return self.state.every(entries, self.source)


place_options = into(
    "place", LedgerPlace, fleet_options, state_options(),
    check=lambda place: exclusive(db=place.source.db, prometheus=place.source.prometheus, state=place.state.state),
)  # fmt: skip


@click.group("ledger", cls=Group)
def ledger() -> None:
    """List recommendations and record decisions on them."""


@ledger.command("list", epilog=examples("skuwise ledger list", "skuwise ledger list --status accepted --format json"))
@place_options
@option("--status", type=Choice(STATES), help="only this state (default: all but blocked and expired ones)")
@option("--all", "every", is_flag=True, help="also list blocked and expired recommendations")
@format_option("table", "json")
def list_(place: LedgerPlace, status: str | None, every: bool, form: str) -> int:
    """List recommendations with their state and decisions."""
    from ..show.ledger_words import as_dict, as_text

    now, width = time.time(), terminal_width()

    def is_listed(entry: LedgerEntry) -> bool:
        state = entry.decision(now).state
        if status is not None:
            return state == status
        is_blocked = state == "proposed" and bool(entry.recommendation.blocked_by)
        return every or (state != "expired" and not is_blocked)

    ledgers, texts, values = place.ledgers(), [], []
    for file, fleet, entries in ledgers:
        listed = [entry for entry in entries if is_listed(entry)]
        values += [as_dict(entry, now) | {"fleet": fleet or None} for entry in listed]
        heading = f"Fleet {fleet or 'unknown'} ({clean(str(file.path))})\n" if len(ledgers) > 1 else ""
        texts.append(heading + as_text(listed, len(entries) - len(listed), now, width))
    if form == "json":
        write_json({"schema": "skuwise.ledger/1", "recommendations": values})
    else:
        write_stdout("\n".join(texts))
    return EXIT_DONE


def show(recommendation: str, place: LedgerPlace) -> int:
    """Print one recommendation."""
    from ..show.ledger_words import entry_text

    write_stdout(entry_text(find_entry(recommendation, place)[1], time.time(), terminal_width(120)))
    return EXIT_DONE


def decide(
    recommendation: str, place: LedgerPlace, act: Act, by: str | None, why: str | None, until: float | None = None
) -> int:
    """Add a decision, and print what follows from it. Raises UsageError for one that is taken back where there is
    none."""
    from ..patches.build import next_step
    from ..state.ledger import add

    now = time.time()
    event, (state, entry) = decision_event(act, now, by, until, why), find_entry(recommendation, place)
    r, current = entry.recommendation, entry.decision(now).state
    if act == "reopened" and current not in ("accepted", "dismissed", "snoozed"):
        remedy = f"See '{program()} ledger show {r.id}'."
        raise UsageError(f"{r.id} is {current}: there is no decision to take back.", remedy)
    with state.writing() as db:
        add(db, r.id, event)
    ending = f" until {minute(until)}" if until is not None else ""
    say(f"{r.id} ({clean(r.action)}, {clean(entry.about)}) is {act}{ending}.")
    if act == "accepted":
        say(next_step(entry, program(), words(place.state) or words(place.source)))
    return EXIT_DONE


_by = option("--by", metavar="NAME", help="name of the person who decides (default: your user name)")
_why, _must_why = (
    option("--why", required=required, metavar="REASON", help="reason of the decision") for required in (False, True)
)
_until = option("--until", type=MOMENT, required=True, help="end of the snooze: a date or RFC 3339, UTC")
# Commands on one recommendation: name, what it records (empty: nothing), help, example, options.
_COMMANDS: tuple[tuple[str, Any, str, str, tuple[Decorator, ...]], ...] = (
    ("show", "", "Show one recommendation: prediction, measurement and history.", "", ()),
    ("accept", "accepted", "Accept a recommendation; it counts as open until it is done.", " --by ann", (_by, _why)),
    ("snooze", "snoozed", "Postpone a recommendation until a date.", " --until 2027-01-15", (_by, _why, _until)),
    ("dismiss", "dismissed", "Reject a recommendation, with a reason.", " --why 'no time'", (_by, _must_why)),
    ("reopen", "reopened", "Take a decision back; the recommendation is proposed again.", " --why 'over'", (_by, _why)),
)
for _name, _act, _help, _example, _options in _COMMANDS:
    ledger.command(
        _name,
        help=f"{_help}\n\nID: recommendation: its ID (4 characters or more), its workload or its node.",
        epilog=examples(f"skuwise ledger {_name} r-5603c79e{_example}"),
    )(
        joined(click.argument("recommendation", metavar="ID"), place_options, *_options)(
            partial(decide, act=_act) if _act else show
        )
    )


def find_entry(name: str, place: LedgerPlace) -> tuple[State, LedgerEntry]:
    """The entry of an id or its beginning, of a workload's or node's name, or of ``name@node``; and its state file.
    Raises AmbiguousError for several, UsageError for none, NothingToDo where the ledger is empty."""
    from ..core.formatting import usd
    from ..core.ids import Named, resolve

    entries = [(file, entry) for file, _, of_file in place.ledgers() for entry in of_file]
    if not entries:
        raise NothingToDo("The ledger is empty.", f"Run '{program()} advise' to record recommendations.")
    names: dict[str, Named] = {}
    for _, entry in entries:
        r, nodes = entry.recommendation, entry.snapshot.yardstick.nodes if entry.snapshot is not None else ()
        cost = f"saves {usd(r.saving_usd_per_month.p50)}/month" if r.saving_usd_per_month else ""
        last = day(entry.last_proposed)
        names[r.id] = Named(r.id, f"{r.action} of {entry.about}", entry.about, nodes, (), last, cost)
    remedy = f"'{program()} ledger list --all' lists every ID."
    match = resolve(name, list(names.values()), "in the ledger", remedy, partial(typed_with, name))
    matches = [pair for pair in entries if pair[1].recommendation.id == match.id]
    if len(matches) > 1:
        remedy = f"Select one with --state PATH; '{program()} ledger list' shows their paths."
        raise UsageError(f"{match.id} is in {len(matches)} ledgers.", remedy)
    return matches[0]


def decision_event(act: Act, now: float, by: str | None, until: float | None, why: str | None) -> LedgerEvent:
    """A decision as it is kept. `by` None: the user of this process. Raises UsageError where something is missing."""
    from ..state.ledger import LedgerEvent

    reason = _stored_text(why)
    if act == "snoozed" and (until is None or until <= now):
        past = f"{minute(until)} is in the past" if until is not None else "No end of the snooze is given"
        raise UsageError(f"{past}.", f"Set --until to a future date; the time of this machine is {minute(now)}.")
    if act == "dismissed" and reason is None:
        raise UsageError("The reason is empty.", "Set --why to the reason of the decision.")
    return LedgerEvent(act, now, deciding_user(by), until, reason)


def deciding_user(by: str | None) -> str:
    """The name of who decides: the one that was typed, else the user of this process."""
    if named := _stored_text(by):
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user here: a container's number
        return f"user {os.getuid()}"


def _stored_text(typed: str | None) -> str | None:
    from ..state.file import sqlite_text

    return sqlite_text((typed or "").strip()[:_TYPED_MAX]) or None
