"""A database of ours that anybody may have changed: its form is looked at before it is read, and reading it is bounded.

Whoever can write to a ledger or an outbox can put anything into it: views in the place of tables, triggers that write
elsewhere, columns that are computed. What we make has none of that, so that any of it is refused by its name.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...agent.store.reader import Bounds, Meter, bounds_of, disk_bytes, hold
from ...rules.base.quantities import YEAR_10000
from ...rules.base.sanitize import clean
from ..core.codec import strict_json

_HEADER = 100  # bytes, https://www.sqlite.org/fileformat.html
_MAGIC = b"SQLite format 3\0"
_UTF8 = 1
_MOST_OBJECTS = 200
_MOST_SQL = 100_000
# What computes something in a statement that makes a table; none of ours does.
_COMPUTES = re.compile(
    r"\b(CHECK|GENERATED|ALWAYS|AS|COLLATE|USING|VIRTUAL|STORED|SELECT|ON|WHERE|LIKE|GLOB|CASE|EXISTS|RAISE|CAST)\b"
    r"|\bDEFAULT\s*\(",
    re.IGNORECASE,
)
_NAME = re.compile(r'"[A-Za-z_][A-Za-z0-9_]*"|\[[A-Za-z_][A-Za-z0-9_]*\]')
_INDEX = re.compile(r"CREATE (UNIQUE )?INDEX \w+ ON \w+ ?\(\s*\w+(,\s*\w+)*\s*\)", re.ASCII)
_PLAIN = re.compile(r'[\sA-Za-z0-9_(),."\'+-]*')
# What reading a file of ours may raise: SQLite's own words about a damaged schema may be no UTF-8, and a damaged length
# may ask for more memory than there is.
UNREADABLE = (sqlite3.Error, UnicodeDecodeError, MemoryError)
_MOST_WORDS = 200
# Brackets of a JSON value of ours: a dozen intervals and measurements.
_MOST_BRACKETS = 1000
# Whole numbers beyond these are no counts, and take longer to write than to read.
_MOST_WHOLE = 2**53


@dataclass(frozen=True, slots=True)
class CellRule:
    """What a cell of a column may be. `optional`: it may be NULL, or the column may not be there (a minor version added
    it); `words`: the only texts there are; `least` and `most` bound a number. `read` makes a value of the JSON that it
    holds, or raises ValueError."""

    kind: type
    optional: bool = False
    words: Collection[str] | None = None
    least: float = -1e300
    most: float = 1e300
    read: Callable[[str], Any] | None = None

    def fault(self, value: object) -> str | None:
        """What is wrong with a value, to go on after "holds"; None: nothing."""
        if value is None:
            return None if self.optional else "nothing"
        if not isinstance(value, (int, float) if self.kind is float else self.kind):
            return f"a value that is not of type {_KINDS[self.kind]}"
        if isinstance(value, str):
            if not value.isascii() and any("\udc80" <= sign <= "\udcff" for sign in value):
                return "text that is not UTF-8"
            return "an unknown word" if self.words is not None and value not in self.words else None
        if isinstance(value, int | float) and not self.least <= value <= self.most:
            return "an invalid time" if self.most == YEAR_10000 else "a number out of range"
        return None


_KINDS = {str: "text", float: "number", int: "whole number", bytes: "content"}
TEXT, OPTIONAL_TEXT = CellRule(str), CellRule(str, optional=True)
NUMBER, OPTIONAL_NUMBER = CellRule(float), CellRule(float, optional=True)
MOMENT = CellRule(float, least=0.0, most=YEAR_10000)
OPTIONAL_MOMENT = replace(MOMENT, optional=True)
WHOLE, FLAG = CellRule(int, least=0, most=_MOST_WHOLE), CellRule(int, least=0, most=1)


@dataclass(frozen=True, slots=True)
class FileForm:
    """What a file of ours consists of. `tables`: the columns of each. `triggers`: their whole text by their name;
    `views` are never read by us."""

    tables: Mapping[str, Mapping[str, CellRule]]
    triggers: Mapping[str, str] | None = None
    views: frozenset[str] = frozenset()

    def kinds(self, table: str) -> dict[str, type]:
        """The columns of a table by their kinds, as sqlite-utils makes tables of them."""
        return {name: column.kind for name, column in self.tables[table].items()}


class Guarded:
    """A connection to a file of ours, of which the form was looked at."""

    def __init__(self, connection: sqlite3.Connection, form: FileForm, meter: Meter) -> None:
        self.connection = connection
        self._form = form
        self._meter = meter
        self._columns = _check_form(connection, form, meter)

    def rows(self, table: str, where: str = "", parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Rows of a table by our columns' names, each cell looked at; a column that is not there yet is None.

        Raises sqlite3.DataError for what we cannot have written.
        """
        columns = self._form.tables[table]
        there = self._columns[table]
        chosen = ", ".join(f'"{name}"' if name in there else "NULL" for name in columns)
        sql = f'SELECT {chosen} FROM "{table}" {where}'  # noqa: S608 - names and conditions of ours
        found = []
        for row in self._meter.fetch(self.connection, sql, parameters):
            cells = zip(columns.items(), row, strict=True)
            found.append({name: _value(column, value, f"{table}.{name}") for (name, column), value in cells})
        return found

    def row(self, table: str, where: str, parameters: Sequence[object] = ()) -> dict[str, Any]:
        """The one row of a table that must be there. Raises sqlite3.DataError where it is not, or there are more."""
        found = self.rows(table, where, parameters)
        if len(found) != 1:
            raise sqlite3.DataError(f"{table} has {len(found)} rows, expected one")
        return found[0]

    def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """What a statement gives back, within the bounds of the whole reading."""
        return self._meter.fetch(self.connection, sql, parameters)


def _value(column: CellRule, cell: Any, where: str) -> Any:  # noqa: ANN401
    """What a cell holds. Raises sqlite3.DataError."""
    fault = column.fault(cell)
    if fault is not None:
        raise sqlite3.DataError(f"{where} holds {fault}")
    if column.read is None or cell is None:
        return cell
    try:
        return column.read(cell)
    except (ValueError, RecursionError) as error:
        raise sqlite3.DataError(f"{where} holds an unreadable value") from error


def sqlite_text(text: str) -> str:
    """Text that SQLite can keep: a lone surrogate (a name that is not UTF-8) becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@contextmanager
def guarded(
    path: Path, *, mode: str, busy_seconds: float, bounds: Callable[[int], Bounds] = bounds_of
) -> Iterator[tuple[sqlite3.Connection, Meter]]:
    """A connection to the file at `path` (`mode` ro or rw) and what may be read through it. Raises sqlite3.Error,
    OSError."""
    with path.open("rb") as file:
        header = file.read(_HEADER)
    if header.startswith(_MAGIC) and int.from_bytes(header[56:60], "big") not in (0, _UTF8):
        raise sqlite3.DataError("its text encoding is not UTF-8")
    allowed = bounds(disk_bytes(path))
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=busy_seconds, isolation_level=None)
    with closing(connection):
        # What is no UTF-8 is told by its column, not by an error of Python's.
        connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        hold(connection, allowed)
        if mode != "ro":
            connection.execute("PRAGMA query_only = 0")
        yield connection, Meter(allowed)


def reason(error: Exception) -> str:
    """What one of UNREADABLE says, harmless for one line: SQLite repeats what stands in the file."""
    if isinstance(error, UnicodeDecodeError):
        return "its schema is not UTF-8"
    if isinstance(error, MemoryError):
        return "it needs more memory than a file of its size can"
    return clean(str(error)[:_MOST_WORDS])


def check_pages(connection: sqlite3.Connection, meter: Meter) -> None:
    """Raises sqlite3.DataError where pages contradict one another: to write to such a file may cost what is left."""
    # Not the quick one: where a key and its table differ, what is sent would be noted nowhere.
    told = meter.fetch(connection, "PRAGMA integrity_check(1)")
    if told != [("ok",)]:
        first = " ".join(str(told[0][0]).split()) if told else "no answer"
        raise sqlite3.DataError(f"its pages are inconsistent: {first[:100]}")


def _check_form(connection: sqlite3.Connection, form: FileForm, meter: Meter) -> dict[str, frozenset[str]]:
    """The columns of each table. Raises sqlite3.DataError, naming the object, for what we cannot have made."""
    found = meter.fetch(connection, "SELECT type, name, sql FROM sqlite_master LIMIT ?", (_MOST_OBJECTS + 1,))
    if len(found) > _MOST_OBJECTS:
        raise sqlite3.DataError("it has more tables than a ledger")
    for type_, name, sql in found:
        _check_object(form, type_, name, sql)
    tables = [str(name) for type_, name, _ in found if type_ == "table"]
    columns = {name: _columns(connection, name, meter) for name in tables}
    for name, expected in form.tables.items():
        if name not in columns:
            raise sqlite3.DataError(f"it has no table {name}")
        lacking = [one for one, column in expected.items() if one not in columns[name] and not column.optional]
        if lacking:
            raise sqlite3.DataError(f"{name} has no column {lacking[0]}")
    return columns


def _check_object(form: FileForm, type_: object, name: object, sql: object) -> None:
    if not isinstance(name, str) or not name.isascii() or not name.isprintable() or '"' in name:
        raise sqlite3.DataError("it has an object with an invalid name")
    if type_ == "table":
        _check_sql(name, sql, "TABLE")
    elif type_ == "index":
        if sql is not None:  # SQLite's own, of a key
            _check_sql(name, sql, "INDEX")
    elif not (
        (type_ == "trigger" and sql == (form.triggers or {}).get(name)) or (type_ == "view" and name in form.views)
    ):
        raise sqlite3.DataError(f"it has an object that a ledger does not have, the {type_} {name}")


def _check_sql(name: str, sql: object, kind: str) -> None:
    """A table or an index that computes nothing."""
    plain = isinstance(sql, str) and len(sql) <= _MOST_SQL and re.match(rf"CREATE (UNIQUE )?{kind}\b", sql)
    if not plain:
        raise sqlite3.DataError(f"{name} is not a plain {kind.lower()}")
    bare = _NAME.sub("x", str(sql))  # names in quotes are no keywords
    is_plain = _INDEX.fullmatch(bare) if kind == "INDEX" else _PLAIN.fullmatch(bare) and not _COMPUTES.search(bare)
    if not is_plain:
        raise sqlite3.DataError(f"{name} is not a plain {kind.lower()}: it contains expressions")


def _columns(connection: sqlite3.Connection, table: str, meter: Meter) -> frozenset[str]:
    rows = meter.fetch(connection, f'PRAGMA table_xinfo("{table}")')
    if any(row[6] for row in rows):
        raise sqlite3.DataError(f"{table} has a computed column")
    return frozenset(str(row[1]) for row in rows)


def bounded_json(text: str) -> Any:  # noqa: ANN401
    """What JSON of ours holds. Raises ValueError for what is nested deeper, or holds numbers, that we never write."""
    if text.count("[") + text.count("{") > _MOST_BRACKETS:
        raise ValueError("it is nested too deeply")
    return strict_json(text)
