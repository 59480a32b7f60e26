"""Lets go of what is too old or too much: in steps that each hold the write lock for some milliseconds.

Everything is one small transaction after another with a rest between them, so that it may be killed at any time and the
writer beside it never waits long (`Pace`). Where the size counts, raw samples go first, then minutes, then hours.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from ..base.retention_limits import MIN_RAW_SECONDS, Limits
from ..model import Period
from .codec import DEVICES, row_id
from .database import log_bytes, opened_beside, transaction

# A step forward larger than this between two runs of retention is doubted ...
JUMP_SECONDS = 86400.0
# ... until the clock has stood by it for so long. A node that was off for a month is believed as late as this.
PROBATION_SECONDS = 6 * 3600.0
_KEY = "retention_clock"


def trusted_now(connection: sqlite3.Connection, now: float) -> float:
    """The time to judge ages by, at most `now`; remembers what it needs in `meta` (inside the caller's transaction)."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    trusted, doubted_since = _parse(row[0]) if row else (None, None)
    if trusted is None:
        newest = connection.execute("SELECT max(last_seen) FROM node").fetchone()[0]
        # Nothing is remembered yet: the newest data tell the time, as far as they go.
        trusted = min(now, float(newest)) if newest is not None else now
    if now - trusted <= JUMP_SECONDS:
        trusted, doubted_since = now, None
    elif doubted_since is None or now < doubted_since:
        doubted_since = now
    elif now - doubted_since >= PROBATION_SECONDS:
        trusted, doubted_since = now, None
    connection.execute(
        "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (_KEY, json.dumps([trusted, doubted_since]))
    )
    return trusted


def _parse(text: str) -> tuple[float | None, float | None]:
    try:
        trusted, doubted = (None if one is None else float(one) for one in json.loads(text))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None, None
    return (trusted, doubted) if all(one is None or math.isfinite(one) for one in (trusted, doubted)) else (None, None)


# A step aims at this share of the 50 ms that a tick may wait, so that a disk five times slower still keeps the promise.
_AIM_SECONDS = 0.010
_REST_SECONDS = 0.020
# Free pages are used again by what comes next; only a file with more of them than this share is made smaller.
_SLACK_SHARE = 1 / 32
# The log grows with what is deleted, so the log is brought home every so many steps.
_STEPS_A_CHECKPOINT = 25
# What inference servers tell is not rolled up, so it is kept beyond the other samples.
_SERVING_SECONDS = 30 * 86400.0
_Counted = Literal["ticks", "rollups", "small"]
_ROLLUPS: Mapping[Period, tuple[str, ...]] = {
    "minute": ("gpu_minute", "fabric_minute", "host_minute", "gpu_burst"),
    "hour": ("gpu_hour", "fabric_hour", "host_hour", "gpu_burst_hour"),
}


@dataclass(slots=True)
class Pruned:
    """What one run did. Times are seconds; `done` is False where its time ran out and the next run goes on."""

    ticks: int = 0
    rollups: int = 0
    small: int = 0
    pages: int = 0
    dropped_for_size: list[str] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    done: bool = True

    def __str__(self) -> str:
        longest = max(self.step_seconds, default=0.0)
        return (
            f"{self.ticks} ticks, {self.rollups} rollups, {self.small} other rows and {self.pages} pages in "
            f"{len(self.step_seconds)} steps, the longest {longest * 1e3:.1f} ms"
        )


class Pace:
    """How much one step may do: less after a slow one, more after a fast one."""

    def __init__(self, size: int, most: int) -> None:
        self.size = size
        self._most = most

    def took(self, seconds: float) -> None:
        if seconds > _AIM_SECONDS:
            self.size = max(1, int(self.size * max(0.1, 0.8 * _AIM_SECONDS / seconds)))
        elif seconds < _AIM_SECONDS / 2:
            self.size = min(self._most, self.size + max(1, self.size // 2))


class OutOfTime(Exception):  # noqa: N818 - a signal within this file
    """The run's time is over: what is left waits for the next one."""


@dataclass(slots=True, eq=False)
class RetentionJob:
    """Prunes one database beside its writer. `sleep` and `monotonic` are injected, so that tests need no time."""

    path: Path
    limits: Limits
    _: KW_ONLY
    budget_seconds: float = 30.0
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    _deadline: float = field(default=0.0, init=False)
    _result: Pruned = field(default_factory=Pruned, init=False)

    def run(self, now: float) -> Pruned:
        """Let go of what is due at `now` (Unix seconds). Raises StoreError.

        Raw samples whose hour is not rolled up yet stay, up to twice their age; only the size limit takes them earlier.
        Nothing is deleted while a reader holds a log that is already large: deleting makes it larger.
        """
        self._result = Pruned()
        self._deadline = self.monotonic() + self.budget_seconds
        try:
            with opened_beside(self.path) as connection:
                self._run(connection, now)
        except OutOfTime:
            self._result.done = False
        return self._result

    def _run(self, connection: sqlite3.Connection, now: float) -> None:
        self._checkpoint(connection)
        with transaction(connection):
            trusted = trusted_now(connection, now)
        limits = self.limits
        self._drop_ticks(connection, self._raw_cutoff(connection, trusted))
        self._drop_rollups(connection, "minute", trusted - limits.minutes_seconds)
        self._drop_rollups(connection, "hour", trusted - limits.hours_seconds)
        self._drop_small(connection, trusted)
        self._hold_size(connection)
        self._give_back_pages(connection, _SLACK_SHARE)

    def _raw_cutoff(self, connection: sqlite3.Connection, now: float) -> float:
        """Up to when raw samples go: their age, but not before their hour is rolled up, and then at twice their age."""
        raw = self.limits.raw_seconds
        until = now - raw
        for (node_id,) in connection.execute("SELECT id FROM node").fetchall():
            row = connection.execute(
                "SELECT ts FROM tick WHERE node_id = ? AND ts <= ? AND ts > coalesce((SELECT min(done_to) FROM "
                "rollup_progress WHERE node_id = ? AND period = 'hour'), 0) ORDER BY ts LIMIT 1",
                (node_id, until, node_id),
            ).fetchone()
            if row is not None:
                until = min(until, row[0] - 1e-6)
        return max(until, now - 2 * raw)

    # What is deleted.

    def _drop_ticks(self, connection: sqlite3.Connection, until: float) -> None:
        sql = "SELECT id FROM tick WHERE ts <= ? ORDER BY ts, id LIMIT ?"
        self._drop(connection, "ticks", Pace(40, 2000), partial(_column, connection, sql, until), _delete_ticks)

    def _drop_rollups(self, connection: sqlite3.Connection, period: Period, until: float) -> None:
        beyond = row_id(period, until, 0) + DEVICES
        for table in _ROLLUPS[period]:
            self._drop_up_to(connection, table, "id <", beyond, "rollups")
        self._drop_up_to(connection, period, "ts <=", until)

    def _drop_small(self, connection: sqlite3.Connection, now: float) -> None:
        """What grows with events: each by its age, and by its number where it has a limit."""
        limits = self.limits
        oldest = now - limits.hours_seconds
        numbered = (
            ("slurm_job", "ended_at", limits.max_slurm_jobs),
            ("workload_use", "ts_end", limits.max_uses),
            ("absence", "until", limits.max_absences),
            ("event", "last_ts", limits.max_events),
        )
        self._drop_by_id(connection, "slurm_job", "coalesce(ended_at, imported_at) < ?", (oldest,))
        for table, end, _ in numbered[1:]:
            self._drop_by_id(connection, table, f"{end} < ?", (oldest,))
        for table, end, most in numbered:
            (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
            if count > most:
                rows = connection.execute(
                    f"SELECT {end} FROM {table} WHERE {end} IS NOT NULL ORDER BY {end} LIMIT 1 OFFSET ?",  # noqa: S608
                    (count - most,),
                ).fetchone()
                # What was seen within the last day may still go on: the writer holds its row.
                self._drop_by_id(connection, table, f"{end} < ?", (min(rows[0] if rows else now, now - 86400.0),))
        self._drop_by_id(
            connection,
            "workload",
            "last_seen < ? AND id NOT IN (SELECT workload_ref FROM workload_use)",
            (min(oldest, now - 86400.0),),
        )
        # A device that went away longer ago than the hours reach has nothing left that names it.
        for table in ("gpu", "port"):
            self._drop_by_id(connection, table, "valid_to < ?", (oldest - 3600.0,))
        self._drop_up_to(connection, "agent_stat", "ts <=", now - limits.minutes_seconds)
        for table in ("serving_sample", "serving_hour"):
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
                self._drop_up_to(connection, table, "ts <=", now - min(_SERVING_SECONDS, limits.minutes_seconds))

    def _drop_by_id(self, connection: sqlite3.Connection, table: str, where: str, values: Sequence[object]) -> None:
        ids = iter(_column(connection, f"SELECT id FROM {table} WHERE {where} ORDER BY id", *values))  # noqa: S608
        sql = f"DELETE FROM {table} WHERE id = ?"  # noqa: S608 - names of this file

        def delete(connection: sqlite3.Connection, part: Sequence[float]) -> None:
            connection.executemany(sql, [(number,) for number in part])

        self._drop(connection, "small", Pace(100, 2000), lambda most: list(islice(ids, most)), delete)

    def _drop_up_to(
        self, connection: sqlite3.Connection, table: str, below: str, until: float, counted: _Counted = "small"
    ) -> None:
        """The rows that lie `below` `until`: ``id <`` or ``ts <=``."""
        by = below.split(maxsplit=1)[0]
        sql = f"SELECT {by} FROM {table} WHERE {below} ? ORDER BY {by} LIMIT ?"  # noqa: S608 - names of this file

        def delete(connection: sqlite3.Connection, part: Sequence[float]) -> None:
            connection.execute(f"DELETE FROM {table} WHERE {by} <= ?", part[-1:])  # noqa: S608 - names of this file

        some = partial(_column, connection, sql, until)
        self._drop(connection, counted, Pace(100, 4000), some, delete)

    def _drop(
        self,
        connection: sqlite3.Connection,
        counted: _Counted,
        pace: Pace,
        some: Callable[[int], Sequence[float]],
        delete: Callable[[sqlite3.Connection, Sequence[float]], object],
    ) -> None:
        """Delete step by step what `some` gives, at most so many at a time."""
        while part := some(pace.size):
            pace.took(self._step(connection, lambda part=part: delete(connection, part)))
            setattr(self._result, counted, getattr(self._result, counted) + len(part))

    # The size.

    def _hold_size(self, connection: sqlite3.Connection) -> None:
        """Drop the oldest raw samples down to a quarter of their age, then minutes, then more raw, then hours, until
        what is in use fits; and say so in the data."""
        if self._excess(connection) <= 0:
            return
        kinds: tuple[tuple[str, Period | Literal["tick"], float], ...] = (
            ("raw samples", "tick", max(MIN_RAW_SECONDS, self.limits.raw_seconds / 4)),
            ("minutes", "minute", 86400.0),
            ("raw samples", "tick", MIN_RAW_SECONDS),
            ("hours", "hour", 86400.0),
        )
        for name, table, spare in kinds:
            first, last = _span(connection, table)
            if first is None or last is None:
                continue
            until = first
            while until < last - spare and self._excess(connection) > 0:
                # A hundredth of what there is, at a time: the file's size is only known after each step.
                until = min(last - spare, max(until, first) + max(60.0, (last - first) / 100))
                if table == "tick":
                    self._drop_ticks(connection, until)
                else:
                    self._drop_rollups(connection, table, until)
            if until > first:
                if name not in self._result.dropped_for_size:
                    self._result.dropped_for_size.append(name)
                kind = {"raw samples": 1, "minutes": 2, "hours": 3}[name]
                self._step(
                    connection,
                    lambda kind=kind, name=name, first=first, until=until: self._note(
                        connection, kind, name, first, until
                    ),
                )
        self._give_back_pages(connection, 0)

    def _excess(self, connection: sqlite3.Connection) -> int:
        """Bytes in use beyond the limit; free pages are not in use."""
        pages = _pages(connection, "page_count") - _pages(connection, "freelist_count")
        return pages * _pages(connection, "page_size") - self.limits.file_bytes

    def _note(self, connection: sqlite3.Connection, kind: int, name: str, since: float, until: float) -> None:
        """One row a node and kind, widened each time. Its id is below zero: the writer counts upwards in memory."""
        connection.execute(
            "INSERT INTO absence (id, node_id, scope, subject, metric, reason, detail, remedy, since, until) "
            "SELECT -(id * 4 + ?), id, 'source', 'store', '*', 'size-limit', ?, ?, ?, ? FROM node WHERE true "
            "ON CONFLICT (id) DO UPDATE SET since = min(since, excluded.since), until = max(until, excluded.until), "
            "detail = excluded.detail",
            (
                kind,
                f"The oldest {name} were dropped before their age, to keep the database within "
                f"{self.limits.max_bytes / 1e6:.0f} MB.",
                "Raise max_size, or shorten keep_minutes.",
                since,
                until,
            ),
        )

    def _give_back_pages(self, connection: sqlite3.Connection, share: float) -> None:
        """Make the file smaller until at most `share` of its pages are free."""
        pace = Pace(20, 2000)
        while (free := _pages(connection, "freelist_count")) > (slack := share * _pages(connection, "page_count")):
            count = max(1, min(pace.size, int(free - slack)))

            def vacuum(count: int = count) -> None:
                # One page a call: it answers in rows without columns, of which Python's sqlite3 takes the first alone.
                for _ in range(count):
                    connection.execute("PRAGMA incremental_vacuum(1)").fetchall()

            pace.took(self._step(connection, vacuum))
            given = free - _pages(connection, "freelist_count")
            if given <= 0:
                break
            self._result.pages += given

    # Steps.

    def _step(self, connection: sqlite3.Connection, write: Callable[[], object]) -> float:
        """One transaction, then a rest in which others write. Returns how long it held the lock."""
        if self.monotonic() >= self._deadline:
            raise OutOfTime
        began = self.monotonic()
        with transaction(connection):
            write()
        took = self.monotonic() - began
        self._result.step_seconds.append(took)
        if len(self._result.step_seconds) % _STEPS_A_CHECKPOINT == 0:
            self._checkpoint(connection)
        self.sleep(max(_REST_SECONDS, took))
        return took

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Bring the log home, beside the writer. A large log that a reader holds ends the run."""
        busy, in_log, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if (busy or copied < in_log) and log_bytes(self.path) > self.limits.log_bytes // 2:
            raise OutOfTime


def _column(connection: sqlite3.Connection, sql: str, *values: object) -> list[Any]:
    return [value for (value,) in connection.execute(sql, values).fetchall()]


def _delete_ticks(connection: sqlite3.Connection, ids: Iterable[float]) -> None:
    for first, last in _runs(map(int, ids)):
        span = (first * DEVICES, last * DEVICES + DEVICES - 1)
        connection.execute("DELETE FROM gpu_sample WHERE id BETWEEN ? AND ?", span)
        connection.execute("DELETE FROM fabric_sample WHERE id BETWEEN ? AND ?", span)
        connection.execute("DELETE FROM tick WHERE id BETWEEN ? AND ?", (first, last))


def _runs(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Ids as runs without holes: (1, 2, 3, 7) -> (1, 3), (7, 7)."""
    runs: list[tuple[int, int]] = []
    for number in sorted(ids):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _span(connection: sqlite3.Connection, table: str) -> tuple[float | None, float | None]:
    (first,) = connection.execute(f"SELECT min(ts) FROM {table}").fetchone()  # noqa: S608 - names of this file
    (last,) = connection.execute(f"SELECT max(ts) FROM {table}").fetchone()  # noqa: S608 - names of this file
    return first, last


def _pages(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
