"""The ledger's file: an SQLite database with one row a recommendation and a table of events that only grows.

A rollback journal, not a write-ahead log: the file may lie on a read-only disk or be copied, and is written seldom.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from sqlite_utils import Database

from ...agent.store.bounds import Bounds, bounds_of
from ...rules.errors import NothingToDo, StoreError
from ..model import Fleet
from .entries import BY_ITSELF, EXPIRES_AFTER_SECONDS, Entry, Event, Proposal
from .files import begin_file, check_place
from .guard import (
    FLAG,
    MOMENT,
    NUMBER,
    OPTIONAL_MOMENT,
    OPTIONAL_NUMBER,
    OPTIONAL_TEXT,
    TEXT,
    WHOLE,
    Column,
    Form,
    Guarded,
    check_pages,
    guarded,
)
from .identity import FLEETS_FORM, Known, begin_fleets, fleets_in, note_fleet
from .kept import NO_FIGURES, Figures, Ground, from_json, to_json

APPLICATION_ID = 0x736B756C  # "skul"
VERSION = 1003  # PRAGMA user_version: major x 1000 + minor; a minor step only adds
_BUSY_SECONDS = 10.0
# A thousand recommendations with a year of events are some 5 MB. A cell holds the names of all nodes of a series.
_MOST_BYTES, _CELL_BYTES, _GIVEN_BYTES = 128 << 20, 4 << 20, 256 << 20

_RECOMMENDATIONS = {
    "id": str, "action": str, "about": str, "source_config": str, "target_config": str, "saving_usd_per_month": float,
    "freed_gpu_hours_per_month": float, "realisation": str, "risk": str, "blocked": int, "text": str, "source": str,
    "first_proposed": float, "last_proposed": float, "ground": str,
}  # fmt: skip
_MAILED = {"seq": int, "recipient": str, "recommendation": str, "at": float, "week": float, "event": int}
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
# What minor version 1 added: columns of JSON (kept.py), and the table of what was mailed. Version 2: whose it is.
# Version 3: the week that a mail told of, and the newest event then, which no clock can move.
_ADDED = {
    "recommendations": {"ground": "TEXT"},
    "events": {"figures": "TEXT"},
    "mailed": {"week": "REAL", "event": "INTEGER"},
}
# What is dated so much later than now was dated by a clock that ran ahead, or now is told by one that is behind.
CLOCK_DOUBT_SECONDS = 86400.0
_ONLY_ADDED = (
    "CREATE TRIGGER events_are_not_{past} BEFORE {verb} ON events "
    "BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END"
)


class DamagedError(StoreError):
    """The file is damaged, or holds what no skuwise wrote: waiting or asking for more rights does not help."""


_FORM = Form(
    {
        "recommendations": {
            "id": TEXT, "action": TEXT, "about": TEXT, "source_config": TEXT, "target_config": TEXT,
            "saving_usd_per_month": OPTIONAL_NUMBER, "freed_gpu_hours_per_month": NUMBER, "realisation": TEXT,
            "risk": TEXT, "blocked": FLAG, "text": TEXT, "source": TEXT, "first_proposed": MOMENT,
            "last_proposed": MOMENT, "ground": OPTIONAL_TEXT,
        },
        "events": {
            "seq": WHOLE, "recommendation": TEXT, "act": TEXT, "at": MOMENT, "by": TEXT, "until": OPTIONAL_MOMENT,
            "why": OPTIONAL_TEXT, "figures": OPTIONAL_TEXT,
        },
        "mailed": {
            "seq": WHOLE, "recipient": TEXT, "recommendation": TEXT, "at": MOMENT, "week": OPTIONAL_MOMENT,
            "event": Column(int, optional=True),
        },
        **FLEETS_FORM,
    },
    later=frozenset({"mailed", *FLEETS_FORM}),
    triggers={
        f"events_are_not_{past}": _ONLY_ADDED.format(verb=verb, past=past)
        for verb, past in (("UPDATE", "changed"), ("DELETE", "deleted"))
    },
)  # fmt: skip

T = TypeVar("T")
# recipient, recommendation, at (Unix seconds); the end of the week that was told of (Unix seconds), where it is known
Mailed = tuple[str, str, float, float | None]
Happenings = Callable[[Sequence[Entry]], Sequence[tuple[str, Event]]]


class Ledger:
    """One ledger. Each call opens the file for as long as it takes; nothing is held in between."""

    def __init__(self, path: Path, *, busy_seconds: float = _BUSY_SECONDS) -> None:
        self.path = path
        self._busy_seconds = busy_seconds

    def entries(self) -> tuple[Entry, ...]:
        """All that was ever proposed, by id. Raises NothingToDo (no such file, or nothing in it yet), StoreError."""
        with self._reading() as file:
            return _entries(file)

    def fleets(self) -> tuple[Known, ...]:
        """Whose it is. Raises NothingToDo (no such file, or nothing in it yet), StoreError."""
        with self._reading() as file:
            return fleets_in(file)

    def adopt(self, fleet: Fleet, entries: Sequence[Entry] = (), mailed: Sequence[Mailed] = ()) -> int:
        """Begin the ledger of a fleet, or go on with it, and take over what another file holds of it, with its history.
        Gives how many recommendations were new here. Raises StoreError."""
        with self._writing(create=True) as (db, file):
            note_fleet(db, file, fleet)
            held = {row["id"] for row in file.rows("recommendations")}
            new = [entry for entry in entries if entry.proposal.id not in held]
            times = [{"first_proposed": e.first_proposed, "last_proposed": e.last_proposed} for e in new]
            db.table("recommendations").insert_all(
                {**_row(entry.proposal, None, 0.0), **own} for entry, own in zip(new, times, strict=True)
            )
            _add(db, [(entry.proposal.id, event) for entry in new for event in entry.events])
            taken = {entry.proposal.id for entry in new}
            # Events are numbered anew here, so that what came after a mail is told by its time.
            db.table("mailed").insert_all(
                {"recipient": to, "recommendation": id_, "at": at, "week": week, "event": None}
                for to, id_, at, week in mailed if id_ in taken
            )  # fmt: skip
            return len(new)

    def recover(self) -> None:
        """Undo what a killed process left half written, which a reader may not. Raises NothingToDo, StoreError."""
        if not self.path.exists():
            raise self._nothing()
        with self._told("written"):
            check_place(self.path)
            with guarded(self.path, mode="rw", busy_seconds=self._busy_seconds) as (connection, _):
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")

    def mailed(self) -> tuple[Mailed, ...]:
        """All that was mailed. Raises NothingToDo, StoreError."""
        with self._reading() as file:
            rows = file.rows("mailed", "ORDER BY seq")
            return tuple((row["recipient"], row["recommendation"], row["at"], row["week"]) for row in rows)

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
            known = {entry.proposal.id: entry for entry in _entries(file)}
            events = list(happened(tuple(known.values()))) if happened is not None else []
            for id_, event in events:
                known[id_] = replace(known[id_], events=(*known[id_].events, event))
            given = {proposal.id: proposal for proposal in proposals}
            rows = [_row(proposal, known.get(id_), now, seen_until) for id_, proposal in given.items()]
            for id_ in given:
                if id_ not in known or _is_over(known[id_], now, seen_until):
                    events.append((id_, Event("proposed", now, BY_ITSELF)))
            for id_, entry in known.items():
                over = id_ not in given and _is_over(entry, now, seen_until)
                if over and (not entry.events or entry.events[-1].act != "expired"):
                    events.append((id_, Event("expired", now, BY_ITSELF)))
            db.table("recommendations").upsert_all(rows, pk="id")
            if not _is_behind(now, seen_until):
                # By a clock that ran ahead they would stay open for as long again.
                db.execute(
                    "UPDATE recommendations SET last_proposed = ?, first_proposed = min(first_proposed, ?) "
                    "WHERE last_proposed > ?",
                    [now, now, now + CLOCK_DOUBT_SECONDS],
                )
            _add(db, events)
            return len(given.keys() - known.keys())

    def add(self, recommendation: str, event: Event) -> None:
        """Add an event to what was proposed before. Raises NothingToDo where there is no ledger, StoreError."""
        with self._writing(create=False) as (db, _):
            _add(db, [(recommendation, event)])

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
                if not file.has("mailed"):
                    return frozenset()
                mailed = list(file.rows("mailed", "WHERE recipient = ?", [recipient_key]))
                seqs = {row["recommendation"]: (row["seq"], row["at"]) for row in _regressed(file)}
        except NothingToDo:
            return frozenset()
        told: dict[str, dict[str, Any]] = {}
        for row in mailed:
            if since <= (row["at"] if row["week"] is None else row["week"]) < before:
                told[row["recommendation"]] = row
        return frozenset(id_ for id_, row in told.items() if id_ not in seqs or not _is_later(seqs[id_], row))

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
            yield Guarded(connection, _FORM, meter)

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
                    _begin(db)
                else:
                    Guarded(connection, _FORM, meter)
                    check_pages(connection, meter)
                    if int(connection.execute("PRAGMA user_version").fetchone()[0]) < VERSION:
                        _bring_up(db)
                yield db, Guarded(connection, _FORM, meter)
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


def _bounds(on_disk: int) -> Bounds:
    """What one reading of a ledger may cost. Raises sqlite3.DataError where it is too large to be one."""
    if on_disk > _MOST_BYTES:
        raise sqlite3.DataError(f"it is larger than {_MOST_BYTES >> 20} MiB")
    own = bounds_of(on_disk)
    return replace(own, cell_bytes=_CELL_BYTES, given_bytes=min(own.given_bytes, _GIVEN_BYTES))


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
    if not db.table("mailed").exists():
        _begin_mailed(db)
    for table, columns in _ADDED.items():
        for column in columns.keys() - db.table(table).columns_dict.keys():
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {columns[column]}")
    begin_fleets(db)
    db.execute(f"PRAGMA user_version = {VERSION}")


def _begin_mailed(db: Database) -> None:
    db.table("mailed").create(_MAILED, pk="seq", not_null={"recipient", "recommendation", "at"})


def _keeps_its_ground(old: Entry, new: Proposal, now: float) -> bool:
    """What was accepted is measured against what was accepted; what is blocked by now rests on nothing new."""
    settled = old.decision(now).state in ("accepted", "done") and old.proposal.ground is not None
    return settled or new.ground is None


def _entries(file: Guarded) -> tuple[Entry, ...]:
    events = _histories(file)
    names = [f.name for f in fields(Proposal)]
    found = []
    for row in file.rows("recommendations", "ORDER BY id"):
        values: dict[str, Any] = {n: row[n] for n in names}
        proposal = Proposal(
            **{**values, "blocked": bool(values["blocked"]), "ground": _kept(Ground, values["ground"], "ground")}
        )
        history = tuple(events.get(proposal.id, ()))
        found.append(Entry(proposal, row["first_proposed"], row["last_proposed"], history))
    return tuple(found)


def _row(proposal: Proposal, old: Entry | None, now: float, seen_until: float | None) -> dict[str, Any]:
    """What is proposed at `now`, over what was before (None: it is new)."""
    values = {f.name: getattr(proposal, f.name) for f in fields(Proposal)}
    ground = proposal.ground
    first = last = now
    if old is not None:
        first, last = old.first_proposed, max(now, old.last_proposed)
        if last > now + CLOCK_DOUBT_SECONDS and not _is_behind(now, seen_until):
            first, last = min(first, now), now
        ground = old.proposal.ground if _keeps_its_ground(old, proposal, now) else ground
    kept = to_json(ground) if ground is not None else None
    return {**values, "blocked": int(proposal.blocked), "ground": kept, "first_proposed": first, "last_proposed": last}


def _is_behind(now: float, seen_until: float | None) -> bool:
    """Whether telemetry tells of a later time than the clock does: then it is not the ledger that is dated wrong."""
    return seen_until is not None and seen_until > now + CLOCK_DOUBT_SECONDS


def _is_over(entry: Entry, now: float, seen_until: float | None) -> bool:
    """Whether it is expired by the clock, and by what telemetry tells of the time since, as far as it does."""
    if entry.decision(now).state != "expired":
        return False
    ground = entry.proposal.ground
    if ground is None or seen_until is None or seen_until < ground.seen_until:
        return True
    return seen_until - ground.seen_until >= EXPIRES_AFTER_SECONDS


def _regressed(file: Guarded) -> Iterator[dict[str, Any]]:
    return file.rows("events", "WHERE act = 'regressed' ORDER BY seq")


def _is_later(regressed: tuple[int, float], mailed: dict[str, Any]) -> bool:
    """Whether something regressed after it was mailed: by the order in which it was written, where that is known."""
    seq, at = regressed
    return at > mailed["at"] if mailed["event"] is None else seq > mailed["event"]


def _kept(kind: type[T], text: str | None, what: str) -> T | None:
    if text is None:
        return None
    try:
        return from_json(kind, text)
    except (ValueError, RecursionError) as error:
        raise sqlite3.DataError(f"{what} holds what cannot be read") from error


def _histories(file: Guarded) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {}
    names = [f.name for f in fields(Event)]
    for row in file.rows("events", "ORDER BY seq"):
        values: dict[str, Any] = {n: row[n] for n in names}
        figures = _kept(Figures, values["figures"], "figures") or NO_FIGURES
        found.setdefault(row["recommendation"], []).append(Event(**{**values, "figures": figures}))
    return found


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
    if isinstance(error, sqlite3.DataError) or name.startswith(("SQLITE_TOOBIG", "SQLITE_FORMAT")):
        return DamagedError(
            f"The ledger {path} cannot be {done}: {error}.",
            "It was left untouched: save what is left with: sqlite3 FILE .recover; or name another file with --ledger.",
        )
    return StoreError(f"The ledger {path} cannot be {done}: {error}.", "Name another file with --ledger.")
