"""What stands in the file of incidents: its tables, and incidents and events as their rows and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from sqlite_utils import Database

from ...rules.base.quantities import YEAR_10000
from ..core.codec import Codec
from ..core.incident_types import EventKind, Incident, IncidentEvent, IncidentState, Resolution, Sighting
from .guard import (
    FLAG,
    MOMENT,
    NUMBER,
    OPTIONAL_MOMENT,
    OPTIONAL_TEXT,
    TEXT,
    WHOLE,
    CellRule,
    FileForm,
    bounded_json,
    sqlite_text,
)

APPLICATION_ID = 0x736B7569  # "skui"
VERSION = 1000  # PRAGMA user_version: major x 1000 + minor; a minor step only adds
_CODEC = Codec(largest=1e300)
_DAY = 86400.0


def _read_sighting(text: str) -> Sighting:
    """A sighting of its JSON. Raises ValueError for what no watch found."""
    found = _CODEC.decode(Sighting, bounded_json(text))
    moments = (found.since, found.last_work if found.last_work is not None else found.since)
    if not all(0.0 <= one <= YEAR_10000 for one in moments) or found.gpu_hours < 0:
        raise ValueError("it has an invalid time or amount")
    return found


_AMOUNT = CellRule(float, least=0.0)
FORM = FileForm(
    {
        "incidents": {
            "id": TEXT, "state": CellRule(str, words=get_args(IncidentState)), "opened_at": MOMENT, "since": MOMENT,
            "updated_at": MOMENT, "last_seen_at": MOMENT, "gpu_hours": _AMOUNT,
            "cost_usd": replace(NUMBER, optional=True), "silent_since": OPTIONAL_MOMENT,
            "acknowledged_at": OPTIONAL_MOMENT, "acknowledged_by": OPTIONAL_TEXT, "snoozed_until": OPTIONAL_MOMENT,
            "resolved_at": OPTIONAL_MOMENT,
            "resolution": CellRule(str, optional=True, words=get_args(Resolution)), "reminders": WHOLE,
            "told_at": OPTIONAL_MOMENT, "data_until": OPTIONAL_MOMENT, "reopenings": WHOLE, "resolution_told": FLAG,
            # Of the file's own time (`clock`), which no clock that jumps moves far.
            "ended_lived": replace(_AMOUNT, optional=True), "sighting": CellRule(str, read=_read_sighting),
        },
        "events": {
            "incident": TEXT, "number": CellRule(int, least=-9, most=2**53),
            "kind": CellRule(str, words=get_args(EventKind)), "at": MOMENT, "settled": FLAG,
        },
        "queued": {"incident": TEXT, "number": CellRule(int, least=-9, most=2**53), "recipient": TEXT, "batch": TEXT,
                   "at": MOMENT},
        "clock": {"id": WHOLE, "at": MOMENT, "lived_seconds": _AMOUNT},
    }
)  # fmt: skip
_COLUMNS = tuple(FORM.tables["incidents"])
# What people decide is theirs: a pass that began before a decision does not undo it.
_THEIRS = ("id", "acknowledged_at", "acknowledged_by", "snoozed_until", "state", "ended_lived")
_UPSERT = f"""
    INSERT INTO incidents ({", ".join(_COLUMNS)}) VALUES ({", ".join("?" * len(_COLUMNS))})
    ON CONFLICT (id) DO UPDATE SET {", ".join(f"{one} = excluded.{one}" for one in _COLUMNS if one not in _THEIRS)},
        state = CASE WHEN excluded.resolved_at IS NOT NULL THEN 'resolved'
            WHEN acknowledged_at IS NOT NULL THEN 'acknowledged' ELSE 'open' END,
        ended_lived = CASE WHEN excluded.resolved_at IS NULL THEN NULL
            ELSE coalesce(ended_lived, excluded.ended_lived) END
"""  # noqa: S608 - names of ours
# A reminder of what somebody acknowledged or snoozed meanwhile is none any more.
_EVENT = """
    INSERT OR IGNORE INTO events (incident, number, kind, at, settled) SELECT ?1, ?2, ?3, ?4, 0 WHERE NOT EXISTS
        (SELECT 1 FROM incidents WHERE id = ?1 AND ?3 = 'reminded'
            AND (acknowledged_at IS NOT NULL OR snoozed_until > ?4))
"""


def begin_tables(db: Database) -> None:
    tables = FORM.tables
    db.table("incidents").create(FORM.kinds("incidents"), pk="id", not_null=_needed("incidents"))
    db.table("events").create(FORM.kinds("events"), pk=("incident", "number"), not_null=_needed("events"))
    db.table("queued").create(
        FORM.kinds("queued"), pk=("incident", "number", "recipient"), not_null=set(tables["queued"])
    )
    db.table("clock").create(FORM.kinds("clock"), pk="id", not_null=set(tables["clock"]))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")


def _needed(table: str) -> set[str]:
    return {name for name, column in FORM.tables[table].items() if not column.optional}


def write_incidents(db: Database, incidents: tuple[Incident, ...], lived_seconds: float) -> None:
    """Write incidents over what is there of them. `lived_seconds`: the file's own time."""
    db.conn.executemany(_UPSERT, [_row(one, lived_seconds) for one in incidents])


def write_events(db: Database, events: tuple[IncidentEvent, ...]) -> None:
    db.conn.executemany(_EVENT, [(one.incident_id, one.number, one.kind, float(one.at)) for one in events])


def _row(one: Incident, lived_seconds: float) -> tuple[Any, ...]:
    values: dict[str, Any] = {name: getattr(one, name, None) for name in _COLUMNS}
    values["sighting"] = json.dumps(_CODEC.encode(one.sighting), separators=(",", ":"), allow_nan=False)
    values["ended_lived"] = None if one.resolved_at is None else lived_seconds
    for name, column in FORM.tables["incidents"].items():
        if column.kind is float and values[name] is not None:
            values[name] = float(values[name])  # NumPy's are none of SQLite's
    values["acknowledged_by"] = None if one.acknowledged_by is None else sqlite_text(one.acknowledged_by)
    return tuple(values[name] for name in _COLUMNS)


def incident_of(row: Mapping[str, Any]) -> Incident:
    """An incident of its row, which was looked at."""
    values = {name: value for name, value in row.items() if name != "ended_lived"}
    return Incident(**{**values, "resolution_told": bool(row["resolution_told"])})


def event_of(row: Mapping[str, Any]) -> IncidentEvent:
    return IncidentEvent(row["incident"], row["kind"], row["number"], row["at"])


def advanced_clock(at: float, lived_seconds: float, now: float) -> float:
    """The file's own time after something was written at `now`: a clock that jumps moves it by a day at most, and never
    back."""
    return lived_seconds + min(max(now - at, 0.0), _DAY)
