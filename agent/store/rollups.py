"""The job that turns samples into minutes and hours, some seconds after each is over.

It has a connection of its own, reads first and writes short: all rows of a node's minute or hour and the mark of how
far it came are one transaction, so that it may be killed and started again at any time.

``python -m skuwise.agent.store.rollups DB [--and-open]`` is one run in a process of its own. An hour of eight
GPUs takes most of a second and some megabytes: beside the agent's loop they would cost ticks their punctuality, so the
agent starts this at low priority instead (agent/service/timetable.py).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from ...rules.base.errors import EXIT_DONE, EXIT_FAILED, StoreError
from ..metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS, Metric
from ..model import PERIOD_SECONDS, Period
from ..statistics.rollup_stats import GpuLimits, Row, Samples, Values, roll_fabric, roll_gpu, roll_host
from .burst_rows import roll_hour
from .codec import DEVICES, Cell, RollupTable, rollup_columns, rollup_period, row_encoder, row_id
from .database import JOB_CHECKPOINT_PAGES, opened_beside, transaction
from .tables import write_rollups

# A period is complete so long after its end ...
SETTLE_SECONDS = 5.0
# ... once a later tick is in the file (ticks are committed in order); where none comes, after this: longer than a
# writer holds ticks back on a full disk.
SILENCE_SECONDS = 900.0
_NICENESS = 10


def _scaled(names_and_quanta: Iterable[tuple[str, float]], table: str) -> str:
    return ", ".join(f"{table}.{name} * {quantum!r}" for name, quantum in names_and_quanta)


_SPAN = "t.node_id = ? AND t.ts > ? AND t.ts <= ?"
_TICK = "t.id, t.ts, t.interval_ms * 1e-3"


def _samples_sql(table: str, first: str, metrics: Iterable[Metric]) -> str:
    columns = first + _scaled(((m.name, m.quantum) for m in metrics), "s")
    joined = f"tick t CROSS JOIN {table} s ON s.id = t.id * {DEVICES} + ?"
    return f"SELECT {_TICK}, {columns} FROM {joined} WHERE {_SPAN} ORDER BY t.ts"  # noqa: S608


_GPU_SQL = _samples_sql("gpu_sample", "", GPU_METRICS)
_FABRIC_SQL = _samples_sql("fabric_sample", "s.active, ", FABRIC_METRICS)
_HOST_VALUES = (*((m.name, m.quantum) for m in HOST_METRICS), ("mem_total_bytes", 1024.0))
_HOST_SQL = (
    f"SELECT {_TICK}, {_scaled(_HOST_VALUES, 't')} FROM tick t WHERE {_SPAN} AND "  # noqa: S608
    f"coalesce({', '.join('t.' + name for name, _ in _HOST_VALUES)}) IS NOT NULL ORDER BY t.ts"
)
# CROSS JOIN and the unary plus: the ticks of the span first, whatever SQLite guesses without statistics.
# Traffic of all compute ports at each tick; a port that lacks a direction has no part in it.
_COMPUTE_SQL = (
    "SELECT t.id, sum(max(s.tx_bytes_per_second, s.rx_bytes_per_second)) * 64.0 "  # noqa: S608
    f"FROM tick t CROSS JOIN fabric_sample s ON s.id BETWEEN t.id * {DEVICES} AND t.id * {DEVICES} + {DEVICES - 1} "
    f"CROSS JOIN port p ON p.id = s.id - t.id * {DEVICES} WHERE {_SPAN} AND p.role = 'compute' GROUP BY +t.id"
)


@dataclass(frozen=True, slots=True)
class RolledUp:
    """What one run wrote: periods, counted per node."""

    minutes: int
    hours: int


@dataclass(frozen=True, slots=True)
class _Device:
    """The rows of one device, oldest first, and what its ratios are measured against (the last row's word)."""

    ids: tuple[int, ...]
    limits: tuple[float | None, ...]


class RollupJob:
    """Rolls up what is complete and not yet rolled up in one database. Runs beside the writer.

    Ticks that come later than a period's rollup, with an older `ts` (a clock that was put back, a disk that was full),
    have the period rolled up again with all its samples: after a clock was put back, `observed_seconds` may then exceed
    the period's length, because that time was lived twice.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, now: float, *, periods: Sequence[Period] = tuple(PERIOD_SECONDS), and_open: bool = False) -> RolledUp:
        """Do what is due at `now` (Unix seconds). Raises StoreError.

        `and_open`: also write the periods that are not over yet, as they stand, so that a stopped agent leaves rollups
        of all it saw. They are not marked as done: the next run that finds more of the same period writes it again.
        """
        done = {"minute": 0, "hour": 0}
        # Each page is read once: a large cache is only memory.
        with opened_beside(self.path, checkpoint_pages=JOB_CHECKPOINT_PAGES, cache_kib=512) as connection:
            nodes = [row[0] for row in connection.execute("SELECT id FROM node ORDER BY id").fetchall()]
            for period in periods:
                for node_id in nodes:
                    done[period] += _roll_late(connection, node_id, period)
                    done[period] += _roll_complete(connection, node_id, period, now)
                    if and_open:
                        done[period] += _roll_beyond(connection, node_id, period, lambda _: True, is_done=False)
        return RolledUp(done["minute"], done["hour"])


def _roll_complete(connection: sqlite3.Connection, node_id: int, period: Period, now: float) -> int:
    sql = "SELECT ts FROM tick WHERE node_id = ? ORDER BY ts DESC LIMIT 1"
    last = connection.execute(sql, (node_id,)).fetchone()

    def is_over(end: int) -> bool:
        return now >= end + (SETTLE_SECONDS if last is not None and last[0] > end else SILENCE_SECONDS)

    return _roll_beyond(connection, node_id, period, is_over, is_done=True)


def _roll_beyond(
    connection: sqlite3.Connection, node_id: int, period: Period, is_over: Callable[[int], bool], *, is_done: bool
) -> int:
    """Write what lies beyond the mark, as far as it `is_over`; the mark is moved where that `is_done`."""
    mark = _mark(connection, node_id, period)
    after, rolled = mark, 0
    while (end := _next_end(connection, node_id, after, PERIOD_SECONDS[period])) is not None and is_over(end):
        rows = _roll_period(connection, node_id, period, end)
        _write(connection, node_id, period, end, rows, done_to=end if is_done else mark)
        after = end
        rolled += 1
    return rolled


def _roll_late(connection: sqlite3.Connection, node_id: int, period: Period) -> int:
    """Roll up again the periods behind the mark that got ticks since the last run."""
    key = f"rolled_tick.{node_id}.{period}"
    (newest,) = connection.execute("SELECT coalesce(max(id), 0) FROM tick").fetchone()
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    seen = int(row[0]) if row and row[0].isdecimal() else newest
    if row and seen == newest:
        return 0
    length, mark = PERIOD_SECONDS[period], _mark(connection, node_id, period)
    late = connection.execute(
        "SELECT ts FROM tick WHERE id > ? AND node_id = ? AND ts <= ?", (seen, node_id, -1.0 if mark is None else mark)
    ).fetchall()
    ends = sorted({ceil(ts / length) * length for (ts,) in late})
    for end in ends:
        rows = _roll_period(connection, node_id, period, end)
        _write(connection, node_id, period, end, _not_less(connection, end, rows), done_to=None)
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, str(newest)))
    return len(ends)


def _not_less(
    connection: sqlite3.Connection, end: int, tables: Mapping[RollupTable, Sequence[tuple[int, Row]]]
) -> dict[RollupTable, list[tuple[int, Row]]]:
    """The rows that cover at least what is kept already: where samples were let go meanwhile, the older row stays."""
    chosen: dict[RollupTable, list[tuple[int, Row]]] = {}
    for table, rows in tables.items():
        period = rollup_period(table)
        first = row_id(period, end, 0)
        whole = float(PERIOD_SECONDS[period])
        kept: dict[int, float] = {
            number - first: whole - unobserved * 0.1
            for number, unobserved in connection.execute(
                f"SELECT id, unobserved_seconds FROM {table} WHERE id BETWEEN ? AND ?",  # noqa: S608
                (first, first + DEVICES - 1),
            ).fetchall()
        }
        chosen[table] = [
            (number, row) for number, row in rows if float(str(row["observed_seconds"])) >= kept.get(number, 0.0) - 0.05
        ]
    return chosen


def _mark(connection: sqlite3.Connection, node_id: int, period: Period) -> int | None:
    """Up to when a node's periods are done; None: nothing is."""
    row = connection.execute(
        "SELECT done_to FROM rollup_progress WHERE node_id = ? AND period = ?", (node_id, period)
    ).fetchone()
    return row[0] if row else None


def _next_end(connection: sqlite3.Connection, node_id: int, after: int | None, length: int) -> int | None:
    """The end of the first period later than `after` that has a tick; None: there is none."""
    first = connection.execute(
        "SELECT ts FROM tick WHERE node_id = ? AND ts > ? ORDER BY ts LIMIT 1",
        (node_id, -1.0 if after is None else after),
    ).fetchone()
    return None if first is None else ceil(first[0] / length) * length


def _roll_period(
    connection: sqlite3.Connection, node_id: int, period: Period, end: int
) -> dict[RollupTable, list[tuple[int, Row]]]:
    span = (node_id, end - PERIOD_SECONDS[period], end)
    compute: dict[int, float] = dict(connection.execute(_COMPUTE_SQL, span).fetchall())
    gpus: list[tuple[int, Row]] = []
    for device in _devices(
        connection, "gpu_uuid, id, mem_total_bytes, power_limit_watts, nvlink_bytes_per_second FROM gpu", node_id, span
    ):
        ticks, samples, last_id = _read(connection, _GPU_SQL, device, span, [m.name for m in GPU_METRICS])
        if ticks:
            fabric: Values | None = [compute.get(tick) for tick in ticks] if compute else None
            gpus.append((last_id, roll_gpu(samples, GpuLimits(*device.limits), period, fabric)))
    ports: list[tuple[int, Row]] = []
    names = ["active", *(m.name for m in FABRIC_METRICS)]
    for device in _devices(
        connection, "device || '/' || port, id, line_rate_bytes_per_second FROM port", node_id, span
    ):
        ticks, samples, last_id = _read(connection, _FABRIC_SQL, device, span, names)
        if ticks:
            ports.append((last_id, roll_fabric(samples, device.limits[0], period)))
    rows = connection.execute(_HOST_SQL, span).fetchall()
    hosts: list[tuple[int, Row]] = []
    if rows:
        hosts.append((node_id, roll_host(_samples(rows, [name for name, _ in _HOST_VALUES]), period)))
    if period == "minute":
        return {"gpu_minute": gpus, "fabric_minute": ports, "host_minute": hosts}
    return {"gpu_hour": gpus, "fabric_hour": ports, "host_hour": hosts}


def _devices(
    connection: sqlite3.Connection, columns_from: str, node_id: int, span: tuple[int, int, int]
) -> list[_Device]:
    """The devices that were still valid in the span; one that changed within it has several ids and is still one."""
    found: dict[str, _Device] = {}
    for name, number, *limits in connection.execute(
        f"SELECT {columns_from} WHERE node_id = ? AND (valid_to IS NULL OR valid_to >= ?) ORDER BY id",
        (node_id, span[1]),
    ):
        earlier = found[name].ids if name in found else ()
        found[name] = _Device((*earlier, number), tuple(limits))
    return list(found.values())


def _read(
    connection: sqlite3.Connection, sql: str, device: _Device, span: tuple[int, int, int], names: Sequence[str]
) -> tuple[list[int], Samples, int]:
    """A device's samples in the span: tick ids, the samples, and the id under which the last was kept."""
    rows: list[tuple[float | None, ...]] = []
    last_id = device.ids[-1]
    for number in device.ids:
        part = connection.execute(sql, (number, *span)).fetchall()
        if part:
            rows += part
            last_id = number
    if len(device.ids) > 1:
        rows.sort(key=lambda row: row[1] or 0.0)
    return [int(row[0] or 0) for row in rows], _samples(rows, names), last_id


def _samples(rows: Sequence[Sequence[float | None]], names: Sequence[str]) -> Samples:
    if not rows:
        return Samples((), (), {})
    _, ends, seconds, *values = zip(*rows, strict=True)
    return Samples(ends, seconds, dict(zip(names, values, strict=True)))


def _write(
    connection: sqlite3.Connection,
    node_id: int,
    period: Period,
    end: int,
    tables: Mapping[RollupTable, Sequence[tuple[int, Row]]],
    *,
    done_to: int | None,
) -> None:
    encoded: dict[RollupTable, list[tuple[float, int, list[Cell]]]] = {}
    for table, rows in tables.items():
        columns = rollup_columns(table)
        encode = row_encoder(table, columns)
        encoded[table] = [(end, device_id, encode([row.get(name) for name in columns])) for device_id, row in rows]
    with transaction(connection):
        for table, values in encoded.items():
            write_rollups(connection, table, values)
        if period == "hour":
            roll_hour(connection, node_id, end, [device_id for device_id, _ in tables["gpu_hour"]])
        if done_to is not None:
            connection.execute(
                "INSERT OR REPLACE INTO rollup_progress (node_id, period, done_to) VALUES (?, ?, ?)",
                (node_id, period, done_to),
            )


def main(arguments: Sequence[str]) -> int:
    """Roll up what is due now. The exit status is 0, or 1 with a sentence on stderr."""
    with contextlib.suppress(OSError):  # the unit's filter of system calls leaves everything at the service's priority
        os.nice(_NICENESS)
    try:
        RollupJob(Path(arguments[0])).run(time.time(), and_open="--and-open" in arguments[1:])
    except StoreError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
