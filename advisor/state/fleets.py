"""Whose a ledger is: the fleets that a file was written for, and how a source is recognized as one of them.

A fleet is recognized by what it shares with what is recorded, not by a fixed key, so that it stays itself when nodes
come and go: the name of its cluster, or GPUs. Simulated and real telemetry never share a ledger.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from sqlite_utils import Database

from ...rules.base.sanitize import clean
from ..core.advice_types import Fleet
from .entries import from_json
from .guard import FLAG, MOMENT, TEXT, CellRule, FileForm, Guarded, sqlite_text

_TEXTS = CellRule(str, read=partial(from_json, tuple[str, ...]))
FLEETS_FORM = {
    "fleets": {
        "id": TEXT, "name": TEXT, "simulated": FLAG, "match": _TEXTS, "clusters": _TEXTS, "server": TEXT,
        "labels": CellRule(str, read=partial(from_json, Mapping[str, str])), "first_seen": MOMENT, "last_seen": MOMENT,
    },
    "fleet_members": {"fleet": TEXT, "member": TEXT, "node": TEXT, "last_seen": MOMENT},
}  # fmt: skip
_KEYS = {"fleets": "id", "fleet_members": ("fleet", "member")}
# Fleets of different clusters that share less than half of their GPUs are two: single nodes are moved, not fleets.
_RENAMED_SHARE = 0.5
_LABEL = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)")


@dataclass(frozen=True, slots=True)
class KnownFleet:
    """A fleet that a ledger was written for. `last_seen`: end of the newest telemetry (Unix seconds)."""

    name: str
    simulated: bool
    match: tuple[str, ...]
    clusters: frozenset[str]
    members: Mapping[str, str]
    server: str
    labels: Mapping[str, str]
    last_seen: float

    @property
    def words(self) -> str:
        """Its name, and what of it was asked for."""
        return self.name + (f" ({', '.join(self.match)})" if self.match else "")


def shared(fleet: Fleet, known: KnownFleet) -> int:
    """How many GPUs both have."""
    return len(fleet.members.keys() & known.members.keys())


def is_same(fleet: Fleet, known: KnownFleet) -> bool:
    """Whether a source shows the fleet that is recorded, whatever part of it was asked for."""
    common = shared(fleet, known)
    if fleet.simulated != known.simulated:
        return False
    if fleet.simulated:
        return common > 0  # simulated clusters are called after their provider, all alike
    if fleet.clusters & known.clusters:
        return True
    if fleet.clusters and known.clusters:
        return common >= _RENAMED_SHARE * min(len(fleet.members), len(known.members))
    if common:
        return True
    # A server that names itself keeps its name when all nodes are replaced. Within one window both would be seen.
    return bool(fleet.labels) and fleet.labels == known.labels and known.last_seen < fleet.start


def is_part_of_same_server(fleet: Fleet, known: KnownFleet) -> bool:
    """Whether both are parts that label matchers cut out of one server; they may share a ledger."""
    return (
        fleet.simulated == known.simulated
        and bool(fleet.match and known.match)
        and fleet.match != known.match
        and _label_names(fleet.match) == _label_names(known.match)
        and (fleet.server, dict(fleet.labels)) == (known.server, dict(known.labels))
    )


def file_stem(fleet: Fleet) -> str:
    """What a new ledger of this fleet is called: readable, and another one for every other fleet."""
    readable = re.sub(r"[^a-z0-9]+", "-", " ".join((fleet.name, *fleet.match)).lower()).strip("-")[:40].rstrip("-")
    told = [fleet.simulated, fleet.match, sorted(fleet.clusters), sorted(fleet.members)]
    return f"{readable or 'fleet'}-{_digest(told, 8)}"


def begin_fleets(db: Database) -> None:
    for table, key in _KEYS.items():
        kinds = FileForm(FLEETS_FORM).kinds(table)
        db.table(table).create(kinds, pk=key, not_null=set(kinds))


def note_fleet(db: Database, file: Guarded, fleet: Fleet) -> None:
    """Record that the ledger is this fleet's: what was known of it stays, what is new is added."""
    id_ = _digest([fleet.simulated, fleet.match], 12)  # apart from other parts of a server that share the ledger
    before = next((k for key, k in _read(file) if key == id_), None)
    seen = max(fleet.end, before.last_seen) if before else fleet.end
    clusters = fleet.clusters | before.clusters if before else fleet.clusters
    held = next(iter(file.rows("fleets", "WHERE id = ?", [id_])), {"first_seen": fleet.end})
    row = {
        "id": id_, "name": sqlite_text(fleet.name), "simulated": int(fleet.simulated), "match": json.dumps(fleet.match),
        "clusters": json.dumps(sorted(clusters)), "server": sqlite_text(fleet.server),
        "labels": json.dumps(dict(sorted(fleet.labels.items()))), "first_seen": held["first_seen"], "last_seen": seen,
    }  # fmt: skip
    db.table("fleets").upsert(row, pk="id")
    db.conn.executemany(
        "INSERT INTO fleet_members (fleet, member, node, last_seen) VALUES (?, ?, ?, ?) ON CONFLICT (fleet, member) "
        "DO UPDATE SET node = excluded.node, last_seen = max(last_seen, excluded.last_seen)",
        [(id_, sqlite_text(member), sqlite_text(node), fleet.end) for member, node in fleet.members.items()],
    )


def fleets_in(file: Guarded) -> tuple[KnownFleet, ...]:
    """The fleets that the ledger was written for; empty: none was ever told.

    Raises sqlite3.DataError where the rows are not as we write them.
    """
    return tuple(known for _, known in _read(file))


def _read(file: Guarded) -> list[tuple[str, KnownFleet]]:
    members: dict[str, dict[str, str]] = {}
    for row in file.rows("fleet_members"):
        members.setdefault(row["fleet"], {})[row["member"]] = row["node"]
    return [
        (
            row["id"],
            KnownFleet(
                row["name"], bool(row["simulated"]), row["match"], frozenset(row["clusters"]),
                members.get(row["id"], {}), row["server"], row["labels"], row["last_seen"],
            ),
        )
        for row in file.rows("fleets", "ORDER BY id")
    ]  # fmt: skip


def _digest(told: object, length: int) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:length]


def _label_names(match: Iterable[str]) -> frozenset[str]:
    return frozenset(found.group(1) for one in match if (found := _LABEL.match(one)))


def names_of(fleets: Iterable[KnownFleet]) -> str:
    """What the fleets of a ledger are called, for people."""
    return clean("; ".join(known.words for known in fleets))
