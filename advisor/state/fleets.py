"""The fleets that a state file was written for, and how a source is recognized as one of them.

A fleet is recognized by what it shares with what is recorded, not by a fixed key, so that it stays itself when nodes
come and go: the name of its cluster, or GPUs. Simulated and real telemetry never share a file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from sqlite_utils import Database

from ...rules.base.errors import StoreError, UsageError
from ...rules.base.sanitize import clean
from ..core.advice_types import Advice, Fleet
from ..core.formatting import counted
from ..recommend.progress import observation_of
from . import ledger
from .file import DamagedStateError, State, cells, from_json
from .outcomes import ledger_events

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
    """Raises UsageError where the file at `path` was written for other fleets. Parts that matchers of the same labels
    cut out of one server may share one."""
    fleets = fleets_in(db)
    part, *parts = [(f.simulated, f.server, dict(f.labels), _label_names(f.match)) for f in (fleet, *fleets)]
    if not fleets or any(is_same(fleet, recorded) for recorded in fleets) or (fleet.match and part in parts):
        return
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
    for id_, member, node in db.execute("SELECT fleet, member, node FROM fleet_members"):
        members.setdefault(id_, {})[member] = node
    return tuple(
        Fleet(
            row["name"], bool(row["simulated"]), from_json(tuple[str, ...], row["match"]),
            from_json(frozenset[str], row["clusters"]), there := members.get(row["id"], {}),
            nodes=frozenset(there.values()), sources=frozenset(), server=row["server"],
            labels=from_json(dict[str, str], row["labels"]), start=row["first_seen"], end=row["last_seen"],
        )
        for row in db.query("SELECT * FROM fleets ORDER BY id")
    )  # fmt: skip


def note_fleet(db: Database, fleet: Fleet) -> None:
    """Record that the file is this fleet's: what was recorded of it stays, what is new is added."""
    id_ = _digest([fleet.simulated, fleet.match], 12)  # apart from other parts of a server that share the file
    clusters, first, last = set(fleet.clusters), fleet.end, fleet.end
    for row in db.table("fleets").rows_where("id = ?", [id_]):
        clusters |= from_json(frozenset[str], row["clusters"])
        first, last = row["first_seen"], max(last, row["last_seen"])
    row = cells(
        id=id_, name=fleet.name, simulated=fleet.simulated, match=fleet.match, clusters=sorted(clusters),
        server=fleet.server, labels=dict(sorted(fleet.labels.items())), first_seen=first, last_seen=last,
    )  # fmt: skip
    db.table("fleets").upsert(row, pk="id")
    members = (cells(fleet=id_, member=key, node=node, last_seen=fleet.end) for key, node in fleet.members.items())
    db.table("fleet_members").upsert_all(members, pk=("fleet", "member"))


def state_files(folder: Path) -> list[Path]:
    """The state files that there are, in the order of their names. Raises StoreError."""
    try:
        return sorted(folder.glob("*.db"))
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror}.", "Use --state to name a file.") from error


def state_of(folder: Path, fleet: Fleet, say: Callable[[str], None]) -> State:
    """The fleet's state file (of several the one that shares most GPUs, then the one used last), or where it is to be
    begun. `say` reports damaged files. Raises StoreError where none fits and one cannot be read for now."""
    candidates: list[tuple[int, float, Path]] = []
    taken: set[Path] = set()
    unreadable: StoreError | None = None
    for path in state_files(folder):
        fleets: tuple[Fleet, ...] | None = None
        try:
            with State(path).reading() as db:
                fleets = fleets_in(db)
        except DamagedStateError as error:
            say(f"ignored: {error.message}")
        except StoreError as error:
            unreadable = unreadable or error
        if fleets != ():  # else another process is beginning it, or was killed when it did
            taken.add(path)
        candidates += [
            (len(fleet.members.keys() & recorded.members.keys()), recorded.end, path)
            for recorded in fleets or ()
            if recorded.match == fleet.match and is_same(fleet, recorded)
        ]
    if candidates:
        return State(max(candidates)[2])
    if unreadable is not None:
        raise unreadable
    stem = file_stem(fleet)
    names = (f"{stem}.db", *(f"{stem}-{number}.db" for number in range(2, len(taken) + 2)))
    return State(next(folder / name for name in names if folder / name not in taken))


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
    files of all fleets, where none was named: one that cannot be read is then reported, else it is an error. `fleet`:
    whose telemetry is read, once it is known.
    """

    say: Callable[[str], None]
    state: State | None = None
    folder: Path | None = None
    fleet: Fleet | None = None

    def of(self, fleet: Fleet | None) -> StateBeside:
        """The state file of a fleet; as it is where its fleet is known already. Raises UsageError where the named file
        is another fleet's, StoreError where it cannot be read."""
        if fleet is None or self.fleet is not None:
            return self
        state, folder = self.state, self.folder
        try:
            if folder is not None:
                state = state_of(folder, fleet, self.say)
            elif state is not None:
                with state.reading() as db:
                    refuse_others(db, fleet, state.path)
        except StoreError as error:
            if folder is None:
                raise
            self.say(f"no ledger: {error}")
            folder = None
        return replace(self, state=state, folder=folder, fleet=fleet)

    def entries(self) -> tuple[ledger.LedgerEntry, ...]:
        """The entries of the ledger. Raises StoreError if it was named."""
        if self.state is None:
            return ()
        try:
            with self.state.reading() as db:
                return ledger.entries(db)
        except StoreError as error:
            if self.folder is None:
                raise
            self.say(f"no ledger: {error}")
            return ()

    def note(self, advice: Advice, now: float) -> None:
        """Record what the advice recommends and what became of earlier recommendations, and report it."""
        beside = replace(self, say=lambda _: None).of(advice.fleet)
        try:
            if beside.state is None or not (advice.recommendations or beside.entries()):
                return  # nothing to begin a file for
            with beside.state.writing() as db:
                if advice.fleet is not None:
                    note_fleet(db, advice.fleet)
                seen = observation_of(advice)
                events = ledger_events(ledger.entries(db), seen, now)
                new = ledger.note(db, advice, seen, now, events)
        except StoreError as error:
            self.say(f"not recorded in the ledger: {error}")
            return
        for id_, event in events:
            if event.act in ("done", "regressed"):
                self.say(f"{id_} is {event.act}: {clean(event.why or '')}")
        noun = counted(len(advice.recommendations), "recommendation")
        self.say(f"{noun} recorded in {beside.state.path} ({new} new)")
