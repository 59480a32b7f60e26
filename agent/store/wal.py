"""The write-ahead log: how it is set up, brought home, and kept from growing for ever.

Committed pages wait in the log until a checkpoint copies them home; a reader that stays in one transaction keeps the
log from beginning anew, so that it grows with each commit. The agent's own thread never checkpoints (its fsync would
cost a tick): the jobs do, and the writer stops at a limit (`Batch`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

# The log is cut to this size when it begins anew: below it, SQLite writes over what is there.
LOG_KEPT_BYTES = 4_000_000
# Pages of log after which a connection checkpoints by itself: the jobs at 1 MB; the writer only where no job did for
# a long time.
JOB_CHECKPOINT_PAGES = 256
WRITER_CHECKPOINT_PAGES = 4000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint left. `held`: a reader kept some of the log from being copied home."""

    log_bytes: int
    held: bool


def log_path(path: Path) -> Path:
    """Where a database's write-ahead log lies: SQLite puts it beside the file itself, wherever a link to it stands."""
    whole = Path(os.path.realpath(path))
    return whole.with_name(whole.name + "-wal")


def log_bytes(path: Path) -> int:
    """The size of a database's write-ahead log in bytes; 0 where it has none."""
    try:
        return log_path(path).stat().st_size
    except OSError:
        return 0


def set_up(connection: sqlite3.Connection, checkpoint_pages: int) -> None:
    """Log settings of a connection that writes."""
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages:d}").fetchone()
    connection.execute(f"PRAGMA journal_size_limit = {LOG_KEPT_BYTES:d}").fetchone()


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """What is written within it is written whole, or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # On a full disk SQLite may have rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def checkpoint(path: Path, kept_bytes: int = LOG_KEPT_BYTES) -> Checkpoint:
    """Copy home what can be, without making anyone wait; a log larger than `kept_bytes` is cut where no reader
    holds it.

    Raises sqlite3.Error where the database cannot be opened.
    """
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        set_up(connection, 0)
        busy, in_log, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        held = bool(busy) or copied < in_log
        if not held and log_bytes(path) > kept_bytes:
            # All is home: only the file is left to be cut, with the lock for a moment (timeout 0: or not at all).
            held = bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
    return Checkpoint(log_bytes(path), held)
