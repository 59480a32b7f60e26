"""The outbox: what is to be sent, and what became of it, in one SQLite file.

A mail is written here, to the disk, before anything is sent, and each answer of a server when it is there: a sender
that is killed loses nothing. One moment cannot be covered by anybody: the server has accepted a mail and the sender is
killed before that is written. That mail is sent once more, under the same Message-ID, and the attempt that has no end
shows it. Contents leave the file when nobody waits for them any more; who was sent what stays (view ``audit``).
"""

from __future__ import annotations

import fcntl
import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlite_utils import Database

from ...agent.inventory.text import clean_text
from ...rules.errors import SkuwiseError, StoreError, UsageError
from ..ledger.place import default_path

APPLICATION_ID = 0x736B756F  # "skuo"
VERSION = 1000  # PRAGMA user_version: major x 1000 + minor; a minor step only adds
Channel = Literal["mail", "webhook"]
Result = Literal["accepted", "later", "refused"]
# RFC 5321, 4.5.4.1: a sender tries for at least four to five days.
GIVE_UP_SECONDS = 5 * 86400.0
FIRST_PAUSE_SECONDS = 300.0
MAX_PAUSE_SECONDS = 4 * 3600.0
_BUSY_SECONDS = 10.0
_MAX_REPLY = 300

_MAILS = {
    "id": int, "week": str, "team": str, "channel": str, "message_id": str, "subject": str, "digest": str,
    "queued_at": float, "content": bytes,
}  # fmt: skip
_DELIVERIES = {
    "mail": int, "recipient": str, "state": str, "attempts": int, "next_at": float, "ended_at": float, "reply": str,
}  # fmt: skip
_ATTEMPTS = {
    "seq": int, "mail": int, "recipient": str, "began_at": float, "ended_at": float, "result": str, "reply": str,
}  # fmt: skip
_WEEKS = {"week": str, "digest": str, "queued_at": float}
_AUDIT = """
    SELECT mails.week, mails.team, mails.channel, deliveries.recipient, deliveries.state, deliveries.attempts,
        mails.queued_at, deliveries.ended_at, deliveries.reply, mails.message_id, mails.digest, mails.subject
    FROM deliveries JOIN mails ON mails.id = deliveries.mail
"""


@dataclass(frozen=True, slots=True)
class Parcel:
    """What one team is to receive by one channel. `week`: the date of its Monday; `team` empty: the fleet's report.

    `content`: a whole message, or the JSON of a webhook. `recipients` of a webhook is its team's name: the address is a
    secret.
    """

    week: str
    team: str
    channel: Channel
    message_id: str
    subject: str
    content: bytes
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server said to one recipient. ``later``: it may be accepted another time."""

    result: Result
    text: str


def default_outbox(environ: Mapping[str, str]) -> Path:
    """``outbox.db`` beside the ledger's usual place. Raises UsageError where there is none."""
    ledger = default_path(environ)
    if ledger is None:
        raise UsageError("There is no home folder for an outbox.", "Set report.outbox.")
    return ledger.with_name("outbox.db")


class Outbox:
    """One outbox. Each call opens the file for as long as it takes; `sending` keeps a second sender out."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Hold the outbox for one sender. Raises SkuwiseError where another holds it; a killed one holds nothing."""
        lock = self.path.with_name(f"{self.path.name}.lock")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            stream = lock.open("w")
        except OSError as error:
            raise StoreError(f"The outbox {self.path} cannot be used: {error.strerror}.", _ELSEWHERE) from error
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise SkuwiseError(f"Another skuwise sends from {self.path}.", "Let it end first.") from error
            yield

    def is_queued(self, week: str, digest: str) -> bool:
        """Whether all of a week was queued; `digest` names the routes by which it was."""
        with self._open() as db:
            return bool(list(db.query("SELECT 1 FROM weeks WHERE week = ? AND digest = ?", [week, digest])))

    def note_queued(self, week: str, digest: str, now: float) -> None:
        """Note that all of a week is queued."""
        with self._open() as db:
            db.table("weeks").insert({"week": week, "digest": digest, "queued_at": now}, ignore=True)

    def known(self, week: str) -> frozenset[tuple[str, str, str]]:
        """(team, channel, recipient) of all that was ever queued of a week."""
        query = "SELECT team, channel, recipient FROM deliveries JOIN mails ON mails.id = mail WHERE week = ?"
        with self._open() as db:
            return frozenset((row["team"], row["channel"], row["recipient"]) for row in db.query(query, [week]))

    def queue(self, parcel: Parcel, now: float) -> int:
        """Write a parcel to the disk for those of its recipients who were never to receive it. Gives their count.

        `now`: Unix seconds. Raises StoreError; then nothing of it is queued.
        """
        known = self.known(parcel.week)
        fresh = [r for r in dict.fromkeys(parcel.recipients) if (parcel.team, parcel.channel, r) not in known]
        if not fresh:
            return 0
        with self._open() as db:
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
        return len(fresh)

    def due(self, now: float, team: str | None = None) -> tuple[int, ...]:
        """The mails that wait for somebody and may be tried at `now`, the oldest first; of `team` alone where named."""
        query = """
            SELECT DISTINCT mail FROM deliveries JOIN mails ON mails.id = mail
            WHERE state = 'queued' AND next_at <= :now AND (:team IS NULL OR team = :team) ORDER BY mail
        """
        with self._open() as db:
            return tuple(row["mail"] for row in db.query(query, {"now": now, "team": team}))

    def waiting(self) -> int:
        """How many recipients have yet to receive something."""
        with self._open() as db:
            return int(next(db.query("SELECT count(*) AS n FROM deliveries WHERE state = 'queued'"))["n"])

    def load(self, number: int, now: float) -> Parcel:
        """A mail with those of its recipients who are due."""
        query = "SELECT recipient FROM deliveries WHERE mail = ? AND state = 'queued' AND next_at <= ? ORDER BY rowid"
        with self._open() as db:
            mail = db.table("mails").get(number)
            recipients = tuple(row["recipient"] for row in db.query(query, [number, now]))
        return Parcel(
            mail["week"], mail["team"], mail["channel"], mail["message_id"], mail["subject"], bytes(mail["content"]),
            recipients,
        )  # fmt: skip

    def begin(self, number: int, recipients: Sequence[str], now: float) -> None:
        """Note that a mail is handed over now: if no end follows, it may have arrived."""
        with self._open() as db:
            db.table("attempts").insert_all({"mail": number, "recipient": r, "began_at": now} for r in recipients)
            for recipient in recipients:
                db.execute(
                    "UPDATE deliveries SET attempts = attempts + 1 WHERE mail = ? AND recipient = ?",
                    [number, recipient],
                )

    def end(self, number: int, replies: Mapping[str, Reply], now: float) -> Mapping[str, Reply]:
        """Note what became of an attempt, and let go of a content that nobody waits for any more. Gives what is noted:
        who was put off for five days is refused."""
        noted: dict[str, Reply] = {}
        with self._open() as db:
            queued_at = float(db.table("mails").get(number)["queued_at"])
            for recipient, said in replies.items():
                reply = Reply(said.result, clean_text(said.text, _MAX_REPLY))
                if reply.result == "later" and now - queued_at > GIVE_UP_SECONDS:
                    reply = Reply("refused", f"given up after five days; last: {reply.text}")
                noted[recipient] = reply
                _end(db, number, recipient, reply, now)
            db.execute(
                "UPDATE mails SET content = NULL WHERE id = ? AND NOT EXISTS "
                "(SELECT 1 FROM deliveries WHERE mail = mails.id AND state = 'queued')",
                [number],
            )
        return noted

    @contextmanager
    def _open(self) -> Iterator[Database]:
        """The file, made where it is not there, within one transaction that the end commits."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self.path.exists():
                self.path.touch(mode=0o600)  # contents name users and money
            connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            with closing(connection):
                # The folder is synced too: a rollback that came back would send again what was sent.
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("PRAGMA secure_delete = ON")  # a content that is let go of is overwritten
                connection.execute("BEGIN IMMEDIATE")
                db = Database(connection, recursive_triggers=False, execute_plugins=False)
                self._check(db)
                yield db
                connection.execute("COMMIT")
        except OSError as error:
            raise StoreError(f"The outbox {self.path} cannot be used: {error.strerror}.", _ELSEWHERE) from error
        except sqlite3.Error as error:
            raise StoreError(f"The outbox {self.path} cannot be used: {error}.", _ELSEWHERE) from error

    def _check(self, db: Database) -> None:
        """Begin an empty file. Raises StoreError for a file that is not ours, or of a newer skuwise."""
        number = int(db.execute("PRAGMA application_id").fetchone()[0])
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if number == APPLICATION_ID:
            if version // 1000 > VERSION // 1000:
                raise StoreError(f"The outbox {self.path} was written by a newer skuwise.", "Update skuwise here.")
            return
        if number or version or db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{self.path} is a database, but no outbox; it was left untouched.", _ELSEWHERE)
        db.table("mails").create(_MAILS, pk="id")
        db.table("deliveries").create(_DELIVERIES, pk=("mail", "recipient"), foreign_keys=[("mail", "mails", "id")])
        db.table("attempts").create(_ATTEMPTS, pk="seq", foreign_keys=[("mail", "mails", "id")])
        db.table("weeks").create(_WEEKS, pk=("week", "digest"))
        db.create_view("audit", _AUDIT)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {VERSION}")


_ELSEWHERE = "Name a file that you may write (report.outbox)."


def _end(db: Database, number: int, recipient: str, reply: Reply, now: float) -> None:
    which = [number, recipient]
    db.execute(
        "UPDATE attempts SET ended_at = ?, result = ?, reply = ? "
        "WHERE seq = (SELECT max(seq) FROM attempts WHERE mail = ? AND recipient = ?)",
        [now, reply.result, reply.text, *which],
    )
    if reply.result == "later":
        tried = int(db.table("deliveries").get(tuple(which))["attempts"])
        pause = min(FIRST_PAUSE_SECONDS * 2 ** max(0, min(tried, 20) - 1), MAX_PAUSE_SECONDS)
        db.execute(
            "UPDATE deliveries SET next_at = ?, reply = ? WHERE mail = ? AND recipient = ?",
            [now + pause, reply.text, *which],
        )
        return
    state = "sent" if reply.result == "accepted" else "refused"
    db.execute(
        "UPDATE deliveries SET state = ?, ended_at = ?, reply = ? WHERE mail = ? AND recipient = ?",
        [state, now, reply.text, *which],
    )
