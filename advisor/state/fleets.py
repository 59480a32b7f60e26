"""The fleets that a state file was written for, and how a source is recognized as one of them.

A fleet is recognized by what it shares with what is recorded, not by a fixed key, so that it stays itself when nodes
come and go: the name of its cluster, or GPUs. Simulated and real telemetry never share a file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...rules.base.errors import StoreError, UsageError
from ...rules.base.sanitize import clean
from ..core.advice_types import Advice, Decision, Fleet
from ..recommend.predict.calibration import NO_SITE, Site
from ..recommend.progress import observation_of
from . import ledger
from .file import DamagedStateError, State, from_json, rows, sqlite_text
from .outcomes import ledger_events, site_of

if TYPE_CHECKING:
    from sqlite_utils import Database

# Fleets of different clusters that share less than half of their GPUs are two: single nodes are moved, not fleets.
_RENAMED_SHARE = 0.5
_LABEL = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)")


def is_same(fleet: Fleet, recorded: Fleet) -> bool:
    """Whether a source shows the fleet that is recorded, whatever part of it was asked for."""
    common = len(fleet.members.keys() & recorded.members.keys())
    if fleet.simulated != recorded.simulated:
        return False
    if fleet.simulated:
        return common > 0  # simulated clusters are called after their provider, all alike
    if fleet.clusters & recorded.clusters:
        return True
    if fleet.clusters and recorded.clusters:
        return common >= _RENAMED_SHARE * min(len(fleet.members), len(recorded.members))
    if common:
        return True
    # A server that names itself keeps its name when all nodes are replaced. Within one window both would be seen.
    return bool(fleet.labels) and fleet.labels == recorded.labels and recorded.end < fleet.start


def refuse_others(db: Database, fleet: Fleet, path: Path) -> None:
    """Raises UsageError where the file at `path` was written for other fleets. Parts that label matchers cut out of one
    server may share one."""
    fleets = fleets_in(db)
    for recorded in fleets:
        is_part = bool(fleet.match and recorded.match) and _label_names(fleet.match) == _label_names(recorded.match)
        same_server = (fleet.server, dict(fleet.labels)) == (recorded.server, dict(recorded.labels))
        if is_same(fleet, recorded) or (fleet.simulated == recorded.simulated and is_part and same_server):
            return
    if fleets:
        mixed = any(recorded.simulated != fleet.simulated for recorded in fleets)
        why = "simulated and real telemetry cannot share a file" if mixed else "the fleets have no GPU in common"
        what = f"The state file {clean(str(path))} belongs to another fleet ({names_of(fleets)}), not to this source"
        raise UsageError(f"{what} ({clean(fleet.name)}): {why}.", "Remove --state, or use another file.")


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
            row["name"], bool(row["simulated"]), from_json(tuple[str, ...], row["match"]),
            from_json(frozenset[str], row["clusters"]), there := members.get(row["id"], {}),
            nodes=frozenset(there.values()), sources=frozenset(), server=row["server"],
            labels=from_json(dict[str, str], row["labels"]), start=row["first_seen"], end=row["last_seen"],
        )
        for row in rows(db, "SELECT * FROM fleets ORDER BY id")
    )  # fmt: skip


def note_fleet(db: Database, fleet: Fleet) -> None:
    """Record that the file is this fleet's: what was recorded of it stays, what is new is added."""
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
            id_, sqlite_text(fleet.name), fleet.simulated, json.dumps([sqlite_text(text) for text in fleet.match]),
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
    """The fleet's state file (of several the one that shares most GPUs, then the one used last), or where it is to be
    begun; and warnings about damaged files. Raises StoreError where none fits and one cannot be read for now."""
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
        for recorded in fleets:
            if recorded.match == fleet.match and is_same(fleet, recorded):
                candidates.append((len(fleet.members.keys() & recorded.members.keys()), recorded.end, path))
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
    return frozenset(label[1] for text in match if (label := _LABEL.match(text)))


@dataclass(frozen=True, slots=True)
class StateBeside:
    """The state file beside one advice.

    `state`: the file that was named, or the fleet's own once `of` has found it; None: none is used. `folder`: of the
    files of all fleets, where none was named. `fleet`: whose telemetry is read, once it is known.
    """

    say: Callable[[str], None]
    state: State | None = None
    folder: Path | None = None
    fleet: Fleet | None = None

    @property
    def is_named(self) -> bool:
        """Whether the user asked for this file."""
        return self.state is not None and self.folder is None

    def check(self) -> None:
        """Raises StoreError where a named file cannot be read: before telemetry is, which takes time."""
        if self.is_named:
            self.entries()

    def of(self, fleet: Fleet | None) -> StateBeside:
        """The state file of a fleet; as it is where its fleet is known already. Raises UsageError where the named file
        is another fleet's, StoreError where it cannot be read."""
        if fleet is None or self.fleet is not None:
            return self
        if self.folder is None:
            if self.state is not None:
                with self.state.reading() as db:
                    refuse_others(db, fleet, self.state.path)
            return replace(self, fleet=fleet)
        try:
            state, warnings = state_of(self.folder, fleet)
        except StoreError as error:
            self.say(f"no ledger: {error}")
            return replace(self, folder=None, fleet=fleet)
        for sentence in warnings:
            self.say(sentence)
        return replace(self, state=state, fleet=fleet)

    def entries(self) -> tuple[ledger.LedgerEntry, ...]:
        """The entries of the ledger. Raises StoreError if it was named."""
        if self.state is None:
            return ()
        try:
            with self.state.reading() as db:
                return ledger.entries(db)
        except StoreError as error:
            if self.is_named:
                raise
            self.say(f"no ledger: {error}")
            return ()

    def decisions(self, now: float) -> Mapping[str, Decision]:
        """What somebody decided, by recommendation, as far as it holds at `now`. Raises StoreError if it was named."""
        decisions = {entry.recommendation.id: entry.decision(now) for entry in self.entries()}
        return {id_: decision for id_, decision in decisions.items() if decision.state not in ("proposed", "expired")}

    def site(self, now: float) -> Site:
        """What the moves that were done here say of predictions; nothing where there is no ledger to read."""
        try:
            # What cannot be read was said when decisions were asked for.
            return site_of(replace(self, say=lambda _: None).entries(), now)
        except StoreError:
            return NO_SITE

    def note(self, advice: Advice, now: float) -> None:
        """Record what the advice recommends and what became of earlier recommendations, and report it."""
        state = replace(self, say=lambda _: None).of(advice.fleet).state
        if state is None:
            return
        try:
            if not advice.recommendations:
                with state.reading() as db:
                    if not ledger.entries(db):
                        return  # nothing to begin a file for
            with state.writing() as db:
                if advice.fleet is not None:
                    note_fleet(db, advice.fleet)
                events = ledger_events(ledger.entries(db), observation_of(advice), now)
                new = ledger.note(db, advice, now, events)
        except StoreError as error:
            self.say(f"not recorded in the ledger: {error}")
            return
        for id_, event in events:
            if event.act in ("done", "regressed"):
                self.say(f"{id_} is {event.act}: {clean(event.why or '')}")
        count = len(advice.recommendations)
        noun = "recommendation" if count == 1 else "recommendations"
        self.say(f"{count} {noun} recorded in {state.path} ({new} new)")
