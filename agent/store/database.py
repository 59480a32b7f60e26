"""The database's file: what it is, how it is born, and which are set aside.

``PRAGMA user_version`` is major x 1000 + minor. A newer minor version only adds, so its files are used as they are.
Those of any other version are refused by readers, and set aside by the agent.
"""

from __future__ import annotations

import datetime
import os
import sqlite3
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path

from ...rules.base.errors import StoreError
from .disk_errors import opening_error, passing, write_error
from .integrity import MARK_SUFFIX, is_damage, look_over, marked
from .wal import WRITER_CHECKPOINT_PAGES, set_up

# "skuw": stands in the file's header (offset 68) and tells our databases from foreign ones.
APPLICATION_ID = 0x736B7577

SCHEMA_VERSION = 1008

_MAGIC = b"SQLite format 3\x00"
_LOG_MAGIC = (0x377F0682, 0x377F0683)  # https://www.sqlite.org/fileformat2.html#walformat
# How long a statement waits for another's lock: the writer's own, and one of a job beside it.
_BUSY_SECONDS, _BESIDE_SECONDS = 1.0, 5.0
_MODE = 0o640


@dataclass(frozen=True, slots=True)
class Header:
    """What a file's first 100 bytes say, read without touching it. `empty`: the file has no bytes."""

    empty: bool
    sqlite: bool
    application_id: int

    @property
    def ours(self) -> bool:
        return self.sqlite and self.application_id == APPLICATION_ID


@dataclass(frozen=True, slots=True)
class SetAside:
    """A database that was moved out of the way, kept whole at `kept_as`, and why.

    `reason` is the code under which the event is recorded (an absence of the store).
    """

    kept_as: Path
    why: str
    reason: str = "newer-database-set-aside"
    remedy: str = "Query the kept file with the version of skuwise that wrote it."


class _Unusable(Exception):  # noqa: N818 - a signal within this file
    """A database of ours that cannot be written: it is set aside under `label`. `known`: fields of `SetAside`."""

    def __init__(self, why: str, label: str, **known: str) -> None:
        super().__init__(why)
        self.why, self.label, self.known = why, label, known


@cache
def schema_sql() -> str:
    """The statements that make our schema."""
    return resources.files("skuwise.agent.store").joinpath("schema.sql").read_text(encoding="utf-8")


def read_header(path: Path) -> Header:
    """Look at a file without SQLite, which would create side files or wait for locks. Raises OSError.

    What is no ordinary file (a pipe, a device) is not ours; it is not waited for either. Not for a process that has
    the database open already: see `connect_ours`.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return Header(False, False, 0)
        head = file.read(100)
    if not head:
        return Header(True, False, 0)
    if len(head) < 100 or not head.startswith(_MAGIC):
        return Header(False, False, 0)
    return Header(False, True, struct.unpack(">I", head[68:72])[0])


def schema_version(connection: sqlite3.Connection) -> int:
    """``PRAGMA user_version``: major x 1000 + minor."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def other_version(version: int) -> str | None:
    """Why a file of this version cannot be used, after "it "; None: it can."""
    if SCHEMA_VERSION <= version < (SCHEMA_VERSION // 1000 + 1) * 1000:
        return None
    which = "a newer" if version > SCHEMA_VERSION else "another"
    told, known = (f"{one // 1000}.{one % 1000}" for one in (version, SCHEMA_VERSION))
    return f"was written by {which} skuwise (schema {told}, this one knows {known})"


def version_error(path: Path, version: int) -> StoreError | None:
    """Why a file of this version is refused; None: it is not."""
    why = other_version(version)
    remedy = "Update skuwise here." if version > SCHEMA_VERSION else "Start its agent, which begins a new file."
    return StoreError(f"{path} {why}.", remedy) if why is not None else None


def set_database_aside(path: Path, why: str, label: str, now: float) -> SetAside:
    """Rename a database and its side files to ``NAME.LABEL-<utc>``, so that nothing of it is lost.

    `label` says what it was (``newer-2000``). The side files keep their suffixes, so the copy still opens.
    """
    stamp = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    kept = path.with_name(f"{path.name}.{label}-{stamp}")
    number = 1
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.name}.{label}-{stamp}-{number}")
    # The write-ahead log before the database: were we killed in between, it alone under its old name would lose it.
    # The mark of damage before both: left behind, it would speak of the new file.
    try:
        for suffix in (MARK_SUFFIX, "-wal", "-shm", ""):
            side = path.with_name(path.name + suffix)
            if side.exists():
                side.rename(kept.with_name(kept.name + suffix))
    except OSError as error:
        if passing(path, error) is not None:
            raise opening_error(path, error) from error
        raise StoreError(
            f"{path} must be set aside ({why}), but it cannot be renamed: {error.strerror}.",
            "Move it away by hand, or name another file with --db.",
        ) from error
    return SetAside(kept, why)


def foreign_error(path: Path, header: Header) -> StoreError:
    """Why a file that is not ours is refused."""
    what = "is an SQLite database, but not one of skuwise's" if header.sqlite else "is not an SQLite database"
    return StoreError(f"{path} {what}; it was left untouched.", "Name another file with --db.")


def open_for_writing(path: Path, now: Callable[[], float]) -> tuple[sqlite3.Connection, SetAside | None]:
    """Open or create a database.

    A missing or empty file becomes a new database. A foreign database or another kind of file is refused, untouched.
    A database of a version that is not ours, or one that is damaged, is set aside and a new one begun. Returns the
    connection (autocommit mode) and what was set aside. Raises StoreError, a PassingError where that may pass.
    """
    try:
        try:
            return _open(path), None
        except _Unusable as found:
            aside = replace(set_database_aside(path, found.why, found.label, now()), **found.known)
            return _open(path), aside
    except (OSError, sqlite3.Error) as error:
        raise opening_error(path, error) from error


def _open(path: Path) -> sqlite3.Connection:
    """The database, looked over. Raises _Unusable where it must be set aside."""
    header = read_header(path) if path.exists() else Header(True, False, 0)
    if header.empty:
        _give_birth(path)
    else:
        if (said := marked(path)) is not None:
            raise _damaged(said)
        if not header.ours:
            if not header.sqlite and _was_ours(path):
                raise _damaged("its header is gone")
            raise foreign_error(path, header)
    connection = None
    try:
        connection = _connect(path)
        version = schema_version(connection)
        if (why := other_version(version)) is not None:
            which = "newer" if version > SCHEMA_VERSION else "older"
            raise _Unusable(f"it {why}", f"{which}-{version}", reason=f"{which}-database-set-aside")
        said = look_over(connection) if not header.empty else None
        if said is not None:
            raise _damaged(said)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error) and not header.empty and is_damage(error):
            raise _damaged(str(error)) from error
        raise
    return connection


def _damaged(said: str) -> _Unusable:
    return _Unusable(
        f"it is damaged ({said})",
        "damaged",
        reason="damaged-database-set-aside",
        remedy="Save what is left of the kept file with: sqlite3 FILE .recover; check the disk.",
    )


def _was_ours(path: Path) -> bool:
    """Whether a file without SQLite's header is a database that lost it: its write-ahead log still lies beside it."""
    try:
        with path.with_name(path.name + "-wal").open("rb") as file:
            return struct.unpack(">I", file.read(4))[0] in _LOG_MAGIC
    except (OSError, struct.error):
        return False


@contextmanager
def opened_beside(path: Path, *, checkpoint_pages: int = 0, cache_kib: int = 2048) -> Iterator[sqlite3.Connection]:
    """A second connection to a database of ours, for a job that writes beside its writer; closed at the end.

    Raises StoreError where it cannot be opened, and for what SQLite raises within.
    """
    try:
        with closing(connect_ours(path)) as connection:
            set_up(connection, checkpoint_pages)
            connection.execute(f"PRAGMA cache_size = -{cache_kib:d}")
            yield connection
    except (OSError, sqlite3.Error) as error:
        raise write_error(path, error) from error


def connect_ours(path: Path) -> sqlite3.Connection:
    """A second connection to a database of ours that is there. Raises StoreError, OSError or sqlite3.Error.

    Whose it is, is asked of SQLite and not of the file: closing a descriptor of one's own drops every lock that this
    process holds on the database (POSIX), the writer's among them, and the next to leave would delete the writer's log.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise foreign_error(path, Header(False, False, 0))
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=_BESIDE_SECONDS, isolation_level=None
    )
    try:
        application_id = int(connection.execute("PRAGMA application_id").fetchone()[0])
        if application_id != APPLICATION_ID:
            raise foreign_error(path, Header(False, True, application_id))
        if (refused := version_error(path, schema_version(connection))) is not None:
            raise refused
    except BaseException:
        connection.close()
        raise
    return connection


def _give_birth(path: Path) -> None:
    """Make a new database, whole or not at all: killed half-way, SQLite's own creation leaves a file without our id,
    which the next start would take for a stranger's. Raises OSError.
    """
    place = Path(os.path.realpath(path))
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum = incremental")  # before the first table, or never
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.executescript(schema_sql())
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        image = connection.serialize()
    # Readable for its owner and group alone: it names people and their commands. SQLite gives its side files the same
    # mode. A file that is there keeps its own.
    there = place.exists()
    mode = stat.S_IMODE(place.stat().st_mode) if there else _MODE
    unborn = place.with_name(f".{place.name}.new-{os.getpid()}-{threading.get_native_id()}")
    # Only a file that we make is ours: one that is there already may be another user's, who could then read it all.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    unborn.unlink(missing_ok=True)  # of a process of the same number that was killed
    try:
        with os.fdopen(os.open(unborn, flags, mode), "wb") as file:
            file.write(image)
            file.flush()
            os.fsync(file.fileno())
        # What an earlier database of this name left would be played back onto the new one.
        # The mark of its damage would be taken for the new one's.
        for suffix in (MARK_SUFFIX, "-journal", "-wal", "-shm"):
            place.with_name(place.name + suffix).unlink(missing_ok=True)
        if there:
            unborn.replace(place)
        else:
            _put(unborn, place)
    finally:
        unborn.unlink(missing_ok=True)


def _put(unborn: Path, place: Path) -> None:
    try:
        place.hardlink_to(unborn)
    except FileExistsError:
        return  # another writer's, born meanwhile, is as good
    except OSError:  # a file system without hard links
        unborn.replace(place)


def _connect(path: Path) -> sqlite3.Connection:
    # One thread writes at a time, but not always the same: the loop moves to another where a driver keeps the first.
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        set_up(connection, WRITER_CHECKPOINT_PAGES)
        schema_version(connection)
    except BaseException:
        connection.close()
        raise
    return connection
