"""A fleet's nodes in groups that can be judged apart: no workload, and no series of workloads, is in two of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import pandas as pd

from .frame import Frame

_TABLES = ("nodes", "gpus", "workloads", "uses", "absences", "requests", "fabric")
# GPU rows that are judged at once: 25 nodes of eight GPUs over ten days of hours. Judging takes about 1 kB a row.
ROWS_AT_ONCE = 50_000


def node_groups(frame: Frame, rows_of: Mapping[str, int], rows_at_once: int = ROWS_AT_ONCE) -> list[list[str]]:
    """The nodes of a frame in groups of about `rows_at_once` rows, in the order of their names; nodes that share a
    series stay together, however many they are. `rows_of`: node -> GPU rows."""
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        while parent.setdefault(key, key) != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    series = dict(zip(frame.workloads["workload_id"], frame.workloads["series_id"], strict=True))
    nodes = sorted(str(node) for node in frame.nodes["node"])
    held = frame.uses[["workload_id", "node"]].drop_duplicates()
    for workload, node in held.itertuples(index=False, name=None):
        parent[root(f"node {node}")] = root(f"series {series.get(workload) or workload}")
    joined: dict[str, list[str]] = {}
    for node in nodes:
        joined.setdefault(root(f"node {node}"), []).append(node)
    groups: list[list[str]] = []
    size = 0
    for own in joined.values():
        rows = sum(rows_of.get(node, 0) for node in own)
        if not groups or size + rows > rows_at_once:
            groups.append([])
            size = 0
        groups[-1] += own
        size += rows
    return groups


def of_nodes(frame: Frame, nodes: Collection[str]) -> Frame:
    """The part of a frame that is about these nodes. Notes are left out: they are about all of it."""

    def own(table: pd.DataFrame) -> pd.DataFrame:
        return table[table["node"].isin(nodes)].reset_index(drop=True) if "node" in table else table

    uses = own(frame.uses)
    held = frame.workloads["workload_id"].isin(set(uses["workload_id"]))
    return replace(
        frame, nodes=own(frame.nodes), gpus=own(frame.gpus), gpu=own(frame.gpu), fabric=own(frame.fabric),
        host=own(frame.host), workloads=frame.workloads[held].reset_index(drop=True), uses=uses,
        absences=own(frame.absences), notes=(), fabric_history=own(frame.fabric_history), serving=own(frame.serving),
        tokens=own(frame.tokens), requests=own(frame.requests), telemetry_span=frame.telemetry_span or span_of(frame),
    )  # fmt: skip


def parts_of(frame: Frame, rows_at_once: int = ROWS_AT_ONCE) -> Iterator[Frame]:
    """A frame group by group; whole where it is small. The notes come with the first part."""
    if len(frame.gpu) <= rows_at_once:
        yield frame
        return
    rows = frame.gpu.groupby("node").size()
    groups = node_groups(frame, {str(node): int(count) for node, count in rows.items()}, rows_at_once)
    for n, nodes in enumerate(groups):
        part = of_nodes(frame, set(nodes))
        yield part if n else replace(part, notes=frame.notes)


class Outline:
    """What is left of a frame that is given group by group: its small tables, and a row of each port."""

    def __init__(self) -> None:
        self._parts: list[Frame] = []

    def passing(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """The same frames, of which the outline is kept."""
        for frame in frames:
            ports = frame.fabric.drop_duplicates(["node", "device", "port"]) if len(frame.fabric) else frame.fabric
            rows = {name: getattr(frame, name).iloc[:0].copy() for name in ("gpu", "host")}
            self._parts.append(replace(frame, fabric=ports, **rows))
            yield frame
            del frame  # its rows are released before the next group is read

    def frame(self) -> Frame:
        """As one frame, with the source of the last."""
        if len(self._parts) == 1:
            return self._parts[0]
        tables = {
            name: pd.concat(filled, ignore_index=True)
            for name in _TABLES
            if (filled := [part for one in self._parts if len(part := getattr(one, name))])
        }
        return replace(self._parts[-1], telemetry_span=None, **tables)


def span_of(frame: Frame) -> tuple[float, float]:
    """When the first and the last telemetry of any node was seen, Unix seconds; the window where there is none."""
    first, last = frame.nodes["first_seen"].astype(float).min(), frame.nodes["last_seen"].astype(float).max()
    start, end = frame.window.start, frame.window.end
    return float(first) if first == first else start, float(last) if last == last else end  # noqa: PLR0124
