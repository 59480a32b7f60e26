"""Views of ours over somebody's tables: nothing that a file's maker wrote in SQL is ever run.

A database brings its own schema, and its views may be anybody's. They are passed by: the views that we ship
are put, as temporary ones, over its tables, and those must be the tables that we ship:
plain ones, with our columns and keys, none of them computed. What else a file holds (tables and views of its owner's,
the truth of a simulated fleet) is nobody's business, and never read.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ....rules.base.errors import StoreError
from ..file.database import SCHEMA_VERSION, schema_sql

_REMEDY = "Read a copy made with 'skuwise agent snapshot' on the node, or leave the file out."
_BLANK = re.compile(r"\s+")
_QUOTED_NAME = re.compile(r'(?<=CREATE TABLE )"(\w+)"', re.ASCII)
_NO_INDEX = re.compile(r"CREATE (VIRTUAL )?(TABLE|VIEW)\b", re.ASCII)
_PLAIN = re.compile(r"CREATE TABLE\b", re.ASCII | re.IGNORECASE)
_WORD = re.compile(r"\w+", re.ASCII)
_VIEW_HEAD = re.compile(r"CREATE TEMP VIEW \w+ AS\s", re.ASCII)
_WITHOUT_ROWID = re.compile(r"\bWITHOUT ROWID\b[^()]*$", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ShippedTable:
    """`made`: what made it; `sql`: the same with single blanks. `columns`: name -> declared type and place in the key
    (0: none)."""

    made: str
    sql: str
    columns: Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Shipped:
    """Our schema. `views`: name -> the statement that makes it a temporary one. `indexes`: the
    statements that make them."""

    tables: Mapping[str, ShippedTable]
    views: Mapping[str, str]
    indexes: frozenset[str]

    def over_tables(self, sql: str) -> str:
        """A statement of ours on the views as one on the tables: those that it names stand in front of it. Reading a
        file asks for a few of them, and to put all takes longer than to read an hour."""
        wanted: dict[str, str] = {}
        self._add(sql, wanted)
        if not wanted:
            return sql
        told = ", ".join(f"{name} AS ({select})" for name, select in wanted.items())
        return f"WITH {told} {sql}"

    def _add(self, sql: str, wanted: dict[str, str]) -> None:
        """The views that a statement names, those first that others are made of."""
        for name in self.views.keys() & set(_WORD.findall(sql)) - wanted.keys():
            select = _VIEW_HEAD.sub("", self.views[name], count=1)
            self._add(select, wanted)
            wanted[name] = select


@cache
def shipped() -> Shipped:
    """Our schema."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema_sql())
        made = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        tables = {
            name: ShippedTable(sql, _single(sql), _columns(connection, name))
            for kind, name, sql in made
            if kind == "table"
        }
    views = {name: sql.replace("CREATE VIEW", "CREATE TEMP VIEW", 1) for kind, name, sql in made if kind == "view"}
    return Shipped(tables, views, frozenset(sql for kind, _, sql in made if kind == "index"))


def ours_over(connection: sqlite3.Connection, path: Path, version: int) -> Shipped:
    """Look at the tables of the file; gives our schema, whose views can be put over them.

    Raises StoreError for a table, or an index on one, that is not as we ship it, and sqlite3.Error.
    """
    ours = shipped()
    try:
        _check_tables(connection, ours)
    except _NotOurs as found:
        newer = version > SCHEMA_VERSION
        remedy = "Update skuwise here: a newer one wrote the file." if newer else _REMEDY
        raise StoreError(f"{path} cannot be read: {found}.", remedy) from found
    return ours


def put_views(connection: sqlite3.Connection, ours: Shipped) -> None:
    """Put our views over the tables, before the connection is kept from writing: a temporary view counts as something
    written. Raises sqlite3.Error."""
    for sql in ours.views.values():
        connection.execute(sql)


class _NotOurs(Exception):  # noqa: N818 - a signal within this file
    """Something is not as we ship it; the message goes on after "PATH cannot be read: "."""


def _check_tables(connection: sqlite3.Connection, ours: Shipped) -> None:
    made = connection.execute("SELECT type, name, sql FROM main.sqlite_master WHERE sql IS NOT NULL").fetchall()
    # To SQLite a name is the same in capitals.
    told = {str(name).lower(): (kind, str(sql)) for kind, name, sql in made if kind in ("table", "view")}
    # Whatever the schema calls it, what is neither a table nor a view by its statement may be an index of anything.
    has_more = any(not _NO_INDEX.match(str(sql)) for _, _, sql in made if sql not in ours.indexes)
    for name, table in ours.tables.items():
        if name not in told:
            raise _NotOurs(f"it has no table {name!r} as skuwise makes it")
        kind, sql = told[name]
        # The statement decides what SQLite takes it for, whatever the schema calls it.
        if kind != "table" or not _PLAIN.match(sql):
            raise _NotOurs(f"it has a {'view' if kind == 'view' else 'virtual table'} in place of the table {name!r}")
        if sql != table.made and _single(sql) != table.sql:
            _compare(connection, name, table, _single(sql))
        if has_more:
            _check_indexes(connection, name)


def _compare(connection: sqlite3.Connection, name: str, table: ShippedTable, sql: str) -> None:
    """A table whose statement is another may still be ours, with columns that a newer minor version added."""
    if bool(_WITHOUT_ROWID.search(sql)) != bool(_WITHOUT_ROWID.search(table.sql)):
        raise _NotOurs(f"its table {name!r} has other keys than skuwise gives it")
    columns = _columns(connection, name)
    for column, about in table.columns.items():
        if columns.get(column) != about:
            raise _NotOurs(f"its table {name!r} has no column {column!r} as skuwise makes it")


def _columns(connection: sqlite3.Connection, table: str) -> dict[str, tuple[str, int]]:
    """The columns that are kept; those that are computed are not among them."""
    rows = connection.execute(f"PRAGMA main.table_xinfo({table})").fetchall()
    return {name.lower(): (type_.upper(), key) for _, name, type_, _, _, key, hidden in rows if not hidden}


def _check_indexes(connection: sqlite3.Connection, table: str) -> None:
    for _, index, _, _, partial in connection.execute(f"PRAGMA main.index_list({table})").fetchall():
        quoted = '"' + str(index).replace('"', '""') + '"'
        parts = connection.execute(f"PRAGMA main.index_xinfo({quoted})").fetchall()
        if partial or any(cid == -2 for _, cid, *_ in parts):
            raise _NotOurs(f"its index {str(index)[:80]!r} on the table {table!r} computes something")


def _single(sql: str) -> str:
    return _QUOTED_NAME.sub(r"\1", _BLANK.sub(" ", sql).strip())
