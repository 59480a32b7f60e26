"""Messages that are to be sent, and what became of each: one row for one message to one recipient.

A message is written before it is sent, and each answer as soon as it is there. A message whose sender was killed while
it handed it over is sent once more, under the same Message-ID. One sender at a time (`State.alone`). Times are Unix
seconds of a clock that may be wrong by days.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from sqlite_utils import Database

from ...agent.base.safe_text import clean_text
from .file import cells, sqlite_text

Channel = Literal["mail", "webhook"]
Result = Literal["accepted", "later", "refused", "unsure"]

FIRST_PAUSE_SECONDS = 300.0
MAX_PAUSE_SECONDS = 4 * 3600.0
# RFC 5321, 4.5.4.1: a sender tries for at least four to five days.
GIVE_UP_SECONDS = 7 * 86400.0
# A clock that jumps, or a weekly schedule without retries, does not fail a message after a try or two.
GIVE_UP_ATTEMPTS = 8
KILLED = "the sender was killed while it was handed over: it may have arrived"
_MAX_REPLY = 300


@dataclass(frozen=True, slots=True)
class Message:
    """One message to one recipient, whole: a mail, or the JSON of a webhook.

    `batch`: a week or another name under which each recipient receives one message; `team` empty: the administrators;
    `recipient`: an address, or a word that stands for the team's webhook, whose address is a secret. `items`: the keys
    of what it informs of.
    """

    batch: str
    team: str
    channel: Channel
    recipient: str
    message_id: str
    subject: str
    content: bytes
    items: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server said of a message. ``later``: it may be accepted another time; ``unsure``: the message was handed
    over whole, and nothing was said of it."""

    result: Result
    text: str


@dataclass(frozen=True, slots=True)
class Told:
    """Who was, or is to be, informed of an item, and by which message."""

    channel: Channel
    team: str
    recipient: str
    message_id: str


def pause_seconds(attempts: int) -> float:
    """Wait after so many attempts: 5 min, then twice as long each time, up to 4 h."""
    return min(FIRST_PAUSE_SECONDS * 2 ** (min(attempts, 20) - 1), MAX_PAUSE_SECONDS) if attempts > 0 else 0.0


def queue(db: Database, messages: Iterable[Message], now: float) -> int:
    """Add messages that are due at once, but for those whose batch, team, channel and recipient have one already.
    Returns how many were added."""
    added = 0
    for message in messages:
        row = cells(
            batch=message.batch, team=message.team, channel=message.channel, recipient=message.recipient,
            message_id=message.message_id, subject=clean_text(message.subject), content=message.content, queued_at=now,
            state="due",
        )  # fmt: skip
        id_ = db.table("deliveries").insert(row, ignore=True).last_pk
        if id_ is not None:
            added += 1
            items = [cells(delivery=id_, item=item) for item in dict.fromkeys(message.items)]
            db.table("delivery_items").insert_all(items)
    return added


def known(db: Database, batch: str) -> frozenset[tuple[str, str, str]]:
    """(team, channel, recipient) of all messages that a batch ever had."""
    sql = "SELECT team, channel, recipient FROM deliveries WHERE batch = ?"
    return frozenset(db.execute(sql, [sqlite_text(batch)]).fetchall())


def told(db: Database, items: Sequence[str]) -> Mapping[str, tuple[Told, ...]]:
    """The messages about each of `items`, the oldest first; an item without a message is left out."""
    query = """
        SELECT item, channel, team, recipient, message_id FROM delivery_items JOIN deliveries ON id = delivery
        WHERE item IN (SELECT value FROM json_each(?)) ORDER BY id
    """
    selected: dict[str, tuple[Told, ...]] = {}
    for row in db.query(query, [msgspec.json.encode([*map(sqlite_text, items)]).decode()]):
        item = row.pop("item")
        selected[item] = (*selected.get(item, ()), Told(**row))
    return selected


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that has yet to reach `to`: team, channel and recipient. `left_seconds`: until it may be tried."""

    id: int
    to: tuple[str, str, str]
    left_seconds: float


def waiting(db: Database, now: float, batch_prefix: str = "", only_team: str | None = None) -> list[Waiting]:
    """The messages that wait, the oldest first; of one team, of batches whose names begin so."""
    query = """
        SELECT id, team, channel, recipient, attempts, next_attempt_at FROM deliveries
        WHERE state IN ('due', 'sending') AND (?1 IS NULL OR team = ?1) AND substr(batch, 1, length(?2)) = ?2
        ORDER BY id
    """
    messages = []
    for id_, *to, attempts, next_at in db.execute(query, [only_team and sqlite_text(only_team), batch_prefix]):
        # Nothing is put off for longer than its pause: a moment further away was dated by a clock that ran ahead.
        left = (next_at or 0.0) - now
        messages.append(Waiting(id_, tuple(to), left if 0 < left <= pause_seconds(attempts) else 0.0))
    return messages


def recover(db: Database, now: float) -> tuple[Told, ...]:
    """Take up what a killed sender had in hand: a message without a known end is due once more, and fails the second
    time. Call it before `waiting`, as the only sender. Returns what failed."""
    columns = "channel, team, recipient, message_id"
    failed = db.execute(f"SELECT {columns} FROM deliveries WHERE state = 'sending' AND unsure > 0").fetchall()  # noqa: S608 - ours
    db.execute(
        "UPDATE deliveries SET state = iif(unsure > 0, 'failed', 'due'), ended_at = iif(unsure > 0, ?, NULL), "
        "unsure = unsure + 1, attempts = attempts + 1, next_attempt_at = NULL, reply = ? WHERE state = 'sending'",
        [now, KILLED],
    )
    return tuple(Told(*row) for row in failed)


def load(db: Database, id_: int) -> Message:
    """A message that waits, without its items."""
    columns = "batch, team, channel, recipient, message_id, subject, content"
    return Message(*db.execute(f"SELECT {columns} FROM deliveries WHERE id = ?", [id_]).fetchone())  # noqa: S608 - ours


def begin(db: Database, id_: int) -> None:
    """Note that a message is handed over from now on: if no `end` follows, it may have arrived."""
    db.execute("UPDATE deliveries SET state = 'sending' WHERE id = ?", [id_])


def end(db: Database, id_: int, reply: Reply, now: float) -> Reply:
    """Note what became of an attempt. Returns what is noted: ``refused`` also where the message is given up."""
    row = db.table("deliveries").get(id_)
    attempts, unsure = row["attempts"] + 1, row["unsure"] + (reply.result == "unsure")
    # A first attempt in the future was dated by a clock that ran ahead.
    first = min(row["first_attempt_at"] or now, now)
    result, text = reply.result, reply.text
    if result == "unsure" and unsure > 1:
        result, text = "refused", f"handed over twice without an answer, it may have arrived; last: {text}"
    elif result in ("later", "unsure") and now - first >= GIVE_UP_SECONDS and attempts >= GIVE_UP_ATTEMPTS:
        result, text = "refused", f"given up after seven days; last: {text}"
    reply = Reply(result, clean_text(text, _MAX_REPLY))
    state = {"accepted": "sent", "refused": "failed"}.get(result, "due")
    next_at, ended_at = (now + pause_seconds(attempts), None) if state == "due" else (None, now)
    changes = {"state": state, "attempts": attempts, "unsure": unsure, "first_attempt_at": first}
    changes |= {"next_attempt_at": next_at, "ended_at": ended_at, "reply": reply.text}
    db.table("deliveries").update(id_, changes)
    return reply


def let_go(db: Database) -> None:
    """Overwrite the contents of messages that are settled; they name users and money."""
    db.execute("PRAGMA secure_delete = ON").fetchall()
    db.execute("UPDATE deliveries SET content = NULL WHERE content IS NOT NULL AND state IN ('sent', 'failed')")
