"""What can be wrong with the disk under the database, and with the file itself.

What may pass (a full or read-only disk, a disk that errs, a lock) is waited for with the samples in memory; the rest
(no folder, no permission, a stranger's file) is an error at once. An opening reads only the newest of a file, for the
whole takes seconds; damage that is met later leaves a mark beside it. What is marked or damaged is set aside when it is
opened for writing.
"""

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from ...rules.base.errors import StoreError
from ...rules.base.sanitize import clean
from ..model import Absence

# A reason, which is the code of the absence, and what to do.
FULL = ("disk-full", "Free some space on the disk that holds the database.")
READ_ONLY = ("store-read-only", "Make the database and its folder writable for the agent.")
BUSY = ("store-busy", "Another process holds the database locked: end it.")
ERRS = ("disk-error", "Check the disk that holds the database: writes to it fail.")
UNREACHABLE = ("store-unreachable", "Make sure that the folder of the database is still there and writable.")

# What may pass: primary result codes of SQLite, and the operating system's (ESTALE: a network file system whose server
# lost the file).
_RESULTS = {
    sqlite3.SQLITE_FULL: FULL, sqlite3.SQLITE_READONLY: READ_ONLY, sqlite3.SQLITE_BUSY: BUSY,
    sqlite3.SQLITE_LOCKED: BUSY, sqlite3.SQLITE_IOERR: ERRS, sqlite3.SQLITE_CANTOPEN: UNREACHABLE,
}  # fmt: skip
_ERRORS = {
    errno.ENOSPC: FULL, errno.EDQUOT: FULL, errno.EROFS: READ_ONLY, errno.EIO: ERRS, errno.ESTALE: UNREACHABLE,
    errno.ETIMEDOUT: UNREACHABLE,
}  # fmt: skip
_ROOM_BYTES = 64 << 10  # the log's index alone takes 32 KiB

MARK_SUFFIX = "-damaged"
_MOST_SAID = 200
# What an opening looks at: tables that are small whatever the age of the file, and the newest rows of the others.
LOOKED_AT = (
    *(f"SELECT * FROM {table}" for table in ("meta", "node", "gpu", "port", "rollup_progress")),  # noqa: S608
    *(
        f"SELECT * FROM {table} ORDER BY id DESC LIMIT 100"  # noqa: S608
        for table in ("tick", "gpu_sample", "fabric_sample", "gpu_minute", "gpu_hour", "absence", "workload")
    ),
    "SELECT ts FROM tick ORDER BY ts DESC LIMIT 20",
    "SELECT * FROM workload_use ORDER BY ts_end DESC LIMIT 50",
)


class PassingError(StoreError):
    """The database cannot be opened or written now, for a reason that may pass. `reason` is the code of the absence."""

    def __init__(self, path: Path, reason: str, why: str, remedy: str) -> None:
        super().__init__(f"{path} cannot be written now: {why}.", remedy)
        self.path = path
        self.reason = reason
        self.why = why


def disk_error(path: Path, error: OSError | sqlite3.Error) -> StoreError:
    """Why the database, or a file beside it, cannot be opened or written: a `PassingError` where waiting may help."""
    why = said_by(error)
    if isinstance(error, OSError):
        cause = _ERRORS.get(error.errno or 0)
    else:
        cause = _RESULTS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    # Where it is the log's index that finds no room, or the log cannot be made, SQLite does not say that it is full.
    with suppress(OSError):
        disk = os.statvfs(path.absolute().parent)
        has_no_room = disk.f_bavail * disk.f_frsize < _ROOM_BYTES and not disk.f_flag & os.ST_RDONLY
        if cause in (ERRS, UNREACHABLE) and has_no_room:
            cause = FULL
    if cause is not None:
        return PassingError(path, cause[0], why, cause[1])
    if is_damage(error):
        return damaged_error(path, error)
    return StoreError(
        f"{path} cannot be opened for writing: {why}.",
        "Check that its folder exists and that this user may write there, or name another file with --db.",
    )


def said_by(error: Exception) -> str:
    """What the system or SQLite says, on one line of a terminal: of a damaged schema it repeats what is there."""
    return clean(getattr(error, "strerror", None) or error)[:_MOST_SAID]


def damaged_error(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{path} is damaged and cannot be read ({said_by(error)}).",
        f"Save what is left with: sqlite3 '{path}' .recover; then move the file away and start again.",
    )


def store_absence(reason: str, detail: str, remedy: str) -> Absence:
    """What is wrong with the database as a whole."""
    return Absence("source", "store", "*", reason, detail, remedy)


def is_damage(error: Exception) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def mark_damaged(path: Path, said: str) -> None:
    """Mark the database for the next opening, which may not find the damage itself."""
    with suppress(OSError):
        path.with_name(path.name + MARK_SUFFIX).write_text(said, encoding="utf-8")


def marked(path: Path) -> str | None:
    """What was found wrong with a database; None where it is not marked."""
    with suppress(OSError):
        said = path.with_name(path.name + MARK_SUFFIX).read_text(encoding="utf-8", errors="replace")
        return clean(said)[:_MOST_SAID] or "damage was found"
    return None
