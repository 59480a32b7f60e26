"""Cards of finished jobs, kept beyond the retention of telemetry."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlite_utils import Database

from ..core.card_types import Card
from ..core.ids import PREFIX_MIN
from .file import cells, from_json, sqlite_text

_LISTED = 5000
_OF_SERIES = 20
_SHORTER = 0.999


def keep(db: Database, cards: Iterable[Card], now: float, keep_seconds: float) -> int:
    """Keep the cards of finished jobs, each in the place of an earlier one of the same run unless that one knew more
    of its life; cards of jobs that ended more than `keep_seconds` ago go. `now`: Unix seconds. Gives how many were
    written."""
    written = 0
    for card in cards:
        if card.state != "ended" or any(knows_less(card, kept) for kept in _cards(db, "WHERE id = ?", [card.id])):
            continue
        row = cells(
            id=card.id, series_id=card.series_id, name=card.name, job_id=card.job_id, namespace=card.namespace,
            pod=card.pod, user=card.owner.user, account=card.owner.account, ended_at=card.end, kept_at=now,
            card=replace(card, kept_at=now),
        )  # fmt: skip
        db.table("cards").upsert(row, pk="id")
        written += 1
    db.execute("DELETE FROM cards WHERE ended_at < ?", [now - keep_seconds])
    return written


def knows_less(card: Card, kept: Card) -> bool:
    """Whether a card was made of less of the job's life than the kept one: a part is beyond retention by now."""
    return card.gpu_hours < kept.gpu_hours * _SHORTER


def named(db: Database, asked: str) -> tuple[Card, ...]:
    """The cards that `asked` may name: by id or its beginning, job (with or without its cluster, or its array), name,
    pod or NAMESPACE/POD; the newest first."""
    # Tasks of an array are 4711_0 and on; "`" follows "_".
    where = (
        "WHERE id = :word OR name = :word OR pod = :word OR (pod = :pod AND namespace || '/' || pod = :word)"
        " OR id BETWEEN :begin AND :after OR job_id = :job OR (job_id >= :job || '_' AND job_id < :job || '`')"
        " ORDER BY ended_at DESC LIMIT :most"
    )
    return _cards(db, where, {**spellings(asked), "most": _LISTED})


def spellings(asked: str) -> dict[str, str]:
    """The typed name as the parameters of a query: the `word`, the `name` without its node, the `job` without its
    cluster, the `pod` without its namespace, and the ids from `begin` to `after` that begin so."""
    word = sqlite_text(asked.strip())
    begin = word if word.startswith("w-") else f"w-{word}"
    return {
        "word": word, "name": word.rpartition("@")[0] or word, "pod": word.rpartition("/")[2],
        "job": word.rpartition("/")[2].partition("@")[0] or word, "begin": begin,
        "after": f"{begin}\uffff" if len(word) >= PREFIX_MIN else begin,
    }  # fmt: skip


def listed(db: Database, since: float, until: float | None, owners: Mapping[str, str | None]) -> tuple[Card, ...]:
    """The cards of jobs that ended after `since` and began before `until` (Unix seconds; None: any time), the newest
    first. `owners`: by user, account and namespace; None: any."""
    asked = {name: sqlite_text(value) for name, value in owners.items() if value is not None}
    conditions = "".join(f' AND "{name}" = ?' for name in asked)
    where = f"WHERE ended_at >= ?{conditions} ORDER BY ended_at DESC LIMIT ?"
    cards = _cards(db, where, [since, *asked.values(), _LISTED])
    return tuple(card for card in cards if until is None or card.start < until)


def of_series(db: Database, series_id: str) -> tuple[Card, ...]:
    """The cards of the newest runs of a series, the newest first."""
    return _cards(db, "WHERE series_id = ? ORDER BY ended_at DESC LIMIT ?", [sqlite_text(series_id), _OF_SERIES])


def _cards(db: Database, where: str, values: Sequence[object] | dict[str, object]) -> tuple[Card, ...]:
    selected = db.query(f"SELECT card FROM cards {where}", values)  # noqa: S608 - constants of this file
    return tuple(from_json(Card, row["card"]) for row in selected)
