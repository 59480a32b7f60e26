"""What stands in a ledger's tables: their form, and how recommendations, events and mails are written and read back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import partial
from typing import Any

from sqlite_utils import Database

from ...moves.tracking.observation import PredictionSnapshot
from ..entries import EXPIRES_AFTER_SECONDS, LedgerEntry, LedgerEvent, Proposal
from ..guard import (
    FLAG,
    MOMENT,
    NUMBER,
    OPTIONAL_MOMENT,
    OPTIONAL_NUMBER,
    OPTIONAL_TEXT,
    TEXT,
    WHOLE,
    CellRule,
    FileForm,
    Guarded,
)
from ..identity import FLEETS_FORM, begin_fleets
from ..records import NO_FIGURES, EventFigures, from_json, to_json

APPLICATION_ID = 0x736B756C  # "skul"
VERSION = 1004  # PRAGMA user_version: major x 1000 + minor; a minor step only adds

_PROPOSAL, _EVENT = ([f.name for f in fields(kind)] for kind in (Proposal, LedgerEvent))
# What is dated so much later than now was dated by a clock that ran ahead, or now is told by one that is behind.
CLOCK_DOUBT_SECONDS = 86400.0
_ONLY_ADDED = (
    "CREATE TRIGGER events_are_not_{past} BEFORE {verb} ON events "
    "BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END"
)


FORM = FileForm(
    {
        "recommendations": {
            "id": TEXT, "action": TEXT, "about": TEXT, "source_config": TEXT, "target_config": TEXT,
            "saving_usd_per_month": OPTIONAL_NUMBER, "freed_gpu_hours_per_month": NUMBER, "realisation": TEXT,
            "risk": TEXT, "blocked": FLAG, "text": TEXT, "source": TEXT, "first_proposed": MOMENT,
            "last_proposed": MOMENT,
            "ground": CellRule(str, optional=True, read=partial(from_json, PredictionSnapshot)),
        },
        "events": {
            "seq": WHOLE, "recommendation": TEXT, "act": TEXT, "at": MOMENT, "by": TEXT, "until": OPTIONAL_MOMENT,
            "why": OPTIONAL_TEXT, "figures": CellRule(str, optional=True, read=partial(from_json, EventFigures)),
        },
        "mailed": {
            "seq": WHOLE, "recipient": TEXT, "recommendation": TEXT, "at": MOMENT, "week": OPTIONAL_MOMENT,
            "event": WHOLE,
        },
        **FLEETS_FORM,
    },
    triggers={
        f"events_are_not_{past}": _ONLY_ADDED.format(verb=verb, past=past)
        for verb, past in (("UPDATE", "changed"), ("DELETE", "deleted"))
    },
)  # fmt: skip


def begin_tables(db: Database) -> None:
    db.table("recommendations").create(FORM.kinds("recommendations"), pk="id")
    db.table("events").create(
        FORM.kinds("events"), pk="seq", foreign_keys=[("recommendation", "recommendations", "id")],
        not_null={"recommendation", "act", "at", "by"},
    )  # fmt: skip
    db.table("mailed").create(FORM.kinds("mailed"), pk="seq", not_null={"recipient", "recommendation", "at"})
    begin_fleets(db)
    for verb, past in (("UPDATE", "changed"), ("DELETE", "deleted")):
        db.execute(_ONLY_ADDED.format(verb=verb, past=past))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")


def _keeps_its_ground(old: LedgerEntry, new: Proposal, now: float) -> bool:
    """What was accepted is measured against what was predicted then; what is blocked by now rests on nothing new."""
    decided = old.decision(now).state in ("accepted", "done")
    return new.ground is None or (decided and old.proposal.ground is not None)


def read_entries(file: Guarded) -> tuple[LedgerEntry, ...]:
    histories: dict[str, list[LedgerEvent]] = {}
    for row in file.rows("events", "ORDER BY seq"):
        values: dict[str, Any] = {name: row[name] for name in _EVENT} | {"figures": row["figures"] or NO_FIGURES}
        histories.setdefault(row["recommendation"], []).append(LedgerEvent(**values))
    found = []
    for row in file.rows("recommendations", "ORDER BY id"):
        values = {name: row[name] for name in _PROPOSAL} | {"blocked": bool(row["blocked"])}
        history = tuple(histories.get(row["id"], ()))
        found.append(LedgerEntry(Proposal(**values), row["first_proposed"], row["last_proposed"], history))
    return tuple(found)


def row_of(proposal: Proposal, old: LedgerEntry | None, now: float, seen_until: float | None) -> dict[str, Any]:
    """What is proposed at `now`, over what was before (None: it is new)."""
    values = {name: getattr(proposal, name) for name in _PROPOSAL}
    ground = proposal.ground
    first = last = now
    if old is not None:
        first, last = old.first_proposed, max(now, old.last_proposed)
        if last > now + CLOCK_DOUBT_SECONDS and not is_behind(now, seen_until):
            first, last = min(first, now), now
        ground = old.proposal.ground if _keeps_its_ground(old, proposal, now) else ground
    kept = to_json(ground) if ground is not None else None
    return {**values, "blocked": int(proposal.blocked), "ground": kept, "first_proposed": first, "last_proposed": last}


def is_behind(now: float, seen_until: float | None) -> bool:
    """Whether telemetry tells of a later time than the clock does: then it is not the ledger that is dated wrong."""
    return seen_until is not None and seen_until > now + CLOCK_DOUBT_SECONDS


def is_over(entry: LedgerEntry, now: float, seen_until: float | None) -> bool:
    """Whether it is expired by the clock, and by what telemetry tells of the time since, as far as it does."""
    if entry.decision(now).state != "expired":
        return False
    ground = entry.proposal.ground
    if ground is None or seen_until is None or seen_until < ground.seen_until:
        return True
    return seen_until - ground.seen_until >= EXPIRES_AFTER_SECONDS


def regressions(file: Guarded) -> list[dict[str, Any]]:
    return file.rows("events", "WHERE act = 'regressed' ORDER BY seq")


def add_events(db: Database, events: Iterable[tuple[str, LedgerEvent]]) -> None:
    """Add events, each to the recommendation it is of."""
    db.table("events").insert_all(
        {
            "recommendation": id_,
            **{name: getattr(event, name) for name in _EVENT},
            "figures": to_json(event.figures) if event.figures != NO_FIGURES else None,
        }
        for id_, event in events
    )
