"""Kill a writer at random moments under load: does the database open, is it whole, is every committed tick there?

Usage: python -m skuwise.benchmarks.performance.agent.writer_kills [KILLS]. The writer, forked so that a kill costs
some milliseconds, says each commit over a pipe after SQLite said yes; a rollup and a retention run beside it in the
same process. After SIGKILL all that it said must be in the file.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
import struct
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

from skuwise.agent.base.retention_limits import Limits
from skuwise.agent.model import Gpu, Node, Tick
from skuwise.agent.store.retention.retention import RetentionJob
from skuwise.agent.store.rollup.rollups import RollupJob
from skuwise.agent.store.writing.writer import Writer

T0 = 1_790_002_800.0
GPUS = [Gpu(f"GPU-{i}", i, "H100") for i in range(8)]
VALUES = {"sm_active": 0.5, "power_watts": 600.0, "nvlink_tx_bytes_per_second": 1e11}
_RECORD = struct.Struct("<q")


def _write_for_ever(path: Path, first: int, pipe: int) -> None:
    with Writer.open(path, commit_every=1_000_000, commit_seconds=1e9) as writer:
        node = writer.for_node(Node("n"), T0 + first)
        node.set_gpus(GPUS, T0 + first)
        threading.Thread(target=_work_beside, args=(path,), daemon=True).start()
        number = first
        while True:
            for _ in range(3):
                number += 1
                node.add_tick(Tick(T0 + number, 1.0, {gpu.uuid: VALUES for gpu in GPUS}))
            if writer.commit():
                os.write(pipe, _RECORD.pack(number))


def _work_beside(path: Path) -> None:
    while True:
        RollupJob(path).run(T0 + 1e7)
        # Keeps all: what is checked are the ticks.
        RetentionJob(path, Limits(), sleep=lambda _: time.sleep(0.001)).run(T0)


def kill_once(path: Path, first: int, delay_seconds: float, *, working: bool) -> int:
    """Start a writer at tick `first`, kill it after a while, and return the last tick it said was committed.

    `working`: the while begins with the first commit, otherwise with the process.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            _write_for_ever(path, first, writing)
        finally:
            os._exit(1)
    os.close(writing)
    if working:
        select.select([reading], [], [], 10.0)
    time.sleep(delay_seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    said = b""
    while part := os.read(reading, 1 << 16):
        said += part
    os.close(reading)
    whole = len(said) // _RECORD.size * _RECORD.size
    return _RECORD.unpack(said[whole - _RECORD.size : whole])[0] if whole else first


def check(path: Path, after: int, until: int) -> int:
    """Ticks (after, until] are all there, each once, and the file is whole. Returns the highest tick in the file."""
    with closing(sqlite3.connect(path)) as connection:
        verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
        assert verdict == "ok", verdict
        span = (T0 + after, T0 + until)
        ticks = connection.execute("SELECT count(*) FROM tick WHERE ts > ? AND ts <= ?", span).fetchone()[0]
        rows = connection.execute("SELECT count(*) FROM gpu_samples WHERE ts > ? AND ts <= ?", span).fetchone()[0]
        assert (ticks, rows) == (until - after, 8 * (until - after)), (after, until, ticks, rows)
        newest = connection.execute("SELECT max(ts) FROM tick").fetchone()[0]
        return after if newest is None else round(newest - T0)


def run(folder: Path, kills: int, seed: int) -> tuple[int, int]:
    """Kill so often. Returns how many ticks were committed, and how many kills came before the first commit."""
    rng = random.Random(seed)
    last, committed, early, path = 0, 0, 0, folder / "0.db"
    for number in range(kills):
        if number % 50 == 0:  # a fresh file now and then, so that its creation is hit too, and checks stay fast
            path, last = folder / f"{number}.db", 0
        # A file that was killed at birth has no tables yet.
        said = kill_once(path, last, rng.uniform(0.0, 0.03), working=number % 4 != 0)
        early += said == last
        committed += said - last
        if said > last or last:
            last = check(path, last, said)
    return committed, early


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as name:
        began = time.perf_counter()
        committed, early = run(Path(name), kills, seed=1)
        took = time.perf_counter() - began
    print(
        f"{kills} kills in {took:.0f} s: every file opened, integrity_check ok each time, {committed} committed ticks,"
    )
    print(f"  none lost; {early} kills came before the first commit")


if __name__ == "__main__":
    main()
