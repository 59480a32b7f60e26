"""SQLite files spoiled where it hurts: in the header, in the pages' trees, in cells, and by SQL.

The offsets are those of https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import random
import sqlite3
import struct
from collections.abc import Sequence
from contextlib import closing, suppress

from .spoil import MAX_BYTES, spoiled, times
from .target import Mutator, Seed

_HEADER = 100
# Fields of the file's header: where, how long.
_FIELDS = ((16, 2), (18, 1), (19, 1), (20, 1), (21, 1), (22, 1), (23, 1), (24, 4), (28, 4), (32, 4), (36, 4), (40, 4),
           (44, 4), (48, 4), (52, 4), (56, 4), (60, 4), (64, 4), (68, 4), (92, 4), (96, 4))  # fmt: skip
_INTEGERS = (0, 1, 2, 3, 4, 5, 7, 10, 13, 100, 127, 128, 255, 256, 511, 512, 1000, 1023, 1024, 4096, 65535, 65536,
             2**31 - 1, 2**31, 2**32 - 1)  # fmt: skip
_VARINTS = (b"\x00", b"\x01", b"\x7f", b"\x81\x00", b"\xff\x7f", b"\xff" * 8 + b"\xff", b"\x88\x80\x80\x80\x00")
# A cell's types by serial type code: NULL, integers, float, blobs and texts of some length.
_TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 100, 101, 127)


def _size(data: bytearray) -> int:
    size = struct.unpack_from(">H", data, 16)[0] if len(data) >= _HEADER else 0
    return 65536 if size == 1 else size if size >= 512 else 1024


def _put(data: bytearray, place: int, size: int, number: int) -> None:
    if place >= 0 and place + size <= len(data):
        data[place : place + size] = (number % 256**size).to_bytes(size, "big")


def _pages(draw: random.Random, data: bytearray) -> None:
    """One change of a header, a page or a cell."""
    if len(data) < 1024:
        return
    size = _size(data)
    count = max(1, len(data) // size)
    page = draw.randrange(count)
    base = page * size
    head = base + (_HEADER if page == 0 else 0)
    what = draw.randrange(14)
    if what <= 1:
        place, width = draw.choice(_FIELDS)
        _put(data, place, width, draw.choice(_INTEGERS))
    elif what == 2:
        _put(data, head, 1, draw.choice((2, 5, 10, 13, 0, draw.randrange(256))))
    elif what == 3:
        _put(data, head + draw.choice((1, 3, 5)), 2, draw.choice((*_INTEGERS, draw.randrange(size))))
    elif what == 4:
        _put(data, head + 8, 4, draw.choice((0, 1, page + 1, draw.randrange(count + 3), 2**31)))
    elif what in (5, 6, 7, 8):
        _cell(draw, data, base, head, size)
    elif what == 9:
        other = draw.randrange(count) * size
        data[base : base + size] = data[other : other + size]
    elif what == 10:
        data[base : base + size] = bytes(size) if draw.random() < 0.5 else draw.randbytes(size)
    elif what == 11:
        del data[base:]
    elif what == 12:
        other = draw.randrange(count) * size
        data[base : base + size], data[other : other + size] = data[other : other + size], data[base : base + size]
    else:
        place = base + draw.randrange(size)
        _put(data, place, 1, (data[place] if place < len(data) else 0) ^ (1 << draw.randrange(8)))


def _cell(draw: random.Random, data: bytearray, base: int, head: int, size: int) -> None:
    """A cell's pointer, its length, its rowid, its header, its types, or what it holds."""
    if head + 12 > len(data):
        return
    kind, cells = data[head], struct.unpack_from(">H", data, head + 3)[0]
    array = head + (12 if kind in (2, 5) else 8)
    if not 0 < cells < size // 2:
        return
    pointer = array + 2 * draw.randrange(cells)
    if pointer + 2 > len(data):
        return
    if draw.random() < 0.2:
        _put(
            data, pointer, 2, draw.choice((*_INTEGERS, draw.randrange(size), struct.unpack_from(">H", data, array)[0]))
        )
        return
    cell = base + struct.unpack_from(">H", data, pointer)[0]
    if cell + 16 > len(data):
        return
    place = cell + draw.choice((0, 1, 2, 3, 3, 4, 4, 5, 6, 7, 8, 10, 14, 20, 40))
    if draw.random() < 0.3:
        new = draw.choice(_VARINTS)
    elif draw.random() < 0.6:
        new = bytes([draw.choice(_TYPES)])
    else:
        new = draw.choice((b"\xff", b"\x00", b"\xc3\x28", b"\x1b[", b"\xed\xa0\x80", b"\x7f\xf0\0\0\0\0\0\0"))
    data[place : place + len(new)] = new


_CELLS: tuple[str, ...] = (
    "NULL", "0", "1", "-1", "2", "1.5", "-0.5", "1e308", "-1e308", "9e999", "-9e999", "9223372036854775807",
    "-9223372036854775808", "1e18", "1e15", "253402300800", "1e11", "'' ", "'text'", "'1'", "'NaN'", "'inf'", "'1e999'",
    "x''", "x'00'", "x'ff'", "x'c328'", "CAST(x'ff' AS TEXT)", "CAST(x'610062' AS TEXT)", "CAST(x'eda080' AS TEXT)",
    "char(27)||'[2J'", "char(8238)", "char(10)", "'a''b'", "hex(zeroblob(2000))", "zeroblob(3000)", "'[]'", "'{}'",
    "'[1,2]'", "'{\"a\":1}'", "'null'", "'[1e999]'", "'[\"x\"]'", "'[NaN]'", "'['",
    "replace(hex(zeroblob(1500)),'0','[')",
    "random()", "'=1+1'", "'../x'", "{c}", "-{c}", "{c}*1e6", "{c}||'x'", "CAST({c} AS TEXT)", "CAST({c} AS BLOB)",
    "{c}+1", "substr({c},2)",
)  # fmt: skip
_SCHEMA: tuple[str, ...] = (
    "DELETE FROM {t}", "DROP TABLE {t}", "ALTER TABLE {t} RENAME TO other", "ALTER TABLE {t} ADD COLUMN more TEXT",
    "ALTER TABLE {t} RENAME COLUMN {c} TO other", "CREATE TABLE more (a, b)", "CREATE VIEW more AS SELECT * FROM {t}",
    "CREATE INDEX more ON {t} ({c})", "CREATE TRIGGER more AFTER INSERT ON {t} BEGIN DELETE FROM {t}; END",
    "CREATE TRIGGER more AFTER UPDATE ON {t} BEGIN SELECT RAISE(ABORT, 'no'); END",
    "PRAGMA user_version = {n}", "PRAGMA application_id = {n}", "PRAGMA writable_schema = RESET",
    "UPDATE sqlite_master SET sql = replace(sql, 'TEXT', 'BLOB') WHERE name = '{t}'",
    "UPDATE sqlite_master SET sql = NULL WHERE name = '{t}'",
    "UPDATE sqlite_master SET rootpage = {n} WHERE name = '{t}'",
    "UPDATE sqlite_master SET sql = 'CREATE TABLE {t} (a)' WHERE name = '{t}'",
    "UPDATE sqlite_master SET type = 'view' WHERE name = '{t}'", "DELETE FROM sqlite_master WHERE name = '{t}'",
    "UPDATE sqlite_master SET name = 'x' || name WHERE name = '{t}'", "UPDATE sqlite_master SET sql = 'garbage'",
)  # fmt: skip
_BODIES: tuple[str, ...] = (
    "SELECT 1", "SELECT NULL", "SELECT * FROM {v}", "SELECT * FROM nowhere",
    "SELECT a.* FROM sqlite_master a, sqlite_master b",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
    "SELECT zeroblob(100000000)", "SELECT hex(zeroblob(400000))", "SELECT printf('%.*c', 100000000, 'x')",
    "SELECT group_concat(a.sql || b.sql) FROM sqlite_master a, sqlite_master b, sqlite_master c",
    "SELECT load_extension('x')", "SELECT * FROM pragma_table_info('{t}')",
)  # fmt: skip


def _sql(draw: random.Random, data: bytes, hostile: Sequence[str]) -> bytes:
    """What somebody with an SQLite shell may have done."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.deserialize(data)
        db.execute("PRAGMA writable_schema = ON")
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute("PRAGMA foreign_keys = OFF")
        names = db.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view', 'trigger')").fetchall()
        tables = [name for name, kind in names if kind == "table" and not name.startswith("sqlite_")]
        views = [name for name, kind in names if kind == "view"]
        full = [t for t in tables if db.execute(f"SELECT EXISTS (SELECT 1 FROM {t})").fetchone()[0]] or tables
        for _ in range(times(draw)):
            with suppress(sqlite3.Error):
                _statement(draw, db, full if draw.random() < 0.85 else tables, views, hostile)
        with suppress(sqlite3.Error):
            return db.serialize()
    return data


def _statement(
    draw: random.Random, db: sqlite3.Connection, tables: Sequence[str], views: Sequence[str], hostile: Sequence[str]
) -> None:
    table = draw.choice(tables)
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")] or ["rowid"]
    column = f'"{draw.choice(columns)}"'
    what = draw.random()
    if what < 0.66:
        value = draw.choice(_CELLS).replace("{c}", column)
        one = "" if draw.random() < 0.3 else f"WHERE rowid = (SELECT rowid FROM {table} ORDER BY random() LIMIT 1)"
        if "random" in one:  # which row is drawn here: the same number gives the same bytes
            rows = [row[0] for row in db.execute(f"SELECT rowid FROM {table} LIMIT 200")]
            one = f"WHERE rowid = {draw.choice(rows)}" if rows else ""
        if "random()" in value:
            value = str(draw.getrandbits(63))
        db.execute(f"UPDATE OR IGNORE {table} SET {column} = {value} {one}")
    elif what < 0.76:
        others = ", ".join(f'"{name}"' for name in columns)
        changed = others.replace(column, draw.choice(_CELLS).replace("{c}", column).replace("random()", "7"), 1)
        db.execute(f"INSERT OR IGNORE INTO {table} ({others}) SELECT {changed} FROM {table} LIMIT 20")
    elif what < 0.82:
        rows = [row[0] for row in db.execute(f"SELECT rowid FROM {table} LIMIT 200")]
        db.execute(f"DELETE FROM {table} WHERE rowid = {draw.choice(rows) if rows else 0}")
    elif what < 0.86 and views:
        view = draw.choice(views)
        body = draw.choice((*_BODIES, *hostile)).replace("{v}", view).replace("{t}", table)
        names = [row[1] for row in db.execute(f"PRAGMA table_info({view})")]
        wanted = ", ".join(f'{body} AS "{name}"' if body in ("NULL", "1") else f'1 AS "{name}"' for name in names)
        db.execute(f"DROP VIEW {view}")
        if draw.random() < 0.8:
            db.execute(f"CREATE VIEW {view} AS {body if draw.random() < 0.5 else f'SELECT {wanted} FROM ({body})'}")
    else:
        text = draw.choice(_SCHEMA).format(t=table, c=column, n=draw.choice(_INTEGERS[:-1]))
        db.execute(text)


def by_sqlite(*hostile: str) -> Mutator:
    """Pages, cells, SQL, and some plain bytes. `hostile`: bodies of views that a reader must survive."""

    def mutate(draw: random.Random, seed: Seed, seeds: Sequence[Seed]) -> bytes:
        what = draw.random()
        if what < 0.12:
            return spoiled(draw, seed.data, seeds)[: MAX_BYTES * 2]
        data = seed.data
        if what < 0.62:
            data = _sql(draw, data, hostile)
            if draw.random() < 0.8:
                return data
        changed = bytearray(data)
        for _ in range(times(draw)):
            _pages(draw, changed)
        return bytes(changed)

    return mutate


def packed(path: str, page_size: int = 1024) -> bytes:
    """A database as small as it can be: small pages, none free."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute(f"PRAGMA page_size = {page_size}")
        db.execute("VACUUM")
        return db.serialize()
