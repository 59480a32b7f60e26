"""Incidents in the state file, and their events to notify people of. A pass of the watch reads `current` and
commits what it made of it in one transaction: no decision of a person comes in between."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

from sqlite_utils import Database

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted
from ..core.incident_types import Advance, Incident, IncidentEvent, Sighting
from ..core.timestamps import minute
from .file import cells, from_json, sqlite_text

_DAY = 86400.0
# What ended within a day may go on. The newest pass is dated a day ahead where the clock was, so that it is a day more.
_CURRENT_SECONDS = 2 * _DAY
KEPT_SECONDS = 90 * _DAY
_COLUMNS = tuple(field.name for field in fields(Incident))
_NEWEST = "(SELECT max(updated_at) FROM incidents)"


def current(db: Database) -> tuple[Incident, ...]:
    """What the next pass starts from: incidents that are not resolved, those whose end was not reported
    yet, and those resolved within the last day (within two, as clocks may be set)."""
    where = f"resolved_at IS NULL OR resolution_told = 0 OR resolved_at >= {_NEWEST} - ?"
    return _incidents(db, where, [_CURRENT_SECONDS])


def listed(db: Database, resolved_since: float | None = None) -> tuple[Incident, ...]:
    """What people see: incidents that are not resolved, and those resolved since `resolved_since` (Unix seconds; None:
    none of them)."""
    return _incidents(db, "resolved_at IS NULL OR resolved_at >= ?", [resolved_since])


def commit(db: Database, advance: Advance) -> None:
    """Write what a pass changed; forget what was resolved more than 90 days before the newest pass."""
    incidents = [cells(**{name: getattr(incident, name) for name in _COLUMNS}) for incident in advance.incidents]
    db.table("incidents").upsert_all(incidents, pk="id")
    events = [cells(incident=e.incident_id, number=e.number, kind=e.kind, at=e.at) for e in advance.events]
    db.table("incident_events").insert_all(events, pk=("incident", "number"), ignore=True)
    old = f"SELECT id FROM incidents WHERE resolved_at < {_NEWEST} - ?"  # noqa: S608 - ours
    db.execute(f"DELETE FROM incident_events WHERE incident IN ({old})", [KEPT_SECONDS])  # noqa: S608 - ours
    db.execute(f"DELETE FROM incidents WHERE id IN ({old})", [KEPT_SECONDS])  # noqa: S608 - ours


def untold(db: Database, unprinted: bool = False) -> tuple[tuple[IncidentEvent, Incident], ...]:
    """The events that are not settled, the oldest first, each with its incident as it is now. `unprinted`: without
    those that a dry run has printed."""
    where = "settled = 0 AND printed = 0" if unprinted else "settled = 0"
    events = db.query(f"SELECT * FROM incident_events WHERE {where} ORDER BY rowid")  # noqa: S608 - ours
    selected = _incidents(db, f"id IN (SELECT incident FROM incident_events WHERE {where})")  # noqa: S608 - ours
    incidents = {incident.id: incident for incident in selected}
    return tuple(
        (IncidentEvent(row["incident"], row["kind"], row["number"], row["at"]), incidents[row["incident"]])
        for row in events
    )


def mark(db: Database, done: Literal["settled", "printed"], events: Iterable[IncidentEvent]) -> None:
    """Note events that need no message any more, or that a dry run has printed."""
    sql = f"UPDATE incident_events SET {done} = 1 WHERE incident = ? AND number = ?"  # noqa: S608 - ours
    db.conn.executemany(sql, [(event.incident_id, event.number) for event in events])


def acknowledge(db: Database, incident_id: str, by: str, now: float) -> Incident:
    """Note that somebody takes care of an incident: no reminders, until it is resolved. Returns it as it is now. `now`:
    Unix seconds. Raises UsageError for one that is resolved or not there."""
    changes = {"state": "acknowledged", "acknowledged_at": now, "acknowledged_by": sqlite_text(by)}
    return _decide(db, incident_id, changes)


def snooze(db: Database, incident_id: str, until: float) -> Incident:
    """Send no reminder of an incident before `until` (Unix seconds). Otherwise as `acknowledge`."""
    return _decide(db, incident_id, {"snoozed_until": until})


def _decide(db: Database, incident_id: str, changes: dict[str, Any]) -> Incident:
    what = f"No incident {quoted(incident_id)}."
    for before in _incidents(db, "id = ?", [incident_id]):
        if before.resolved_at is None:
            db.table("incidents").update(incident_id, changes)
            return replace(before, **changes)
        what = f"Incident {before.id} was resolved on {minute(before.resolved_at)}."
    raise UsageError(what, "Run 'skuwise incidents list' for the open ones.")


def _incidents(db: Database, where: str, parameters: Sequence[object] = ()) -> tuple[Incident, ...]:
    sql = f"SELECT * FROM incidents WHERE {where} ORDER BY opened_at, id"  # noqa: S608 - ours
    return tuple(
        Incident(**{
            **row, "sighting": from_json(Sighting, row["sighting"]), "resolution_told": bool(row["resolution_told"])
        })
        for row in db.query(sql, parameters)
    )  # fmt: skip
