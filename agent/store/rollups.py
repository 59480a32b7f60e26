"""The job that turns samples into minutes and hours, some seconds after each is over.

All rows of a node's minute or hour and the mark of how far it came are one transaction, so that it may be killed at any
time. ``python -m skuwise.agent.store.rollups DB`` is one run in its own process: an hour of eight GPUs takes most of a
second and some megabytes, which would cost the agent's ticks their punctuality.
"""

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import median_low

from ...rules.base.errors import EXIT_DONE, EXIT_FAILED, StoreError
from ..metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS
from ..model import PERIOD_SECONDS, Gpu, Period
from ..statistics.rollup_stats import Row, Samples, roll_fabric, roll_gpu, roll_host
from .codec import BURST_COLUMNS, DEVICES, RollupTable, encode_rollups, insert, row_id, write_rollups
from .database import opened_beside, transaction

# A period is complete so long after its end ...
SETTLE_SECONDS = 5.0
# ... once a later tick is in the file (ticks are committed in order); where none comes, after this: longer than a
# writer holds ticks back on a full disk.
SILENCE_SECONDS = 900.0
_NICENESS = 10
# In stored_columns: what a row lacks of its period.
_UNOBSERVED = 2

_GPU = tuple((metric.name, metric.quantum) for metric in GPU_METRICS)
_FABRIC = (("active", 1), *((metric.name, metric.quantum) for metric in FABRIC_METRICS))
_HOST = (*((metric.name, metric.quantum) for metric in HOST_METRICS), ("mem_total_bytes", 1024.0))
_SPAN = "t.node_id = ? AND t.ts > ? AND t.ts <= ?"
# Traffic of all compute ports at each tick; a port that lacks a direction has no part in it.
# CROSS JOIN and the unary plus: the ticks of the span first, whatever SQLite guesses without statistics.
_COMPUTE_SQL = (
    "SELECT t.id, sum(max(s.tx_bytes_per_second, s.rx_bytes_per_second)) * 64.0 "  # noqa: S608
    f"FROM tick t CROSS JOIN fabric_sample s ON s.id BETWEEN t.id * {DEVICES} AND t.id * {DEVICES} + {DEVICES - 1} "
    f"CROSS JOIN port p ON p.id = s.id - t.id * {DEVICES} WHERE {_SPAN} AND p.role = 'compute' GROUP BY +t.id"
)

Rows = Mapping[RollupTable, Sequence[tuple[int, Row]]]


@dataclass(frozen=True, slots=True)
class RollupJob:
    """Rolls up what is complete and not yet rolled up in one database. Runs beside the writer. Ticks that come later
    than a period's rollup (a clock that was put back, a disk that was full) have the period rolled up again; after a
    clock was put back `observed_seconds` may exceed the period's length, because that time was lived twice."""

    path: Path

    def run(
        self, now: float, *, periods: Sequence[Period] = tuple(PERIOD_SECONDS), and_open: bool = False
    ) -> dict[Period, int]:
        """Do what is due at `now` (Unix seconds). Returns how many of each period were written. Raises StoreError.
        `and_open`: also write the periods that are not over yet, as they stand, so that a stopped agent leaves rollups
        of all it saw. They are not marked as done: the next run that finds more of the same period writes it again."""
        with opened_beside(self.path) as connection:
            nodes = [number for (number,) in connection.execute("SELECT id FROM node ORDER BY id").fetchall()]
            return {
                period: sum(_NodeRollup(connection, number, period).run(now, and_open) for number in nodes)
                for period in periods
            }


@dataclass(frozen=True, slots=True)
class _NodeRollup:
    _connection: sqlite3.Connection
    _node_id: int
    _period: Period

    def run(self, now: float, and_open: bool) -> int:
        key = f"rolled_tick.{self._node_id}.{self._period}"
        mark, seen, newest, last = self._connection.execute(
            "SELECT coalesce((SELECT done_to FROM rollup_progress WHERE node_id = ?1 AND period = ?2), -1),"
            " (SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?3), (SELECT max(id) FROM tick),"
            " (SELECT max(ts) FROM tick WHERE node_id = ?1)",
            (self._node_id, self._period, key),
        ).fetchone()
        # Beyond the mark, and up to it where ticks came since the last run.
        ticks = self._connection.execute(
            "SELECT ts FROM tick WHERE node_id = ? AND (ts > ? OR id > ?)",
            (self._node_id, mark, newest if seen is None else seen),
        )
        rolled, length = 0, PERIOD_SECONDS[self._period]
        for end in sorted({ceil(ts / length) * length for (ts,) in ticks}):
            is_late = end <= mark
            is_over = now >= end + (SETTLE_SECONDS if last > end else SILENCE_SECONDS)
            if not (is_late or is_over or and_open):
                break
            self._write(end, is_late=is_late, is_done=is_over and not is_late)
            rolled += 1
        if newest is not None and newest != seen:
            self._connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, str(newest)))
        return rolled

    def _write(self, end: int, *, is_late: bool, is_done: bool) -> None:
        tables = self._roll(end)
        with transaction(self._connection):
            for table, rows in tables.items():
                names = {name for _, row in rows for name in row}
                values = encode_rollups(table, {name: [row.get(name) for _, row in rows] for name in names})
                encoded = [(end, device, row) for (device, _), row in zip(rows, values, strict=True)]
                if is_late:  # where samples were deleted meanwhile, the row that covers more stays
                    first = row_id(self._period, end, 0)
                    sql = f"SELECT id - ?, unobserved_seconds FROM {table} WHERE id BETWEEN ? AND ?"  # noqa: S608
                    kept = dict(self._connection.execute(sql, (first, first, first + DEVICES - 1)).fetchall())
                    encoded = [e for e in encoded if e[1] not in kept or e[2][_UNOBSERVED] <= kept[e[1]]]
                write_rollups(self._connection, table, encoded)
            if self._period == "hour":
                self._roll_bursts(end, [device for device, _ in tables["gpu_hour"]])
            if is_done:
                sql = "INSERT OR REPLACE INTO rollup_progress (node_id, period, done_to) VALUES (?, ?, ?)"
                self._connection.execute(sql, (self._node_id, self._period, end))

    def _roll(self, end: int) -> Rows:
        span = (self._node_id, end - PERIOD_SECONDS[self._period], end)
        compute: dict[int, float] = dict(self._connection.execute(_COMPUTE_SQL, span).fetchall())
        limits = ("mem_total_bytes", "power_limit_watts", "nvlink_bytes_per_second")
        about = f"gpu_uuid, id, {', '.join(limits)} FROM gpu"
        gpus: list[tuple[int, Row]] = []
        for whole, ticks, number, samples in self._devices(about, "gpu_sample", _GPU, span):
            fabric = [compute.get(tick) for tick in ticks] if compute else None
            gpu = Gpu("", 0, "", **dict(zip(limits, whole, strict=True)))  # type: ignore[arg-type]
            gpus.append((number, roll_gpu(samples, gpu, self._period, fabric)))
        about = "device || '/' || port, id, line_rate_bytes_per_second FROM port"
        devices = self._devices(about, "fabric_sample", _FABRIC, span)
        ports = [(number, roll_fabric(samples, rate, self._period)) for (rate,), _, number, samples in devices]
        ticks, _, samples = self._read("tick", [], _HOST, span)
        hosts = [(self._node_id, roll_host(samples, self._period))] if ticks else []
        if self._period == "minute":
            return {"gpu_minute": gpus, "fabric_minute": ports, "host_minute": hosts}
        return {"gpu_hour": gpus, "fabric_hour": ports, "host_hour": hosts}

    def _devices(
        self, columns_from: str, table: str, values: Sequence[tuple[str, float]], span: tuple[int, int, int]
    ) -> Iterable[tuple[list[float | None], Sequence[int], int, Samples]]:
        """Of each device with samples in the span: what its ratios are measured against, by the last row's word, and
        what `_read` gives. One that changed has several ids and is still one."""
        series: dict[str, tuple[list[int], list[float | None]]] = {}
        sql = f"SELECT {columns_from} WHERE node_id = ? AND (valid_to IS NULL OR valid_to >= ?) ORDER BY id"
        for name, number, *limits in self._connection.execute(sql, span[:2]):
            earlier = series[name][0] if name in series else []
            series[name] = ([*earlier, number], limits)
        for ids, limits in series.values():
            ticks, number, samples = self._read(table, ids, values, span)
            if ticks:
                yield limits, ticks, number, samples

    def _read(
        self, table: str, ids: Sequence[int], values: Sequence[tuple[str, float]], span: tuple[int, int, int]
    ) -> tuple[Sequence[int], int, Samples]:
        """A device's samples in the span: the ids of their ticks, the device's id in the last, and the samples. With
        `table` tick those of the host, which are on the ticks themselves."""
        scaled = ", ".join(f"s.{name} * {quantum!r}" for name, quantum in values)
        where = " OR ".join(f"s.id = t.id * {DEVICES} + {number}" for number in ids)
        if table == "tick":
            where = f"s.id = t.id AND coalesce({', '.join(f's.{name}' for name, _ in values)}) IS NOT NULL"
        rows = self._connection.execute(
            f"SELECT t.id, s.id - t.id * {DEVICES}, t.ts, t.interval_ms * 1e-3, {scaled} "  # noqa: S608
            f"FROM tick t CROSS JOIN {table} s ON {where} WHERE {_SPAN} ORDER BY t.ts",
            span,
        ).fetchall()
        if not rows:
            return (), 0, Samples((), (), {})
        ticks, numbers, ends, seconds, *columns = zip(*rows, strict=True)
        names = [name for name, _ in values]
        return ticks, numbers[-1], Samples(ends, seconds, dict(zip(names, columns, strict=True)))

    def _roll_bursts(self, end: int, devices: Iterable[int]) -> None:
        """The bursts of the hour that ends at `end`, for the GPUs that have a row in it. A GPU that changed within the
        hour has several ids; its bursts count under the one of its hour."""
        cursor = self._connection.execute("SELECT id, gpu_uuid FROM gpu WHERE node_id = ?", (self._node_id,))
        uuids: dict[int, str] = dict(cursor.fetchall())
        hour_ids = {uuids[device]: row_id("hour", end, device) for device in devices}
        first, last = (row_id("minute", ts, DEVICES - 1) for ts in (end - PERIOD_SECONDS["hour"], end))
        bins: dict[int, list[Sequence[int | None]]] = {}
        sql = f"SELECT {', '.join(BURST_COLUMNS)} FROM gpu_burst WHERE id > ? AND id <= ?"  # noqa: S608
        for number, *values in self._connection.execute(sql, (first, last)):
            hour_id = hour_ids.get(uuids.get(number % DEVICES, ""))
            if hour_id is not None:
                bins.setdefault(hour_id, []).append(values)
        self._connection.executemany(
            insert("gpu_burst_hour", BURST_COLUMNS, "INSERT OR REPLACE"),
            [(hour_id, *merge_bursts(rows)) for hour_id, rows in bins.items()],
        )


def merge_bursts(rows: Sequence[Sequence[int | None]]) -> list[int | None]:
    """An hour's values of its bursts' values, both in the order of `BURST_COLUMNS` without the id: medians of the
    bursts that have them, but the weighted mean of duty and the longest idle run."""
    counts = [row[0] or 0 for row in rows]
    merged: list[int | None] = [sum(counts)]
    for place, name in enumerate(BURST_COLUMNS[2:], start=1):
        pairs = [(value, count) for row, count in zip(rows, counts, strict=True) if (value := row[place]) is not None]
        if not pairs:
            merged.append(None)
        elif name == "duty":
            merged.append(round(sum(v * n for v, n in pairs) / max(1, sum(n for _, n in pairs))))
        else:
            merged.append((max if name == "idle_run_seconds" else median_low)(v for v, _ in pairs))
    return merged


def run_as_child(work: Callable[[], object]) -> int:
    """Do a job in its own process, at low priority. The exit status is 0, or 1 with a sentence on stderr."""
    with contextlib.suppress(OSError):  # the unit's filter of system calls leaves everything at the service's priority
        os.nice(_NICENESS)
    try:
        work()
    except StoreError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(run_as_child(lambda: RollupJob(Path(sys.argv[1])).run(time.time())))
