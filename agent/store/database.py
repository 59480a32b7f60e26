"""The database's file: what it is, how it is born, which are set aside, and its write-ahead log.

A newer minor version only adds, so its files are used as they are; to those of the one before the agent adds what they
lack. Readers refuse any other version, and the agent sets it aside. Committed pages wait in the log until a checkpoint
copies them home: a job's, for its fsync would cost a tick. A reader that stays in one transaction keeps the log from
beginning again, so the writer stops at a limit.
"""

import datetime
import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

from ...rules.base.errors import StoreError
from .disk_errors import LOOKED_AT, MARK_SUFFIX, disk_error, is_damage, marked, said_by

# "skuw": in the file's header (offset 68) and distinguishes our databases from foreign ones.
APPLICATION_ID = 0x736B7577

# 1.8 added the requests that a server answered: serving_sample.requests_per_second, and its view's.
SCHEMA_VERSION, OLDEST_VERSION = 1008, 1007

Kind = Literal["ours", "empty", "sqlite", "other"]
# How long a statement waits for another's lock: the writer's own, within one tick at 5 Hz (the jobs' transactions take
# some milliseconds), and one of a job beside it.
_BUSY_SECONDS, _BESIDE_SECONDS = 0.1, 5.0
# Readable for its owner and group alone: it names people and their commands. SQLite gives its side files the same mode.
_MODE = 0o640
# The log is cut to this size when it begins again: below it, SQLite writes over what is there.
LOG_KEPT_BYTES = 4_000_000
# Pages of log after which a connection checkpoints by itself: the jobs at 1 MB; the writer only where no job did for
# a long time.
_JOB_CHECKPOINT_PAGES, _WRITER_CHECKPOINT_PAGES = 256, 4000


@dataclass(frozen=True, slots=True)
class SetAside:
    """A database that was moved out of the way, kept whole at `kept_as`, and why: the absence that is recorded."""

    kept_as: Path
    why: str
    reason: str
    remedy: str


@cache
def schema_sql() -> str:
    return resources.files("skuwise.agent.store").joinpath("schema.sql").read_text(encoding="utf-8")


def kind_of(path: Path) -> Kind:
    """What a file is, by its first 100 bytes, without SQLite, which would create side files or wait for locks; a pipe
    is not waited for. Not for a process that has the database open already: see `opened_beside`. Raises OSError."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        head = file.read(100) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b"no file"
    if len(head) < 100 or not head.startswith(b"SQLite format 3\x00"):
        return "other" if head else "empty"
    return "ours" if head[68:72] == APPLICATION_ID.to_bytes(4) else "sqlite"


def schema_version(connection: sqlite3.Connection) -> int:
    """``PRAGMA user_version``: major x 1000 + minor."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def version_error(path: Path, version: int) -> StoreError | None:
    """Why a file of this version cannot be used; None: it can."""
    if OLDEST_VERSION <= version < (SCHEMA_VERSION // 1000 + 1) * 1000:
        return None
    file_version, own_version = (f"{number // 1000}.{number % 1000}" for number in (version, SCHEMA_VERSION))
    return StoreError(
        f"{path} was written by another skuwise (schema {file_version}, this one knows {own_version}).",
        "Use the skuwise that wrote it; the agent of this one begins a new file.",
    )


def foreign_error(path: Path) -> StoreError:
    """Why a file that is not ours is refused."""
    why = f"{path} is not an SQLite database of skuwise's; it was left untouched."
    return StoreError(why, "Name another file with --db.")


def set_database_aside(path: Path, why: str, label: str, now: float) -> SetAside:
    """Rename a database and its side files to ``NAME.LABEL-<utc>`` (``newer-2000``), so that nothing of it is lost."""
    kept = path.with_name(f"{path.name}.{label}-{datetime.datetime.fromtimestamp(now, datetime.UTC):%Y%m%dT%H%M%SZ}")
    while kept.exists():
        kept = kept.with_name(f"{kept.name}-2")
    # The write-ahead log before the database: were we killed in between, it alone under its old name would lose it.
    # The mark of damage before both: left behind, it would describe the new file.
    try:
        for suffix in (MARK_SUFFIX, "-wal", "-shm", ""):
            side = path.with_name(path.name + suffix)
            if side.exists():
                side.rename(kept.with_name(kept.name + suffix))
    except OSError as error:
        raise disk_error(path, error) from error
    remedy = "Query the kept file with the version of skuwise that wrote it."
    if label == "damaged":
        remedy = "Save what is left of the kept file with: sqlite3 FILE .recover; check the disk."
    return SetAside(kept, why, f"{label.partition('-')[0]}-database-set-aside", remedy)


def open_for_writing(path: Path, now: Callable[[], float]) -> tuple[sqlite3.Connection, SetAside | None]:
    """Open or create a database. A foreign file is refused, untouched. One of another version, or that is damaged, is
    set aside and a new one begun; what an older one lacks is added. Returns the connection (autocommit mode) and what
    was set aside. Raises StoreError, a PassingError where that may pass."""
    try:
        aside = _set_aside_unusable(path, now)
        if not path.exists() or path.stat().st_size == 0:
            _give_birth(path)
        connection = _connect(path, _BUSY_SECONDS, _WRITER_CHECKPOINT_PAGES)
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if schema_version(connection) < SCHEMA_VERSION:
            (view,) = re.findall(r"CREATE VIEW serving_samples AS [^;]*", schema_sql())
            with transaction(connection):
                connection.execute("ALTER TABLE serving_sample ADD COLUMN requests_per_second INTEGER")
                connection.execute("DROP VIEW IF EXISTS serving_samples")
                connection.execute(view)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return connection, aside
    except (OSError, sqlite3.Error) as error:
        raise disk_error(path, error) from error


def _set_aside_unusable(path: Path, now: Callable[[], float]) -> SetAside | None:
    """A database of ours that cannot be written is set aside; None: it can. Raises StoreError for what is not ours."""
    if not path.exists() or (kind := kind_of(path)) == "empty":
        return None
    damage, version = marked(path), SCHEMA_VERSION
    if damage is None and kind != "ours":
        # A file without SQLite's header is a database that lost it where a log still lies beside it.
        if kind == "sqlite" or not log_path(path).exists():
            raise foreign_error(path)
        damage = "its header is gone"
    if damage is None:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))  # SQLite says "read-only" also to a user who may not write
        try:
            with closing(_connect(path, _BUSY_SECONDS, 0)) as connection:
                version = schema_version(connection)
                if version_error(path, version) is None:
                    for sql in LOOKED_AT:
                        connection.execute(sql).fetchall()
                    return None
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            damage = said_by(error)
    if damage is not None:
        return set_database_aside(path, f"it is damaged ({damage})", "damaged", now())
    which = "newer" if version > SCHEMA_VERSION else "older"
    why = f"it has schema {version // 1000}.{version % 1000}"
    return set_database_aside(path, why, f"{which}-{version}", now())


def _connect(path: Path, wait_seconds: float, checkpoint_pages: int) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=wait_seconds, isolation_level=None)
    settings = {"synchronous": "NORMAL", "wal_autocheckpoint": checkpoint_pages, "journal_size_limit": LOG_KEPT_BYTES}
    connection.executescript("".join(f"PRAGMA {name} = {value};" for name, value in settings.items()))
    return connection


def _give_birth(path: Path) -> None:
    """Make a new database, whole or not at all: killed half-way, SQLite's own creation leaves a file without our id,
    which the next start would take for a stranger's. Raises OSError."""
    place = Path(os.path.realpath(path))
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        ids = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
        # The first stands before the first table, or never.
        connection.executescript(f"PRAGMA auto_vacuum = incremental; {ids} {schema_sql()}")
        image = connection.serialize()
    mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else _MODE  # a file that is there keeps its own
    unborn = place.with_name(f".{place.name}.new-{os.getpid()}")
    unborn.unlink(missing_ok=True)  # of a process of the same number that was killed
    try:
        # Only a file that we make ("x") is ours: one that is there may be another user's, who could then read it all.
        with open(unborn, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(image)
            file.flush()
            os.fsync(file.fileno())
        # What an earlier database of this name left would be played back onto the new one, and the mark of its damage
        # taken for the new one's.
        for suffix in (MARK_SUFFIX, "-journal", "-wal", "-shm"):
            place.with_name(place.name + suffix).unlink(missing_ok=True)
        unborn.replace(place)
    finally:
        unborn.unlink(missing_ok=True)


@contextmanager
def opened_beside(path: Path) -> Iterator[sqlite3.Connection]:
    """A second connection to a database of ours, for a job that writes beside its writer; closed at the end. Raises
    StoreError. SQLite is asked for its id, not the file: closing a descriptor of one's own drops every lock that this
    process holds on the database (POSIX), and the next to leave would delete the writer's log."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise foreign_error(path)
        with closing(_connect(path, _BESIDE_SECONDS, _JOB_CHECKPOINT_PAGES)) as connection:
            if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
                raise foreign_error(path)
            if (refused := version_error(path, schema_version(connection))) is not None:
                raise refused
            yield connection
    except FileNotFoundError as error:
        raise StoreError(f"{path} does not exist.", "Name a database with --db; the agent makes it.") from error
    except (OSError, sqlite3.Error) as error:
        raise disk_error(path, error) from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # On a full disk SQLite may have rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def log_path(path: Path) -> Path:
    """Where a database's write-ahead log lies: SQLite puts it beside the file itself, wherever a link to it stands."""
    whole = Path(os.path.realpath(path))
    return whole.with_name(whole.name + "-wal")


def log_bytes(path: Path) -> int:
    """The size of a database's write-ahead log in bytes; 0 where it has none."""
    with suppress(OSError):
        return log_path(path).stat().st_size
    return 0


def checkpoint(path: Path, kept_bytes: int = LOG_KEPT_BYTES) -> bool:
    """Copy home what can be, without making anyone wait; a log larger than `kept_bytes` is cut where no reader
    holds it. Whether a reader kept some of it from being copied. Raises sqlite3.Error."""
    with closing(_connect(path, 0.0, 0)) as connection:
        busy, in_log, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        held = bool(busy) or copied < in_log
        if not held and log_bytes(path) > kept_bytes:
            # All is home: only the file is left to be cut, with the lock for a moment (timeout 0: or not at all).
            held = bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
    return held
