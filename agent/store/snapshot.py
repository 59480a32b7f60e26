"""A consistent copy of a database, live or stopped: whole, or the rollups with all that they refer to.

It is written beside its target under another name, without a log, and renamed when it is complete: whoever looks sees
the old copy or the new one. The reader's transaction lasts as long as the copying (some seconds for 500 MB).
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ...rules.base.errors import StoreError, UsageError
from .database import APPLICATION_ID, read_header
from .disk_errors import damaged_error
from .reader import Reader, open_reader
from .rollups import RollupJob

_MODE = 0o640
_RAW = ("tick", "gpu_sample", "fabric_sample")
# A copy that was cut short so long ago is nobody's any more.
_STALE_SECONDS = 86400.0


def take_snapshot(db: Path, target: Path, *, rollups_only: bool = False, now: float | None = None) -> Path:
    """Copy `db` to `target` (a folder: to NODE.db in it) and return the file written, mode 0640.

    `rollups_only` leaves the samples out, but rolls up as they stand the periods that are not over, so that the copy
    tells all that was seen. Raises UsageError, NothingToDo (nothing in it yet) or StoreError; then `target` is as it
    was.
    """
    with open_reader(db) as reader:
        if target.is_dir():
            target = target / f"{_node_name(reader)}.db"
        _check_target(db, target)
        with _aside(target) as partial:
            try:
                if rollups_only:
                    _copy_rollups(reader, partial)
                    _roll_open(partial, time.time() if now is None else now)
                else:
                    reader.execute("PRAGMA query_only = 0")
                    reader.execute("VACUUM INTO ?", (str(partial),))
                with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
                    copy.execute("PRAGMA journal_mode = DELETE").fetchone()
            except sqlite3.Error as error:
                raise _copy_error(db, target, error) from error
    return target


def _node_name(reader: Reader) -> str:
    row = reader.execute("SELECT node FROM nodes ORDER BY last_seen DESC LIMIT 1").fetchone()
    name = re.sub(r"[^A-Za-z0-9._-]", "_", str(row[0]) if row else "")[:200].lstrip(".")
    return name or "node"


def _check_target(db: Path, target: Path) -> None:
    if not target.parent.is_dir():
        raise UsageError(f"The folder {target.parent} does not exist.", "Make it, or name another file.")
    if not target.exists():
        return
    if target.samefile(db):
        raise UsageError(f"{target} is the database itself.", "Name another file.")
    try:
        header = read_header(target)
    except OSError as error:
        raise StoreError(f"{target} cannot be replaced: {error.strerror}.", "Name another file.") from error
    if not header.empty and not header.ours:
        raise UsageError(f"{target} is not a skuwise database; it was left untouched.", "Name another file.")


@contextlib.contextmanager
def _aside(target: Path) -> Iterator[Path]:
    """An empty file beside `target`, which takes its place at the end, or is removed where anything fails."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        for old in target.parent.glob(f".{_escaped(target.name)}.*.partial"):
            if old == partial or old.stat().st_mtime < time.time() - _STALE_SECONDS:
                old.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
        try:
            os.fchmod(descriptor, _MODE)  # whatever the umask is
        finally:
            os.close(descriptor)
        try:
            yield partial
            _to_disk(partial)
            partial.rename(target)
            _to_disk(target.parent)
        except BaseException:
            for name in (partial, partial.with_name(partial.name + "-journal")):
                name.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(
            f"{target} cannot be written: {error.strerror}.", "Check the folder's permissions and its free space."
        ) from error


def _escaped(name: str) -> str:
    return re.sub(r"([\[\]*?])", r"[\1]", name)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy_rollups(reader: Reader, partial: Path) -> None:
    """All but the samples, and of those what is not rolled up yet, in one transaction of the reader's."""
    with closing(sqlite3.connect(partial, uri=True, isolation_level=None)) as copy:
        # Nobody sees the file before it is complete and on disk, so its own safety costs time for nothing.
        for pragma in ("auto_vacuum = incremental", f"application_id = {APPLICATION_ID:d}", "synchronous = OFF"):
            copy.execute(f"PRAGMA {pragma}")
        copy.execute("ATTACH ? AS live", (reader.address,))
        copy.execute("BEGIN")
        schema = copy.execute(
            "SELECT name, type, sql FROM live.sqlite_master WHERE sql IS NOT NULL "
            "AND name NOT LIKE 'sqlite!_%' ESCAPE '!' "
            "ORDER BY CASE type WHEN 'table' THEN 0 WHEN 'view' THEN 1 ELSE 2 END, rowid"
        ).fetchall()
        for name, kind, sql in schema:
            if kind == "table":
                copy.execute(sql)
                if name not in _RAW:
                    quoted = '"' + name.replace('"', '""') + '"'
                    copy.execute(f"INSERT INTO main.{quoted} SELECT * FROM live.{quoted}")  # noqa: S608 - quoted
        _copy_unrolled(copy)
        for _, kind, sql in schema:
            if kind != "table":
                copy.execute(sql)
        copy.execute(f"PRAGMA user_version = {reader.version:d}")
        copy.execute("COMMIT")


def _copy_unrolled(copy: sqlite3.Connection) -> None:
    first = copy.execute(
        "SELECT min(t.id) FROM live.tick t WHERE t.ts > coalesce((SELECT min(p.done_to) FROM live.rollup_progress p "
        "WHERE p.node_id = t.node_id), 0)"
    ).fetchone()[0]
    if first is None:
        return
    copy.execute("INSERT INTO main.tick SELECT * FROM live.tick WHERE id >= ?", (first,))
    for table in _RAW[1:]:
        copy.execute(f"INSERT INTO main.{table} SELECT * FROM live.{table} WHERE id >= ? * 4096", (first,))  # noqa: S608


def _roll_open(partial: Path, now: float) -> None:
    """Roll up what is not over, then let the samples go."""
    RollupJob(partial).run(now, and_open=True)
    with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous = OFF")
        copy.execute("BEGIN")
        for table in _RAW:
            copy.execute(f"DELETE FROM {table}")  # noqa: S608 - names of this file
        copy.execute("COMMIT")
        copy.executescript("PRAGMA incremental_vacuum")  # `execute` would stop after one page


def _copy_error(db: Path, target: Path, error: sqlite3.Error) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged_error(db, error)
    remedy = "Free some space on its disk." if name.startswith("SQLITE_FULL") else "Try again, or another folder."
    return StoreError(f"{target} cannot be written: {error}.", remedy)
