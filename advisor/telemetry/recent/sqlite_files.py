"""Node databases read for the last hours: each opened once, some side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....agent.store.reading import queries
from ....agent.store.reading import watch_queries as watch
from ....agent.store.reading.queries import Query
from ....rules.base.errors import NothingToDo, SkuwiseError, StoreError
from ...core.coded_text import CodedText
from ..sqlite.opening import DatabaseReader, open_database
from ..sqlite.reader import CLOCK_TOLERANCE_SECONDS, left_out
from .columns import Columns, columns_of
from .grids import COARSE_SECONDS, FINE_SPAN_SECONDS, fine_start

# Files end at moments of their own: each is read from so much earlier than its own end would need.
_EARLIER_SECONDS = 1200.0
_NOW_SECONDS = 1200.0
# GPUs that were busy in all of the newest minutes raise no question that the hours before could answer.
_QUIET_SECONDS = 600.0
_BUSY, _WAITS, _SLOWED = 0.1, 0.02, 0.3
# Files that are worth a process of their own.
_FILES_A_PROCESS = 8


@dataclass(frozen=True)
class FileRows:
    """What one file tells of the last hours, by the name of a query. `end`: its newest minute."""

    path: Path
    end: float
    tables: Mapping[str, Columns]


@dataclass(frozen=True)
class FilesRead:
    """`end`: of the reading, Unix seconds. `notes`: what could not be read."""

    end: float
    files: tuple[FileRows, ...]
    notes: tuple[CodedText, ...]


def read_files(
    files: Sequence[Path], *, lookback_seconds: float, now: float, until: float | None, processes: int
) -> FilesRead:
    """Read all files. Raises SkuwiseError where none can be read, NothingToDo without any data."""
    count = max(1, min(processes, len(files) // _FILES_A_PROCESS))
    shares = [files[n::count] for n in range(count)]

    def read(share: Sequence[Path]) -> list[tuple[Path, FileRows | SkuwiseError | None]]:
        return [(path, _read(path, lookback_seconds, now, until)) for path in share]

    with ThreadPoolExecutor(count) as pool:
        told = dict(pair for share in pool.map(read, shares) for pair in share)
    errors = {path: one for path, one in told.items() if isinstance(one, SkuwiseError)}
    found = tuple(one for path in files if isinstance(one := told[path], FileRows))
    if errors and len(errors) == len(told):
        raise next(iter(errors.values()))
    if not found:
        raise NothingToDo(
            "No samples of the last hours in these databases.",
            "Let the agent run for a while, or use another database.",
        )
    end = until if until is not None else _common_end([one.end for one in found])
    return FilesRead(math.floor(end / 60) * 60.0, found, tuple(left_out(path, error) for path, error in errors.items()))


def _common_end(ends: Sequence[float]) -> float:
    """What half of those have that are as new as the newest: one node that is ahead must not make the others late."""
    newest = max(ends)
    near = sorted(end for end in ends if end >= newest - _EARLIER_SECONDS)
    return near[len(near) // 2]


def _read(path: Path, lookback_seconds: float, now: float, until: float | None) -> FileRows | SkuwiseError | None:
    """One file; None: it has no minute that could count."""
    try:
        with open_database(path) as reader:
            latest = min(now + CLOCK_TOLERANCE_SECONDS, until if until is not None else math.inf)
            end = _newest_minute(reader, latest)
            return None if end is None else FileRows(path, end, _tables(reader, end, lookback_seconds))
    except SkuwiseError as error:
        return error
    except ValueError:
        return StoreError(f"{path} cannot be read: it holds invalid data.", "Remove the file from --db.")


def _newest_minute(reader: DatabaseReader, latest: float) -> float | None:
    rows = reader.fetch("SELECT max(ts) FROM minute WHERE ts <= :latest", {"latest": latest})
    value = rows[0][0] if rows else None
    return float(value) if isinstance(value, (int, float)) else None


def _tables(reader: DatabaseReader, end: float, lookback_seconds: float) -> dict[str, Columns]:
    fine = {"start": fine_start(end - _EARLIER_SECONDS), "end": end + _EARLIER_SECONDS, "step": 60.0}
    now = {"start": end - _NOW_SECONDS, "end": end + _EARLIER_SECONDS, "step": 60.0}
    start = math.floor((end - lookback_seconds - _EARLIER_SECONDS) / COARSE_SECONDS) * COARSE_SECONDS
    whole = {"start": start, "end": end + _EARLIER_SECONDS}

    def ask(query: Query, parameters: Mapping[str, float]) -> Columns:
        return columns_of(reader.columns(query, parameters), query)

    tables = {
        "nodes": ask(queries.NODES, {}),
        "gpus": ask(queries.GPUS, now),
        "uses": ask(queries.USES, now),
        "workloads": ask(queries.WORKLOADS, now),
        "absences": ask(queries.ABSENCES, now),
        "gpu_fine": ask(watch.GPU_FINE, fine),
        "ports_fine": ask(watch.PORTS, fine),
        "hosts_fine": ask(watch.HOSTS, fine),
        "engines_fine": ask(watch.ENGINES, fine),
        "jobs": ask(queries.SLURM_JOBS, whole),
    }
    if is_slow(tables["gpu_fine"], end):
        tables["throttled"] = ask(watch.THROTTLED, now)
    if tables["uses"].count and is_quiet(tables["gpu_fine"], end):
        coarse_end = math.ceil((end - FINE_SPAN_SECONDS) / COARSE_SECONDS) * COARSE_SECONDS
        coarse = {"start": start, "end": coarse_end, "step": COARSE_SECONDS}
        tables["gpu_coarse"] = ask(watch.GPU_COARSE, coarse)
        tables["ports_coarse"] = ask(watch.OTHER_PORTS, coarse)
        tables["hosts_coarse"] = ask(watch.HOSTS, coarse)
        tables["engines_coarse"] = ask(watch.ENGINES, coarse)
    if tables["ports_fine"].count:
        tables["fabric_hours"] = ask(watch.FABRIC_HOURS, {"start": start, "end": end})
    return tables


def is_quiet(fine: Columns, end: float) -> bool:
    """Whether some GPU shows in some of the newest minutes that it rests or waits, or shows nothing: then what came
    before matters."""
    newest = fine.numbers["ts"] > end - _QUIET_SECONDS
    with np.errstate(invalid="ignore"):
        engine = np.fmax(fine.numbers["gpu_util_mean"], fine.numbers["sm_active_mean"])
        works = (engine > _BUSY) & ~(
            (fine.numbers["tensor_active_mean"] < _WAITS) & (fine.numbers["dram_active_mean"] < _BUSY)
        )
    return not bool(newest.any()) or not bool(works[newest].all())


def is_slow(fine: Columns, end: float) -> bool:
    """Whether some GPU is slowed down in the newest minutes, for whatever reason: then its reasons matter."""
    newest = fine.numbers["ts"] > end - _NOW_SECONDS
    with np.errstate(invalid="ignore"):
        return bool((fine.numbers["throttled_fraction"][newest] >= _SLOWED).any())
