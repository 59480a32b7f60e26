"""Groups of nodes that can be judged apart: no workload, and no series of workloads, is in two of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, replace

import pandas as pd

from .frame import Frame

_KEPT = ("nodes", "gpus", "workloads", "uses", "absences", "requests", "fabric")
# GPU rows that are judged at once: 25 nodes of eight GPUs over ten days of hours. Judging takes about 1 kB a row.
ROWS_AT_ONCE = 50_000


def node_groups(frame: Frame, rows_of: Mapping[str, int], rows_at_once: int = ROWS_AT_ONCE) -> list[list[str]]:
    """The nodes in groups of about `rows_at_once` rows, by name; nodes that share a series stay together. `rows_of`:
    node -> GPU rows."""
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        while parent.setdefault(key, key) != key:
            key = parent[key]
        return key

    series = dict(zip(frame.workloads["workload_id"], frame.workloads["series_id"], strict=True))
    for workload, node in frame.uses[["workload_id", "node"]].drop_duplicates().itertuples(index=False, name=None):
        parent[root(f"node {node}")] = root(f"series {series.get(workload) or workload}")
    joined: dict[str, list[str]] = {}
    for node in sorted(str(node) for node in frame.nodes["node"]):
        joined.setdefault(root(f"node {node}"), []).append(node)
    groups: list[list[str]] = []
    size = 0
    for nodes in joined.values():
        rows = sum(rows_of.get(node, 0) for node in nodes)
        if not groups or size + rows > rows_at_once:
            groups.append([])
            size = 0
        groups[-1] += nodes
        size += rows
    return groups


def of_nodes(frame: Frame, nodes: Collection[str]) -> Frame:
    """The part of a frame about these nodes, without notes, which are about all of it."""
    tables = {
        table.name: rows[rows["node"].isin(nodes)].reset_index(drop=True)
        for table in fields(frame)
        if table.name != "jobs" and isinstance(rows := getattr(frame, table.name), pd.DataFrame) and "node" in rows
    }
    held = frame.workloads["workload_id"].isin(set(tables["uses"]["workload_id"]))
    tables["workloads"] = frame.workloads[held].reset_index(drop=True)
    return replace(frame, **tables, notes=(), telemetry_span=frame.telemetry_span or span_of(frame))


def parts_of(frame: Frame, rows_at_once: int = ROWS_AT_ONCE) -> Iterator[Frame]:
    """A frame group by group; whole if it is small. The notes come with the first part."""
    if len(frame.gpu) <= rows_at_once:
        yield frame
        return
    rows = {str(node): int(count) for node, count in frame.gpu.groupby("node").size().items()}
    for n, nodes in enumerate(node_groups(frame, rows, rows_at_once)):
        part = of_nodes(frame, set(nodes))
        yield part if n else replace(part, notes=frame.notes)


class Outline:
    """The small tables of a frame that comes group by group, and a row of each port."""

    def __init__(self) -> None:
        self._parts: list[Frame] = []

    def passing(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """The same frames, recorded on the way."""
        for frame in frames:
            ports = frame.fabric.drop_duplicates(["node", "device", "port"]) if len(frame.fabric) else frame.fabric
            rows = {name: getattr(frame, name).iloc[:0].copy() for name in ("gpu", "host")}
            self._parts.append(replace(frame, fabric=ports, **rows))
            yield frame
            del frame  # its rows are released before the next group is read

    def frame(self) -> Frame:
        """All groups as one frame, with the source of the last."""
        if len(self._parts) == 1:
            return self._parts[0]
        parts = {name: [rows for part in self._parts if len(rows := getattr(part, name))] for name in _KEPT}
        tables = {name: pd.concat(filled, ignore_index=True) for name, filled in parts.items() if filled}
        return replace(self._parts[-1], telemetry_span=None, **tables)


def span_of(frame: Frame) -> tuple[float, float]:
    """When the first and the last telemetry of any node was observed, Unix seconds; without any the window."""
    first, last = frame.nodes["first_seen"].astype(float).min(), frame.nodes["last_seen"].astype(float).max()
    start, end = frame.window.start, frame.window.end
    return (start if pd.isna(first) else float(first)), (end if pd.isna(last) else float(last))
