"""The outbox: what is to be sent, and what became of it, in one SQLite file.

A mail is written here, to the disk, before anything is sent, and each answer of a server when it is there: a sender
that is killed loses nothing. One moment cannot be covered by anybody: the server has accepted a mail and the sender is
killed before that is written. That mail is sent once more, under the same Message-ID, and the attempt that has no end
shows it. Contents leave the file when nobody waits for them any more; who was sent what stays (view ``audit``).
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlite_utils import Database

from ...agent.base.safe_text import clean_text
from ...agent.model import Instant
from ...agent.store.reader import Bounds, bounds_of, disk_bytes
from ...rules.base.errors import SkuwiseError, StoreError, UsageError
from .files import begin_file, check_place, locked
from .guard import UNREADABLE, Guarded, check_pages, guarded, reason
from .outbox_rows import APPLICATION_ID, FORM, VERSION, begin_tables, begin_try, end_try, left, those_waiting
from .parcel import Channel, Parcel, Reply
from .paths import default_ledgers

_BUSY_SECONDS = 10.0
# A mail has some 10 MB at most; thousands may wait.
_MOST_BYTES, _CELL_BYTES = 16 << 30, 32 << 20
_CHECKED_BYTES = 64 << 20  # looking through so many pages takes half a second


# For so long the outbox knows what a mail informs of; reminders of an incident refer to the mail that opened it.
_ABOUT_SECONDS = 90 * 86400.0
_DELIVERIES = """
    SELECT item, week, team, channel, recipient, message_id
    FROM about JOIN mails ON mails.id = about.mail JOIN deliveries ON deliveries.mail = mails.id
"""
_ASKED_AT_ONCE = 500  # SQLite takes some thousands of parameters


@dataclass(frozen=True, slots=True)
class Queued:
    """A delivery that was queued at some time. `batch`: the week or batch of its mail, `message_id`: its id."""

    batch: str
    team: str
    channel: Channel
    recipient: str
    message_id: str


class OutboxHeldError(SkuwiseError):
    """Another sender holds the outbox."""


class DamagedError(StoreError):
    """The outbox holds what no skuwise wrote: trying again does not help."""


class DamagedParcelError(SkuwiseError):
    """A mail's content is not what was queued: it cannot be sent any more."""


def default_outbox(environ: Mapping[str, str]) -> Path:
    """``outbox.db`` beside the ledger's usual place. Raises UsageError where there is none."""
    ledger = default_ledgers(environ)
    if ledger is None:
        raise UsageError("There is no home folder for an outbox.", "Set report.outbox.")
    return ledger.with_name("outbox.db")


class Outbox:
    """One outbox. Each call opens the file for as long as it takes; `sending` keeps a second sender out."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def sending(self, *, wait_seconds: float = 0.0) -> Iterator[None]:
        """Hold the outbox for one sender. Raises SkuwiseError where another holds it for `wait_seconds`; a killed one
        holds nothing."""
        with ExitStack() as held:
            try:
                lock = self.path.with_name(f"{self.path.name}.lock")
                held.enter_context(locked(lock, alone=True, wait_seconds=wait_seconds))
            except BlockingIOError as error:
                raise OutboxHeldError(f"Another skuwise sends from {self.path}.", "Let it end first.") from error
            except OSError as error:
                raise StoreError(f"The outbox {self.path} cannot be used: {error.strerror}.", _ELSEWHERE) from error
            with self._open(looking_through=True):
                pass
            yield

    def is_queued(self, week: str, digest: str) -> bool:
        """Whether all of a week was queued; `digest` names the routes by which it was."""
        with self._open() as (_, file):
            return bool(file.rows("weeks", "WHERE week = ? AND digest = ?", [week, digest]))

    def note_queued(self, week: str, digest: str, now: float) -> None:
        """Note that all of a week is queued."""
        with self._open() as (db, _):
            db.table("weeks").insert({"week": week, "digest": digest, "queued_at": now}, ignore=True)

    def known(self, week: str) -> frozenset[tuple[str, str, str]]:
        """(team, channel, recipient) of all that was ever queued of a week."""
        query = "SELECT team, channel, recipient FROM deliveries JOIN mails ON mails.id = mail WHERE week = ?"
        with self._open() as (_, file):
            return frozenset((str(team), str(channel), str(to)) for team, channel, to in file.fetch(query, [week]))

    def queue(self, parcel: Parcel, now: float) -> int:
        """Write a parcel to the disk for those of its recipients who were never to receive it. Gives their count.

        `now`: Unix seconds. Raises StoreError; then nothing of it is queued.
        """
        known = self.known(parcel.week)  # of several senders one holds the outbox
        fresh = [r for r in dict.fromkeys(parcel.recipients) if (parcel.team, parcel.channel, r) not in known]
        if not fresh:
            return 0
        with self._open() as (db, _):
            mail = db.table("mails").insert({
                "week": parcel.week, "team": parcel.team, "channel": parcel.channel, "message_id": parcel.message_id,
                "subject": clean_text(parcel.subject), "digest": hashlib.sha256(parcel.content).hexdigest(),
                "queued_at": now, "content": parcel.content,
            }).last_pk  # fmt: skip
            db.table("deliveries").insert_all(
                {"mail": mail, "recipient": r, "state": "queued", "attempts": 0, "next_at": now, "ended_at": None,
                 "reply": ""}
                for r in fresh
            )  # fmt: skip
            if parcel.about:
                old = "(SELECT id FROM mails WHERE queued_at < ?)"
                db.execute(f"DELETE FROM about WHERE mail IN {old}", [now - _ABOUT_SECONDS])  # noqa: S608 - ours
                db.table("about").insert_all(({"mail": mail, "item": item} for item in parcel.about), ignore=True)
        return len(fresh)

    def about(self, items: Sequence[str]) -> Mapping[str, tuple[Queued, ...]]:
        """Each of the keys that a parcel was ever queued about (`Parcel.about`), with its deliveries."""
        found: dict[str, list[Queued]] = {}
        asked = list(dict.fromkeys(items))
        with self._open() as (_, file):
            for begin in range(0, len(asked), _ASKED_AT_ONCE):
                part = asked[begin : begin + _ASKED_AT_ONCE]
                marks = ", ".join("?" * len(part))
                for item, *cells in file.fetch(f"{_DELIVERIES} WHERE item IN ({marks}) ORDER BY mails.id", part):
                    batch, team, channel, recipient, id_ = map(str, cells)
                    queued = Queued(batch, team, "mail" if channel == "mail" else "webhook", recipient, id_)
                    found.setdefault(str(item), []).append(queued)
        return {item: tuple(each) for item, each in found.items()}

    def waiting_for(self, batch: str) -> frozenset[tuple[str, str, str]]:
        """(team, channel, recipient) of all that has yet to arrive of batches whose names begin with `batch`."""
        query = (
            "SELECT team, channel, recipient FROM deliveries JOIN mails ON mails.id = mail "
            "WHERE state = 'queued' AND substr(week, 1, ?) = ?"
        )
        with self._open() as (_, file):
            found = file.fetch(query, [len(batch), batch])
        return frozenset((str(team), str(channel), str(to)) for team, channel, to in found)

    def due(self, now: Instant, team: str | None = None, batch: str = "") -> tuple[int, ...]:
        """The mails that wait for somebody and may be tried at `now`, the oldest first; of `team` alone where named,
        and of batches whose names begin with `batch`."""
        with self._open() as (_, file):
            due = {row["mail"] for row in those_waiting(file) if left(row, now) <= 0}
            if team is not None:
                due &= {int(row[0]) for row in file.fetch("SELECT id FROM mails WHERE team = ?", [team])}
            if batch:
                query = "SELECT id FROM mails WHERE substr(week, 1, ?) = ?"
                due &= {int(row[0]) for row in file.fetch(query, [len(batch), batch])}
            return tuple(sorted(due))

    def waiting(self) -> int:
        """How many recipients have yet to receive something."""
        with self._open() as (_, file):
            return len(those_waiting(file))

    def soonest(self, now: Instant) -> float:
        """Seconds until somebody who waits may be tried; 0 where it is now, or nobody waits."""
        with self._open() as (_, file):
            return min((left(row, now) for row in those_waiting(file)), default=0.0)

    def load(self, number: int, now: Instant) -> Parcel:
        """A mail with those of its recipients who are due. Raises DamagedParcelError where it is not what was queued,
        and nothing of it can be sent."""
        with self._open() as (_, file):
            mail = file.row("mails", "WHERE id = ?", [number])
            recipients = tuple(row["recipient"] for row in those_waiting(file, number) if left(row, now) <= 0)
        content = mail["content"]
        if content is None or hashlib.sha256(content).hexdigest() != mail["digest"]:
            raise DamagedParcelError(f"The content of mail {number} in {self.path} is not what was queued.")
        return Parcel(
            mail["week"], mail["team"], mail["channel"], mail["message_id"], mail["subject"], content, recipients
        )

    def give_up(self, number: int, why: str, now: Instant) -> tuple[str, ...]:
        """Refuse a mail to all who wait for it; gives who they are, with team and channel, in words."""
        with self._open() as (db, file):
            mail = file.row("mails", "WHERE id = ?", [number])
            waiting = [row["recipient"] for row in those_waiting(file, number)]
            for recipient in waiting:
                db.execute(
                    "UPDATE deliveries SET state = 'refused', ended_at = ?, reply = ? WHERE mail = ? AND recipient = ?",
                    [now.wall_seconds, why, number, recipient],
                )
        return tuple(f"{mail['team'] or 'the fleet'} ({mail['channel']}, {one})" for one in waiting)

    def begin(self, number: int, recipients: Sequence[str], now: Instant) -> None:
        """Note that a mail is handed over now: if no end follows, it may have arrived.

        Room for what the server will say is taken already: on a disk that is full nothing is sent, rather than sent and
        not written down.
        """
        with self._open() as (db, _):
            for recipient in recipients:
                begin_try(db, number, recipient, now)

    def end(self, number: int, replies: Mapping[str, Reply], now: Instant) -> Mapping[str, Reply]:
        """Note what became of an attempt. Gives what is noted: who was put off for five days is refused."""
        noted: dict[str, Reply] = {}
        with self._open() as (db, file):
            for recipient, said in replies.items():
                row = file.row("deliveries", "WHERE mail = ? AND recipient = ?", [number, recipient])
                noted[recipient] = end_try(db, row, said, now)
        return noted

    def let_go(self) -> None:
        """Let go of contents that nobody waits for any more. Apart from noting what was sent: on a full disk that must
        not fail with this."""
        with self._open() as (db, _):
            db.execute(
                "UPDATE mails SET content = NULL WHERE content IS NOT NULL AND NOT EXISTS "
                "(SELECT 1 FROM deliveries WHERE mail = mails.id AND state = 'queued')"
            )

    @contextmanager
    def _open(self, *, looking_through: bool = False) -> Iterator[tuple[Database, Guarded]]:
        """The file, made where it is not there, within one transaction that the end commits."""
        try:
            begin_file(self.path, alone=True)  # contents name users and money
            check_place(self.path, alone=True)
            with guarded(self.path, mode="rw", busy_seconds=_BUSY_SECONDS, bounds=_bounds) as (connection, meter):
                # The folder is synced too: a rollback that came back would send again what was sent.
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("PRAGMA secure_delete = ON").fetchall()  # what is let go of is overwritten
                connection.execute("BEGIN IMMEDIATE")
                db = Database(connection, recursive_triggers=False, execute_plugins=False)
                if self._check(db):
                    Guarded(connection, FORM, meter)
                    if looking_through and disk_bytes(self.path) <= _CHECKED_BYTES:
                        check_pages(connection, meter)
                yield db, Guarded(connection, FORM, meter)
                connection.execute("COMMIT")
        except OSError as error:
            raise StoreError(f"The outbox {self.path} cannot be used: {error.strerror}.", _ELSEWHERE) from error
        except UNREADABLE as error:
            raise self._told(error) from error

    def _told(self, error: Exception) -> StoreError:
        name = getattr(error, "sqlite_errorname", "")
        sentence = f"The outbox {self.path} cannot be used: {reason(error)}."
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            return StoreError(sentence, "Nothing of it is lost: make room on the disk, and run the same command again.")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StoreError(f"Another process holds the outbox {self.path}.", "Try again when it is done.")
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            return StoreError(sentence, _ELSEWHERE)
        return DamagedError(
            sentence,
            "Repair it (sqlite3 FILE .recover), or move it away: the week is then queued again, and its recipients "
            "get it twice.",
        )

    def _check(self, db: Database) -> bool:
        """Whether it was begun; an empty file is now. Raises StoreError for one that is not ours, or of a newer
        skuwise."""
        number = int(db.execute("PRAGMA application_id").fetchone()[0])
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if number == APPLICATION_ID:
            if version // 1000 > VERSION // 1000:
                raise StoreError(f"The outbox {self.path} was written by a newer skuwise.", "Update skuwise here.")
            return True
        if number or version or db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{self.path} is a database, but no outbox; it was left untouched.", _ELSEWHERE)
        begin_tables(db)
        return False


_ELSEWHERE = "Name a file that you may write (report.outbox)."


def _bounds(on_disk: int) -> Bounds:
    """What one look into an outbox may cost. Raises sqlite3.DataError where it is too large to be one."""
    if on_disk > _MOST_BYTES:
        raise sqlite3.DataError(f"it is larger than {_MOST_BYTES >> 30} GiB")
    return replace(bounds_of(on_disk), cell_bytes=_CELL_BYTES)
