"""The one who reads: any database of ours, live, stopped or copied, and never writes a byte."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Literal

from ....rules.base.errors import NothingToDo, StoreError, UsageError
from ..file.database import foreign_error, read_header, schema_version, version_error
from ..file.disk_errors import damaged_error, said_by
from .bounds import Bounds, BoundsError, Meter, Parameters, Rows, allow_reading, bounds_of, disk_bytes, hold
from .shipped import Shipped, ours_over, put_views

_BUSY_SECONDS = 5.0
_REMEDY = "Take a snapshot of it, or check it with sqlite3."


class Reader(sqlite3.Connection):
    """A read-only connection to one database: `open_reader` makes it; as a context it is closed at the end.

    The views are ours, whatever the file brings (`shipped`). `execute` takes any SELECT, without bounds; `fetch` is
    bounded; `query` takes those on the public views only. Fetch at once: an open cursor holds a transaction, and with
    it the writer's log.
    """

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        self.close()
        return False

    address = ""  # the URI by which it was opened
    path = Path()
    meter = Meter(bounds_of(0))  # each has its own
    _ours: Shipped | None = None

    @property
    def version(self) -> int:
        """The schema's version, major x 1000 + minor."""
        return schema_version(self)

    def views(self) -> tuple[str, ...]:
        """What may be queried: the public views, and ``truth`` where a simulator left it."""
        truth = self.execute("SELECT name FROM main.sqlite_master WHERE type = 'table' AND name = 'truth'").fetchall()
        public = self._ours.views if self._ours is not None else ()
        return tuple(sorted([*public, *(name for (name,) in truth)]))

    def columns(self, view: str) -> tuple[str, ...]:
        """The columns of a view. Raises StoreError for a name that is not one."""
        if view not in self.views():
            raise StoreError(f"There is no view {view!r}.", f"There are: {', '.join(self.views())}.")
        with closing(self.execute(f"SELECT * FROM {view} LIMIT 0")) as cursor:  # noqa: S608 - a name from views()
            return tuple(column[0] for column in cursor.description)

    def fetch(self, sql: str, parameters: Parameters = ()) -> Rows:
        """All rows of a SELECT of ours, in one short transaction and within what is left of this reading's bounds.

        Raises StoreError.
        """
        return self._fetch(allow_reading, sql, parameters, f"{self.path} cannot be read", _REMEDY)

    def query(self, sql: str, parameters: Parameters = ()) -> Rows:
        """All rows of one SELECT on the public views, in one short transaction. Raises StoreError for anything else."""
        public = frozenset(self.views())
        tables = self.execute("SELECT name FROM main.sqlite_master WHERE type IN ('table', 'view')").fetchall()
        private = frozenset(name for (name,) in tables) - public

        def allow(action: int, table: str | None, column: str | None, _: str | None, inside: str | None) -> int:
            if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE):
                return sqlite3.SQLITE_OK
            # No column is named where rows are only counted.
            if action == sqlite3.SQLITE_READ and (table not in private or inside in public or not column):
                return sqlite3.SQLITE_OK
            return sqlite3.SQLITE_DENY

        remedy = f"Write one SELECT on the views: {', '.join(sorted(public))}."
        return self._fetch(allow, sql, parameters, "The query cannot be answered", remedy)

    def _fetch(self, allow: Callable[..., int], sql: str, parameters: Parameters, failed: str, remedy: str) -> Rows:
        self.set_authorizer(allow)
        try:
            return self.meter.fetch(self, sql, parameters)
        except sqlite3.Error as error:
            raise StoreError(f"{failed}: {said_by(error)}.", remedy) from error
        finally:
            self.set_authorizer(None)

    def over_tables(self, sql: str) -> str:
        """A statement of ours on the views, for a reader without them (`begin`)."""
        return sql if self._ours is None else self._ours.over_tables(sql)

    def begin(self, path: Path, bounds: Bounds, *, on_disk: bool) -> None:
        """Bounds first, then a look at the file, and our views over its tables, but `on_disk`: who reads file after
        file names them in each statement (`over_tables`). Raises StoreError, NothingToDo."""
        self.path, self.meter = path, Meter(bounds)
        # A name that is not UTF-8 is shown as such, and does not keep all others from being read.
        self.text_factory = _text
        with self.meter.on(self):
            hold(self, bounds, on_disk=on_disk)
            # Looks at the file, and has SQLite register json_each, which `query` would take for a change of the schema.
            self.execute("SELECT count(*) FROM sqlite_master, json_each('[]')").fetchone()
            version = self.version
            if (refused := version_error(path, version)) is not None:
                raise refused
            self._ours = ours_over(self, path, version)
            if not on_disk:
                self.execute("PRAGMA query_only = 0")
                put_views(self, self._ours)
                self.execute("PRAGMA query_only = 1")


def open_reader(path: Path, bounds: Bounds | None = None, *, on_disk: bool = False) -> Reader:
    """Open a database for reading. Raises UsageError (no such file), NothingToDo (nothing in it yet), StoreError.

    `bounds`: None: what a file of its size on the disk may cost. `on_disk`: see `hold`.
    """
    if not path.exists():
        raise UsageError(f"{path} does not exist.", "Name a database with --db, or start the agent to make one.")
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not a database.", "Name a file in it.")
    try:
        header = read_header(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error
    if header.empty:
        raise _nothing_yet(path)
    if not header.ours:
        raise foreign_error(path, header)
    _check_side_files(path)
    try:
        return _connect(path, bounds or bounds_of(disk_bytes(path)), on_disk=on_disk)
    except BoundsError as error:
        raise StoreError(f"{path} cannot be read: {error}.", _REMEDY) from error
    except sqlite3.Error as error:
        raise _read_error(path, error) from error


def _check_side_files(path: Path) -> None:
    """A log or a journal that is no ordinary file would hold up whoever opens it; SQLite looks beside the real file."""
    real = os.path.realpath(path)
    for suffix in ("-wal", "-shm", "-journal"):
        try:
            mode = os.lstat(real + suffix).st_mode
        except OSError:
            continue
        if not stat.S_ISREG(mode):
            raise StoreError(
                f"{path} cannot be read: {path.name}{suffix} beside it is no ordinary file.", "Remove that."
            )


def _connect(path: Path, bounds: Bounds, *, on_disk: bool) -> Reader:
    """Read-only as others may be writing; as an unchanging file only where nobody can be: no log, and no way to make
    one."""
    address = path.absolute().as_uri()
    writable = os.access(path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    log = path.with_name(path.name + "-wal")
    try:
        return _try(path, f"{address}?mode=ro", bounds, on_disk=on_disk)
    except sqlite3.OperationalError:
        if log.exists() or writable:
            raise
        return _try(path, f"{address}?mode=ro&immutable=1", bounds, on_disk=on_disk)


def _try(path: Path, address: str, bounds: Bounds, *, on_disk: bool) -> Reader:
    reader = sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, factory=Reader)
    reader.address = address
    try:
        reader.begin(path, bounds, on_disk=on_disk)
    except BaseException:
        reader.close()
        raise
    return reader


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _nothing_yet(path: Path) -> NothingToDo:
    return NothingToDo(f"{path} holds nothing yet.", "Let the agent run for a while, or name another database.")


def _read_error(path: Path, error: sqlite3.Error) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged_error(path, error)
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")) and Path(f"{os.path.realpath(path)}-journal").exists():
        return StoreError(
            f"{path} cannot be read: {path.name}-journal beside it holds a change that was never finished.",
            "Open it once with sqlite3, which undoes that change, or leave the file out.",
        )
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
        return StoreError(
            f"{path} cannot be read: it has an unfinished log beside it, and its folder is not writable for this user.",
            "Read a copy made with 'skuwise agent snapshot', or copy the file with its -wal to a writable folder.",
        )
    return StoreError(f"{path} cannot be read: {said_by(error)}.", "Try again, or read a snapshot of it.")
