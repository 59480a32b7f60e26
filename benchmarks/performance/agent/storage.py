"""What storage costs: bytes of raw samples, an hour of them through the view, 90 days and two years under the limit.

Usage: python -m skuwise.benchmarks.performance.agent.storage [DAYS]. Bytes and times are measured on a real hour of
seconds, rolled up by the real job. That hour, and a simulated day, are then repeated to the full ages, 62 million rows
of raw being too many to sample: the file is as large as it would be, and retention runs on it. The DAYS lived through
have ticks of TICK_SECONDS. Reading is timed by its own CPU, because other processes share the machine.
"""

from __future__ import annotations

import math
import random
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from skuwise.agent.base.retention_limits import Limits
from skuwise.agent.metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS
from skuwise.agent.model import PERIOD_SECONDS, FabricPort, Gpu, Node, Period, Tick
from skuwise.agent.store.file.codec import MEASURES
from skuwise.agent.store.file.wal import checkpoint, log_bytes
from skuwise.agent.store.retention.retention import RetentionJob
from skuwise.agent.store.rollup.rollups import RollupJob
from skuwise.agent.store.writing.node_writer import NodeWriter
from skuwise.agent.store.writing.writer import Writer
from skuwise.benchmarks.generators.first import simulate

T0 = 1_790_002_800.0
DAY = 86400.0
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
    columns = "ts, gpu_uuid, sm_active, tensor_active, dram_active, power_watts"
    sums = ", ".join(f"sum({metric.name})" for metric in GPU_METRICS)
    narrow, whole, summed = (
        _fastest(path, f"SELECT {wanted} FROM gpu_samples WHERE ts > {T0} AND ts <= {T0 + 3600}", rows)
        for wanted, rows in ((columns, 8 * 3600), ("*", 8 * 3600), (sums, 1))
    )
    print(f"an hour of raw for 8 GPUs through the view: {whole * 1e3:.0f} ms (all 25 columns), ", end="")
    print(f"{narrow * 1e3:.0f} ms (6); limit 200. SQLite's own part, summed inside: {summed * 1e3:.0f} ms (19)")
    before = size_of_used(path)
    RollupJob(path).run(T0 + 3600 + 1000)
    checkpoint(path)
    print(f"rollups of that hour: {(size_of_used(path) - before) / 1e3:.0f} kB")
    writer.close()


def _fastest(path: Path, sql: str, rows: int) -> float:
    """CPU seconds of the fastest of nine readings."""
    times: list[float] = []
    for _ in range(9):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
            began = time.process_time()
            found = reader.execute(sql).fetchall()
            times.append(time.process_time() - began)
        assert len(found) == rows
    return min(times)


def years(folder: Path) -> None:
    """A node's file at its full age, for a busy node and one whose every value is noise: what takes how much room, and
    what retention must let go."""
    fleet = folder / "fleet"
    fleet.mkdir()
    simulate("training", fleet, days=1, until=T0 + DAY, minutes_seconds=DAY, samples_seconds=3600)
    busy = next(path for path in sorted(fleet.glob("*.db")) if _count(path, "gpu") == 8)
    noise = folder / "noise.db"
    writer, node = begin(noise)
    node.put_ticks(ticks(T0 + 1, 3600, 1.0))
    RollupJob(noise).run(T0 + 3600 + 1000)
    writer.close()
    for what, source, block in (("training, simulated", busy, DAY), ("noise in every value", noise, 3600.0)):
        for days in (90, 730):
            _at_full_age(folder / "full.db", what, source, int(block), days)


def _at_full_age(path: Path, what: str, source: Path, block: int, days: int) -> None:
    path.unlink(missing_ok=True)
    limits = Limits()
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("VACUUM INTO ?", (str(path),))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = OFF")
        (end,) = connection.execute("SELECT max(ts) FROM hour").fetchone()
        last = end + (days * int(DAY) // block - 1) * block
        sizes = {"before": size_of_used(path)}
        sizes["hours"] = _repeat_rollups(connection, path, "hour", end, block, end, last)
        first = last - min(days * DAY, limits.minutes_seconds)
        sizes["minutes"] = _repeat_rollups(connection, path, "minute", end, block, first, last)
        sizes["raw"] = _repeat_raw(connection, path, end, last - limits.raw_seconds, last)
        connection.execute("UPDATE rollup_progress SET done_to = ?", (last,))
        connection.execute("UPDATE node SET last_seen = ?", (last,))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    gpus, ports = _count(path, "gpu"), _count(path, "port")
    made = path.stat().st_size
    began = time.perf_counter()
    pruned = RetentionJob(path, limits, budget_seconds=600.0, sleep=lambda _: None).run(last + 60.0)
    took = time.perf_counter() - began
    checkpoint(path)
    size = path.stat().st_size + log_bytes(path)
    held = ", ".join(pruned.dropped_for_size) or "nothing"
    print(f"{what}: {gpus} GPUs, {ports} ports, {days} days: {made / 1e6:.0f} MB = ", end="")
    print(", ".join(f"{name} {value / 1e6:.0f}" for name, value in sizes.items() if name != "before"))
    print(f"  limit {limits.max_bytes / 1e6:.0f} MB, for the file {limits.file_bytes / 1e6:.0f}; ", end="")
    print(f"dropped for the size: {held}; then {size / 1e6:.0f} MB; {took:.1f} s, longest step ", end="")
    print(f"{max(pruned.step_seconds, default=0.0) * 1e3:.1f} ms")
    assert size <= limits.max_bytes and pruned.done and (days > 90 or not pruned.dropped_for_size)


def _repeat_rollups(
    connection: sqlite3.Connection, path: Path, period: Period, end: int, block: int, first: float, last: float
) -> int:
    """Copy the block of periods that ends at `end` over (first, last]; returns the bytes added."""
    before, length = size_of_used(path), PERIOD_SECONDS[period]
    shifts = [shift for shift in range(block, int(last) - end + 1, block) if end + shift > first]
    connection.execute("BEGIN")
    for shift in shifts:
        connection.execute(
            f"INSERT OR IGNORE INTO {period} SELECT ts + ? FROM {period} WHERE ts > ? AND ts <= ?",
            (shift, end - block, end),
        )
    for kind in ("gpu", "fabric", "host"):
        table = f"{kind}_{period}"
        names = ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall()[1:])
        low, high = ((end - block) // length + 1) * 4096, (end // length + 1) * 4096
        for shift in shifts:
            connection.execute(
                f"INSERT INTO {table} SELECT id + ?, {names} FROM {table} WHERE id >= ? AND id < ?",
                (shift // length * 4096, low, high),
            )
    connection.execute("COMMIT")
    return size_of_used(path) - before


def _repeat_raw(connection: sqlite3.Connection, path: Path, end: int, first: float, last: float) -> int:
    """Copy the hour of samples that ends at `end` over (first, last], and let the first one go; the bytes in use."""
    low, high = connection.execute(
        "SELECT min(id), max(id) FROM tick WHERE ts > ? AND ts <= ?", (end - 3600.5, end + 0.5)
    ).fetchone()
    count = high - low + 1
    before = size_of_used(path)
    rest = {
        table: ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall()[skip:])
        for table, skip in (("tick", 3), ("gpu_sample", 1), ("fabric_sample", 1))
    }
    connection.execute("BEGIN")
    for number in range(1, int((last - end) // 3600) + 1):
        if end + number * 3600 <= first:
            continue
        connection.execute(
            f"INSERT INTO tick SELECT id + ?, node_id, ts + ?, {rest['tick']} FROM tick WHERE id BETWEEN ? AND ?",
            (number * count, number * 3600.0, low, high),
        )
        for table in ("gpu_sample", "fabric_sample"):
            connection.execute(
                f"INSERT INTO {table} SELECT id + ?, {rest[table]} FROM {table} WHERE id BETWEEN ? AND ?",
                (number * count * 4096, low * 4096, high * 4096 + 4095),
            )
    connection.execute("COMMIT")
    return size_of_used(path) - before


def _count(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


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


def long_reader(folder: Path) -> None:
    """A program stays in one transaction while the agent writes: how large does the log become?"""
    path = folder / "held.db"
    writer, node = begin(path)
    writer.commit()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM tick").fetchone()
        written = 0
        for tick in ticks(T0 + 1, 20_000, 1.0, seed=4):
            node.add_tick(tick)
            written += 1
            if writer.fault is not None:
                break
        fault = writer.fault
    assert fault is not None and fault.reason == "log-held"
    print(f"a long reader: the log stops at {log_bytes(path) / 1e6:.1f} MB after {written} ticks; ", end="")
    print(f"limit {Limits().log_bytes / 1e6:.0f}")
    checkpoint(path)
    writer.close()


def ninety_days(folder: Path, days: int) -> None:
    """Days under a limit, retention each half day: the file's largest size, and every hour against its raw samples."""
    path = folder / "days.db"
    limits = Limits(max_bytes=48_000_000)
    writer, node = begin(path)
    rollups, largest, equal, worst = RollupJob(path), 0, 0, 0.0
    per_hour = int(3600 / TICK_SECONDS)
    for hour in range(days * 24):
        start = T0 + hour * 3600
        node.put_ticks(ticks(start + TICK_SECONDS, per_hour, TICK_SECONDS, seed=hour))
        if hour % 12 == 11:
            rollups.run(start + 3600 + 1000)
            for end in range(int(start) - 11 * 3600 + 3600, int(start) + 3601, 3600):
                count, off = _compare(path, end)
                equal, worst = equal + count, max(worst, off)
            RetentionJob(path, limits, sleep=lambda _: None).run(start + 3600 + 11)
            checkpoint(path)
            largest = max(largest, path.stat().st_size + path.with_name("days.db-wal").stat().st_size)
    with closing(sqlite3.connect(path)) as connection:
        counts = {
            name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for name in ("gpu_sample", "gpu_minute", "gpu_hour")
        }
        ok = connection.execute("PRAGMA integrity_check").fetchone()[0]
    assert counts["gpu_hour"] == days * 24 * len(GPUS) and worst < 1 and largest <= limits.max_bytes and ok == "ok"
    print(f"{days} days: largest {largest / 1e6:.1f} MB of {limits.max_bytes / 1e6:.0f} MB; {counts}; integrity {ok};")
    print(f"  {equal} statistics of hours equal to a recomputation from raw, the farthest {worst:.2f} of its step")
    writer.close()


def _compare(path: Path, end: int) -> tuple[int, float]:
    """One GPU's hour against its raw samples: how many statistics, and how far the worst is off, in its own steps."""
    measures = MEASURES["gpu"]
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        samples = connection.execute(
            "SELECT * FROM gpu_samples WHERE gpu_uuid = 'GPU-0' AND ts > ? AND ts <= ?", (end - 3600, end)
        ).fetchall()
        row = connection.execute("SELECT * FROM gpu_hours WHERE gpu_uuid = 'GPU-0' AND ts = ?", (end,)).fetchone()
    worst = 0.0
    for measure in measures:
        values = sorted(sample[measure.name] for sample in samples)
        assert row[f"{measure.name}_n"] == len(values)
        for what, value in _recomputed(values):
            steps = 1 if what == "mean" else measure.spread + 1
            worst = max(worst, abs(row[f"{measure.name}_{what}"] - value) * measure.steps / steps)
    return 4 * len(measures), worst


def _recomputed(values: Sequence[float]) -> Iterator[tuple[str, float]]:
    yield "mean", sum(values) / len(values)
    yield "max", values[-1]
    yield "p95", values[math.ceil(0.95 * len(values)) - 1]


def main() -> None:
    days = int(sys.argv[1]) if len(sys.argv) > 1 else 90
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raw_hour(folder)
        retention_steps(folder)
        long_reader(folder)
        years(folder)
        ninety_days(folder, days)


if __name__ == "__main__":
    main()
