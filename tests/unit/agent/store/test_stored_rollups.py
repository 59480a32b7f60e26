"""Rollups read as their tables keep them: to the last bit what their views tell, whatever stands in a cell."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.telemetry.plausible import Lost
from skuwise.advisor.telemetry.sqlite.opening import open_database
from skuwise.advisor.telemetry.tables import to_table
from skuwise.agent.metrics import BIN_EDGES
from skuwise.agent.model import PERIOD_SECONDS, FabricPort, Gpu, Node
from skuwise.agent.store.file.codec import DEVICES, RollupTable, encode_bins, rollup_kind, rollup_period, stored_columns
from skuwise.agent.store.reading import queries
from skuwise.agent.store.reading.queries import Query
from skuwise.agent.store.reading.reader import open_reader
from skuwise.agent.store.writing.writer import Writer

HOUR = 1_790_002_800
SPAN = {"start": HOUR - 7200.0, "end": HOUR + 3 * 3600.0}
EVERY = {"every": 2.0}
QUERIES: dict[RollupTable, Query] = {
    "gpu_hour": queries.GPU_HOURS, "gpu_minute": queries.GPU_MINUTES, "fabric_hour": queries.FABRIC_HOURS,
    "fabric_minute": queries.FABRIC_MINUTES, "host_hour": queries.HOST_HOURS, "host_minute": queries.HOST_MINUTES,
}  # fmt: skip

DEVICE_TABLES = {"gpu": "gpu", "fabric": "port", "host": "node"}


def database(path: Path, gpus: int) -> Path:
    """A node with so many GPUs and two ports, and no rows yet."""
    with Writer.open(path, now=lambda: float(HOUR)) as writer:
        own = writer.for_node(Node("n1", machine_id="m1", gpu_count=gpus), float(HOUR))
        own.set_gpus([Gpu(f"GPU-{n}", n, "NVIDIA H100", mem_total_bytes=(80 << 30) + n) for n in range(gpus)], HOUR)
        own.set_ports([FabricPort(f"mlx5_{n}", 1, "compute", "InfiniBand", 50e9) for n in range(2)], HOUR)
    return path


def fill(path: Path, seed: int, share: float = 1.0) -> None:
    """Rows of random steps for every device that there is, some of them missing; ids without a device, too."""
    rng = np.random.default_rng(seed)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO sample_counts VALUES (7, ?)", ("000003" * 18,))
        db.execute("INSERT INTO sample_counts VALUES (9, ?)", ("00 x12" * 3,))
        for table in QUERIES:
            period = rollup_period(table)
            seconds = PERIOD_SECONDS[period]
            ids = [n for (n,) in db.execute(f"SELECT id FROM {DEVICE_TABLES[rollup_kind(table)]}")]
            columns = stored_columns(table)
            for number in range(3):
                ts = HOUR + number * seconds
                db.execute(f"INSERT OR IGNORE INTO {period} VALUES (?)", (ts,))
                for device in [*ids, 4000]:
                    if rng.random() <= share:
                        row = [cell(name, rng, seconds) for name in columns]
                        db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * (len(row) + 1))})",
                                   (ts // seconds * DEVICES + device, *row))  # fmt: skip


def cell(name: str, rng: np.random.Generator, seconds: int) -> object:
    if name == "unobserved_seconds":
        return int(rng.integers(0, seconds * 10 + 1))
    if name.endswith("_bins"):
        bins = np.zeros(len(BIN_EDGES))
        first = rng.integers(0, len(BIN_EDGES))
        bins[first : first + rng.integers(0, 9)] = rng.random() * 300
        return None if rng.random() < 0.1 else encode_bins(bins.tolist())
    if rng.random() < 0.15:
        return None
    if name == "sample_counts":
        return int(rng.choice([7, 9, 11]))
    return int(rng.integers(0, 10_000 if "bytes" in name else 900))


def both(path: Path, query: Query, lost: tuple[Lost, Lost] | None = None) -> tuple[pd.DataFrame, pd.DataFrame, bool]:
    """What is read of the tables, what the view tells, and whether the first came from the tables."""
    mine, theirs = lost or (Lost(), Lost())
    span = SPAN | (EVERY if ":every" in query.sql else {})
    with open_database(path) as there, open_reader(path) as here:
        return (
            there.table(query, span, mine),
            to_table(here.fetch(query.sql, span), query, theirs),
            there.rollup(query, span) is not None,
        )


def same_rows(mine: pd.DataFrame, theirs: pd.DataFrame) -> None:
    """The same rows to the last bit; in which order they come, nobody said."""
    keys = [name for name in ("ts", "node", "gpu_uuid", "device", "port") if name in mine]
    mine, theirs = (one.sort_values(keys, ignore_index=True) if len(one) else one for one in (mine, theirs))
    pd.testing.assert_frame_equal(mine, theirs, check_exact=True)


def test_tables_tell_what_their_views_tell(tmp_path: Path) -> None:
    path = database(tmp_path / "n.db", 5)
    fill(path, 1)
    for query in (*QUERIES.values(), queries.ACTIVITY, queries.ACTIVITY_THINNED):
        lost = Lost(), Lost()
        mine, theirs, is_stored = both(path, query, lost)
        assert is_stored and len(theirs) >= 3
        same_rows(mine, theirs)
        assert lost[0] == lost[1]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("sm_active_mean", "1],[2"), ("sm_active_mean", b"\x01\x02"), ("sm_active_mean", 0.25),
        ("sm_active_mean", 2**62), ("unobserved_seconds", "x"), ("sm_active_bins", 17), ("sm_active_bins", "0027,"),
        ("sm_active_bins", "02251e3"), ("sample_counts", "7"), ("samples", "many"),
    ],
)  # fmt: skip
def test_odd_cells_are_what_the_view_makes_of_them(tmp_path: Path, column: str, value: object) -> None:
    path = database(tmp_path / "n.db", 3)
    fill(path, 4)
    with closing(sqlite3.connect(path)) as db, db:
        (one,) = db.execute("SELECT id FROM gpu_hour LIMIT 1 OFFSET 4").fetchone()
        assert db.execute(f"UPDATE gpu_hour SET {column} = ? WHERE id = ?", (value, one)).rowcount == 1
    lost = Lost(), Lost()
    mine, theirs, _ = both(path, queries.GPU_HOURS, lost)
    same_rows(mine, theirs)
    assert lost[0] == lost[1]


@pytest.mark.parametrize("change", ["DELETE FROM gpu", "DELETE FROM node", "DELETE FROM hour", "DELETE FROM gpu_hour"])
def test_rows_that_belong_to_nothing_are_none(tmp_path: Path, change: str) -> None:
    path = database(tmp_path / "n.db", 3)
    fill(path, 5)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(change)
    mine, theirs, _ = both(path, queries.GPU_HOURS)
    assert len(mine) == len(theirs) == 0
    assert list(mine.columns) == list(theirs.columns)
