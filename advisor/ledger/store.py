"""The ledger's file: an SQLite database with one row a recommendation and a table of events that only grows.

A rollback journal, not a write-ahead log: the file may lie on a read-only disk or be copied, and is written seldom.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from sqlite_utils import Database

from ...rules.errors import NothingToDo, StoreError
from ..model import Fleet
from .entries import BY_ITSELF, Entry, Event, Proposal
from .identity import Known, begin_fleets, fleets_in, note_fleet
from .kept import NO_FIGURES, Figures, Ground, from_json, to_json

APPLICATION_ID = 0x736B756C  # "skul"
VERSION = 1002  # PRAGMA user_version: major x 1000 + minor; a minor step only adds
_BUSY_SECONDS = 10.0

_RECOMMENDATIONS = {
    "id": str, "action": str, "about": str, "source_config": str, "target_config": str, "saving_usd_per_month": float,
    "freed_gpu_hours_per_month": float, "realisation": str, "risk": str, "blocked": int, "text": str, "source": str,
    "first_proposed": float, "last_proposed": float, "ground": str,
}  # fmt: skip
_MAILED = {"seq": int, "recipient": str, "recommendation": str, "at": float}
_EVENTS = {
    "seq": int,
    "recommendation": str,
    "act": str,
    "at": float,
    "by": str,
    "until": float,
    "why": str,
    "figures": str,
}
_MOMENTS = ("first_proposed", "last_proposed", "at", "until")
_YEAR_10000 = 253_402_300_800.0  # Unix seconds: what no date is written of any more
# What minor version 1 added: columns of JSON (kept.py), and the table of what was mailed. Version 2: whose it is.
_ADDED = {"recommendations": "ground", "events": "figures"}
_KINDS = {str: "text", float: "number", int: "whole number"}
_TOLD = """
    WITH told AS (SELECT recommendation, max(at) AS at FROM mailed WHERE recipient = ? AND at < ?
        GROUP BY recommendation)
    SELECT recommendation FROM told WHERE at >= ? AND NOT EXISTS (
        SELECT 1 FROM events
        WHERE events.recommendation = told.recommendation AND events.act = 'regressed' AND events.at > told.at
    )
"""
_ONLY_ADDED = (
    "CREATE TRIGGER events_are_not_{past} BEFORE {verb} ON events "
    "BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END"
)


class DamagedError(StoreError):
    """The file is damaged, or holds what no skuwise wrote: waiting or asking for more rights does not help."""


T = TypeVar("T")
Mailed = tuple[str, str, float]  # recipient, recommendation, at (Unix seconds)
Happenings = Callable[[Sequence[Entry]], Sequence[tuple[str, Event]]]


class Ledger:
    """One ledger. Each call opens the file for as long as it takes; nothing is held in between."""

    def __init__(self, path: Path, *, busy_seconds: float = _BUSY_SECONDS) -> None:
        self.path = path
        self._busy_seconds = busy_seconds

    def entries(self) -> tuple[Entry, ...]:
        """All that was ever proposed, by id. Raises NothingToDo (no such file, or nothing in it yet), StoreError."""
        with self._reading() as db:
            return _entries(db)

    def fleets(self) -> tuple[Known, ...]:
        """Whose it is. Raises NothingToDo (no such file, or nothing in it yet), StoreError."""
        with self._reading() as db:
            return fleets_in(db)

    def adopt(self, fleet: Fleet, entries: Sequence[Entry] = (), mailed: Sequence[Mailed] = ()) -> int:
        """Begin the ledger of a fleet, or go on with it, and take over what another file holds of it, with its history.
        Gives how many recommendations were new here. Raises StoreError."""
        with self._writing(create=True) as db:
            note_fleet(db, fleet)
            held = {row["id"] for row in db.query("SELECT id FROM recommendations")}
            new = [entry for entry in entries if entry.proposal.id not in held]
            times = [{"first_proposed": e.first_proposed, "last_proposed": e.last_proposed} for e in new]
            db.table("recommendations").insert_all(
                {**_row(entry.proposal, None, 0.0), **own} for entry, own in zip(new, times, strict=True)
            )
            _add(db, [(entry.proposal.id, event) for entry in new for event in entry.events])
            taken = {entry.proposal.id for entry in new}
            db.table("mailed").insert_all(
                {"recipient": to, "recommendation": id_, "at": at} for to, id_, at in mailed if id_ in taken
            )
            return len(new)

    def recover(self) -> None:
        """Undo what a killed process left half written, which a reader may not. Raises NothingToDo, StoreError."""
        if not self.path.exists():
            raise self._nothing()
        with self._told("written"):
            uri = f"{self.path.absolute().as_uri()}?mode=rw"
            connection = sqlite3.connect(uri, uri=True, timeout=self._busy_seconds, isolation_level=None)
            with closing(connection):
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")

    def mailed(self) -> tuple[Mailed, ...]:
        """All that was mailed. Raises NothingToDo, StoreError."""
        with self._reading() as db:
            rows = db.query("SELECT recipient, recommendation, at FROM mailed ORDER BY seq")
            return tuple(tuple(row.values()) for row in rows) if db.table("mailed").exists() else ()  # type: ignore[misc]

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
        with self._writing(create=True) as db:
            if fleet is not None:
                note_fleet(db, fleet)
            known = {entry.proposal.id: entry for entry in _entries(db)}
            events = list(happened(tuple(known.values()))) if happened is not None else []
            for id_, event in events:
                known[id_] = replace(known[id_], events=(*known[id_].events, event))
            given = {proposal.id: proposal for proposal in proposals}
            rows = [_row(proposal, known.get(id_), now) for id_, proposal in given.items()]
            for id_ in given:
                if id_ not in known or known[id_].decision(now).state == "expired":
                    events.append((id_, Event("proposed", now, BY_ITSELF)))
            for id_, entry in known.items():
                over = id_ not in given and entry.decision(now).state == "expired"
                if over and (not entry.events or entry.events[-1].act != "expired"):
                    events.append((id_, Event("expired", now, BY_ITSELF)))
            db.table("recommendations").upsert_all(rows, pk="id")
            _add(db, events)
            return len(given.keys() - known.keys())

    def add(self, recommendation: str, event: Event) -> None:
        """Add an event to what was proposed before. Raises NothingToDo where there is no ledger, StoreError."""
        with self._writing(create=False) as db:
            _add(db, [(recommendation, event)])

    def note_mailed(self, recipient_key: str, ids: Collection[str], now: float) -> None:
        """Note that these recommendations were told to a recipient at `now` (Unix seconds). Raises StoreError."""
        with self._writing(create=True) as db:
            db.table("mailed").insert_all(
                {"recipient": recipient_key, "recommendation": one, "at": now} for one in sorted(set(ids))
            )

    def mailed_since(self, recipient_key: str, since: float, before: float = math.inf) -> frozenset[str]:
        """What a recipient was told from `since` until `before` (Unix seconds), and need not be told again.

        What regressed after it was told is not among them. Empty where there is no ledger. Raises StoreError.
        """
        try:
            with self._reading() as db:
                if not db.table("mailed").exists():
                    return frozenset()
                return frozenset(row["recommendation"] for row in db.query(_TOLD, [recipient_key, before, since]))
        except NothingToDo:
            return frozenset()

    @contextmanager
    def _reading(self) -> Iterator[Database]:
        if not self.path.exists():
            raise self._nothing()
        with self._told("read"):
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=self._busy_seconds, isolation_level=None
            )
            with closing(connection):
                db = Database(connection, recursive_triggers=False, execute_plugins=False)
                db.execute("BEGIN")
                if not self._is_ours(connection):
                    raise self._nothing()
                yield db

    @contextmanager
    def _writing(self, *, create: bool) -> Iterator[Database]:
        if not create and not self.path.exists():
            raise self._nothing()
        with self._told("written"):
            if create:
                # Who decided what, and why, is the user's own (XDG: a folder that is not there is made so).
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            mode = "rwc" if create else "rw"
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}", uri=True, timeout=self._busy_seconds,
                isolation_level=None,
            )  # fmt: skip
            with closing(connection):
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
                    _begin(db)
                elif int(connection.execute("PRAGMA user_version").fetchone()[0]) < VERSION:
                    _bring_up(db)
                yield db
                db.execute("COMMIT")  # without it, closing rolls back

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is a ledger; False: it is empty. Raises StoreError for anything else, and for newer ones."""
        number = int(connection.execute("PRAGMA application_id").fetchone()[0])
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if number == APPLICATION_ID:
            if version // 1000 > VERSION // 1000:
                own = f"{version // 1000}.{version % 1000}"
                raise StoreError(
                    f"The ledger {self.path} was written by a newer skuwise (version {own}); this one knows "
                    f"{VERSION // 1000}.x.",
                    "Update skuwise here, or name another ledger with --ledger.",
                )
            return True
        if number or version or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise DamagedError(
                f"{self.path} is a database, but not a ledger; it was left untouched.",
                "Name another file with --ledger.",
            )
        return False

    def _nothing(self) -> NothingToDo:
        return NothingToDo(
            f"There is no ledger at {self.path} yet.", "'skuwise advise' begins one and notes what it proposes."
        )

    @contextmanager
    def _told(self, done: str) -> Iterator[None]:
        """What SQLite and the file system raise, as one sentence with its remedy."""
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"The ledger {self.path} cannot be {done}: {error.strerror}.", "Name another file with --ledger."
            ) from error
        except sqlite3.Error as error:
            raise _error(self.path, done, error) from error


def _begin(db: Database) -> None:
    db.table("recommendations").create(_RECOMMENDATIONS, pk="id")
    db.table("events").create(
        _EVENTS, pk="seq", foreign_keys=[("recommendation", "recommendations", "id")],
        not_null={"recommendation", "act", "at", "by"},
    )  # fmt: skip
    _begin_mailed(db)
    begin_fleets(db)
    for verb, past in (("UPDATE", "changed"), ("DELETE", "deleted")):
        db.execute(_ONLY_ADDED.format(verb=verb, past=past))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")


def _bring_up(db: Database) -> None:
    """A ledger of an older minor version, with what was added since. Those who know only that version still read it."""
    for table, column in _ADDED.items():
        if column not in db.table(table).columns_dict:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT")
    if not db.table("mailed").exists():
        _begin_mailed(db)
    begin_fleets(db)
    db.execute(f"PRAGMA user_version = {VERSION}")


def _begin_mailed(db: Database) -> None:
    db.table("mailed").create(_MAILED, pk="seq", not_null={"recipient", "recommendation", "at"})


def _keeps_its_ground(old: Entry, new: Proposal, now: float) -> bool:
    """What was accepted is measured against what was accepted; what is blocked by now rests on nothing new."""
    settled = old.decision(now).state in ("accepted", "done") and old.proposal.ground is not None
    return settled or new.ground is None


def _entries(db: Database) -> tuple[Entry, ...]:
    events = _histories(db)
    names = [f.name for f in fields(Proposal)]
    found = []
    for row in _proposed(db):
        values: dict[str, Any] = {n: row.get(n) for n in names}
        proposal = Proposal(
            **{**values, "blocked": bool(values["blocked"]), "ground": _kept(Ground, values["ground"], "ground")}
        )
        history = tuple(events.get(proposal.id, ()))
        found.append(Entry(proposal, row["first_proposed"], row["last_proposed"], history))
    return tuple(found)


def _row(proposal: Proposal, old: Entry | None, now: float) -> dict[str, Any]:
    """What is proposed at `now`, over what was before (None: it is new)."""
    values = {f.name: getattr(proposal, f.name) for f in fields(Proposal)}
    ground = proposal.ground
    first = last = now
    if old is not None:
        first, last = old.first_proposed, max(now, old.last_proposed)
        ground = old.proposal.ground if _keeps_its_ground(old, proposal, now) else ground
    kept = to_json(ground) if ground is not None else None
    return {**values, "blocked": int(proposal.blocked), "ground": kept, "first_proposed": first, "last_proposed": last}


def _kept(kind: type[T], text: str | None, what: str) -> T | None:
    if text is None:
        return None
    try:
        return from_json(kind, text)
    except (ValueError, RecursionError) as error:
        raise sqlite3.DataError(f"{what} holds what cannot be read") from error


def _proposed(db: Database) -> Iterator[dict[str, Any]]:
    for row in db.query("SELECT * FROM recommendations ORDER BY id"):
        _check(row, _RECOMMENDATIONS, "recommendations", may_lack=("saving_usd_per_month", "ground"))
        yield row


def _histories(db: Database) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {}
    names = [f.name for f in fields(Event)]
    for row in db.query("SELECT * FROM events ORDER BY seq"):
        _check(row, _EVENTS, "events", may_lack=("until", "why", "figures"))
        values: dict[str, Any] = {n: row.get(n) for n in names}
        figures = _kept(Figures, values["figures"], "figures") or NO_FIGURES
        found.setdefault(row["recommendation"], []).append(Event(**{**values, "figures": figures}))
    return found


def _check(row: Mapping[str, Any], columns: Mapping[str, type], table: str, *, may_lack: Collection[str]) -> None:
    """Raises `sqlite3.DataError` for a row that we cannot have written. SQLite keeps any value in any column."""
    for name, kind in columns.items():
        value = row.get(name)
        if value is None:
            if name in may_lack:
                continue
            raise sqlite3.DataError(f"{table}.{name} holds nothing")
        if not isinstance(value, (int, float) if kind is float else kind):
            raise sqlite3.DataError(f"{table}.{name} holds what is no {_KINDS[kind]}")
        if name in _MOMENTS and not 0 <= value < _YEAR_10000:
            raise sqlite3.DataError(f"{table}.{name} holds what is no moment")


def _add(db: Database, events: Iterable[tuple[str, Event]]) -> None:
    """Add events, each to the recommendation it is of."""
    names = [f.name for f in fields(Event)]
    db.table("events").insert_all(
        {
            "recommendation": id_,
            **{name: getattr(event, name) for name in names},
            "figures": to_json(event.figures) if event.figures != NO_FIGURES else None,
        }
        for id_, event in events
    )


def _error(path: Path, done: str, error: sqlite3.Error) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return DamagedError(
            f"The ledger {path} is damaged or no database ({error}); it was left untouched.",
            "Save what is left with: sqlite3 FILE .recover; or name another file with --ledger.",
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreError(f"Another process holds the ledger {path}.", "Try again when it is done.")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        why = "it, or its folder, may not be written here" if done == "written" else "it may not be opened here"
        return StoreError(
            f"The ledger {path} cannot be {done}: {why}.", "Name a file that you may write with --ledger."
        )
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return StoreError(f"The ledger {path} cannot be {done}: {error}.", "Look at the disk, then try again.")
    kind = DamagedError if isinstance(error, sqlite3.DataError) else StoreError
    return kind(f"The ledger {path} cannot be {done}: {error}.", "Name another file with --ledger.")
