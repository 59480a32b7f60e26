"""Cards of finished jobs, kept beyond the retention of telemetry, in one SQLite file.

One row a job: what it is found by, and its card, deflated. Each call opens the file for as long as it takes, within one
transaction, so that a kill at any moment leaves the cards that were there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ...agent.base.safe_text import clean_text
from ...agent.base.setting_values import Reader, path_value, seconds_value
from ...agent.settings_reader import read_section
from ...agent.store.reading.bounds import Bounds, bounds_of
from ...rules.base.errors import StoreError, UsageError
from ...rules.base.quantities import YEAR_10000
from ..core.card_types import Card
from ..core.coded_text import CodedText
from ..ledger.file.files import begin_file, check_place
from ..ledger.guard import (
    MOMENT,
    OPTIONAL_TEXT,
    TEXT,
    UNREADABLE,
    WHOLE,
    CellRule,
    FileForm,
    Guarded,
    guarded,
    reason,
    sqlite_text,
)
from .card_json import FORM, packed, unpacked

APPLICATION_ID = 0x736B7563  # "skuc"
VERSION = 1000  # PRAGMA user_version: major x 1000 + minor; a minor step only adds
SECTION = "cards"

_DAY_SECONDS = 86400.0
RETENTION_SECONDS = 3 * 366 * _DAY_SECONDS
_BUSY_SECONDS = 5.0
# A million cards are 1 GB.
_MOST_CARDS, _MOST_BYTES, _CELL_BYTES = 1_000_000, 4 << 30, 64 << 10
# A card whose end lies so far ahead was dated by a clock that runs ahead, and is not kept for longer.
_CLOCK_SECONDS = _DAY_SECONDS
_LISTED = 5000
_NAMES_MAX, _NODES_MAX, _NODE_NAME_MAX = 256, 256, 64

_COLUMNS: Mapping[str, CellRule] = {
    "id": TEXT, "series_id": TEXT, "name": TEXT, "cluster": OPTIONAL_TEXT, "job_id": OPTIONAL_TEXT,
    "namespace": OPTIONAL_TEXT, "pod": OPTIONAL_TEXT, "user": OPTIONAL_TEXT, "account": OPTIONAL_TEXT,
    "ended_at": CellRule(float, least=0.0, most=YEAR_10000), "kept_at": MOMENT, "form": WHOLE,
    "card": CellRule(bytes),
}  # fmt: skip
_FORM = FileForm({"cards": _COLUMNS})
_TABLE = (
    "CREATE TABLE cards (id TEXT PRIMARY KEY, series_id TEXT, name TEXT, cluster TEXT, job_id TEXT, namespace TEXT,"
    " pod TEXT, user TEXT, account TEXT, ended_at REAL, kept_at REAL, form INTEGER, card BLOB)"
)
_INDEXED = ("job_id", "name", "pod", "user", "series_id", "ended_at")
_ELSEWHERE = "Use --cards with a file that you can write, or --no-keep."


@dataclass(frozen=True, slots=True)
class CardSettings:
    """Section ``[cards]``. `store`: the file (None: the default); `retention_seconds`: how long cards are kept."""

    store: Path | None = None
    retention_seconds: float = RETENTION_SECONDS


_READERS: Mapping[str, Reader] = {
    "store": path_value, "retention_seconds": seconds_value(_DAY_SECONDS, 50 * 366 * _DAY_SECONDS, "1 day to 50 years"),
}  # fmt: skip
_KEYS = {f.name.removesuffix("_seconds"): (f.name, _READERS[f.name]) for f in fields(CardSettings)}


def load_card_settings(environ: Mapping[str, str]) -> CardSettings:
    """Every layer over the one before. Raises `UsageError` for an unknown key or a value that cannot be."""
    return CardSettings(**read_section(SECTION, _KEYS, environ))


def default_cards(environ: Mapping[str, str]) -> Path | None:
    """``$XDG_STATE_HOME/skuwise/cards.db``, beside the ledgers; None: there is no home folder.

    As `ledger.file.paths.default_ledgers`, which takes a fifth of a second to load; a test holds the two together.
    """
    state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    if state and Path(state).is_absolute():
        return Path(state) / "skuwise" / "cards.db"
    return Path(home) / ".local" / "state" / "skuwise" / "cards.db" if home else None


class CardStore:
    """One file of cards. `retention_seconds`: cards that ended longer ago are removed when others are written."""

    def __init__(self, path: Path, retention_seconds: float = RETENTION_SECONDS) -> None:
        self.path = path
        self._retention_seconds = retention_seconds

    def keep(self, cards: Iterable[Card], now: float) -> int:
        """Keep the cards of finished jobs, each in the place of an earlier one of the same run unless that one knew
        more of it. Gives how many were written. `now`: Unix seconds. Raises StoreError."""
        ended = [_bounded(card) for card in cards if card.state == "ended" and card.end <= now + _CLOCK_SECONDS]
        if not ended:
            return 0
        with self._writing() as (connection, file):
            written = 0
            for card in ended:
                known = file.rows("cards", "WHERE id = ?", [card.id])
                if known and _gpu_hours(known[0]) > card.gpu_hours * 1.001:
                    continue  # part of its life is beyond retention by now
                row = _row(card, now)
                marks = ", ".join("?" for _ in row)
                columns = ", ".join(f'"{name}"' for name in row)
                connection.execute(
                    f"INSERT OR REPLACE INTO cards ({columns}) VALUES ({marks})",  # noqa: S608 - our own columns
                    list(row.values()),
                )
                written += 1
            connection.execute("DELETE FROM cards WHERE ended_at < ?", [now - self._retention_seconds])
            if file.fetch("SELECT count(*) FROM cards")[0][0] > _MOST_CARDS:
                connection.execute(
                    "DELETE FROM cards WHERE ended_at <= (SELECT ended_at FROM cards ORDER BY ended_at DESC"
                    " LIMIT 1 OFFSET ?)", [_MOST_CARDS],
                )  # fmt: skip
        return written

    def named(self, asked: str) -> tuple[Card, ...]:
        """The cards that `asked` may name: by id or its beginning, job, name, pod or NAMESPACE/POD. Raises
        StoreError."""
        word = sqlite_text(asked.strip())
        bare = word.rpartition("/")[2].partition("@")[0] or word
        space, _, pod = word.partition("/")
        begin = word if word.startswith("w-") else f"w-{word}"
        where = (
            "WHERE id = ? OR job_id = ? OR name = ? OR pod = ? OR (pod = ? AND namespace = ?) OR (id >= ? AND id < ?)"
            " OR (job_id >= ? AND job_id < ?) ORDER BY ended_at DESC LIMIT ?"
        )
        wide = begin if len(word) >= 4 else f"{begin}\uffff"
        # Tasks of an array: 4711_0 and on; "`" follows "_".
        values = [
            word, bare, word, word, pod, space, wide, f"{begin}\uffff", f"{bare}_", f"{bare}`", _LISTED,
        ]  # fmt: skip
        return self._cards(where, values)

    def listed(
        self, since: float, *, user: str | None = None, account: str | None = None, namespace: str | None = None
    ) -> tuple[Card, ...]:
        """The cards of jobs that ended after `since` (Unix seconds), of these owners. Raises StoreError."""
        asked = {"user": user, "account": account, "namespace": namespace}
        named = {name: value for name, value in asked.items() if value is not None}
        conditions = "".join(f' AND "{name}" = ?' for name in named)
        return self._cards(
            f"WHERE ended_at >= ?{conditions} ORDER BY ended_at DESC LIMIT ?",
            [since, *map(sqlite_text, named.values()), _LISTED],
        )

    def series(self, series_id: str) -> tuple[Card, ...]:
        """The newest cards of a series. Raises StoreError."""
        return self._cards("WHERE series_id = ? ORDER BY ended_at DESC LIMIT 20", [series_id])

    def _cards(self, where: str, values: Sequence[object]) -> tuple[Card, ...]:
        if not self.path.exists():
            return ()
        with self._reading() as file:
            return tuple(card for row in file.rows("cards", where, values) if (card := _card(row)) is not None)

    @contextmanager
    def _reading(self) -> Iterator[Guarded]:
        with self._told():
            check_place(self.path)
            with guarded(self.path, mode="ro", busy_seconds=_BUSY_SECONDS, bounds=_bounds) as (connection, meter):
                self._check(connection, begin=False)
                yield Guarded(connection, _FORM, meter)

    @contextmanager
    def _writing(self) -> Iterator[tuple[sqlite3.Connection, Guarded]]:
        with self._told():
            begin_file(self.path)  # cards name users
            check_place(self.path)
            with guarded(self.path, mode="rw", busy_seconds=_BUSY_SECONDS, bounds=_bounds) as (connection, meter):
                connection.execute("BEGIN IMMEDIATE")
                self._check(connection, begin=True)
                yield connection, Guarded(connection, _FORM, meter)
                connection.execute("COMMIT")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"Cannot use the cards in {self.path}: {error.strerror}.", _ELSEWHERE) from error
        except UNREADABLE as error:
            raise StoreError(f"Cannot use the cards in {self.path}: {reason(error)}.", _ELSEWHERE) from error

    def _check(self, connection: sqlite3.Connection, *, begin: bool) -> None:
        """Whether the file is ours; an empty one is begun. Raises StoreError."""
        number = int(connection.execute("PRAGMA application_id").fetchone()[0])
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if number == APPLICATION_ID:
            if version // 1000 > VERSION // 1000:
                raise StoreError(f"The cards in {self.path} were written by a newer skuwise.", "Update skuwise here.")
            return
        if number or version or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{self.path} is a database without cards; it was left untouched.", _ELSEWHERE)
        if not begin:
            raise sqlite3.DataError("it is empty")
        connection.execute(_TABLE)
        for name in _INDEXED:
            connection.execute(f"CREATE INDEX cards_{name} ON cards ({name})")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def card_store(named: Path | None, environ: Mapping[str, str]) -> CardStore:
    """The store that an option names, else the settings, else its usual place. Raises UsageError for none."""
    settings = load_card_settings(environ)
    path = named or settings.store or default_cards(environ)
    if path is None:
        raise UsageError("There is no home folder for cards.", "Use --cards FILE or --no-keep.")
    return CardStore(path, settings.retention_seconds)


def _bounded(card: Card) -> Card:
    """The card with its outside text bounded: names may be as long as somebody likes."""
    nodes = tuple(clean_text(one, _NODE_NAME_MAX) for one in card.nodes[:_NODES_MAX])
    owner = replace(card.owner, **{f.name: _short(getattr(card.owner, f.name)) for f in fields(card.owner)})
    return replace(
        card, name=clean_text(card.name, _NAMES_MAX), cluster=_short(card.cluster), job_id=_short(card.job_id),
        namespace=_short(card.namespace), pod=_short(card.pod), owner=owner, nodes=nodes,
        missing={key: clean_text(why, _NAMES_MAX) for key, why in card.missing.items()},
        next_step=CodedText(card.next_step.code, clean_text(card.next_step.text, _NAMES_MAX), card.next_step.fields),
    )  # fmt: skip


def _short(text: str | None) -> str | None:
    return None if text is None else clean_text(text, _NAMES_MAX)


def _row(card: Card, now: float) -> dict[str, Any]:
    return {
        "id": card.id, "series_id": card.series_id, "name": card.name, "cluster": card.cluster, "job_id": card.job_id,
        "namespace": card.namespace, "pod": card.pod, "user": card.owner.user, "account": card.owner.account,
        "ended_at": float(card.end), "kept_at": float(now), "form": FORM, "card": packed(card),
    }  # fmt: skip


def _card(row: Mapping[str, Any]) -> Card | None:
    """The card of a row; None: written in a form that is not known here. Raises sqlite3.DataError."""
    if row["form"] != FORM:
        return None
    try:
        return unpacked(row["card"], row["kept_at"])
    except (ValueError, RecursionError) as error:
        raise sqlite3.DataError(f"the card of {row['id'][:40]} is invalid: {error}") from error


def _gpu_hours(row: Mapping[str, Any]) -> float:
    try:
        card = _card(row)
    except sqlite3.DataError:
        return 0.0
    return 0.0 if card is None else card.gpu_hours


def _bounds(on_disk: int) -> Bounds:
    """What one look may cost. Raises sqlite3.DataError for a file that is too large to be ours."""
    if on_disk > _MOST_BYTES:
        raise sqlite3.DataError(f"it is larger than {_MOST_BYTES >> 30} GiB")
    return replace(bounds_of(on_disk), cell_bytes=_CELL_BYTES)
