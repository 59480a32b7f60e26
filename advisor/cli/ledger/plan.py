"""``skuwise ledger plan``: the plan that is followed, step by step, and what it has saved."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ....rules.base.errors import EXIT_DONE, NothingToDo, StoreError, UsageError
from ....rules.base.output import say, write_json, write_stdout
from ....rules.base.sanitize import clean
from ...core.timestamps import day
from ...ledger.plans.records import KeptPlan, PlanEvent
from ...ledger.plans.standing import standing_of
from ...ledger.plans.words import history_line, plan_dict
from ...render.text import document_text
from ...views.document.plan_progress import plan_progress
from ..output import terminal_width, wants_color
from .decisions import deciding_user, typed_text
from .entries import LedgerEntries, add_place, open_ledgers

SCHEMA = "skuwise.ledger-plan/1"
_SHORTEST = 4

EXAMPLES = (
    "skuwise ledger plan",
    "skuwise ledger plan --format json",
    "skuwise ledger plan --drop --why 'budget approved until June'",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", help="plan: its ID (default: the plan that is followed)")
    add_place(parser)
    parser.add_argument("--all", action="store_true", help="also list plans that were replaced or dropped")
    parser.add_argument("--drop", action="store_true", help="stop following the plan; it stays in the history")
    parser.add_argument("--why", metavar="REASON", help="with --drop: reason of the decision")
    parser.add_argument("--by", metavar="NAME", help="with --drop: name of the person (default: your user name)")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output format (default: table)")


@dataclass(frozen=True)
class _Found:
    """A plan, and the ledger that holds it."""

    beside: LedgerEntries
    plan: KeptPlan


def run(options: argparse.Namespace) -> int:
    """Print the plans that are followed, or the one that is asked for; or drop one."""
    _check(options)
    now = time.time()
    every = _every(options.ledger)
    shown = _asked(every, options.id)
    if options.drop:
        return _drop(shown, options, now)
    standings = [(f, standing_of(f.plan, f.beside.entries, now)) for f in shown]
    past = [f.plan for f in every if f not in shown] if options.all else []
    if options.format == "json":
        plans = [plan_dict(s, f.beside.fleet) for f, s in standings]
        others = [
            plan_dict(standing_of(f.plan, f.beside.entries, now), f.beside.fleet) for f in every if f.plan in past
        ]
        write_json({"schema": SCHEMA, "plans": [*plans, *others]})
        return EXIT_DONE
    several = len({id(f.beside) for f in every}) > 1
    pages = [
        plan_progress(s, (f.beside.fleet or "unknown") if several else None, _seen_until(f.beside), now)
        for f, s in standings
    ]
    texts = [document_text(page, width=terminal_width(), color=wants_color()) for page in pages]
    if past:
        texts.append("Earlier plans\n" + "".join(f"{history_line(plan, now)}\n" for plan in reversed(past)))
    write_stdout("\n".join(texts))
    return EXIT_DONE


def _every(asked: Path | None) -> list[_Found]:
    """All plans. A ledger whose plans cannot be read is said and left out, unless there is no other plan, or it was
    named. Raises NothingToDo, StoreError, UsageError."""
    found: list[_Found] = []
    first: StoreError | None = None
    for one in open_ledgers(asked):
        try:
            found += [_Found(one, plan) for plan in one.ledger.plans()]
        except StoreError as error:
            if asked is not None:
                raise
            first = first or error
            say(f"left out: {clean(str(error))}")
    if first is not None and not found:
        raise first
    return found


def _check(options: argparse.Namespace) -> None:
    if options.drop and typed_text(options.why) is None:
        raise UsageError("The reason is missing.", "Set --why to the reason of the decision.")
    if not options.drop and (options.why is not None or options.by is not None):
        raise UsageError("--why and --by need --drop.", "Add --drop.")


def _asked(every: Sequence[_Found], asked: str | None) -> list[_Found]:
    """The plans that are followed, or the one whose id begins so. Raises NothingToDo, UsageError."""
    if not every:
        raise NothingToDo("No plan in the ledger.", "Run 'skuwise plan SOURCE --keep' to follow one.")
    if asked is None:
        found = [f for f in every if f.plan.state == "followed"]
        if not found:
            raise NothingToDo(
                f"No plan is followed; the last one ended on {day(_ended(every[-1].plan))}.",
                "Run 'skuwise plan SOURCE --keep' to follow one, or 'skuwise ledger plan "
                f"{every[-1].plan.id}' to show the last one.",
            )
        return found
    found = [f for f in every if len(asked) >= _SHORTEST and f.plan.id.startswith(asked)]
    if not found:
        raise UsageError(f"Unknown plan {asked!r}.", "'skuwise ledger plan --all' lists every ID.")
    if len(found) > 1:
        raise UsageError(f"{len(found)} plans begin with {asked!r}.", "Use more characters of the ID.")
    return found


def _ended(plan: KeptPlan) -> float:
    return next((e.at for e in reversed(plan.events) if e.act in ("superseded", "dropped")), plan.kept_at)


def _drop(shown: Sequence[_Found], options: argparse.Namespace, now: float) -> int:
    if len(shown) > 1:
        ids = ", ".join(f.plan.id for f in shown)
        raise UsageError(
            f"{len(shown)} fleets follow a plan ({ids}).", "Name one of them: skuwise ledger plan ID --drop."
        )
    plan = shown[0].plan
    if plan.state != "followed":
        raise UsageError(f"The plan {plan.id} is not followed: it is {plan.state}.", "Run 'skuwise ledger plan --all'.")
    event = PlanEvent("dropped", now, deciding_user(options.by), typed_text(options.why))
    shown[0].beside.ledger.end_plan(plan.id, event)
    say(f"Plan {plan.id} of {day(plan.kept_at)} is no longer followed: {clean(event.why or '')}")
    return EXIT_DONE


def _seen_until(one: LedgerEntries) -> float | None:
    """The end of the newest telemetry that the ledger was written by (Unix seconds); None: it does not tell."""
    return max((fleet.last_seen for fleet in one.ledger.fleets()), default=None)
