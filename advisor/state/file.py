"""The state file of a fleet: where it lies, how it is opened, and what is said when it cannot be used.

Readers and writers in several processes are safe: a write-ahead log, and one short transaction a change.
"""

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from sqlite_utils import Database

from ...agent.config import load_section
from ...rules.base.errors import SkuwiseError, StoreError
from ...rules.base.sanitize import clean
from ..core.scalars import numpy_hook

T = TypeVar("T")
APPLICATION_ID = 0x736B7573  # "skus"
VERSION = 1000  # PRAGMA user_version: major x 1000 + minor; a minor step only adds
_OTHER_FILE = "Use another file with --state."
# The names of SQLite's errors, and what to do; any other error is damage.
_REMEDIES = (
    (("BUSY", "LOCKED"), "Try again after the other process ends."),
    (("FULL", "IOERR"), "Nothing is lost: make room on the disk, then try again."),
    (("READONLY", "CANTOPEN", "PERM"), "Check its permissions and those of its folder, or use --state."),
)


class DamagedStateError(StoreError):
    """The file is damaged or no state file: waiting or asking for more rights does not help."""


class InUseError(SkuwiseError):
    """Another process holds the lock."""


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder of the fleets' state files, ``$XDG_STATE_HOME/skuwise`` (a relative path is ignored:
    https://specifications.freedesktop.org/basedir-spec/), by default ``~/.local/state/skuwise``; None: no home."""
    state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    if state and Path(state).is_absolute():
        return Path(state) / "skuwise"
    return Path(home) / ".local" / "state" / "skuwise" if home else None


@dataclass(frozen=True, slots=True)
class StateSettings:
    """Section ``[state]`` of skuwise.toml. `file`: the state file; None: the fleet's own in `state_folder`.
    `keep_cards_seconds`: how long cards of finished jobs are kept."""

    file: Path | None = None
    keep_cards_seconds: Annotated[float, msgspec.Meta(ge=86400.0, le=50 * 366 * 86400.0)] = 3 * 366 * 86400.0


def load_state_settings(environ: Mapping[str, str]) -> StateSettings:
    """Every layer over the one before. Raises UsageError for an unknown key or a value that cannot be."""
    return load_section(StateSettings, "state", environ)


def to_json(value: object) -> str:
    """A frozen dataclass as JSON by the names of its fields; what is no finite number is null."""
    try:
        return msgspec.json.encode(value, enc_hook=numpy_hook).decode()
    except UnicodeEncodeError:  # a lone surrogate, of a name that is not UTF-8: kept as its escape
        return json.dumps(msgspec.to_builtins(value, enc_hook=numpy_hook))


def from_json(kind: type[T], text: str) -> T:
    """The value of what `to_json` wrote. Raises sqlite3.DataError for anything else."""
    try:
        if r"\ud" in text:
            return msgspec.convert(json.loads(text), kind)
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:
        raise sqlite3.DataError(f"a value is not a {kind.__name__}: {error}") from error


def sqlite_text(text: str) -> str:
    """Text that SQLite can keep: a lone surrogate (a name that is not UTF-8) becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def cells(**values: object) -> dict[str, object]:
    """A row of a table: None, numbers and bytes as they are, text that SQLite can keep, all else as JSON."""

    def cell(value: object) -> object:
        if isinstance(value, str):
            return sqlite_text(value)
        return value if value is None or isinstance(value, int | float | bytes) else to_json(value)

    return {name: cell(value) for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class State:
    """One state file. Each call opens it for as long as it takes; nothing is held in between."""

    path: Path
    busy_seconds: float = 10.0

    @contextmanager
    def reading(self) -> Iterator[Database]:
        """The file as it is, in one transaction; an empty one where there is none. Raises StoreError."""
        with self._told("read"), ExitStack() as open_:
            if self.path.exists():
                connection = open_.enter_context(closing(self._connect("ro")))
                connection.execute("BEGIN")
                if self._is_ours(connection):
                    yield _database(connection)
                    return
            yield _begun(open_.enter_context(closing(sqlite3.connect(":memory:", isolation_level=None))))

    @contextmanager
    def writing(self) -> Iterator[Database]:
        """The file, begun where it is not there, in one transaction that the end of the block commits and an exception
        rolls back. Raises StoreError."""
        with self._told("written"):
            os.close(_private(self.path))
            with closing(self._connect("rw")) as connection:
                # Of another's file nothing is changed, its journal mode neither. One transaction: another process may
                # be beginning the file.
                connection.execute("BEGIN")
                self._is_ours(connection)
                connection.execute("ROLLBACK")
                connection.execute("PRAGMA foreign_keys = ON")
                # A commit that was lost with the machine's power would send again what was sent.
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN IMMEDIATE")
                db = _database(connection) if self._is_ours(connection) else _begun(connection)
                yield db
                connection.execute("COMMIT")

    @contextmanager
    def alone(self, who: str, lock: str = "send", wait_seconds: float = 0.0) -> Iterator[None]:
        """Keep out others that ask for the same `lock`: one sender at a time, and one watch. `who`: the other, in
        words; it is waited for at most `wait_seconds`. A process that was killed holds nothing. Raises SkuwiseError."""
        with self._told("written"):
            handle = _private(self.path.with_name(f"{self.path.name}.{lock}.lock"))
        last_try = time.monotonic() + wait_seconds
        try:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() >= last_try:
                        what = f"{who} already uses {clean(str(self.path))}."
                        raise InUseError(what, "Wait until it ends, or stop it.") from error
                    time.sleep(0.2)
            yield
        finally:
            os.close(handle)

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        # Where the folder is read-only a log cannot be made to read with (https://sqlite.org/wal.html#readonly);
        # without a log the file is whole.
        if mode == "ro" and not os.access(self.path.parent, os.W_OK) and not Path(f"{self.path}-wal").exists():
            uri += "&immutable=1"
        return sqlite3.connect(uri, uri=True, timeout=self.busy_seconds, isolation_level=None)

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Whether it is a state file; False: it is empty. Raises StoreError for anything else, and for another major
        version."""
        number, version, objects = connection.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
            "FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if number == APPLICATION_ID and version // 1000 == VERSION // 1000:
            return True
        name = clean(str(self.path))
        if number == APPLICATION_ID:
            what = f"The state file {name} has version {version // 1000}.{version % 1000}"
            remedy = f"Use the skuwise that wrote it. {_OTHER_FILE}"
            raise StoreError(f"{what}; this skuwise reads {VERSION // 1000}.x.", remedy)
        if number or version or objects:
            raise DamagedStateError(f"{name} is a database, but no state file; it was not changed.", _OTHER_FILE)
        return False

    @contextmanager
    def _told(self, done: str) -> Iterator[None]:
        sentence = f"The state file {clean(str(self.path))} cannot be {done}:"
        try:
            yield
        except OSError as error:
            raise StoreError(f"{sentence} {error.strerror}.", _OTHER_FILE) from error
        except (sqlite3.Error, UnicodeDecodeError) as error:
            sentence = f"{sentence} {clean(str(error)[:200])}."
            name = (getattr(error, "sqlite_errorname", None) or "").removeprefix("SQLITE_")
            for kinds, remedy in _REMEDIES:
                if name.startswith(kinds):
                    raise StoreError(sentence, remedy) from error
            remedy = f"Recover it (sqlite3 FILE .recover), or move it away. {_OTHER_FILE}"
            raise DamagedStateError(sentence, remedy) from error


def _database(connection: sqlite3.Connection) -> Database:
    from sqlite_utils import Database  # noqa: PLC0415 - it loads pandas, a quarter of a second for a --help

    return Database(connection, recursive_triggers=False, execute_plugins=False)


def _begun(connection: sqlite3.Connection) -> Database:
    for statement in (files(__package__ or "") / "schema.sql").read_text("utf-8").split(";\n"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    return _database(connection)


def _private(path: Path) -> int:
    """A handle of a file for its owner alone, as is its folder: it names users and money."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
