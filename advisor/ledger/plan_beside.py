"""A fleet's plan beside its ledger: kept, followed, and read with where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...rules.base.errors import NothingToDo, StoreError
from ..core.advice_types import Advice
from ..moves.tracking.observation import observation_of
from .entries import LedgerEntry, LedgerEvent
from .file.plan_rows import followed
from .file.store import Ledger
from .identity import fleet_key
from .plans.follow import plan_events
from .plans.records import KeptPlan, PlanEvent
from .plans.standing import PlanStanding, standing_of
from .plans.words import first_words


def follow_plan(ledger: Ledger, advice: Advice, now: float, say: Callable[[str], None]) -> None:
    """Note what the advice's telemetry tells of the plan that its fleet follows, and say what is new. A ledger that
    cannot be read or written is said."""
    if advice.fleet is None:
        return
    told: list[PlanEvent] = []

    def happened(plan: KeptPlan) -> list[PlanEvent]:
        told[:] = plan_events(plan, observation_of(advice), now, done)
        return told

    try:
        done = _done(ledger.entries(), now)
        ledger.note_plan(fleet_key(advice.fleet), happened)
    except NothingToDo:
        return
    except StoreError as error:
        say(f"the plan is not followed: {error}")
        return
    for line in first_words(told):
        say(line)


def plan_beside(ledger: Ledger, entries: Iterable[LedgerEntry], advice: Advice, now: float) -> PlanStanding | None:
    """The plan that the advice's fleet follows, with what its telemetry tells beside what is noted. None: it follows
    none. Raises NothingToDo, StoreError."""
    plan = followed(ledger.plans(), fleet_key(advice.fleet)) if advice.fleet is not None else None
    if plan is None:
        return None
    entries = tuple(entries)
    told = plan_events(plan, observation_of(advice), now, _done(entries, now))
    return standing_of(replace(plan, events=(*plan.events, *told)), entries, now)


def _done(entries: Iterable[LedgerEntry], now: float) -> frozenset[str]:
    return frozenset(entry.proposal.id for entry in entries if entry.decision(now).state == "done")


def accepting(plan: KeptPlan, entries: Iterable[LedgerEntry], event: LedgerEvent) -> dict[str, LedgerEvent]:
    """The event for each recommendation of the plan's steps that nobody has accepted and that is not done."""
    known = {entry.proposal.id: entry.decision(event.at).state for entry in entries}
    asked = [s.recommendation for s in plan.steps if s.recommendation is not None]
    return {id_: event for id_ in asked if known.get(id_) not in (None, "accepted", "done")}
