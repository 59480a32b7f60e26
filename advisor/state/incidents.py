"""The file of incidents: their state, what people are to be told of them, and who was told. One SQLite file.

What a pass changes is written in one transaction, so that a watcher that is killed at any moment loses no incident and
tells of none twice. What people decide (acknowledge, snooze) is never undone by a pass that had begun before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from sqlite_utils import Database

from ...agent.store.reader import Bounds, bounds_of
from ...rules.base.errors import SkuwiseError, StoreError, UsageError
from ...rules.base.sanitize import quoted
from ..core.incident_types import Advance, Incident, IncidentEvent
from ..core.timestamps import minute
from .files import begin_file, check_place, locked
from .guard import UNREADABLE, Guarded, check_pages, guarded, reason, sqlite_text
from .incident_lookup import find_incident
from .incident_rows import (
    APPLICATION_ID,
    FORM,
    VERSION,
    advanced_clock,
    begin_tables,
    event_of,
    incident_of,
    write_events,
    write_incidents,
)
from .paths import default_ledgers

_BUSY_SECONDS = 10.0
# A sighting of a thousand GPUs takes 60 kB, one of eight 2 kB; ten thousand incidents are open at most.
_MOST_BYTES, _CELL_BYTES = 1 << 30, 4 << 20
_DAY = 86400.0
_KEPT_SECONDS = 90 * _DAY
_ELSEWHERE = "Use another file with --state, or set watch.state."


class DamagedIncidentsError(StoreError):
    """The file holds what no skuwise wrote: trying again does not help."""


def default_incidents(environ: Mapping[str, str]) -> Path:
    """``incidents.db`` beside the ledger's usual place. Raises UsageError where there is none."""
    ledger = default_ledgers(environ)
    if ledger is None:
        raise UsageError("No home folder for the incidents file.", "Set watch.state.")
    return ledger.with_name("incidents.db")


class IncidentStore:
    """The incidents of one watch. Each call opens the file for as long as it takes; `watching` keeps a second watcher
    out. A file that is not there is empty; it is begun by the first `commit`. Every call raises StoreError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Hold the file for one watcher. Raises SkuwiseError where another holds it; a killed one holds nothing."""
        with ExitStack() as held:
            try:
                held.enter_context(locked(self.path.with_name(f"{self.path.name}.lock"), alone=True))
            except BlockingIOError as error:
                raise SkuwiseError(
                    f"Another skuwise watch uses {self.path}.", "Stop it first, or use another file with --state."
                ) from error
            except OSError as error:
                raise self._unusable(error) from error
            with self._writing(thorough=True):
                pass
            yield

    def current(self) -> tuple[Incident, ...]:
        """What the next pass starts from: incidents that are not resolved, those of which nobody was told yet that they
        are, and those that were resolved within the last day."""
        with self._reading() as file:
            if file is None:
                return ()
            lived = _clock(file)[1]
            rows = file.rows(
                "incidents",
                "WHERE resolved_at IS NULL OR resolution_told = 0 OR ended_lived >= ? ORDER BY opened_at, id",
                [lived - _DAY],
            )
            return tuple(map(incident_of, rows))

    def listed(self, *, resolved_since: float | None = None) -> tuple[Incident, ...]:
        """What people see: incidents that are not resolved, and those resolved since `resolved_since` (Unix seconds;
        None: none of them)."""
        with self._reading() as file:
            if file is None:
                return ()
            where = "WHERE resolved_at IS NULL OR resolved_at >= ? ORDER BY opened_at, id"
            return tuple(map(incident_of, file.rows("incidents", where, [resolved_since])))

    def commit(self, advance: Advance) -> None:
        """Write what a pass changed, all of it or nothing."""
        moments = [*(one.updated_at for one in advance.incidents), *(one.at for one in advance.events)]
        if not moments:
            return
        with self._writing() as (db, file):
            at, lived = _clock(file)
            now = float(max(moments))
            lived = advanced_clock(at, lived, now) if at is not None else 0.0
            db.execute("INSERT OR REPLACE INTO clock (id, at, lived_seconds) VALUES (1, ?, ?)", [now, lived])
            write_incidents(db, advance.incidents, lived)
            write_events(db, advance.events)
            old = "(SELECT id FROM incidents WHERE ended_lived < ?)"
            for table in ("queued", "events"):
                db.execute(f"DELETE FROM {table} WHERE incident IN {old}", [lived - _KEPT_SECONDS])  # noqa: S608 - ours
            db.execute("DELETE FROM incidents WHERE ended_lived < ?", [lived - _KEPT_SECONDS])

    def untold(self) -> tuple[tuple[IncidentEvent, Incident], ...]:
        """The events that are not settled, the oldest first, each with its incident as it is now."""
        with self._reading() as file:
            if file is None:
                return ()
            events = [event_of(row) for row in file.rows("events", "WHERE settled = 0 ORDER BY rowid")]
            of = "WHERE id IN (SELECT incident FROM events WHERE settled = 0)"
            incidents = {row["id"]: incident_of(row) for row in file.rows("incidents", of)}
        return tuple((event, incidents[event.incident_id]) for event in events if event.incident_id in incidents)

    def told(self, event: IncidentEvent) -> frozenset[str]:
        """The recipients for whom this event was queued."""
        with self._reading() as file:
            if file is None:
                return frozenset()
            rows = file.rows("queued", "WHERE incident = ? AND number = ?", [event.incident_id, event.number])
            return frozenset(row["recipient"] for row in rows)

    def note_queued(self, batch: str, events: Sequence[IncidentEvent], recipient: str, now: float) -> None:
        """Note that a message about these events was queued for a recipient. `batch` names the message; `now`: Unix
        seconds."""
        sql = "INSERT OR IGNORE INTO queued (incident, number, recipient, batch, at) VALUES (?, ?, ?, ?, ?)"
        to, what = sqlite_text(recipient), sqlite_text(batch)
        with self._writing() as (db, _):
            db.conn.executemany(sql, [(one.incident_id, one.number, to, what, float(now)) for one in events])

    def settle(self, events: Sequence[IncidentEvent]) -> None:
        """Note that nobody is to be told of these any more."""
        sql = "UPDATE events SET settled = 1 WHERE incident = ? AND number = ?"
        with self._writing() as (db, _):
            db.conn.executemany(sql, [(one.incident_id, one.number) for one in events])

    def acknowledge(self, incident_id: str, by: str, now: float) -> Incident:
        """Note that somebody takes care of it: no reminders, until it is resolved. Gives it as it is now. `incident_id`
        may be the beginning of one. Raises UsageError where it names none, several, or one that is resolved."""
        return self._decide(
            incident_id, lambda one: replace(one, state="acknowledged", acknowledged_at=now, acknowledged_by=by)
        )

    def snooze(self, incident_id: str, until: float, now: float) -> Incident:
        """Note that nobody is reminded of it before `until`. Otherwise as `acknowledge`. Raises UsageError where that
        is past."""
        if not until > now:
            raise UsageError(
                f"{minute(until)} is in the past.", f"Set a later date; the time of this machine is {minute(now)}."
            )
        return self._decide(incident_id, lambda one: replace(one, snoozed_until=until))

    def _decide(self, asked: str, decided: Callable[[Incident], Incident]) -> Incident:
        if not self.path.exists():
            raise UsageError(f"No incident matches {quoted(asked)}: there are none yet.", "Run 'skuwise watch SOURCE'.")
        with self._writing() as (db, file):
            one = find_incident([incident_of(row) for row in file.rows("incidents")], asked)
            if one.resolved_at is not None:
                raise UsageError(
                    f"Incident {one.id} was resolved on {minute(one.resolved_at)}.",
                    "Run 'skuwise incidents list' for the open ones.",
                )
            after = decided(one)
            by = None if after.acknowledged_by is None else sqlite_text(after.acknowledged_by)
            db.execute(
                "UPDATE incidents SET state = ?, acknowledged_at = ?, acknowledged_by = ?, snoozed_until = ? "
                "WHERE id = ?",
                [after.state, after.acknowledged_at, by, after.snoozed_until, one.id],
            )
            return after

    @contextmanager
    def _reading(self) -> Iterator[Guarded | None]:
        """The file as it is; None: there is none, or nothing in it yet."""
        if not self.path.exists():
            yield None
            return
        with self._told():
            check_place(self.path, alone=True)
            try:
                with self._opened():
                    pass
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorname", "") != "SQLITE_READONLY_ROLLBACK":
                    raise
                # A watcher was killed while it wrote: whoever may write undoes that.
                with guarded(self.path, mode="rw", busy_seconds=_BUSY_SECONDS) as (connection, _):
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("ROLLBACK")
            with self._opened() as file:
                yield file

    @contextmanager
    def _opened(self) -> Iterator[Guarded | None]:
        with guarded(self.path, mode="ro", busy_seconds=_BUSY_SECONDS, bounds=_bounds) as (connection, meter):
            connection.execute("BEGIN")
            yield Guarded(connection, FORM, meter) if self._is_ours(connection) else None

    @contextmanager
    def _writing(self, *, thorough: bool = False) -> Iterator[tuple[Database, Guarded]]:
        """The file, made where it is not there, within one transaction that the end commits. `thorough`: its pages are
        looked through first."""
        with self._told():
            begin_file(self.path, alone=True)  # incidents name users and money
            check_place(self.path, alone=True)
            with guarded(self.path, mode="rw", busy_seconds=_BUSY_SECONDS, bounds=_bounds) as (connection, meter):
                # The folder is synced too: a rollback that came back would tell again what was told.
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("BEGIN IMMEDIATE")
                db = Database(connection, recursive_triggers=False, execute_plugins=False)
                if not self._is_ours(connection):
                    begin_tables(db)
                elif thorough:
                    Guarded(connection, FORM, meter)
                    check_pages(connection, meter)
                yield db, Guarded(connection, FORM, meter)
                connection.execute("COMMIT")  # without it, closing rolls back

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What SQLite and the file system raise, as one sentence with its remedy."""
        try:
            yield
        except OSError as error:
            raise self._unusable(error) from error
        except UNREADABLE as error:
            raise self._unreadable(error) from error

    def _unusable(self, error: OSError) -> StoreError:
        return StoreError(f"The incidents file {self.path} cannot be used: {error.strerror}.", _ELSEWHERE)

    def _unreadable(self, error: Exception) -> StoreError:
        name = getattr(error, "sqlite_errorname", "")
        sentence = f"The incidents file {self.path} cannot be used: {reason(error)}."
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            return StoreError(sentence, "Nothing is lost: make room on the disk, then try again.")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StoreError(
                f"The incidents file {self.path} is locked by another process.", "Try again after it ends."
            )
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            return StoreError(sentence, _ELSEWHERE)
        return DamagedIncidentsError(
            sentence,
            "Recover it (sqlite3 FILE .recover), or move it elsewhere: open incidents are then reported again.",
        )

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Whether the file was begun; False: it is empty. Raises StoreError for one that is not ours, or of a newer
        skuwise."""
        number = int(connection.execute("PRAGMA application_id").fetchone()[0])
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if number == APPLICATION_ID:
            if version // 1000 > VERSION // 1000:
                raise StoreError(
                    f"The incidents file {self.path} was written by a newer skuwise.", "Update skuwise here."
                )
            return True
        if number or version or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise DamagedIncidentsError(
                f"{self.path} is a database, but not an incidents file; it was not changed.", _ELSEWHERE
            )
        return False


def _clock(file: Guarded) -> tuple[float | None, float]:
    """When the last pass was written (Unix seconds), and the file's own time; (None, 0): no pass yet."""
    rows = file.rows("clock", "WHERE id = 1")
    return (rows[0]["at"], rows[0]["lived_seconds"]) if rows else (None, 0.0)


def _bounds(on_disk: int) -> Bounds:
    """What one look into the file may cost. Raises sqlite3.DataError where it is too large to be one."""
    if on_disk > _MOST_BYTES:
        raise sqlite3.DataError(f"it is larger than {_MOST_BYTES >> 30} GiB")
    return replace(bounds_of(on_disk), cell_bytes=_CELL_BYTES)
