"""The ledger's file: an SQLite database with one row a recommendation and a table of events that only grows.

A rollback journal, not a write-ahead log: the file may lie on a read-only disk or be copied, and is written seldom.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from ...agent.store.reader import Bounds, bounds_of
from ...rules.base.errors import NothingToDo, StoreError
from ..core.advice_types import Fleet
from ..recommend.progress import PredictionSnapshot
from .entries import (
    BY_ITSELF,
    EXPIRES_AFTER_SECONDS,
    LedgerEntry,
    LedgerEvent,
    Proposal,
    Realised,
    from_json,
    to_json,
)
from .files import begin_file, check_place
from .fleets import FLEETS_FORM, KnownFleet, begin_fleets, fleets_in, note_fleet
from .guard import (
    FLAG,
    MOMENT,
    NUMBER,
    OPTIONAL_MOMENT,
    OPTIONAL_NUMBER,
    OPTIONAL_TEXT,
    TEXT,
    UNREADABLE,
    WHOLE,
    CellRule,
    FileForm,
    Guarded,
    check_pages,
    guarded,
    reason,
)

_BUSY_SECONDS = 10.0
# A thousand recommendations with a year of events are some 5 MB. A cell holds the names of all nodes of a series.
_MOST_BYTES, _CELL_BYTES = 128 << 20, 4 << 20

Happenings = Callable[[Sequence[LedgerEntry]], Sequence[tuple[str, LedgerEvent]]]


class DamagedLedgerError(StoreError):
    """The file is damaged, or holds what no skuwise wrote: waiting or asking for more rights does not help."""


class Ledger:
    """One ledger. Each call opens the file for as long as it takes; nothing is held in between."""

    def __init__(self, path: Path, *, busy_seconds: float = _BUSY_SECONDS) -> None:
        self.path = path
        self._busy_seconds = busy_seconds

    def entries(self) -> tuple[LedgerEntry, ...]:
        """All that was ever proposed, by id. Raises NothingToDo (no such file, or nothing in it yet), StoreError."""
        with self._reading() as file:
            return read_entries(file)

    def fleets(self) -> tuple[KnownFleet, ...]:
        """Whose it is. Raises NothingToDo (no such file, or nothing in it yet), StoreError."""
        with self._reading() as file:
            return fleets_in(file)

    def begin(self, fleet: Fleet) -> None:
        """Begin the ledger of a fleet, or go on with it. Raises StoreError."""
        with self._writing(create=True) as (db, file):
            note_fleet(db, file, fleet)

    def recover(self) -> None:
        """Undo what a killed process left half written, which a reader may not. Raises NothingToDo, StoreError."""
        if not self.path.exists():
            raise self._nothing()
        with self._told("written"):
            check_place(self.path)
            with guarded(self.path, mode="rw", busy_seconds=self._busy_seconds) as (connection, _):
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")

    def propose(
        self,
        proposals: Sequence[Proposal],
        now: float,
        happened: Happenings | None = None,
        *,
        fleet: Fleet | None = None,
    ) -> int:
        """Note what was proposed at `now` (Unix seconds), and what expired meanwhile. Gives how many are new.

        `happened` is given what stands in the ledger and gives the events that telemetry tells of it; `fleet`: whose
        telemetry that was. A ledger that is not there is begun. Raises StoreError.
        """
        with self._writing(create=True) as (db, file):
            if fleet is not None:
                note_fleet(db, file, fleet)
            seen_until = fleet.end if fleet is not None else None
            known = {entry.proposal.id: entry for entry in read_entries(file)}
            events = list(happened(tuple(known.values()))) if happened is not None else []
            for id_, event in events:
                known[id_] = replace(known[id_], events=(*known[id_].events, event))
            given = {proposal.id: proposal for proposal in proposals}
            rows = [row_of(proposal, known.get(id_), now, seen_until) for id_, proposal in given.items()]
            for id_ in given:
                if id_ not in known or is_over(known[id_], now, seen_until):
                    events.append((id_, LedgerEvent("proposed", now, BY_ITSELF)))
            for id_, entry in known.items():
                over = id_ not in given and is_over(entry, now, seen_until)
                if over and (not entry.events or entry.events[-1].act != "expired"):
                    events.append((id_, LedgerEvent("expired", now, BY_ITSELF)))
            db.table("recommendations").upsert_all(rows, pk="id")
            if not is_behind(now, seen_until):
                # By a clock that ran ahead they would stay open for as long again.
                db.execute(
                    "UPDATE recommendations SET last_proposed = ?, first_proposed = min(first_proposed, ?) "
                    "WHERE last_proposed > ?",
                    [now, now, now + CLOCK_DOUBT_SECONDS],
                )
            add_events(db, events)
            return len(given.keys() - known.keys())

    def add(self, recommendation: str, event: LedgerEvent) -> None:
        """Add an event to what was proposed before. Raises NothingToDo where there is no ledger, StoreError."""
        with self._writing(create=False) as (db, _):
            add_events(db, [(recommendation, event)])

    def note_mailed(
        self, recipient_key: str, ids: Collection[str], now: float, *, week_end: float | None = None
    ) -> None:
        """Note that these recommendations were told to a recipient at `now`, of the week up to `week_end` (both Unix
        seconds; None: of no week). Raises StoreError."""
        with self._writing(create=True) as (db, _):
            newest = db.execute("SELECT max(seq) FROM events").fetchone()[0] or 0
            db.table("mailed").insert_all(
                {"recipient": recipient_key, "recommendation": one, "at": now, "week": week_end, "event": newest}
                for one in sorted(set(ids))
            )

    def mailed_since(self, recipient_key: str, since: float, before: float = math.inf) -> frozenset[str]:
        """What a recipient was told of weeks that ended from `since` until `before` (Unix seconds), and need not be
        told again. What was told of no week counts by when it was told.

        What regressed after it was told is not among them. Empty where there is no ledger. Raises StoreError.
        """
        try:
            with self._reading() as file:
                mailed = file.rows("mailed", "WHERE recipient = ?", [recipient_key])
                regressed = {
                    row["recommendation"]: row["seq"]
                    for row in file.rows("events", "WHERE act = 'regressed' ORDER BY seq")
                }
        except NothingToDo:
            return frozenset()
        told: dict[str, dict[str, Any]] = {}
        for row in mailed:
            if since <= (row["at"] if row["week"] is None else row["week"]) < before:
                told[row["recommendation"]] = row
        # By the order in which they were written, which no clock can move.
        return frozenset(id_ for id_, row in told.items() if regressed.get(id_, 0) <= row["event"])

    @contextmanager
    def _reading(self) -> Iterator[Guarded]:
        if not self.path.exists():
            raise self._nothing()
        with self._told("read"):
            check_place(self.path)
            try:
                with self._opened("ro"):
                    pass
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorname", "") != "SQLITE_READONLY_ROLLBACK":
                    raise
                # A process was killed while it wrote: whoever may write undoes that.
                self.recover()
            with self._opened("ro") as file:
                yield file

    @contextmanager
    def _opened(self, mode: str) -> Iterator[Guarded]:
        with guarded(self.path, mode=mode, busy_seconds=self._busy_seconds, bounds=_bounds) as (connection, meter):
            connection.execute("BEGIN")
            if not self._is_ours(connection):
                raise self._nothing()
            yield Guarded(connection, FORM, meter)

    @contextmanager
    def _writing(self, *, create: bool) -> Iterator[tuple[Database, Guarded]]:
        if not create and not self.path.exists():
            raise self._nothing()
        with self._told("written"):
            if create:
                # Who decided what, and why, is the user's own (XDG: a folder that is not there is made so).
                begin_file(self.path)
            check_place(self.path)
            with guarded(self.path, mode="rw", busy_seconds=self._busy_seconds, bounds=_bounds) as (connection, meter):
                db = Database(connection, recursive_triggers=False, execute_plugins=False)
                # Before anything is written, and in one look: another process may be beginning the ledger just now.
                db.execute("BEGIN")
                self._is_ours(connection)
                db.execute("ROLLBACK")
                # The lock before the first look: what is decided on here must still be so when it is written.
                db.execute("BEGIN IMMEDIATE")
                if not self._is_ours(connection):
                    if not create:
                        raise self._nothing()
                    begin_tables(db)
                else:
                    Guarded(connection, FORM, meter)
                    check_pages(connection, meter)
                yield db, Guarded(connection, FORM, meter)
                db.execute("COMMIT")  # without it, closing rolls back

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is a ledger; False: it is empty. Raises StoreError for anything else, and another major."""
        number = int(connection.execute("PRAGMA application_id").fetchone()[0])
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if number == APPLICATION_ID:
            if version // 1000 != VERSION // 1000:
                raise StoreError(
                    f"The ledger {self.path} has version {version // 1000}.{version % 1000}; this skuwise reads "
                    f"{VERSION // 1000}.x.",
                    "Use the skuwise that wrote it, or another ledger with --ledger.",
                )
            return True
        if number or version or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise DamagedLedgerError(
                f"{self.path} is a database, but not a ledger; it was not changed.", "Use another file with --ledger."
            )
        return False

    def _nothing(self) -> NothingToDo:
        return NothingToDo(f"No ledger at {self.path} yet.", "Run 'skuwise advise' to create one.")

    @contextmanager
    def _told(self, done: str) -> Iterator[None]:
        """What SQLite and the file system raise, as one sentence with its remedy."""
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"The ledger {self.path} cannot be {done}: {error.strerror}.", "Use another file with --ledger."
            ) from error
        except UNREADABLE as error:
            raise _error(self.path, done, error) from error


def _bounds(on_disk: int) -> Bounds:
    """What one reading of a ledger may cost. Raises sqlite3.DataError where it is too large to be one."""
    if on_disk > _MOST_BYTES:
        raise sqlite3.DataError(f"it is larger than {_MOST_BYTES >> 20} MiB")
    return replace(bounds_of(on_disk), cell_bytes=_CELL_BYTES)


def _error(path: Path, done: str, error: Exception) -> StoreError:
    name, said = getattr(error, "sqlite_errorname", ""), reason(error)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return DamagedLedgerError(
            f"The ledger {path} is damaged or not a database ({said}); it was not changed.",
            "Recover its content with: sqlite3 FILE .recover; or use another file with --ledger.",
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreError(f"The ledger {path} is locked by another process.", "Try again after it ends.")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        why = "no permission to write the file or its folder" if done == "written" else "no permission to open it"
        return StoreError(f"The ledger {path} cannot be {done}: {why}.", "Use --ledger with a file that you can write.")
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return StoreError(f"The ledger {path} cannot be {done}: {said}.", "Check the disk, then try again.")
    if isinstance(error, sqlite3.DataError) or not isinstance(error, sqlite3.Error):
        return DamagedLedgerError(
            f"The ledger {path} cannot be {done}: {said}.",
            "Use another file with --ledger; this one was not changed (sqlite3 FILE .recover recovers its content).",
        )
    return StoreError(f"The ledger {path} cannot be {done}: {said}.", "Use another file with --ledger.")


APPLICATION_ID = 0x736B756C  # "skul"
VERSION = 1004  # PRAGMA user_version: major x 1000 + minor; a minor step only adds

_PROPOSAL, _EVENT = ([f.name for f in fields(kind) if f.name != "realised"] for kind in (Proposal, LedgerEvent))
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
            "why": OPTIONAL_TEXT,
            "figures": CellRule(str, optional=True, read=partial(from_json, Mapping[str, Realised])),
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


def read_entries(file: Guarded) -> tuple[LedgerEntry, ...]:
    histories: dict[str, list[LedgerEvent]] = {}
    for row in file.rows("events", "ORDER BY seq"):
        values: dict[str, Any] = {name: row[name] for name in _EVENT} | {
            "realised": (row["figures"] or {}).get("realised")
        }
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
        # What was accepted is measured against what was predicted then; what is blocked by now rests on nothing new.
        decided = old.decision(now).state in ("accepted", "done") and old.proposal.ground is not None
        ground = old.proposal.ground if decided or ground is None else ground
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


def add_events(db: Database, events: Iterable[tuple[str, LedgerEvent]]) -> None:
    """Add events, each to the recommendation it is of."""
    db.table("events").insert_all(
        {
            "recommendation": id_,
            **{name: getattr(event, name) for name in _EVENT},
            "figures": to_json({"realised": event.realised}) if event.realised is not None else None,
        }
        for id_, event in events
    )
