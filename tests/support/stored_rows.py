"""Ticks put into a database, and what stands there, asked with plain sqlite3."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from skuwise.agent.model import Tick
from skuwise.agent.store.node_writer import NodeWriter, Told


def put_ticks(node: NodeWriter, ticks: Iterable[Tick]) -> None:
    """Many ticks, in order of time, written at once."""
    for tick in ticks:
        node.writer.tell(Told(node, lambda tick=tick: node._put_tick(tick), tick=tick))
    node.writer.put_now()


def rows(path: Path, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(sql, parameters).fetchall()
