"""What waits to be written: rows in memory, written in one transaction, kept where that fails."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from ...rules.base.errors import StoreError
from ..model import Absence, Tick
from .codec import DEVICES, INSERTS, TABLES, Cell, storable, upsert
from .disk_errors import held_absence, lost_absence, passing, write_error
from .integrity import is_damage, mark_of, marked
from .wal import LOG_KEPT_BYTES, checkpoint, log_path, transaction

_CACHED_WORKLOADS = 4096
# The jobs bring the log home each minute. A writer without them does it itself, at every so many refused commits.
_REFUSED_COMMITS = 12


class Batch:
    """The rows that wait for the next commit, and the connection that takes them.

    Ids are given in memory, so that rows can refer to one another before the disk has seen them. `before_write` are
    called at the beginning of each commit, to add what only then is known.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, hold_ticks: int, max_log_bytes: int) -> None:
        self.path = path
        self.hold_ticks = hold_ticks
        self.max_log_bytes = max_log_bytes
        self.fault: Absence | None = None
        self.lost_ticks = 0
        self.before_write: list[Callable[[], None]] = []
        self._connection: sqlite3.Connection | None = connection
        self._file = _identity(path)
        self._log_path = log_path(path)  # where links lead is asked once; what they lead to is told by `_identity`
        self._log: tuple[int, int] | None = None  # known after the first commit that is written
        self._rows: dict[str, dict[object, Sequence[Cell]]] = {table: {} for table in TABLES}
        self._samples: dict[str, list[Sequence[Cell]]] = {table: [] for table in INSERTS}
        # Ticks that are not rows yet, by node: those of a commit are made rows together, while the code that does it is
        # in the CPU's caches. `before_write` does it at the latest.
        self.unpacked: dict[int, list[Tick]] = {}
        self._workloads: dict[str, Sequence[Cell]] = {}
        # Ticks that were let go, by node: when the first of them began, when the last ended.
        self._gaps: dict[int, tuple[float, float]] = {}
        self._refused = 0
        self._token = secrets.token_hex(8)
        connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('writer', ?)", (self._token,))
        # Ids below zero are those of retention's own notes.
        self._next_ids: dict[str, int] = {
            table: connection.execute(f"SELECT max(coalesce(max(id), 0), 0) + 1 FROM {table}").fetchone()[0]  # noqa: S608
            for table in (*TABLES, "tick")
            if table != "agent_stat"
        }
        # Ids of devices that retention took out may be given again, lowest first, once the highest is given.
        self._free_ids: dict[str, list[int]] = {
            table: _holes(connection, table) if self._next_ids[table] >= DEVICES // 2 else []
            for table in ("gpu", "port")
        }

    @property
    def connection(self) -> sqlite3.Connection:
        """The open connection. Raises StoreError after `close`."""
        if self._connection is None:
            raise StoreError(f"{self.path} is closed.")
        return self._connection

    @property
    def closed(self) -> bool:
        return self._connection is None

    @property
    def waiting_ticks(self) -> int:
        return len(self._samples["tick"]) + sum(map(len, self.unpacked.values()))

    def close(self) -> None:
        """Let go of the file; what waits is lost."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def next_id(self, table: str) -> int:
        """A fresh id of `table`."""
        free = self._free_ids.get(table)
        if free:
            return free.pop()
        number = self._next_ids[table]
        self._next_ids[table] = number + 1
        return number

    def ids_left(self, table: str) -> bool:
        """Whether `table` (gpu, port) can take another device: ids of samples hold `DEVICES` of them."""
        return bool(self._free_ids[table]) or self._next_ids[table] < DEVICES

    def put_row(self, table: str, key: object, row: Sequence[Cell]) -> None:
        """Let a row of a small table wait; a later one of the same key takes its place."""
        self._rows[table][key] = storable(row)

    def put_sample(self, table: str, number: int, row: Sequence[Cell]) -> None:
        """Let a row of a small table wait that comes again and again (an inference server's sample, a burst); of more
        than `hold_ticks` the oldest is let go."""
        self.put_row(table, number, row)
        rows = self._rows[table]
        if len(rows) > self.hold_ticks:
            del rows[next(iter(rows))]

    def put_tick(self, tick: Sequence[Cell], gpus: list[list[Cell]], ports: list[list[Cell]]) -> None:
        """Let one tick's rows wait."""
        self._samples["tick"].append(tick)
        self._samples["gpu_sample"] += gpus
        self._samples["fabric_sample"] += ports

    def workload(self, workload_id: str) -> Sequence[Cell] | None:
        """A workload's row as it was last put, by whichever node; None where nobody named it."""
        row = (
            self._workloads.get(workload_id)
            or self.connection.execute(
                f"SELECT {', '.join(TABLES['workload'])} FROM workload WHERE workload_id = ?",  # noqa: S608
                (workload_id,),
            ).fetchone()
        )
        if row is not None:
            self._workloads[workload_id] = row
        return row

    def put_workload(self, workload_id: str, row: Sequence[Cell]) -> None:
        """Let a workload's row wait."""
        self._workloads[workload_id] = row
        self.put_row("workload", workload_id, row)

    def commit(self) -> bool:
        """Write what waits. False: it could not be written now, still waits, and `fault` says why.

        Raises StoreError where waiting does not help: the file is damaged, or another writer took it over.
        """
        if self._log_is_held():
            return False
        if (said := marked(self.path)) is not None:
            raise StoreError(
                f"{self.path} is damaged ({said}).",
                "Start the agent again: it sets the file aside and begins a new one.",
            )
        try:
            try:
                self._write()
            except OverflowError:
                # Integers beyond 64 bits: sentinels that a source let through.
                for rows in self._samples.values():
                    rows[:] = [storable(row) for row in rows]
                self._write()
        except sqlite3.Error as error:
            self._give_way(error)
            return False
        self.fault = None
        self._refused = 0
        return True

    def commit_or_raise(self) -> None:
        """For bulk work, where nobody waits for the disk to recover."""
        if not self.commit() and self.fault is not None:
            raise StoreError(self.fault.detail, self.fault.remedy)

    def put_now(self, write: Callable[[sqlite3.Connection], object]) -> None:
        """Commit what waits, then run `write` in a transaction of its own. Raises StoreError where it fails."""
        self.commit_or_raise()
        try:
            self._transact(write)
        except sqlite3.Error as error:
            raise write_error(self.path, error) from error

    def _transact(self, write: Callable[[sqlite3.Connection], object]) -> None:
        connection = self.connection
        log = self._log_path
        if _identity(self.path) != self._file or (self._log is not None and _identity(log) != self._log):
            # Written on, an unlinked file would take every sample and show none.
            raise StoreError(
                f"{self.path} or its log was removed or replaced while it was being written, so the agent stops.",
                "Start it again; to clear a database, stop the agent first.",
            )
        with transaction(connection):
            holder = connection.execute("SELECT value FROM meta WHERE key = 'writer'").fetchone()
            if holder is None or holder[0] != self._token:
                raise StoreError(
                    f"Another process has opened {self.path} for writing, so this one stops.",
                    "Run one agent per database.",
                )
            write(connection)
        if self._log is None:
            self._log = _identity(log)

    def _write(self) -> None:
        for prepare in self.before_write:
            prepare()
        self._put_gaps()
        self._transact(self._write_rows)
        self._gaps.clear()
        for waiting in (*self._rows.values(), *self._samples.values()):
            waiting.clear()
        if len(self._workloads) > _CACHED_WORKLOADS:
            self._workloads.clear()

    def _write_rows(self, connection: sqlite3.Connection) -> None:
        for table, rows in self._rows.items():
            if rows:
                connection.executemany(upsert(table), rows.values())
        for table, rows in self._samples.items():
            connection.executemany(INSERTS[table], rows)

    def _give_way(self, error: sqlite3.Error) -> None:
        if is_damage(error):
            # Whoever opens it next must know, even where that look would not find it.
            with contextlib.suppress(OSError):
                mark_of(self.path).write_text(str(error), encoding="utf-8")
        known = passing(self.path, error)
        if known is None:
            raise write_error(self.path, error) from error
        self._hold(known[0], str(error), known[1])

    def _log_bytes(self) -> int:
        try:
            return self._log_path.stat().st_size
        except OSError:
            return 0

    def _log_is_held(self) -> bool:
        """Whether the log outgrew its limit because a reader holds it; then nothing more is written into it."""
        if self._log_bytes() <= self.max_log_bytes:
            return False
        self._refused += 1
        if self._refused % _REFUSED_COMMITS == 1:
            try:
                if checkpoint(self.path, min(LOG_KEPT_BYTES, self.max_log_bytes // 2)).log_bytes <= self.max_log_bytes:
                    return False
            except sqlite3.Error as error:
                self._give_way(error)
                return True
        self._hold(
            "log-held",
            f"a reader has held its log of {self._log_bytes() / 1e6:.0f} MB in one long transaction",
            f"End the program that reads {self.path.name} (fuser names it), or let it read a snapshot.",
        )
        return True

    def _hold(self, reason: str, why: str, remedy: str) -> None:
        """Keep what waits, up to `hold_ticks`, and say why."""
        ticks = self._samples["tick"]
        excess = len(ticks) - self.hold_ticks
        if excess > 0:
            self.lost_ticks += excess
            for _, node_id, ts, interval_ms, *_ in ticks[:excess]:
                began, end = float(ts or 0) - float(interval_ms or 0) / 1000, float(ts or 0)
                since, until = self._gaps.get(int(node_id or 0), (began, end))
                self._gaps[int(node_id or 0)] = (min(since, began), max(until, end))
            del ticks[:excess]
            oldest = int(ticks[0][0] or 0) * DEVICES
            for table in ("gpu_sample", "fabric_sample"):
                self._samples[table] = [row for row in self._samples[table] if int(row[0] or 0) >= oldest]
        self.fault = held_absence(self.path, reason, why, remedy, self.hold_ticks)

    def _put_gaps(self) -> None:
        """Record the ticks that were let go, with what is written next."""
        lost = lost_absence(self.fault.reason if self.fault else "not written", self.hold_ticks)
        for node_id, (since, until) in self._gaps.items():
            row = (self.next_id("absence"), node_id, *dataclasses.astuple(lost), since, until)
            self.put_row("absence", ("gap", node_id), row)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file stands under this name; None where there is none. Raises OperationalError where nobody can tell."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        failed = sqlite3.OperationalError(f"{path} cannot be reached: {error.strerror}")
        failed.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise failed from error
    return found.st_dev, found.st_ino


def _holes(connection: sqlite3.Connection, table: str) -> list[int]:
    """The ids of `table` below its highest that no row has, highest first."""
    used = {row[0] for row in connection.execute(f"SELECT id FROM {table}").fetchall()}  # noqa: S608 - gpu or port
    return [number for number in range(max(used, default=0) - 1, 0, -1) if number not in used]
