"""Faults of the disk under the database: which may pass by themselves, and which are wrong usage.

What may pass (a full disk, a read-only file system, an exceeded quota, a disk that errs, a lock that another holds) is
waited for with the samples in memory. The rest (a folder that is not there, no permission, a stranger's file) stays
wrong until somebody changes something, and is said at once.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from ...rules.base.errors import StoreError
from ...rules.base.sanitize import clean
from ..model import Absence
from .integrity import is_damage

_FULL = ("disk-full", "Free some space on the disk that holds the database.")
_READ_ONLY = ("store-read-only", "Make the database and its folder writable for the agent.")
_BUSY = ("store-busy", "Another process holds the database locked: end it.")
_ERRS = ("disk-error", "Check the disk that holds the database: writes to it fail.")
_UNREACHABLE = ("store-unreachable", "Make sure that the folder of the database is still there and writable.")

_MOST_SAID = 200
ROOM_BYTES = 64 << 10  # the log's index alone takes 32 KiB

# Primary result codes of SQLite that may pass, and the operating system's: the reason we give, and what to do.
_RESULTS: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_IOERR: _ERRS,
    sqlite3.SQLITE_CANTOPEN: _UNREACHABLE,
}
_ERRORS: dict[int, tuple[str, str]] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EIO: _ERRS,
    errno.ESTALE: _UNREACHABLE,  # a network file system whose server lost the file
    errno.ETIMEDOUT: _UNREACHABLE,
}


class PassingError(StoreError):
    """The database cannot be opened now, for a reason that may pass. `reason` is the code of the absence."""

    def __init__(self, path: Path, reason: str, why: str, remedy: str) -> None:
        super().__init__(f"{path} cannot be opened now: {why}.", remedy)
        self.path = path
        self.reason = reason
        self.why = why


def passing(path: Path, error: OSError | sqlite3.Error, *, room_bytes: int = ROOM_BYTES) -> tuple[str, str] | None:
    """The reason and the remedy of a fault of the database at `path` that may pass; None for any other.

    A disk with less than `room_bytes` free is full.
    """
    if isinstance(error, OSError):
        return _ERRORS.get(error.errno or 0)
    known = _RESULTS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    # Where it is the log's index that finds no room, or the log cannot be made, SQLite does not say that it is full.
    return _FULL if known in (_ERRS, _UNREACHABLE) and _has_no_room(path, room_bytes) else known


def opening_error(path: Path, error: OSError | sqlite3.Error) -> StoreError:
    """Why a database, or a file beside it, cannot be opened: a `PassingError` where waiting may help."""
    why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    known = passing(path, error)
    # SQLite says "read-only" and "unable to open" also to a user who may not write, and of a folder that is not there.
    if known is not None and not (known in (_READ_ONLY, _UNREACHABLE) and _is_refused(path)):
        return PassingError(path, known[0], why, known[1])
    if isinstance(error, sqlite3.Error) and is_damage(error):
        return damaged_error(path, error)
    if isinstance(error, sqlite3.Error) and known is None:
        return StoreError(f"{path} cannot be opened for writing: {why}.", "Name another file with --db.")
    return StoreError(
        f"{path} cannot be opened for writing: {why}.",
        "Check that its folder exists and that this user may write there, or name another file with --db.",
    )


def said_by(error: Exception) -> str:
    """What SQLite says, on one line of a terminal: of a damaged schema it repeats what stands there."""
    return clean(error)[:_MOST_SAID]


def damaged_error(path: Path, error: Exception) -> StoreError:
    """Why a database that SQLite cannot read is refused."""
    return StoreError(
        f"{path} is damaged and cannot be read ({said_by(error)}).",
        f"Save what is left with: sqlite3 '{path}' .recover; then move the file away and start again.",
    )


def write_error(path: Path, error: OSError | sqlite3.Error) -> StoreError:
    """Why a database that is there cannot be written, as one sentence with a remedy."""
    if isinstance(error, FileNotFoundError):
        return StoreError(f"{path} does not exist.", "Name a database with --db; the agent makes it.")
    if isinstance(error, OSError):
        return StoreError(f"{path} cannot be opened: {error.strerror}.", "Name another file with --db.")
    if is_damage(error):
        return damaged_error(path, error)
    known = passing(path, error)
    return StoreError(f"{path} cannot be written: {error}.", known[1] if known else "Name another file with --db.")


def store_absence(reason: str, detail: str, remedy: str) -> Absence:
    """What is wrong with the database as a whole."""
    return Absence("source", "store", "*", reason, detail, remedy)


def held_absence(path: Path, reason: str, why: str, remedy: str, hold_ticks: int) -> Absence:
    """What is recorded while ticks wait in memory."""
    detail = f"{path.name} cannot be written ({why}); up to {hold_ticks} ticks are held in memory."
    return store_absence(reason, detail, remedy)


def lost_absence(reason: str, hold_ticks: int) -> Absence:
    """What is recorded of the time whose ticks were let go. `reason`: why they could not be written."""
    detail = f"The database could not be written ({reason}) for longer than {hold_ticks} ticks."
    return store_absence("ticks-lost", detail, "See the reason reported before it.")


def _has_no_room(path: Path, room_bytes: int) -> bool:
    try:
        disk = os.statvfs(path.absolute().parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < room_bytes and not disk.f_flag & os.ST_RDONLY


def _is_refused(path: Path) -> bool:
    """Whether it is this user who may not write there, and not the file system that takes nothing."""
    folder = path.absolute().parent
    try:
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            return False
    except OSError as error:
        return error.errno not in _ERRORS
    return not os.access(folder, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK))
