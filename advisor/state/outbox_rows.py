"""What stands in an outbox's tables: their form, who waits, and what becomes of a try.

When to try again, and when to give up: by tries and by time that was lived through, never by one clock's word.

The wall clock may jump by a year between two tries, either way. The clock that runs since the machine booted cannot,
but begins anew with each boot: what it says has passed is never too much.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from sqlite_utils import Database

from ...agent.base.safe_text import clean_text
from ...agent.model import Instant
from .guard import MOMENT, OPTIONAL_MOMENT, OPTIONAL_TEXT, TEXT, WHOLE, CellRule, FileForm, Guarded
from .parcel import Reply

# RFC 5321, 4.5.4.1: a sender tries for at least four to five days.
GIVE_UP_SECONDS = 5 * 86400.0
FIRST_PAUSE_SECONDS = 300.0
MAX_PAUSE_SECONDS = 4 * 3600.0
# Of the time between two tries so much counts at most: nobody is given up after two tries a month apart.
_MOST_BETWEEN_SECONDS = 86400.0


def pause_seconds(tries: int) -> float:
    """How long to wait after so many tries: 5 min, then twice as long each time, up to 4 h."""
    return min(FIRST_PAUSE_SECONDS * 2 ** (min(tries, 20) - 1), MAX_PAUSE_SECONDS) if tries > 0 else 0.0


def lived_seconds(before: Instant, now: Instant) -> float:
    """Time between two tries that counts towards giving up.

    The clock since boot gives what has surely passed. Where the machine was booted in between that may be little, and
    the wall clock is heard as well, up to the longest pause.
    """
    wall = min(max(now.wall_seconds - before.wall_seconds, 0.0), MAX_PAUSE_SECONDS)
    return min(max(_since_boot(before, now), wall), _MOST_BETWEEN_SECONDS)


def left_seconds(next_at: float, tries: int, tried: Instant | None, now: Instant) -> float:
    """How long to wait yet for a try that was put off until `next_at` (Unix seconds); 0: it is due.

    `tried`: when the last try ended, None: it was not tried yet. Nothing is put off for longer than its
    pause, so that a moment further away was told by a clock that ran ahead.
    """
    pause = pause_seconds(tries)
    left = next_at - now.wall_seconds
    if not 0 < left <= pause:
        return 0.0
    return min(left, max(pause - _since_boot(tried, now), 0.0)) if tried is not None else left


def _since_boot(before: Instant, now: Instant) -> float:
    """The least time that has passed, by the clock that runs since boot."""
    passed = now.monotonic_seconds - before.monotonic_seconds
    return passed if passed >= 0 else now.monotonic_seconds


APPLICATION_ID = 0x736B756F  # "skuo"
VERSION = 1002  # PRAGMA user_version: major x 1000 + minor; a minor step only adds
MAX_REPLY = 300  # characters, and bytes
# What a try will write beside the reply: six numbers.
_MORE_BYTES = 64
_AUDIT = """
    SELECT mails.week, mails.team, mails.channel, deliveries.recipient, deliveries.state, deliveries.attempts,
        mails.queued_at, deliveries.ended_at, deliveries.reply, mails.message_id, mails.digest, mails.subject
    FROM deliveries JOIN mails ON mails.id = deliveries.mail
"""
_SPAN = CellRule(float, optional=True, least=0.0, most=1e10)

FORM = FileForm(
    {
        "mails": {
            "id": WHOLE, "week": TEXT, "team": TEXT, "channel": CellRule(str, words=("mail", "webhook")),
            "message_id": TEXT, "subject": TEXT, "digest": TEXT, "queued_at": MOMENT,
            "content": CellRule(bytes, optional=True),
        },
        "deliveries": {
            "mail": WHOLE, "recipient": TEXT, "state": CellRule(str, words=("queued", "sent", "refused")),
            "attempts": WHOLE, "next_at": MOMENT, "ended_at": OPTIONAL_MOMENT, "reply": TEXT,
            "lived_seconds": _SPAN, "tried_at": OPTIONAL_MOMENT, "tried_since_boot": _SPAN,
        },
        "attempts": {
            "seq": WHOLE, "mail": WHOLE, "recipient": TEXT, "began_at": MOMENT, "ended_at": OPTIONAL_MOMENT,
            "result": CellRule(str, optional=True, words=("accepted", "later", "refused")), "reply": OPTIONAL_TEXT,
        },
        "weeks": {"week": TEXT, "digest": TEXT, "queued_at": MOMENT},
        # The keys of what a mail informs of.
        "about": {"mail": WHOLE, "item": TEXT},
    },
    views=frozenset({"audit"}),
)  # fmt: skip


def begin_tables(db: Database) -> None:
    db.table("mails").create(FORM.kinds("mails"), pk="id")
    db.table("deliveries").create(
        FORM.kinds("deliveries"), pk=("mail", "recipient"), foreign_keys=[("mail", "mails", "id")]
    )
    db.table("attempts").create(FORM.kinds("attempts"), pk="seq", foreign_keys=[("mail", "mails", "id")])
    db.table("weeks").create(FORM.kinds("weeks"), pk=("week", "digest"))
    db.table("about").create(FORM.kinds("about"), pk=("item", "mail"), foreign_keys=[("mail", "mails", "id")])
    db.create_view("audit", _AUDIT)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")


def those_waiting(file: Guarded, mail: int | None = None) -> list[dict[str, Any]]:
    """The deliveries that wait, in the order in which they were queued; of one mail where it is named."""
    return file.rows("deliveries", "WHERE state = 'queued' AND (?1 IS NULL OR mail = ?1) ORDER BY rowid", [mail])


def _tried(row: Mapping[str, Any]) -> Instant | None:
    """When the last try ended, by both clocks."""
    at, since_boot = row["tried_at"], row["tried_since_boot"]
    return Instant(at, since_boot) if at is not None and since_boot is not None else None


def left(row: Mapping[str, Any], now: Instant) -> float:
    return left_seconds(row["next_at"], row["attempts"], _tried(row), now)


def _lived(row: Mapping[str, Any], now: Instant) -> float:
    tried = _tried(row)
    return lived_seconds(tried, now) if tried is not None else 0.0


def _short(text: str) -> str:
    """What a server said, in the room that was kept for it."""
    return clean_text(text, MAX_REPLY).encode()[:MAX_REPLY].decode("utf-8", "ignore")


def begin_try(db: Database, mail: int, recipient: str, now: Instant) -> None:
    """Note that a mail is handed over, with room for all that its end will write: that must not need a byte more."""
    room = " " * (MAX_REPLY + _MORE_BYTES)
    db.execute(
        "INSERT INTO attempts (mail, recipient, began_at, reply) VALUES (?, ?, ?, ?)",
        [mail, recipient, now.wall_seconds, room],
    )
    found = db.execute(
        "UPDATE deliveries SET attempts = attempts + 1, reply = substr(reply || ?, 1, ?) "
        "WHERE mail = ? AND recipient = ?",
        [room, len(room), mail, recipient],
    )
    if found.rowcount != 1:  # before it is sent: its end would not be noted either
        raise sqlite3.DataError(f"it does not hold the delivery of mail {mail} that it waits for")


def end_try(db: Database, row: Mapping[str, Any], said: Reply, now: Instant) -> Reply:
    """Note what became of a try of a delivery. Gives what is noted: who was put off for five days is refused."""
    reply, which = Reply(said.result, _short(said.text)), [row["mail"], row["recipient"]]
    lived = (row["lived_seconds"] or 0.0) + _lived(row, now)
    if reply.result == "later" and lived > GIVE_UP_SECONDS:
        reply = Reply("refused", _short(f"given up after five days; last: {reply.text}"))
    db.execute(
        "UPDATE attempts SET ended_at = ?, result = ?, reply = ? "
        "WHERE seq = (SELECT max(seq) FROM attempts WHERE mail = ? AND recipient = ?)",
        [now.wall_seconds, reply.result, reply.text, *which],
    )
    if reply.result == "later":
        next_at = now.wall_seconds + pause_seconds(row["attempts"])
        db.execute(
            "UPDATE deliveries SET next_at = ?, ended_at = NULL, reply = ?, lived_seconds = ?, tried_at = ?, "
            "tried_since_boot = ? WHERE mail = ? AND recipient = ?",
            [next_at, reply.text, lived, now.wall_seconds, now.monotonic_seconds, *which],
        )
        return reply
    state = "sent" if reply.result == "accepted" else "refused"
    db.execute(
        "UPDATE deliveries SET state = ?, ended_at = ?, reply = ? WHERE mail = ? AND recipient = ?",
        [state, now.wall_seconds, reply.text, *which],
    )
    return reply
