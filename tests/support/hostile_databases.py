"""Node databases that somebody crafted to stop whoever reads them: each was, or may be, carried out against a folder.

A maker is given the place of the file, and there a copy of an honest database to begin from.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

Maker = Callable[[Path], None]

_ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
# Two cells whose trimming compares each character of one with all of the other: minutes in one step of SQLite.
_LONG = 1_000_000


def _change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        connection.execute("PRAGMA ignore_check_constraints = 1")
        for statement in statements:
            connection.execute(statement)


def _columns(path: Path, view: str) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [name for _, name, *_ in connection.execute(f"PRAGMA table_info({view})")]


def _view(path: Path, view: str, column: str, value: str, rest: str = "", before: tuple[str, ...] = ()) -> None:
    """Replace a view by one that gives `value` for `column`."""
    names = [f"{value} AS {name}" if name == column else f"{view}_kept.{name}" for name in _columns(path, view)]
    with closing(sqlite3.connect(path)) as connection:
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (view,)).fetchone()
    kept = sql.replace(f"CREATE VIEW {view} ", f"CREATE VIEW {view}_kept ", 1)
    _change(path, *before, f"DROP VIEW {view}", kept, f"CREATE VIEW {view} AS SELECT {', '.join(names)}"
            f" FROM {view}_kept{rest}")  # fmt: skip


def _schema(path: Path, *statements: str) -> None:
    """Write into the schema itself what SQLite's own statements would refuse."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        for statement in statements:
            connection.execute(statement)
        connection.execute("PRAGMA writable_schema = RESET")


def trimming(path: Path) -> None:
    """A view that trims one long text by another: O(n * m) in one step, in which no callback is called."""
    _view(path, "nodes", "cluster", "trim(big.a, big.b)", ", big", before=(
        "CREATE TABLE big (a, b)",
        f"INSERT INTO big SELECT replace(hex(zeroblob({_LONG // 2})), '0', 'a') || 'x',"
        " (SELECT group_concat(char(x), '') || 'a' FROM (WITH RECURSIVE n(x) AS (SELECT 20000 UNION ALL SELECT x + 1"
        " FROM n WHERE x < 50000) SELECT x FROM n))",
    ))  # fmt: skip


def trimming_many(path: Path) -> None:
    """The same, in every row of the hours."""
    trimming(path)
    _view(path, "gpu_hours", "gpu_uuid", "trim(big.a, big.b)", ", big")


def doubling(path: Path) -> None:
    """A text doubled fifteen times by ``||``."""
    chain = ["CREATE VIEW d0 AS SELECT 'aaaaaaaaaaaaaaaa' AS s"]
    chain += [f"CREATE VIEW d{n} AS SELECT s || s AS s FROM d{n - 1} LIMIT 1" for n in range(1, 16)]
    _view(path, "gpu_hours", "gpu_uuid", "d15.s || gpu_hours_kept.ts", ", d15", before=tuple(chain))


def concatenating(path: Path) -> None:
    """group_concat over a product of tables."""
    _view(path, "nodes", "cluster", "(SELECT group_concat(a.gpu_uuid || b.gpu_uuid) FROM gpu a, gpu b, gpu c)")


def spilling(path: Path) -> None:
    """A sorter that spills a product of tables to the temporary disk."""
    rows = "SELECT a.sm_active_bins || a.id || b.id AS s FROM gpu_hour a, gpu_hour b"
    _view(path, "nodes", "cluster", f"(SELECT max(s) FROM ({rows} ORDER BY 1 LIMIT -1 OFFSET 1))")


def spilling_rows(path: Path) -> None:
    """The same by a view of whole rows."""
    _view(path, "gpu_hours", "gpu_uuid", "gpu_hours_kept.gpu_uuid || a.id || b.id",
          ", gpu_hour a, gpu_hour b ORDER BY a.id * b.id")  # fmt: skip


def multiplying(path: Path) -> None:
    """A view that gives every row of the hours ten thousand times."""
    _view(path, "gpu_hours", "gpu_uuid", "gpu_hours_kept.gpu_uuid || a.id || b.id", ", gpu_hour a, gpu_hour b")


def recursing(path: Path) -> None:
    _change(path, "DROP VIEW nodes", f"CREATE VIEW nodes AS {_ENDLESS} SELECT 'n' || x AS node FROM n")


def nesting(path: Path) -> None:
    """Views on views, each of which names the one below twice."""
    chain = ["DROP VIEW nodes", "CREATE VIEW v0 AS SELECT * FROM node"]
    chain += [f"CREATE VIEW v{n} AS SELECT a.* FROM v{n - 1} a, v{n - 1} b" for n in range(1, 14)]
    _change(path, *chain, "CREATE VIEW nodes AS SELECT * FROM v13")


def sparse(path: Path) -> None:
    """A file of 2 TB that takes no more than the honest one on the disk; its header speaks of all of them."""
    multiplying(path)
    pages = (2 << 40) // 4096
    with path.open("r+b") as file:
        file.truncate(2 << 40)
        file.seek(28)
        file.write(struct.pack(">I", min(pages, 0xFFFFFFFE)))


def long_names(path: Path) -> None:
    """A node's name of 900 kB, which every row of the hours repeats."""
    _change(path, "UPDATE node SET node = replace(hex(zeroblob(450000)), '0', 'n') || id")


def long_bins(path: Path) -> None:
    """Bins of 200 kB in every hour."""
    _change(path, "UPDATE gpu_hour SET sm_active_bins = '0000' || replace(hex(zeroblob(100000)), '0', '1,')")


def texts_for_numbers(path: Path) -> None:
    """A text of 900 kB where a number belongs, which every row repeats."""
    _change(path, "UPDATE gpu SET mem_total_bytes = hex(zeroblob(450000))")


def same_hours(path: Path) -> None:
    """One moment that a hundred thousand periods name: every row of the hours is given for each."""
    _change(
        path,
        "CREATE TABLE h2 (ts INTEGER)",
        "INSERT INTO h2 SELECT ts FROM hour",
        "DROP TABLE hour",
        "CREATE TABLE hour (ts INTEGER)",
        f"{_ENDLESS} INSERT INTO hour SELECT ts FROM h2, (SELECT x FROM n LIMIT 20000)",
    )


def without_keys(path: Path) -> None:
    """Tables without their keys: every look for a row reads them all."""
    statements = ["PRAGMA legacy_alter_table = ON"]
    for name in ("gpu_minute", "gpu_hour"):
        statements += [
            f"CREATE TABLE g AS SELECT * FROM {name}",
            f"DROP TABLE {name}",
            f"ALTER TABLE g RENAME TO {name}",
        ]
    _change(path, *statements)


def virtual(path: Path) -> None:
    """A virtual table in place of one of ours."""
    _change(path, "DROP TABLE node", "CREATE VIRTUAL TABLE node USING fts4(cluster, machine_id)")


def generated(path: Path) -> None:
    """A column that is computed as it is read."""
    with closing(sqlite3.connect(path)) as connection:
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'node'").fetchone()
    changed = sql.replace("cluster TEXT NOT NULL DEFAULT ''", "cluster TEXT AS (hex(zeroblob(100000000)))")
    assert changed != sql
    _schema(path, f"UPDATE sqlite_master SET sql = {_quoted(changed)} WHERE name = 'node'")


def a_view_for_a_table(path: Path) -> None:
    """A view that stands where one of our tables belongs."""
    _change(path, "ALTER TABLE node RENAME TO real_node", f"CREATE VIEW node AS {_ENDLESS} SELECT x AS id, 'n' || x AS"
            " node, '' AS cluster, 0.0 AS first_seen, 1.0 AS last_seen FROM n")  # fmt: skip


def a_view_told_as_a_table(path: Path) -> None:
    """The same, with a schema that calls it a table."""
    a_view_for_a_table(path)
    _schema(path, "UPDATE sqlite_master SET type = 'table' WHERE name = 'node'")


def indexed(path: Path) -> None:
    """An index on an expression, and one that is partial."""
    _change(path, "CREATE INDEX e ON tick (abs(ts) + random_id(id))".replace("random_id(id)", "length(hex(id))"),
            "CREATE INDEX p ON tick (ts) WHERE abs(ts) > 0")  # fmt: skip


def huge_schema(path: Path) -> None:
    """A schema of fifty thousand tables."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("BEGIN")
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'meta'").fetchone()
        connection.executemany(
            "INSERT INTO sqlite_master VALUES ('table', ?, ?, ?, ?)",
            ((f"t{n}", f"t{n}", root, f"CREATE TABLE t{n} ({', '.join(f'c{i}' for i in range(60))})")
             for n in range(50_000)),
        )  # fmt: skip
        connection.execute("COMMIT")


def lying_statistics(path: Path) -> None:
    """Statistics that make the planner choose the worst way, and a hundred thousand of them."""
    _change(path, "ANALYZE", "DELETE FROM sqlite_stat1",
            f"{_ENDLESS} INSERT INTO sqlite_stat1 SELECT 'tick', 'i' || x, '1 1' FROM n LIMIT 300000",
            "INSERT INTO sqlite_stat1 VALUES ('tick', 'tick_by_ts', '1 1'), ('gpu_hour', NULL, '1')")  # fmt: skip


def circular_pages(path: Path) -> None:
    """A table whose interior page points to itself."""
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        roots = [r for (r,) in connection.execute("SELECT rootpage FROM sqlite_master WHERE rootpage > 1")]
    content = bytearray(path.read_bytes())
    for root in roots:
        at = (root - 1) * size
        if content[at] in (2, 5):  # interior
            content[at + 8 : at + 12] = struct.pack(">I", root)
    path.write_bytes(content)


def flipped(path: Path) -> None:
    """Every 997th byte after the header turned over."""
    content = bytearray(path.read_bytes())
    for at in range(4096, len(content), 997):
        content[at] ^= 0xFF
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def negative_version(path: Path) -> None:
    _change(path, "PRAGMA user_version = -5")


def odd_version(path: Path) -> None:
    _change(path, "PRAGMA user_version = 7")


def old_version(path: Path) -> None:
    """A version whose tables were others."""
    _change(path, "PRAGMA user_version = 1001")


def a_pipe_for_a_log(path: Path) -> None:
    _with_log(path)
    os.mkfifo(f"{path}-wal")


def a_pipe_for_a_journal(path: Path) -> None:
    os.mkfifo(f"{path}-journal")


def a_device_for_a_log(path: Path) -> None:
    _with_log(path)
    Path(f"{path}-wal").symlink_to("/dev/zero")


def an_endless_log(path: Path) -> None:
    """A log of 4 GB of which nothing is on the disk."""
    _with_log(path)
    log = Path(f"{path}-wal")
    log.write_bytes(struct.pack(">8I", 0x377F0682, 3007000, 4096, 0, 1, 1, 0, 0))
    os.truncate(log, 4 << 30)


def a_long_log(path: Path) -> None:
    """A log whose one transaction is written again and again over the same pages, with right checksums."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        for n in range(200):
            connection.execute("UPDATE gpu_hour SET sm_active_mean = ?", (n,))
        content, log = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    path.write_bytes(content)
    Path(f"{path}-wal").write_bytes(log)
    Path(f"{path}-shm").unlink(missing_ok=True)


def a_hot_journal(path: Path) -> None:
    """The journal of a transaction that never ended."""
    journal = struct.pack(">8sIIIII", bytes.fromhex("d9d505f920a163d7"), 0xFFFFFFFF, 7, 0xFFFFFFFF, 512, 4096)
    Path(f"{path}-journal").write_bytes(journal.ljust(512, b"\0") + b"\xff" * (1 << 20))


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def utf16(path: Path) -> None:
    """Honest, in another encoding; only its views are not ours."""
    _rebuilt(path, "PRAGMA encoding = 'UTF-16le'")
    multiplying(path)


def small_pages(path: Path) -> None:
    _rebuilt(path, "PRAGMA page_size = 512")
    multiplying(path)


def large_pages(path: Path) -> None:
    _rebuilt(path, "PRAGMA page_size = 65536")
    multiplying(path)


def a_page_size_that_is_none(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(16)
        file.write(b"\x00\x03")


def _with_log(path: Path) -> None:
    """A file that says of itself that it has a log."""
    with path.open("r+b") as file:
        file.seek(18)
        file.write(b"\x02\x02")


def _rebuilt(path: Path, *settings: str) -> None:
    with closing(sqlite3.connect(path)) as old:
        script = [line for line in old.iterdump() if "sqlite_sequence" not in line]
        application_id, version = (
            old.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
    path.unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as new:
        for setting in settings:
            new.execute(setting)
        new.executescript("\n".join(script))
        new.execute(f"PRAGMA application_id = {application_id}")
        new.execute(f"PRAGMA user_version = {version}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


MAKERS: dict[str, Maker] = {
    make.__name__: make
    for make in (
        trimming, trimming_many, doubling, concatenating, spilling, spilling_rows, multiplying, recursing, nesting,
        sparse, long_names, long_bins, texts_for_numbers, same_hours, without_keys, virtual, generated,
        a_view_for_a_table, a_view_told_as_a_table, indexed, huge_schema, lying_statistics, circular_pages, flipped,
        cut_short, negative_version, odd_version, old_version, a_pipe_for_a_log, a_pipe_for_a_journal,
        a_device_for_a_log, an_endless_log, a_long_log, a_hot_journal, a_pipe, a_device, utf16, small_pages,
        large_pages, a_page_size_that_is_none,
    )
}  # fmt: skip
