"""What one tick costs, how fast the agent starts, and how large it is, on a node of eight GPUs behind the NVML stub.

`skuwise agent run` is run for real. CPU per tick is what the process used, by its own clock, in a long run beyond a
short one: all its threads, so sampling, storing and the minutes' rollups; the hours' rollup has a process of its own.
Start is the time from exec to the line that says it samples, the best of four.

Usage: python benchmarks/tick.py [SECONDS]
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from node import make_node


def run(environment: dict[str, str], sysfs: Path, db: Path, seconds: float, interval: str) -> tuple[float, int, float]:
    """CPU seconds of the process while it sampled, ticks kept, and seconds from start until it says that it samples."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "skuwise", "agent", "run", "--db", str(db), "--interval", interval]
    command += ["--duration", f"{seconds:g}s", "--path.sysfs", str(sysfs)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, cwd=db.parent)
    assert process.stderr is not None
    first = process.stderr.readline()
    started = time.perf_counter() - began
    rest = process.stderr.read()
    assert process.wait() == 0 and "8 GPUs" in first, first + rest
    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as connection:
        ticks = connection.execute("SELECT count(*) FROM host_samples").fetchone()[0]
        cpu = connection.execute("SELECT sum(cpu_seconds) FROM agent_stats").fetchone()[0]
    return cpu, ticks, started


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment, sysfs = make_node(folder)
        for interval in ("1s", "0.1s"):
            short = [run(environment, sysfs, folder / f"short-{interval}-{i}.db", 2.0, interval) for i in range(3)]
            long = run(environment, sysfs, folder / f"long-{interval}.db", seconds, interval)
            # What the first two seconds cost once (APScheduler's import) is in both, and falls out.
            once = statistics.median(run[0] for run in short)
            per_tick = (long[0] - once) / (long[1] - short[0][1])
            start = min(run[2] for run in (*short, long))
            with sqlite3.connect(f"file:{folder / f'long-{interval}.db'}?mode=ro", uri=True) as connection:
                rss, worst = connection.execute("SELECT max(rss_bytes), max(tick_seconds) FROM agent_stats").fetchone()
                metrics = connection.execute("SELECT * FROM gpu_samples ORDER BY ts DESC LIMIT 8")
                names = [column[0] for column in metrics.description]
                missing = {n for row in metrics.fetchall() for n, v in zip(names, row, strict=True) if v is None}
            calls = (folder / "nvml.calls").read_text()
            slow_call = "nvmlDeviceGetPcieThroughput" in calls
            print(f"interval {interval}: {per_tick * 1e3:.2f} ms CPU a tick over {long[1]} ticks;")
            print(f"  start to sampling {start:.2f} s; RSS {rss / 1e6:.1f} MB;")
            print(f"  longest tick {worst * 1e3:.1f} ms;")
            print(f"  metrics of a GPU that are missing: {sorted(missing) or 'none'}; 20 ms call made: {slow_call}")
    print(f"on {os.cpu_count()} cores, Python {sys.version.split()[0]}; limits: 3 ms, 0.5 s, 45 MB")


if __name__ == "__main__":
    main()
