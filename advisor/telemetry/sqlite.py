"""A frame from SQLite databases: a file, or a folder of them, live, stopped or copied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ...agent.store import queries
from ...agent.store.queries import Query
from ...rules.errors import NothingToDo, SkuwiseError, UsageError
from ..blind import blind_nodes, unreadable
from ..frame import Frame, Window
from ..moments import minute
from ..words import listed
from . import resolve
from .activity.databases import with_unnamed_work
from .apart import Apart
from .beside import read_beside
from .database import Parts, span_of

# A node's clock may be off by so much before its newest rows are taken for a fault of the clock.
CLOCK_TOLERANCE_SECONDS = 3600.0


def read_frame(
    paths: Sequence[Path],
    window: Window | None = None,
    since_seconds: float = 14 * 86400.0,
    until: float | None = None,
    *,
    now: float | None = None,
    processes: int = 1,
    apart: Apart | None = None,
) -> Frame:
    """The telemetry of a window from one or more databases.

    Without a `window` it is the last `since_seconds` up to `until`, and `until` is the newest data there is; its start
    is moved back to the full hour, because the past is kept in hours. `now` (Unix seconds) guards against nodes whose
    clock runs ahead: rows from the future do not move the window. `processes`: how many may read many files
    side by side. `apart`: who reads the files, if somebody does already. Raises `NothingToDo` where the window holds no
    data.
    """
    with apart or Apart() as reading:
        files = database_files(paths)
        return _read_frame(
            files, reading, window=window, since_seconds=since_seconds, until=until, now=now, processes=processes
        )


def _read_frame(
    files: list[Path],
    apart: Apart,
    *,
    window: Window | None,
    since_seconds: float,
    until: float | None,
    now: float | None,
    processes: int,
) -> Frame:
    notes: list[str] = []
    spans = spans_of(files, notes, apart)
    while True:
        known = [span for span in spans.values() if span is not None]
        if not known:
            raise NothingToDo(
                f"{_names(files)} holds no samples yet.", "Let the agent run for a while, or name another database."
            )
        said: list[str] = []
        chosen = window or _default_window(known, since_seconds, until, now, said)
        wanted = [path for path, span in spans.items() if span and span[0] < chosen.end and span[1] > chosen.start]
        refined = resolve.MAX_REFINED_HOURS_IN_ALL // max(len(wanted), 1)
        told = read_beside(wanted, chosen, refined, processes, apart)
        lost = {path: error for path, error in told.items() if isinstance(error, SkuwiseError)}
        if lost and len(lost) == sum(span is not None for span in spans.values()):
            raise next(iter(lost.values()))
        for path, error in lost.items():
            notes.append(left_out(path, error))
            del spans[path]
        # A file that cannot be read to its end does not move the window of the others.
        rest = [span for span in spans.values() if span is not None]
        if not lost or window is not None or _default_window(rest, since_seconds, until, now, []) == chosen:
            break
    notes += said
    notes.extend(f"{path} holds no samples." for path, span in spans.items() if span is None)
    parts = Parts(notes=notes)
    for read in told.values():
        if isinstance(read, Parts):
            parts.take(read)
    wanted = [path for path in wanted if path in spans]
    frame = _join(parts, chosen, [path for path in files if path in spans])
    if frame.gpu.empty:
        first, last = min(s[0] for s in known), max(s[1] for s in known)
        blind = blind_nodes(frame.absences)
        if blind:
            raise unreadable(blind)
        if chosen.start <= first and chosen.end >= last:
            raise NothingToDo(
                f"{_names(files)} holds no data of GPUs: it has data of {_nodes(frame)} from {minute(first)} to "
                f"{minute(last)}, and none of a GPU.",
                "Run 'skuwise agent doctor' on the node: it says why its GPUs cannot be read.",
            )
        raise NothingToDo(
            f"There is no GPU data between {minute(chosen.start)} and {minute(chosen.end)}: {_names(files)} holds data "
            f"from {minute(first)} to {minute(last)}.",
            "Choose another window with --since and --until.",
        )
    return with_unnamed_work(frame, wanted, apart)


def database_files(paths: Sequence[Path]) -> list[Path]:
    """The databases that `paths` name: files as they are, folders as the ``*.db`` in them."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            # A pipe or a link to nothing is left out with a note, like any other file that cannot be read.
            inside = sorted(p for p in path.glob("*.db") if not p.is_dir())
            if not inside:
                raise UsageError(f"The folder {path} holds no *.db file.", "Name a folder of node databases.")
            files.extend(inside)
        else:
            files.append(path)
    unique = list(dict.fromkeys(files))
    if not unique:
        raise UsageError("No database is named.", "Give one with --db PATH.")
    return unique


def spans_of(files: Sequence[Path], notes: list[str], apart: Apart) -> dict[Path, tuple[float, float] | None]:
    """What each file holds data for; of several, those that cannot be read are left out and named."""
    spans: dict[Path, tuple[float, float] | None] = {}
    problem: SkuwiseError | None = None
    for path in files:
        try:
            with apart.open(path) as reader:
                spans[path] = span_of(reader)
        except SkuwiseError as error:
            if len(files) == 1:
                raise
            problem = problem or error
            notes.append(left_out(path, error))
    if not spans and problem is not None:
        raise problem
    return spans


def left_out(path: Path, error: SkuwiseError) -> str:
    """The note on a file of several that cannot be read."""
    return f"Left out: {error}" if str(path) in str(error) else f"Left out: {path}. {error}"


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


def _join(parts: Parts, window: Window, files: list[Path]) -> Frame:
    notes = parts.notes

    def joined(name: str, query: Query) -> pd.DataFrame:
        return resolve.concat(parts.tables.pop(name, []), query.columns)

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
        jobs=joined("jobs", queries.SLURM_JOBS),
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


def _nodes(frame: Frame) -> str:
    return listed(sorted(map(str, frame.nodes["node"]))) or "no node"


def _names(files: list[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
