"""Deletes what is too old or too much, in small transactions with a rest between them, so that it may be killed at any
time and the writer beside it never waits long. Where the size counts, raw samples go first, then minutes, then hours.

``python -m skuwise.agent.store.retention DB [LIMITS]`` (JSON) is one run in a process of low priority.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..model import MIN_RAW_SECONDS, Limits
from .codec import DEVICES, row_id
from .database import checkpoint, log_bytes, opened_beside, transaction
from .rollups import run_as_child

# Ages are judged by a clock that has stood for so many hours of data: one that is far ahead for a while (a node that
# boots without a battery) costs nothing.
_STEADY_HOURS = 6
_DAY = 86400.0
# What one step deletes (a tick is a row for each device), and how long it lets others write afterwards.
_TICKS_A_STEP, _ROWS_A_STEP, _PAGES_A_STEP = 50, 500, 100
_REST_SECONDS = 0.020
# A run ends by itself, and the next goes on.
_BUDGET_SECONDS = 30.0
# Free pages are used again by what comes next; only a file with more of them than this share is made smaller.
_SLACK_SHARE = 1 / 32
# Samples of inference servers are not rolled up, so it is kept beyond the other samples.
_SERVING_SECONDS = 30 * _DAY


class OutOfTime(Exception):  # noqa: N818 - a signal within this file
    """The run's time is over: what is left waits for the next one."""


@dataclass(eq=False)
class RetentionJob:
    """Prunes one database beside its writer. `sleep` and `monotonic` are injected, so that tests need no time."""

    path: Path
    limits: Limits
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic

    def run(self, now: float) -> Counter[str]:
        """Delete what is due at `now` (Unix seconds). Raises StoreError. Only the size limit takes raw samples whose
        hour is not rolled up yet before twice their age. Nothing is deleted while a reader holds a large log, which
        deleting enlarges. Returns how many rows of each table went, ``page``s and ``step``s; ``unfinished`` is 1 where
        time ran out."""
        self._gone: Counter[str] = Counter()
        self._deadline = self.monotonic() + _BUDGET_SECONDS
        limits = self.limits
        try:
            with opened_beside(self.path) as self._connection:
                steady = self._one(
                    "SELECT coalesce((SELECT ts + ?1 * 3600.0 FROM hour ORDER BY ts DESC LIMIT 1 OFFSET ?1),"
                    " (SELECT max(last_seen) FROM node))",
                    _STEADY_HOURS,
                )
                trusted = now if steady is None else min(now, steady)
                # By their age, but not before their hour is rolled up, and then at twice their age.
                old = trusted - limits.raw_seconds
                waiting = self._one(
                    "SELECT min(t.ts) FROM tick t WHERE t.ts <= ? AND t.ts > coalesce((SELECT done_to FROM"
                    " rollup_progress p WHERE p.node_id = t.node_id AND p.period = 'hour'), 0)",
                    old,
                )
                self._drop_old("tick", old if waiting is None else max(waiting - 1e-6, old - limits.raw_seconds))
                self._drop_old("minute", trusted - limits.minutes_seconds)
                self._drop_old("hour", trusted - limits.hours_seconds)
                self._drop_small(trusted)
                self._hold_size()
                self._give_back_pages(_SLACK_SHARE)
        except OutOfTime:
            self._gone["unfinished"] = 1
        return self._gone

    def _drop(self, table: str, where: str, *values: float) -> None:
        key = "ts" if table in ("minute", "hour", "agent_stat") else "id"
        most = _TICKS_A_STEP if table == "tick" else _ROWS_A_STEP
        some = f"SELECT {key} FROM {table} WHERE {where} LIMIT {most}"  # noqa: S608 - names of this file
        within = f"id BETWEEN ?1 * {DEVICES} AND ?1 * {DEVICES} + {DEVICES - 1}"
        sample_tables = ("gpu_sample", "fabric_sample") if table == "tick" else ()
        samples = [f"DELETE FROM {name} WHERE {within}" for name in sample_tables]  # noqa: S608 - names of this file
        while part := self._connection.execute(some, values).fetchall():
            self._step([*samples, f"DELETE FROM {table} WHERE {key} = ?"], part)  # noqa: S608 - see above
            self._gone[table] += len(part)

    def _drop_old(self, what: Literal["tick", "minute", "hour"], until: float) -> None:
        if what != "tick":
            bursts = "gpu_burst" if what == "minute" else "gpu_burst_hour"
            for table in (f"gpu_{what}", f"fabric_{what}", f"host_{what}", bursts):
                self._drop(table, "id < ?", row_id(what, until, 0) + DEVICES)
        self._drop(what, "ts <= ? ORDER BY ts", until)

    def _drop_small(self, now: float) -> None:
        limits = self.limits
        oldest = now - limits.hours_seconds
        # What was seen within the last day may still go on: the writer holds its row.
        yesterday = now - _DAY
        for table, end, most in (
            ("slurm_job", "ended_at", limits.max_slurm_jobs),
            ("workload_use", "ts_end", limits.max_uses),
            ("absence", "until", limits.max_absences),
            ("event", "last_ts", limits.max_events),
        ):
            age = "coalesce(ended_at, imported_at)" if table == "slurm_job" else end
            self._drop(table, f"{age} < ?", oldest)
            excess = f"max(0, (SELECT count(*) FROM {table}) - ?)"  # noqa: S608 - names of this file
            ends = f"SELECT {end} FROM {table} WHERE {end} IS NOT NULL ORDER BY {end} LIMIT 1 OFFSET {excess}"  # noqa: S608
            self._drop(table, f"{end} < ? AND {end} < ({ends})", yesterday, most)
        unused = "last_seen < ? AND id NOT IN (SELECT workload_ref FROM workload_use)"
        self._drop("workload", unused, min(oldest, yesterday))
        # A device that went away longer ago than the hours reach has nothing left that names it.
        self._drop("gpu", "valid_to < ?", oldest - 3600.0)
        self._drop("port", "valid_to < ?", oldest - 3600.0)
        self._drop("agent_stat", "ts <= ?", now - limits.minutes_seconds)
        for table in ("serving_sample", "serving_hour"):
            self._drop(table, "ts <= ?", now - min(_SERVING_SECONDS, limits.minutes_seconds))

    def _hold_size(self) -> None:
        """Drop the oldest raw samples, minutes and hours until what is in use fits; and say so in the data."""
        page_bytes, size = self._one("PRAGMA page_size"), f"{self.limits.max_bytes / 1e6:.0f} MB"
        # One row a node and kind, widened each time. Its id is below zero: the writer counts upwards.
        sql = (
            "INSERT INTO absence (id, node_id, scope, subject, metric, reason, detail, remedy, since, until) "
            "SELECT -(id * 4 + ?), id, 'source', 'store', '*', 'size-limit', ?, ?, ?, ? FROM node WHERE true "
            "ON CONFLICT (id) DO UPDATE SET since = min(since, excluded.since), until = max(until, excluded.until), "
            "detail = excluded.detail"
        )
        kinds: tuple[tuple[int, str, Literal["tick", "minute", "hour"], float], ...] = (
            (1, "raw samples", "tick", max(MIN_RAW_SECONDS, self.limits.raw_seconds / 4)),
            (2, "minutes", "minute", _DAY),
            (1, "raw samples", "tick", MIN_RAW_SECONDS),
            (3, "hours", "hour", _DAY),
        )
        for number, name, table, spare in kinds:
            first, last = (self._one(f"SELECT coalesce({end}(ts), 0.0) FROM {table}") for end in ("min", "max"))  # noqa: S608
            until = first
            while until < last - spare:
                used = self._one("PRAGMA page_count") - self._one("PRAGMA freelist_count")
                if used * page_bytes <= self.limits.file_bytes:
                    break
                # A hundredth of what there is, at a time: the file's size is only known after each step.
                until = min(last - spare, until + max(60.0, (last - first) / 100))
                self._drop_old(table, until)
            if until > first:
                detail = f"The oldest {name} were dropped before their age, to keep the database within {size}."
                self._step([sql], [(number, detail, "Raise max_size, or shorten keep_minutes.", first, until)])
                self._give_back_pages(0)

    def _give_back_pages(self, share: float) -> None:
        given = 1
        while given > 0 and (free := self._one("PRAGMA freelist_count")) > share * self._one("PRAGMA page_count"):
            # One page a call: it answers in rows without columns, of which Python's sqlite3 takes the first alone.
            self._step(["PRAGMA incremental_vacuum(1)"] * _PAGES_A_STEP, [()])
            given = free - self._one("PRAGMA freelist_count")
            self._gone["page"] += given

    def _step(self, statements: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        began, most = self.monotonic(), self.limits.log_bytes // 2
        # A reader that holds the log lets it grow with each step.
        if began >= self._deadline or (log_bytes(self.path) > most and checkpoint(self.path, most)):
            raise OutOfTime
        with transaction(self._connection):
            for sql in statements:
                for row in rows:
                    self._connection.execute(sql, row).fetchall()
        self._gone["step"] += 1
        self.sleep(max(_REST_SECONDS, self.monotonic() - began))

    def _one(self, sql: str, *values: object) -> Any:  # noqa: ANN401 - what the statement gives
        return self._connection.execute(sql, values).fetchone()[0]


def main(db: str, limits: str = "{}") -> int:
    """Prune once. The exit status is 0, or 1 with a sentence on stderr."""
    job = RetentionJob(Path(db), msgspec.json.decode(limits, type=Limits))
    return run_as_child(lambda: job.run(time.time()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
