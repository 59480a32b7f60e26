"""A consistent copy of a database, live or stopped: whole, or without its samples.

It is written beside its target, without a log, and renamed when it is complete. The reader's transaction lasts as long
as the copying (some seconds for 500 MB).
"""

import contextlib
import glob
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ...rules.base.errors import StoreError, UsageError
from .database import kind_of
from .disk_errors import damaged_error, is_damage
from .reader import open_reader
from .rollups import RollupJob

_MODE = 0o640
_RAW = ("tick", "gpu_sample", "fabric_sample")
# A copy that was cut short so long ago is abandoned.
_STALE_SECONDS = 86400.0


def take_snapshot(db: Path, target: Path, *, rollups_only: bool = False, now: float | None = None) -> Path:
    """Copy `db` to `target` (a folder: to NODE.db in it) and return the file written, mode 0640. `rollups_only` leaves
    the samples out, but rolls up the periods that are not over, so that the copy shows all that was seen. Raises
    UsageError, NothingToDo (nothing in it yet) or StoreError; then `target` is as it was."""
    with open_reader(db) as reader:
        if target.is_dir():
            row = reader.execute("SELECT node FROM nodes ORDER BY last_seen DESC LIMIT 1").fetchone()
            name = re.sub(r"[^A-Za-z0-9._-]", "_", str(row[0]) if row else "")[:200].lstrip(".")
            target /= f"{name or 'node'}.db"
        with _aside(db, target) as partial:
            try:
                reader.execute("PRAGMA query_only = 0")
                reader.execute("VACUUM INTO ?", (str(partial),))
                if rollups_only:
                    RollupJob(partial).run(time.time() if now is None else now, and_open=True)
                with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
                    copy.execute("PRAGMA synchronous = OFF")  # it has no reader before it is complete and on the disk
                    copy.execute("PRAGMA journal_mode = DELETE").fetchone()
                    for table in _RAW if rollups_only else ():
                        copy.execute(f"DELETE FROM {table}")  # noqa: S608 - names of this file
                    copy.executescript("PRAGMA incremental_vacuum")  # `execute` would stop after one page
            except sqlite3.Error as error:
                if is_damage(error):
                    raise damaged_error(db, error) from error
                is_full = getattr(error, "sqlite_errorname", "").startswith("SQLITE_FULL")
                remedy = "Free some space on its disk." if is_full else "Try again, or another folder."
                raise StoreError(f"{target} cannot be written: {error}.", remedy) from error
    return target


@contextlib.contextmanager
def _aside(db: Path, target: Path) -> Iterator[Path]:
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        if not target.parent.is_dir():
            raise UsageError(f"The folder {target.parent} does not exist.", "Make it, or name another file.")
        if target.exists() and target.samefile(db):
            raise UsageError(f"{target} is the database itself.", "Name another file.")
        if target.exists() and kind_of(target) not in ("empty", "ours"):
            raise UsageError(f"{target} is not a skuwise database; it was left untouched.", "Name another file.")
        for old in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
            if old == partial or old.stat().st_mtime < time.time() - _STALE_SECONDS:
                old.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
        try:
            os.fchmod(descriptor, _MODE)  # whatever the umask is
            yield partial
            os.fsync(descriptor)
            partial.rename(target)
        except BaseException:
            for name in (partial, partial.with_name(partial.name + "-journal")):
                name.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(
            f"{target} cannot be written: {error.strerror}.", "Check the folder's permissions and its free space."
        ) from error
