"""The database's file: what it is, how it is born, and how it grows.

Every migration is one transaction together with its ``PRAGMA user_version`` (major x 1000 + minor), so that a failure
leaves the version before it. Only the agent (and the simulator) migrates; readers never do.
"""

from __future__ import annotations

import datetime
import os
import sqlite3
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ...rules.errors import StoreError

# "skuw": stands in the file's header (offset 68) and tells our databases from foreign ones.
APPLICATION_ID = 0x736B7577

# Version -> file in migrations/, in order. What is released is never changed, only added to.
_STEPS: tuple[tuple[int, str], ...] = ((1000, "0001_spine"),)
SCHEMA_VERSION = _STEPS[-1][0]

_MAGIC = b"SQLite format 3\x00"
_BUSY_SECONDS = 1.0
_MODE = 0o640


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema: `version` is what ``PRAGMA user_version`` reads after it."""

    version: int
    name: str
    sql: str


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
    """A database that was moved out of the way, kept whole at `kept_as`, and why."""

    kept_as: Path
    why: str


def _load(version: int, name: str) -> Migration:
    folder = resources.files("skuwise.agent.store").joinpath("migrations")
    return Migration(version, name, folder.joinpath(f"{name}.sql").read_text(encoding="utf-8"))


def migrations() -> tuple[Migration, ...]:
    """All migrations this version of skuwise knows, in order."""
    return tuple(_load(version, name) for version, name in _STEPS)


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


def split_statements(sql: str) -> Iterator[str]:
    """The statements of a script, one by one: `executescript` would commit the transaction we are in."""
    pending = ""
    for line in sql.splitlines(keepends=True):
        if not pending and (not line.strip() or line.lstrip().startswith("--")):
            continue
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip():
        yield pending


def schema_version(connection: sqlite3.Connection) -> int:
    """``PRAGMA user_version``: major x 1000 + minor; 0 where nothing was migrated yet."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, steps: Sequence[Migration]) -> int:
    """Apply the steps that are missing, each in its own transaction. Returns the version reached.

    The connection must be in autocommit mode (``isolation_level=None``).
    """
    version = schema_version(connection)
    for step in steps:
        if step.version <= version:
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have migrated while we waited for the lock.
            if schema_version(connection) < step.version:
                for statement in split_statements(step.sql):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {int(step.version)}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        version = step.version
    return version


def set_aside(path: Path, why: str, label: str, now: float) -> SetAside:
    """Rename a database and its side files to ``NAME.LABEL-<utc>``, so that nothing of it is lost.

    `label` says what it was (``newer-2000``). The side files keep their suffixes, so the copy still opens.
    """
    stamp = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    kept = path.with_name(f"{path.name}.{label}-{stamp}")
    number = 1
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.name}.{label}-{stamp}-{number}")
    # The write-ahead log first: were we killed in between, the database alone under its old name would lose it.
    try:
        for suffix in ("-wal", "-shm", ""):
            side = path.with_name(path.name + suffix)
            if side.exists():
                side.rename(kept.with_name(kept.name + suffix))
    except OSError as error:
        raise StoreError(
            f"{path} must be set aside ({why}), but it cannot be renamed: {error.strerror}.",
            "Move it away by hand, or name another file with --db.",
        ) from error
    return SetAside(kept, why)


def foreign_error(path: Path, header: Header) -> StoreError:
    """Why a file that is not ours is refused."""
    what = "is an SQLite database, but not one of skuwise's" if header.sqlite else "is not an SQLite database"
    return StoreError(f"{path} {what}; it was left untouched.", "Name another file with --db.")


def damaged_error(path: Path, error: Exception) -> StoreError:
    """Why a database that SQLite cannot read is refused."""
    return StoreError(
        f"{path} is damaged and cannot be read ({error}).",
        f"Save what is left with: sqlite3 '{path}' .recover; then move the file away and start again.",
    )


def open_for_writing(
    path: Path, now: Callable[[], float], steps: Sequence[Migration] | None = None
) -> tuple[sqlite3.Connection, SetAside | None]:
    """Open or create a database and bring its schema up to date.

    A missing or empty file becomes a new database. A foreign database or another kind of file is refused, untouched.
    A database of a newer major version is set aside and a new one begun. A newer minor version only added, so it is
    written as it is. Returns the connection (autocommit mode) and what was set aside.
    """
    steps = migrations() if steps is None else steps
    try:
        header = read_header(path) if path.exists() else Header(True, False, 0)
        if not header.empty and not header.ours:
            raise foreign_error(path, header)
        connection = _connect(path, fresh=header.empty)
        aside = None
        if schema_version(connection) // 1000 > steps[-1].version // 1000:
            version = schema_version(connection)
            connection.close()
            why = (
                f"it was written by a newer skuwise (schema {version // 1000}.{version % 1000}, "
                f"this one knows {steps[-1].version // 1000}.{steps[-1].version % 1000})"
            )
            aside = set_aside(path, why, f"newer-{version}", now())
            connection = _connect(path, fresh=True)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be opened: {error.strerror}.",
            "Check that its folder exists and that this user may write there.",
        ) from error
    except sqlite3.Error as error:
        raise _open_error(path, error) from error
    try:
        migrate(connection, steps)
    except sqlite3.Error as error:
        connection.close()
        raise _open_error(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection, aside


def connect_ours(path: Path, timeout: float) -> sqlite3.Connection:
    """A second connection to a database of ours that is there. Raises StoreError, OSError or sqlite3.Error.

    Whose it is, is asked of SQLite and not of the file: closing a descriptor of one's own drops every lock that this
    process holds on the database (POSIX), the writer's among them, and the next to leave would delete the writer's log.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise foreign_error(path, Header(False, False, 0))
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=timeout, isolation_level=None)
    try:
        application_id = int(connection.execute("PRAGMA application_id").fetchone()[0])
        if application_id != APPLICATION_ID:
            raise foreign_error(path, Header(False, True, application_id))
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, *, fresh: bool) -> sqlite3.Connection:
    if fresh:
        # Born readable for its owner and group alone: it names people and their commands. SQLite gives its side files
        # the same mode. A file that is there keeps its own.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE))
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        if fresh:
            # Both must stand before the first table; the id goes in before WAL, so that it is in the file's header
            # whatever happens next.
            connection.execute("PRAGMA auto_vacuum = incremental")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        schema_version(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_error(path: Path, error: sqlite3.Error) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged_error(path, error)
    remedy = {
        "SQLITE_FULL": "Free some space on its disk.",
        "SQLITE_BUSY": "Another process holds it locked: wait for it or end it.",
        "SQLITE_READONLY": "Make the file and its folder writable for this user.",
        "SQLITE_CANTOPEN": "Check that its folder exists and that this user may write there.",
    }
    key = next((known for known in remedy if name.startswith(known)), "")
    return StoreError(f"{path} cannot be opened for writing: {error}.", remedy.get(key, "Name another file with --db."))
