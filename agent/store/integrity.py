"""Whether a database is whole: a quick look when it is opened, all of it once a day, and what is done about damage.

A look at the whole file takes seconds, so the opening reads only what it will write into; the daily look runs in a
process of its own and leaves a mark beside the file. Whoever opens a marked or damaged file for writing sets it aside.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from ...rules.base.errors import StoreError
from ...rules.base.files import open_stream

DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
MARK_SUFFIX = "-damaged"
_MAX_SAID = 500
# Small whatever the age of the file, and read whole; the sample tables and rollups are looked at by their newest rows.
_SMALL = ("meta", "node", "gpu", "port", "rollup_progress")
_NEWEST = (
    "SELECT * FROM tick ORDER BY id DESC LIMIT 20",
    "SELECT * FROM gpu_sample ORDER BY id DESC LIMIT 200",
    "SELECT * FROM fabric_sample ORDER BY id DESC LIMIT 200",
    "SELECT ts FROM tick ORDER BY ts DESC LIMIT 20",
    "SELECT * FROM gpu_minute ORDER BY id DESC LIMIT 50",
    "SELECT * FROM gpu_hour ORDER BY id DESC LIMIT 50",
    "SELECT * FROM absence ORDER BY id DESC LIMIT 50",
    "SELECT * FROM workload ORDER BY id DESC LIMIT 50",
    "SELECT * FROM workload_use ORDER BY ts_end DESC LIMIT 50",
)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite says that the file itself is broken."""
    return getattr(error, "sqlite_errorname", "").startswith(DAMAGED)


def look_over(connection: sqlite3.Connection) -> str | None:
    """What is wrong with an open database as far as a few milliseconds tell; None: nothing was found."""
    try:
        for table in _SMALL:
            connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - names of this file
        for sql in _NEWEST:
            connection.execute(sql).fetchall()
    except sqlite3.Error as error:
        if is_damage(error):
            return str(error)
        raise
    return None


def mark_of(path: Path) -> Path:
    """The file that says of a database that it is damaged."""
    return path.with_name(path.name + MARK_SUFFIX)


def marked(path: Path) -> str | None:
    """What the last look at the whole file found wrong; None where it is not marked."""
    try:
        with open_stream(mark_of(path), 0.0) as file:
            return file.read(_MAX_SAID).decode("utf-8", "replace") or "damage was found"
    except OSError:
        return None


def check_whole(path: Path) -> None:
    """Let SQLite read every page. Raises StoreError, and leaves the mark, where something is wrong."""
    try:
        with closing(sqlite3.connect(path, timeout=5.0, isolation_level=None)) as connection:
            connection.execute("PRAGMA query_only = 1")
            found = connection.execute("PRAGMA quick_check(5)").fetchall()
    except sqlite3.Error as error:
        if not is_damage(error):
            raise StoreError(f"{path} cannot be checked: {error}.", "It is checked again tomorrow.") from error
        found = [(str(error),)]
    if found == [("ok",)]:
        return
    said = "; ".join(" ".join(str(text).split()) for (text,) in found)[:_MAX_SAID]
    try:
        mark_of(path).write_text(said, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path} is damaged ({said}), and that cannot be noted: {error.strerror}.") from error
    raise StoreError(f"{path} is damaged ({said}).", "It is set aside, with its name kept, when the agent next starts.")
