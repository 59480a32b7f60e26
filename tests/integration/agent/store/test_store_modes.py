"""A database seen by another user, bound by the modes of files and folders, and after its writer was killed."""

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from skuwise.agent.model import Node, Tick
from skuwise.agent.store.writer import Writer

T0 = 1_790_000_000.0
_COUNT = """
import sys
from pathlib import Path
from skuwise.agent.store.reader import open_reader
from skuwise.tests.support.file_modes import bound_by_modes

with bound_by_modes(), open_reader(Path(sys.argv[1])) as reader:
    print(reader.fetch("SELECT count(*) FROM host_samples")[0][0])
"""


@pytest.mark.parametrize("live", [False, True])
def test_a_database_is_read_where_nothing_may_be_written(tmp_path: Path, live: bool) -> None:
    path = tmp_path / "node.db"
    writer = Writer.open(path)
    writer.for_node(Node("n1"), T0).add_tick(Tick(T0 + 1, 1.0, host={"cpu_util": 0.5}))
    writer.commit()
    if not live:
        writer.close()
    before = sorted(one.name for one in tmp_path.iterdir())
    for file in tmp_path.iterdir():
        file.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        done = subprocess.run([sys.executable, "-c", _COUNT, path], capture_output=True, text=True, check=False)
    finally:
        tmp_path.chmod(0o755)
    assert done.stdout == "1\n", done.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == before
    writer.close()


_WRITE = """
import sys, time
from pathlib import Path
from skuwise.agent.model import Gpu, Node, Tick
from skuwise.agent.store.writer import Writer

writer = Writer.open(Path(sys.argv[1]))
begun = time.time()
node = writer.for_node(Node("n1"), begun)
node.set_gpus([Gpu(f"GPU-{n}", n, "H100") for n in range(8)], begun)
while True:
    ts = time.time()
    node.add_tick(Tick(ts, 0.1, {f"GPU-{n}": {"sm_active": 0.5} for n in range(8)}))
    if not writer.waiting_ticks:
        print(repr(ts), flush=True)
    time.sleep(0.1)
"""


def test_a_killed_writer_loses_nothing_that_was_written(tmp_path: Path) -> None:
    path, told = tmp_path / "node.db", tmp_path / "told"
    for number in range(6):
        with told.open("w") as out:
            process = subprocess.Popen([sys.executable, "-c", _WRITE, path], stdout=out)
        ends = time.monotonic() + 60
        while not told.stat().st_size and time.monotonic() < ends:
            time.sleep(0.02)
        time.sleep(0.3 * number)
        process.kill()
        process.wait()
        written = [float(line) for line in told.read_text().splitlines(keepends=True) if line.endswith("\n")]
        with closing(sqlite3.connect(path)) as connection:
            kept = {ts for (ts,) in connection.execute("SELECT ts FROM tick")}
            assert written and kept >= set(written)
            assert connection.execute("SELECT count(*) FROM gpu_samples").fetchone() == (8 * len(kept),)
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
