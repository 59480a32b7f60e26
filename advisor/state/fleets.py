"""The fleets that a state file was written for, and how a source is recognized as one of them.

A fleet is recognized by what it shares with what is recorded, not by a fixed key, so that it stays itself when nodes
come and go: the name of its cluster, or GPUs. Simulated and real telemetry never share a file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...rules.base.errors import StoreError, UsageError
from ...rules.base.sanitize import clean
from ..core.advice_types import Fleet
from .file import DamagedStateError, State, from_json, rows, sqlite_text

if TYPE_CHECKING:
    from sqlite_utils import Database

# Fleets of different clusters that share less than half of their GPUs are two: single nodes are moved, not fleets.
_RENAMED_SHARE = 0.5
_LABEL = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)")


def is_same(fleet: Fleet, known: Fleet) -> bool:
    """Whether a source shows the fleet that is recorded, whatever part of it was asked for."""
    common = len(fleet.members.keys() & known.members.keys())
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
    return bool(fleet.labels) and fleet.labels == known.labels and known.end < fleet.start


def refuse_others(db: Database, fleet: Fleet, path: Path) -> None:
    """Raises UsageError where the file at `path` was written for other fleets. Parts that label matchers cut out of one
    server may share one."""
    fleets = fleets_in(db)
    for known in fleets:
        is_part = bool(fleet.match and known.match) and _label_names(fleet.match) == _label_names(known.match)
        same_server = (fleet.server, dict(fleet.labels)) == (known.server, dict(known.labels))
        if is_same(fleet, known) or (fleet.simulated == known.simulated and is_part and same_server):
            return
    if fleets:
        mixed = any(known.simulated != fleet.simulated for known in fleets)
        why = "simulated and real telemetry cannot share a file" if mixed else "the fleets have no GPU in common"
        raise UsageError(
            f"The state file {clean(str(path))} belongs to another fleet ({names_of(fleets)}), not to this source "
            f"({clean(fleet.name)}): {why}.",
            "Remove --state, or use another file.",
        )


def names_of(fleets: Iterable[Fleet]) -> str:
    """The names of fleets for people, each with what of it was asked for."""
    return clean("; ".join(f.name + (f" ({', '.join(f.match)})" if f.match else "") for f in fleets))


def fleets_in(db: Database) -> tuple[Fleet, ...]:
    """The fleets that the file was written for, as they were seen so far; empty: none was noted yet."""
    members: dict[str, dict[str, str]] = {}
    for row in rows(db, "SELECT fleet, member, node FROM fleet_members"):
        members.setdefault(row["fleet"], {})[row["member"]] = row["node"]
    return tuple(
        Fleet(
            name=row["name"],
            simulated=bool(row["simulated"]),
            match=from_json(tuple[str, ...], row["match"]),
            clusters=from_json(frozenset[str], row["clusters"]),
            members=members.get(row["id"], {}),
            nodes=frozenset(members.get(row["id"], {}).values()),
            sources=frozenset(),
            server=row["server"],
            labels=from_json(dict[str, str], row["labels"]),
            start=row["first_seen"],
            end=row["last_seen"],
        )
        for row in rows(db, "SELECT * FROM fleets ORDER BY id")
    )


def note_fleet(db: Database, fleet: Fleet) -> None:
    """Record that the file is this fleet's: what was known of it stays, what is new is added."""
    id_ = _digest([fleet.simulated, fleet.match], 12)  # apart from other parts of a server that share the file
    clusters = set(fleet.clusters)
    for row in rows(db, "SELECT clusters FROM fleets WHERE id = ?", [id_]):
        clusters |= from_json(frozenset[str], row["clusters"])
    db.execute(
        "INSERT INTO fleets (id, name, simulated, match, clusters, server, labels, first_seen, last_seen) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name, "
        "clusters = excluded.clusters, server = excluded.server, labels = excluded.labels, "
        "last_seen = max(last_seen, excluded.last_seen)",
        [
            id_, sqlite_text(fleet.name), fleet.simulated, json.dumps([sqlite_text(one) for one in fleet.match]),
            json.dumps(sorted(clusters)), sqlite_text(fleet.server), json.dumps(dict(sorted(fleet.labels.items()))),
            fleet.end, fleet.end,
        ],
    )  # fmt: skip
    db.conn.executemany(
        "INSERT INTO fleet_members (fleet, member, node, last_seen) VALUES (?, ?, ?, ?) ON CONFLICT (fleet, member) "
        "DO UPDATE SET node = excluded.node, last_seen = max(last_seen, excluded.last_seen)",
        [(id_, sqlite_text(member), sqlite_text(node), fleet.end) for member, node in fleet.members.items()],
    )


def state_files(folder: Path) -> list[Path]:
    """The state files that there are, in the order of their names. Raises StoreError."""
    try:
        return sorted(folder.glob("*.db"))
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror}.", "Use --state to name a file.") from error


def state_of(folder: Path, fleet: Fleet) -> tuple[State, tuple[str, ...]]:
    """The fleet's state file, or where it is to be begun; and what to say of files that are left out as damaged.

    Of several that share GPUs with it, the one that shares most, then the one used last. Raises StoreError where none
    fits and one cannot be read for now: it may be this fleet's.
    """
    warnings: list[str] = []
    candidates: list[tuple[int, float, Path]] = []
    taken: set[Path] = set()
    unreadable: StoreError | None = None
    for path in state_files(folder):
        taken.add(path)
        try:
            with State(path).reading() as db:
                fleets = fleets_in(db)
        except DamagedStateError as error:
            warnings.append(f"ignored: {error.message}")
            continue
        except StoreError as error:
            unreadable = unreadable or error
            continue
        if not fleets:
            taken.remove(path)  # another process is beginning it, or was killed when it did
        for known in fleets:
            if known.match == fleet.match and is_same(fleet, known):
                candidates.append((len(fleet.members.keys() & known.members.keys()), known.end, path))
    if candidates:
        return State(max(candidates)[2]), tuple(warnings)
    if unreadable is not None:
        raise unreadable
    stem, number = file_stem(fleet), 1
    path = folder / f"{stem}.db"
    while path in taken:
        number += 1
        path = folder / f"{stem}-{number}.db"
    return State(path), tuple(warnings)


def file_stem(fleet: Fleet) -> str:
    """The name of a new file of this fleet: readable, the same in every process that begins it, and another one for
    every other fleet."""
    readable = re.sub(r"[^a-z0-9]+", "-", " ".join((fleet.name, *fleet.match)).lower()).strip("-")[:40].rstrip("-")
    identity = sorted(fleet.clusters) if fleet.clusters and not fleet.simulated else sorted(fleet.members)
    return f"{readable or 'fleet'}-{_digest([fleet.simulated, fleet.match, identity], 8)}"


def _digest(value: object, length: int) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:length]


def _label_names(match: Iterable[str]) -> frozenset[str]:
    return frozenset(found.group(1) for one in match if (found := _LABEL.match(one)))
