"""A frame from SQLite databases: a file, or a folder of them, live, stopped or copied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from ...agent.store import queries
from ...agent.store.queries import Query
from ...agent.store.reader import Reader, open_reader
from ...rules.errors import NothingToDo, SkuwiseError, StoreError, UsageError
from ..frame import Frame, Window
from ..moments import minute
from . import resolve
from .tables import LAST_DAY, to_table

# A port that exceeds this share of its line rate in some second of an hour was in use in that hour (advice.md: the
# silence of a fabric is judged at 1 % of the line rate).
FABRIC_ACTIVE_LEVEL = 0.01
# A node's clock may be off by so much before its newest rows are taken for a fault of the clock.
CLOCK_TOLERANCE_SECONDS = 3600.0


@dataclass(slots=True)
class _Parts:
    """The tables of all files, before they are joined."""

    tables: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, table: pd.DataFrame) -> None:
        self.tables.setdefault(name, []).append(table)

    def take(self, other: _Parts) -> None:
        for name, tables in other.tables.items():
            self.tables.setdefault(name, []).extend(tables)
        self.notes.extend(other.notes)


def read_frame(
    paths: Sequence[Path],
    window: Window | None = None,
    since_seconds: float = 14 * 86400.0,
    until: float | None = None,
    *,
    now: float | None = None,
) -> Frame:
    """The telemetry of a window from one or more databases.

    Without a `window` it is the last `since_seconds` up to `until`, and `until` is the newest data there is; its start
    is moved back to the full hour, because the past is kept in hours. `now` (Unix seconds) guards against nodes whose
    clock runs ahead: rows from the future do not move the window. Raises `NothingToDo` where the window holds no data.
    """
    files = database_files(paths)
    notes: list[str] = []
    opened = _open_all(files, tolerant=len(files) > 1, notes=notes)
    try:
        spans = {}
        for path, connection in list(opened.items()):
            try:
                spans[path] = _span(connection)
            except StoreError as error:
                if len(files) == 1:
                    raise
                notes.append(f"Left out: {path}. {error}")
                opened.pop(path).close()
        known = [span for span in spans.values() if span is not None]
        if not known:
            raise NothingToDo(
                f"{_names(files)} holds no samples yet.", "Let the agent run for a while, or name another database."
            )
        window = window or _default_window(known, since_seconds, until, now, notes)
        parts = _Parts(notes=notes)
        for path, connection in opened.items():
            span = spans[path]
            if span is None:
                notes.append(f"{path} holds no samples.")
            elif span[0] < window.end and span[1] > window.start:
                _read_tolerantly(path, connection, window, parts, of=len(files))
    finally:
        for connection in opened.values():
            connection.close()
    frame = _join(parts, window, files)
    if frame.gpu.empty:
        first, last = min(s[0] for s in known), max(s[1] for s in known)
        raise NothingToDo(
            f"There is no GPU data between {minute(window.start)} and {minute(window.end)}: {_names(files)} holds data "
            f"from {minute(first)} to {minute(last)}.",
            "Choose another window with --since and --until.",
        )
    return frame


def database_files(paths: Sequence[Path]) -> list[Path]:
    """The databases that `paths` name: files as they are, folders as the ``*.db`` in them."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.glob("*.db") if p.is_file())
            if not inside:
                raise UsageError(f"The folder {path} holds no *.db file.", "Name a folder of node databases.")
            files.extend(inside)
        else:
            files.append(path)
    unique = list(dict.fromkeys(files))
    if not unique:
        raise UsageError("No database is named.", "Give one with --db PATH.")
    return unique


def _open_all(files: list[Path], *, tolerant: bool, notes: list[str]) -> dict[Path, Reader]:
    opened: dict[Path, Reader] = {}
    problem: SkuwiseError | None = None
    for path in files:
        try:
            opened[path] = open_reader(path)
            # Few texts differ in a column: `to_table` decodes each once.
            opened[path].text_factory = bytes
        except SkuwiseError as error:
            if not tolerant:
                raise
            problem = problem or error
            notes.append(f"Left out: {error}")
    if not opened and problem is not None:
        raise problem
    return opened


def _span(connection: Reader) -> tuple[float, float] | None:
    """Start and end of all the data in a database, Unix seconds; None where it has none."""
    spans = [
        row for sql in queries.spans(connection.version) for row in connection.fetch(sql, {}) if row[0] is not None
    ]
    if not spans:
        return None
    values = [
        float(value) for row in spans for value in row if isinstance(value, (int, float)) and 0 < value < LAST_DAY
    ]
    if not values:
        return None
    first, last = min(values), max(values)
    seen = connection.fetch(queries.LAST_SEEN, {})[0][0]
    if isinstance(seen, (int, float)) and seen > first:
        last = min(last, float(seen))
    return first, last


def _default_window(
    known: list[tuple[float, float]], since_seconds: float, until: float | None, now: float | None, notes: list[str]
) -> Window:
    end = until
    if end is None:
        latest = max(span[1] for span in known)
        end = math.ceil(latest / 60.0) * 60.0
        if now is not None and latest > now + CLOCK_TOLERANCE_SECONDS:
            end = math.ceil(now / 60.0) * 60.0
            notes.append(
                f"Some rows are dated {minute(latest)}, later than now ({minute(now)}): a node's clock is ahead; the "
                "window ends now."
            )
    return Window(math.floor((end - since_seconds) / resolve.HOUR) * resolve.HOUR, float(end))


def _read_tolerantly(path: Path, connection: Reader, window: Window, parts: _Parts, *, of: int) -> None:
    """One database of `of`: what cannot be read of several is left out as a whole, and named."""
    try:
        own = _read_one(connection, window, resolve.MAX_REFINED_HOURS_IN_ALL // of)
    except StoreError as error:
        if of == 1:
            raise
        parts.notes.append(f"Left out: {path}. {error}")
    else:
        parts.take(own)


def _read_one(connection: Reader, window: Window, refined: int) -> _Parts:
    """`refined`: hours that may be read by the minute."""
    parts = _Parts()
    bounds = {"start": window.start, "end": window.end}

    def fetch(query: Query, start: float, end: float) -> pd.DataFrame:
        return to_table(connection.fetch(query.sql, {"start": start, "end": end}), query)

    def listing(query: Query, parameters: dict[str, float]) -> pd.DataFrame:
        return to_table(connection.fetch(query.sql, parameters), query)

    nodes = listing(queries.NODES, {})
    # The agent always writes both; where somebody took one out, the window is all that is known.
    nodes = nodes.fillna({"first_seen": window.start, "last_seen": window.end})
    last_seen: dict[str, float] = dict(zip(nodes["node"], nodes["last_seen"], strict=True))
    uses = listing(queries.USES, bounds)
    gpu = resolve.read_family(fetch, resolve.GPU, window, last_seen)
    begin = connection.fetch(queries.minutes_begin(connection.version), {})[0][0]
    minutes_from = float(begin) if isinstance(begin, (int, float)) else None
    most = min(refined, resolve.MAX_REFINED_HOURS * len(nodes))
    gpu, note = resolve.refine(fetch, gpu, uses, window, minutes_from, most=most)
    if note:
        parts.notes.append(note)
    parts.add("gpu", gpu)
    parts.add("fabric", resolve.read_family(fetch, resolve.FABRIC, window, last_seen))
    parts.add("host", resolve.read_family(fetch, resolve.HOST, window, last_seen))
    parts.add("nodes", nodes)
    parts.add("gpus", listing(queries.GPUS, bounds))
    parts.add("workloads", listing(queries.WORKLOADS, bounds))
    parts.add("uses", uses)
    parts.add("absences", listing(queries.ABSENCES, bounds))
    if connection.version >= queries.SERVING_SINCE:
        parts.add("serving", listing(queries.SERVING, bounds))
    history = {"level": FABRIC_ACTIVE_LEVEL, "end": window.end}
    parts.add("fabric_history", listing(queries.FABRIC_HISTORY, history))
    return parts


def _join(parts: _Parts, window: Window, files: list[Path]) -> Frame:
    notes = parts.notes

    def joined(name: str, query: Query) -> pd.DataFrame:
        return resolve.concat(parts.tables.get(name, []), query.columns)

    gpu, fabric, host = (
        joined("gpu", queries.GPU_HOURS),
        joined("fabric", queries.FABRIC_HOURS),
        joined("host", queries.HOST_HOURS),
    )
    nodes = joined("nodes", queries.NODES)
    twice = set(nodes.loc[nodes["node"].duplicated(), "node"])
    if twice:
        gpu = _once(gpu, twice, resolve.GPU.keys, "GPU", notes)
        fabric = _once(fabric, twice, resolve.FABRIC.keys, "fabric", notes)
        host = _once(host, twice, resolve.HOST.keys, "host", notes)
    uses = joined("uses", queries.USES)
    uses = uses.sort_values("ts_end").drop_duplicates(["workload_id", "node", "gpu_uuid", "ts_start"], keep="last")
    gpus = joined("gpus", queries.GPUS).sort_values("valid_from")
    workloads = joined("workloads", queries.WORKLOADS).sort_values("last_seen")
    history = joined("fabric_history", queries.FABRIC_HISTORY)
    return Frame(
        window=window,
        nodes=_one_node_each(nodes, notes),
        gpus=gpus.drop_duplicates(["node", "gpu_uuid"], keep="last").reset_index(drop=True),
        gpu=gpu.sort_values(["node", "gpu_uuid", "ts"], kind="stable", ignore_index=True),
        fabric=fabric.sort_values(["node", "device", "port", "ts"], kind="stable", ignore_index=True),
        host=host.sort_values(["node", "ts"], kind="stable", ignore_index=True),
        workloads=workloads.drop_duplicates("workload_id", keep="last").reset_index(drop=True),
        uses=uses.reset_index(drop=True),
        absences=_absences_once(joined("absences", queries.ABSENCES)),
        source={"kind": "sqlite", "databases": [str(path) for path in files]},
        notes=tuple(notes),
        fabric_history=history.sort_values("hours").drop_duplicates(["node", "device", "port"], keep="last"),
        serving=joined("serving", queries.SERVING),
    )


def _one_node_each(nodes: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Files may tell of the same node: its newest row, with the earliest first sight."""
    if nodes.empty:
        return nodes
    machines = nodes.dropna(subset=["machine_id"]).groupby("node")["machine_id"].nunique()
    notes.extend(
        f"{count} machines are called {name}: their figures are mixed; give each node a name of its own."
        for name, count in machines[machines > 1].items()
    )
    first = nodes.groupby("node")["first_seen"].min()
    latest = nodes.sort_values("last_seen").drop_duplicates("node", keep="last").sort_values("node", ignore_index=True)
    return latest.assign(first_seen=latest["node"].map(first))


def _once(rows: pd.DataFrame, twice: set[str], keys: tuple[str, ...], what: str, notes: list[str]) -> pd.DataFrame:
    """Each moment of a device once, of the nodes that `twice` names, which stand in several files.

    Of copies the one that observed most stays (a snapshot may hold half of a minute), and minutes go that an hour of
    another file tells already.
    """
    doubtful = rows["node"].isin(twice)
    if not doubtful.any():
        return rows
    fullest = rows[doubtful].sort_values("observed_seconds", ascending=False, kind="stable", na_position="last")
    kept = fullest.drop_duplicates([*keys, "ts", "interval_seconds"])
    hourly = kept["interval_seconds"] > resolve.MINUTE
    hours = pd.MultiIndex.from_frame(kept.loc[hourly, [*keys, "ts"]])
    stamp = np.ceil(kept["ts"] / resolve.HOUR) * resolve.HOUR
    told = pd.MultiIndex.from_frame(kept[[*keys]].assign(ts=stamp)).isin(hours) & ~hourly.to_numpy()
    kept = kept[~told]
    if len(kept) < len(fullest):
        notes.append(f"{len(fullest) - len(kept)} {what} rows stood in more than one database and were counted once.")
    return pd.concat([rows[~doubtful], kept], ignore_index=True)


def _absences_once(absences: pd.DataFrame) -> pd.DataFrame:
    """A copy made while something was missing does not know when that ended: the file that does is right."""
    if absences.empty:
        return absences
    what = [name for name in absences.columns if name not in ("until", "detail", "remedy")]
    known = absences.sort_values("until", kind="stable", na_position="first").drop_duplicates(what, keep="last")
    return known.sort_index(ignore_index=True)


def _names(files: list[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
