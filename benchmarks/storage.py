"""What storage costs: bytes per GPU-second, an hour of raw samples through the view, 90 days under the size limit.

Usage: python benchmarks/storage.py [DAYS]. Ninety days of one-second samples of eight GPUs are 62 million rows, so the
days are told by ticks of TICK_SECONDS; bytes and times of raw samples are measured on a real hour of seconds.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from skuwise.agent.model import FABRIC_METRICS, GPU_METRICS, HOST_METRICS, FabricPort, Gpu, Node, Tick
from skuwise.agent.store.limits import Limits
from skuwise.agent.store.log import checkpoint
from skuwise.agent.store.node_writer import NodeWriter
from skuwise.agent.store.retention import RetentionJob
from skuwise.agent.store.rollups import RollupJob
from skuwise.agent.store.writer import Writer

T0 = 1_790_002_800.0
TICK_SECONDS = 300.0
GPUS = [Gpu(f"GPU-{i}", i, "NVIDIA H100 80GB HBM3", "H100-SXM5", mem_total_bytes=80 << 30) for i in range(8)]
PORTS = [FabricPort(f"mlx5_{i}", 1, "compute", "InfiniBand", 50e9) for i in range(8)]
SCALE = {"ratio": 1.0, "bytes": 8e10, "bytes per second": 4e11, "hertz": 2e9, "bitmask": 255.0, "celsius": 90.0,
         "watts": 700.0, "joules": 700.0}  # fmt: skip


def ticks(first: float, count: int, step: float, seed: int = 1) -> Iterator[Tick]:
    """A busy node: every metric has a value of its full width at every tick."""
    rng = random.Random(seed)
    for i in range(count):
        gpus = {g.uuid: {m.name: rng.random() * SCALE.get(m.unit, 1.0) for m in GPU_METRICS} for g in GPUS}
        fabric = {p.key: {m.name: rng.random() * 5e10 for m in FABRIC_METRICS[:2]} for p in PORTS}
        host = {m.name: rng.random() * SCALE.get(m.unit, 1.0) for m in HOST_METRICS} | {"mem_total_bytes": 2e12}
        yield Tick(first + i * step, step, gpus, fabric, {p.key: "ACTIVE" for p in PORTS}, host)


def begin(path: Path) -> tuple[Writer, NodeWriter]:
    writer = Writer.open(path)
    node = writer.for_node(Node("node"), T0)
    node.set_gpus(GPUS, T0)
    node.set_ports(PORTS, T0)
    return writer, node


def size_of_used(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


def raw_hour(folder: Path) -> None:
    path = folder / "hour.db"
    writer, node = begin(path)
    writer.commit()
    checkpoint(path)
    before = size_of_used(path)
    node.put_ticks(ticks(T0 + 1, 3600, 1.0))
    checkpoint(path)
    after = size_of_used(path)
    print(f"raw: {(after - before) / (8 * 3600):.1f} bytes per GPU-second (8 GPUs, 8 ports, host); limit 110")
    best, whole = [], 1e9
    for _ in range(5):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
            began = time.perf_counter()
            rows = reader.execute(
                "SELECT ts, gpu_uuid, sm_active, tensor_active, dram_active, power_watts FROM gpu_samples "
                "WHERE ts > ? AND ts <= ?", (T0, T0 + 3600)
            ).fetchall()  # fmt: skip
            best.append(time.perf_counter() - began)
            began = time.perf_counter()
            every = reader.execute("SELECT * FROM gpu_samples WHERE ts > ? AND ts <= ?", (T0, T0 + 3600)).fetchall()
            whole = min(whole, time.perf_counter() - began)
        assert len(rows) == len(every) == 8 * 3600
    print(f"an hour of raw for 8 GPUs through the view: {min(best) * 1e3:.0f} ms (5 columns), ", end="")
    print(f"{whole * 1e3:.0f} ms (all 25); limit 200")
    before = size_of_used(path)
    RollupJob(path).run(T0 + 3600 + 1000)
    checkpoint(path)
    print(f"rollups of that hour: {(size_of_used(path) - before) / 1e3:.0f} kB")
    writer.close()


def retention_steps(folder: Path) -> None:
    """Six hours of raw go while a writer commits every 100 ms: how long do steps hold the lock, and commits wait?"""
    path = folder / "steps.db"
    writer, node = begin(path)
    node.put_ticks(ticks(T0 + 1, 6 * 3600, 1.0, seed=2))
    RollupJob(path).run(T0 + 7 * 3600, periods=("hour",))
    late = T0 + 50 * 3600
    node.put_ticks(ticks(late, 1, 1.0))
    result = []
    thread = threading.Thread(
        target=lambda: result.append(RetentionJob(path, Limits(), budget_seconds=120.0).run(late + 3600 * 6))
    )
    thread.start()
    waits = []
    fresh = ticks(late + 1, 100_000, 1.0, seed=3)
    while thread.is_alive():
        node.add_tick(next(fresh))
        began = time.perf_counter()
        assert writer.commit()
        waits.append(time.perf_counter() - began)
        time.sleep(0.1)
    thread.join()
    steps = sorted(result[0].step_seconds)
    waits.sort()
    print(f"retention: {result[0]}")
    print(f"  p99 of a step {steps[int(0.99 * len(steps))] * 1e3:.1f} ms; limit 50")
    print(f"  commits beside it: {len(waits)}, p99 {waits[int(0.99 * len(waits))] * 1e3:.1f} ms, ", end="")
    print(f"longest {waits[-1] * 1e3:.1f} ms; limit 50")
    writer.close()


def ninety_days(folder: Path, days: int) -> None:
    """Days under a limit, retention each hour: the file's largest size, and the hours against plain averages of raw."""
    path = folder / "days.db"
    limits = Limits(max_bytes=48_000_000)
    writer, node = begin(path)
    rollups, largest, expected = RollupJob(path), 0, {}
    per_hour = int(3600 / TICK_SECONDS)
    for hour in range(days * 24):
        start = T0 + hour * 3600
        made = list(ticks(start + TICK_SECONDS, per_hour, TICK_SECONDS, seed=hour))
        node.put_ticks(made)
        for gpu in GPUS[:1]:
            expected[start + 3600] = sum(t.gpus[gpu.uuid]["sm_active"] for t in made) / per_hour
        if hour % 12 == 11:
            rollups.run(start + 3600 + 10)
            RetentionJob(path, limits, sleep=lambda _: None).run(start + 3600 + 11)
            checkpoint(path)
            largest = max(largest, path.stat().st_size + path.with_name("days.db-wal").stat().st_size)
    rollups.run(T0 + days * 86400 + 4000)
    with closing(sqlite3.connect(path)) as connection:
        told = dict(connection.execute("SELECT ts, sm_active_mean FROM gpu_hours WHERE gpu_uuid = 'GPU-0'").fetchall())
        counts = {
            name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for name in ("gpu_sample", "gpu_minute", "gpu_hour")
        }
        ok = connection.execute("PRAGMA integrity_check").fetchone()[0]
    worst = max(abs(told[ts] - expected[ts]) for ts in expected)
    assert len(told) == len(expected) and worst <= 2e-4 and largest <= limits.max_bytes and ok == "ok"
    print(f"{days} days: largest {largest / 1e6:.1f} MB of {limits.max_bytes / 1e6:.0f} MB; {counts}; integrity {ok};")
    print(f"  {len(told)} hours equal to a recomputation from raw within {worst:.1e} (a step is 1e-4)")
    writer.close()


def main() -> None:
    days = int(sys.argv[1]) if len(sys.argv) > 1 else 90
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raw_hour(folder)
        retention_steps(folder)
        ninety_days(folder, days)


if __name__ == "__main__":
    main()
