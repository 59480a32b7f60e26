"""Reading a stopped and a live database of another user, bound by the modes of files and folders."""

from __future__ import annotations

import subprocess
import sys
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
