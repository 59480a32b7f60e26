"""Rows of a database, read with plain sqlite3."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from skuwise.agent.model import FabricPort, Gpu, Tick
from skuwise.agent.store.node_writer import NodeWriter, Told

HOUR = 1_790_002_800  # a full hour
GPU = Gpu("GPU-0", 0, "H100", mem_total_bytes=80 << 30, power_limit_watts=700.0, nvlink_bytes_per_second=450e9)
PORTS = [FabricPort(f"mlx5_{i}", 1, role, "InfiniBand", 50e9) for i, role in enumerate(("compute", "storage"))]


def put_ticks(node: NodeWriter, ticks: Iterable[Tick]) -> None:
    """Many ticks, in order of time, written at once."""
    for tick in ticks:
        node.writer.tell(Told(node, lambda tick=tick: node._put_tick(tick), tick=tick))
    node.writer.put_now()


def rows(path: Path, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(sql, parameters).fetchall()
