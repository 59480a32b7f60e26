"""Cards of finished jobs, kept beyond the retention of telemetry, in one SQLite file.

One row a job: what it is found by, and its card, deflated. Each call opens the file for as long as it takes, within one
transaction, so that a kill at any moment leaves the cards that were there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from ...agent.config import load_section
from ...rules.base.errors import StoreError, UsageError
from ...rules.base.quantities import YEAR_10000
from ..core.card_types import Card
from ..state import guard
from ..state.files import begin_file, check_place
from ..state.guard import MOMENT, OPTIONAL_TEXT, TEXT, WHOLE, CellRule, sqlite_text
from .card_json import FORM, packed, unpacked
from .runs import Run, named_run

APPLICATION_ID = 0x736B7563  # "skuc"
VERSION = 1000  # PRAGMA user_version: major x 1000 + minor; a minor step only adds
_DAY_SECONDS = 86400.0
RETENTION_SECONDS = 3 * 366 * _DAY_SECONDS
_BUSY_SECONDS = 5.0
# A card whose end lies so far ahead was dated by a clock that runs ahead, and is not kept for longer.
_CLOCK_SECONDS = _DAY_SECONDS
_LISTED = 5000
_NODES_MAX = 256
_SHORTER = 0.999
_COLUMNS: Mapping[str, CellRule] = {
    "id": TEXT, "series_id": TEXT, "name": TEXT, "cluster": OPTIONAL_TEXT, "job_id": OPTIONAL_TEXT,
    "namespace": OPTIONAL_TEXT, "pod": OPTIONAL_TEXT, "user": OPTIONAL_TEXT, "account": OPTIONAL_TEXT,
    "ended_at": CellRule(float, least=0.0, most=YEAR_10000), "kept_at": MOMENT, "form": WHOLE,
    "card": CellRule(bytes),
}  # fmt: skip
_FORM = guard.FileForm({"cards": _COLUMNS})
_TYPES = {str: "TEXT", float: "REAL", int: "INTEGER", bytes: "BLOB"}
_INDEXED = ("job_id", "name", "pod", "user", "series_id", "ended_at")
_ELSEWHERE = "Use --cards with a file that you can write, or --no-keep."


@dataclass(frozen=True, slots=True)
class CardSettings:
    """Section ``[cards]``. `store`: the file (None: the default); `retention_seconds`: how long cards are kept."""

    store: Path | None = None
    retention_seconds: Annotated[float, Meta(ge=_DAY_SECONDS, le=50 * 366 * _DAY_SECONDS)] = RETENTION_SECONDS


class CardStore:
    """One file of cards. `retention_seconds`: cards that ended longer ago are removed when others are written."""

    def __init__(self, path: Path, retention_seconds: float = RETENTION_SECONDS) -> None:
        self.path = path
        self._retention_seconds = retention_seconds

    def keep(self, cards: Iterable[Card], now: float) -> int:
        """Keep the cards of finished jobs, each in the place of an earlier one of the same run unless that one knew
        more of it. Gives how many were written. `now`: Unix seconds. Raises StoreError."""
        ended = [card for card in cards if card.state == "ended" and card.end <= now + _CLOCK_SECONDS]
        if not ended:
            return 0
        written = 0
        with self._opened("rw") as (connection, file):
            for card in ended:
                kept = _readable(file.rows("cards", "WHERE id = ?", [card.id]))
                if kept and card.gpu_hours < kept[0].gpu_hours * _SHORTER:
                    continue  # part of its life is beyond retention by now
                row = {
                    "id": card.id, "series_id": card.series_id, "name": card.name, "cluster": card.cluster,
                    "job_id": card.job_id, "namespace": card.namespace, "pod": card.pod, "user": card.owner.user,
                    "account": card.owner.account, "ended_at": float(card.end), "kept_at": float(now), "form": FORM,
                    "card": packed(replace(card, nodes=card.nodes[:_NODES_MAX])),
                }  # fmt: skip
                marks = ", ".join(f":{name}" for name in row)
                values = {name: sqlite_text(value) if isinstance(value, str) else value for name, value in row.items()}
                connection.execute(f"INSERT OR REPLACE INTO cards VALUES ({marks})", values)  # noqa: S608
                written += 1
            connection.execute("DELETE FROM cards WHERE ended_at < ?", [now - self._retention_seconds])
            connection.execute("COMMIT")
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
        tasks = (f"{bare}_", f"{bare}`")
        return self._cards(where, [word, bare, word, word, pod, space, wide, f"{begin}\uffff", *tasks, _LISTED])

    def card(self, asked: str, command: Callable[[str], str]) -> Card | None:
        """The card of the job that is named; None: there is none. Raises AmbiguousError, StoreError."""
        cards = {card.id: card for card in self.named(asked)}
        runs = []
        for card in cards.values():
            array, _, task = (card.job_id or "").partition("_")
            runs.append(Run(
                card.id, card.series_id, card.name, card.start, card.end, card.scheduler, card.job_id,
                card.job_id if task else None, array if task else None, card.cluster, card.namespace, card.pod,
                card.owner, card.nodes, card.end,
            ))  # fmt: skip
        return cards[named_run(asked, runs, command)[0].id] if runs else None

    def compared(self, card: Card) -> Card:
        """The card with kept runs of its series; the kept card itself where it tells of more of the job's life."""
        from .build import with_kept  # noqa: PLC0415 - what judges

        same = next((one for one in self.named(card.id) if one.id == card.id), None)
        if same is not None and card.state == "ended" and card.gpu_hours < same.gpu_hours * _SHORTER:
            return same
        series = self._cards("WHERE series_id = ? ORDER BY ended_at DESC LIMIT 20", [card.series_id])
        return with_kept(card, series)

    def listed(self, since: float, until: float | None, owners: Mapping[str, str | None]) -> tuple[Card, ...]:
        """The cards of jobs that ended after `since` and began before `until` (Unix seconds). `owners`: by user,
        account and namespace; None: any. Raises StoreError."""
        asked = {name: sqlite_text(value) for name, value in owners.items() if value is not None}
        conditions = "".join(f' AND "{name}" = ?' for name in asked)
        where = f"WHERE ended_at >= ?{conditions} ORDER BY ended_at DESC LIMIT ?"
        cards = self._cards(where, [since, *asked.values(), _LISTED])
        return tuple(card for card in cards if until is None or card.start < until)

    def _cards(self, where: str, values: Sequence[object]) -> tuple[Card, ...]:
        if not self.path.exists():
            return ()
        with self._opened("ro") as (_, file):
            return _readable(file.rows("cards", where, values))

    @contextmanager
    def _opened(self, mode: str) -> Iterator[tuple[sqlite3.Connection, guard.Guarded]]:
        """The file; with `mode` rw within a transaction, and begun where it is not there. Raises StoreError."""
        try:
            if mode == "rw":
                begin_file(self.path)  # cards name users
            check_place(self.path)
            with guard.guarded(self.path, mode=mode, busy_seconds=_BUSY_SECONDS) as (connection, meter):
                if mode == "rw":
                    connection.execute("BEGIN IMMEDIATE")
                self._check(connection, begin=mode == "rw")
                yield connection, guard.Guarded(connection, _FORM, meter)
        except OSError as error:
            raise StoreError(f"Cannot use the cards in {self.path}: {error.strerror}.", _ELSEWHERE) from error
        except guard.UNREADABLE as error:
            raise StoreError(f"Cannot use the cards in {self.path}: {guard.reason(error)}.", _ELSEWHERE) from error

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
        columns = ", ".join(f"{name} {_TYPES[rule.kind]}" for name, rule in _COLUMNS.items())
        for statement in (
            f"CREATE TABLE cards ({columns}, PRIMARY KEY (id))",
            *(f"CREATE INDEX cards_{name} ON cards ({name})" for name in _INDEXED),
            f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {VERSION}",
        ):  # fmt: skip
            connection.execute(statement)


def card_store(named: Path | None, environ: Mapping[str, str]) -> CardStore:
    """The store that an option names, else section ``[cards]``, else ``$XDG_STATE_HOME/skuwise/cards.db``, beside the
    ledgers. Raises UsageError where there is no home folder, and for unknown settings."""
    settings = load_section(CardSettings, "cards", environ)
    path = named or settings.store
    if path is None:
        # As `ledger.file.paths.default_ledgers`, which takes a fifth of a second to load.
        state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
        if not home and not Path(state).is_absolute():
            raise UsageError("There is no home folder for cards.", "Use --cards FILE or --no-keep.")
        folder = Path(state) if Path(state).is_absolute() else Path(home) / ".local" / "state"
        path = folder / "skuwise" / "cards.db"
    return CardStore(path, settings.retention_seconds)


def _readable(rows: Iterable[Mapping[str, Any]]) -> tuple[Card, ...]:
    """The cards of rows, without those that were written in another form. Raises sqlite3.DataError."""
    cards = []
    for row in rows:
        if row["form"] == FORM:
            try:
                cards.append(unpacked(row["card"], row["kept_at"]))
            except (ValueError, RecursionError) as error:
                raise sqlite3.DataError(f"the card of {row['id'][:40]} is invalid: {error}") from error
    return tuple(cards)
