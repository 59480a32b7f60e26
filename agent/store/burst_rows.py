"""Bursts as rows: ``gpu_burst`` beside the minutes in which they ended, ``gpu_burst_hour`` beside the hours.

A row's id is that of the rollup's row it stands beside. Of several bursts in a minute the last is kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from math import ceil
from statistics import median_low

from ..model import PERIOD_SECONDS
from ..statistics.burst_stats import Burst
from .codec import DEVICES, Cell, encode_number, row_id

# Stored steps per base unit. A step's time is told to the millisecond, for that is what a burst adds.
_STEPS: tuple[tuple[str, float], ...] = (
    ("period_seconds", 1e3),
    ("period_strength", 100.0),
    ("duty", 1e4),
    ("idle_run_seconds", 100.0),
    ("sm_active_cv", 1e3),
    ("tensor_nvlink_correlation", 100.0),
    ("tensor_fabric_correlation", 100.0),
)
COLUMNS = ("id", "n", *(name for name, _ in _STEPS))
# What an hour makes of its bursts; all others are medians of the bursts that have them.
_WEIGHTED, _LONGEST = "duty", "idle_run_seconds"


def minute_row(burst: Burst, device: int) -> list[Cell]:
    """The row of ``gpu_burst`` for the GPU whose id is `device`."""
    length = PERIOD_SECONDS["minute"]
    number = row_id("minute", ceil(burst.ts / length) * length, device)
    return [number, burst.n, *(encode_number(getattr(burst, name), steps) for name, steps in _STEPS)]


def merge_bursts(rows: Sequence[Sequence[int | None]]) -> list[int | None]:
    """An hour's values of its bursts' values, both in the order of `COLUMNS` without the id."""
    counts = [row[0] or 0 for row in rows]
    merged: list[int | None] = [sum(counts)]
    for place, (name, _) in enumerate(_STEPS, start=1):
        known = [(value, count) for row, count in zip(rows, counts, strict=True) if (value := row[place]) is not None]
        if not known:
            merged.append(None)
        elif name == _WEIGHTED:
            merged.append(round(sum(v * n for v, n in known) / max(1, sum(n for _, n in known))))
        elif name == _LONGEST:
            merged.append(max(v for v, _ in known))
        else:
            merged.append(median_low(v for v, _ in known))
    return merged


def roll_hour(connection: sqlite3.Connection, node_id: int, end: int, devices: Collection[int]) -> None:
    """Write the hour that ends at `end` for the GPUs that have a row in it. Within the caller's transaction.

    A GPU that changed within the hour has several ids; its bursts count under the one of its hour.
    """
    named = connection.execute("SELECT id, gpu_uuid FROM gpu WHERE node_id = ?", (node_id,)).fetchall()
    uuids: dict[int, str] = dict(named)
    kept = {uuids[device]: device for device in devices}
    first = row_id("minute", end - PERIOD_SECONDS["hour"], DEVICES - 1)
    last = row_id("minute", end, DEVICES - 1)
    found: dict[str, list[Sequence[int | None]]] = {}
    sql = f"SELECT {', '.join(COLUMNS)} FROM gpu_burst WHERE id > ? AND id <= ?"  # noqa: S608 - names of this file
    for number, *values in connection.execute(sql, (first, last)):
        uuid = uuids.get(number % DEVICES, "")
        if uuid in kept:
            found.setdefault(uuid, []).append(values)
    marks = ", ".join("?" * len(COLUMNS))
    connection.executemany(
        f"INSERT OR REPLACE INTO gpu_burst_hour ({', '.join(COLUMNS)}) VALUES ({marks})",  # noqa: S608 - see above
        [(row_id("hour", end, kept[uuid]), *merge_bursts(rows)) for uuid, rows in found.items()],
    )
