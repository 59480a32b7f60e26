"""Series of telemetry as CSV, read strictly: rows of the views `gpu_samples` and `fabric_samples`, as ticks.

A file holds one row a GPU (or port) and moment, with a header. A column that the view does not have, a value that is no
number or cannot be one of its unit, and time that does not go forward are refused with file and line. An empty cell is
missing. The units are those of docs/metrics.md: ratios are 0..1, not percent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

from ...agent.metrics import FABRIC_METRICS, GPU_METRICS, Metric
from ...agent.model import FabricPort, Tick
from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from .csv_rows import Row, rows_of

# The most that a value may be. A ratio may pass 1 (DCGM tells up to some 1.2 on MIG instances); what is far above is a
# percentage or a blank sentinel.
_MOST: Mapping[str, float] = {
    "ratio": 1.5, "bytes": 1e16, "watts": 1e5, "joules": 1e9, "hertz": 1e11, "celsius": 200.0, "bitmask": 2.0**63,
    "bytes per second": 1e14, "ticks per second": 1e12,
}  # fmt: skip
# 2001-09-09 to 2096-10-02: what lies outside is not in seconds.
_FIRST_TS, _LAST_TS = 1e9, 4e9
_ROLES = ("compute", "storage", "management", "unknown")
_LAYERS = ("InfiniBand", "Ethernet", "EFA")


@dataclass(frozen=True, slots=True)
class NodeSeries:
    """One node's ticks, oldest first. `gpus`: uuid -> (index, bytes of memory or None), `ports` by ``device/port``."""

    gpus: Mapping[str, tuple[int, int | None]]
    ports: Mapping[str, FabricPort]
    ticks: tuple[Tick, ...]

    @property
    def start(self) -> float:
        return self.ticks[0].ts - self.ticks[0].interval_seconds

    @property
    def end(self) -> float:
        return self.ticks[-1].ts


@dataclass(slots=True)
class _Moment:
    line: int
    interval: float | None
    gpus: dict[str, dict[str, float]] = field(default_factory=dict)
    fabric: dict[str, dict[str, float]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Node:
    gpus: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    ports: dict[str, FabricPort] = field(default_factory=dict)
    moments: dict[float, _Moment] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)


def read_series(path: Path, fabric: Path | None = None) -> dict[str, NodeSeries]:
    """The series of a GPU file, and of a fabric file beside it, by node. Raises UsageError with file and line."""
    nodes: dict[str, _Node] = {}
    metrics = {metric.name: metric for metric in GPU_METRICS}
    names = frozenset({"ts", "interval_seconds", "node", "gpu_uuid", "gpu_index", "mem_total_bytes", *metrics})
    for row in rows_of(path, names, frozenset({"ts", "node"})):
        index = row.number("gpu_index", 4094)
        uuid = row.text("gpu_uuid") or (f"GPU-{index:.0f}" if index is not None else "")
        if not uuid:
            raise row.error("neither gpu_uuid nor gpu_index is set", "Set one of them in every row.")
        node = nodes.setdefault(row.need("node"), _Node())
        moment = _moment(node, row, uuid)
        total = row.number("mem_total_bytes", _MOST["bytes"])
        known = node.gpus.get(uuid, (len(node.gpus) if index is None else int(index), None))
        node.gpus[uuid] = (known[0], int(total) if total is not None else known[1])
        moment.gpus[uuid] = _values(row, metrics)
    if not nodes:
        raise UsageError(f"No rows in {clean(path.name)}.", "Add rows, or remove its label.")
    if fabric is not None:
        _read_fabric(fabric, nodes)
    return {name: _series(path, node) for name, node in nodes.items()}


def _read_fabric(path: Path, nodes: dict[str, _Node]) -> None:
    metrics = {metric.name: metric for metric in FABRIC_METRICS}
    facts = ("device", "port", "role", "link_layer", "state", "line_rate_bytes_per_second")
    names = frozenset({"ts", "interval_seconds", "node", *facts, *metrics})
    for row in rows_of(path, names, frozenset({"ts", "node", "device"})):
        if row.need("node") not in nodes:
            raise row.error(
                f"the node {clean(row.text('node'))!r} has no GPU rows", "Use the node name of the GPU file."
            )
        port = FabricPort(
            row.need("device"), int(row.number("port", 255) or 1),
            row.choice("role", _ROLES, "unknown"),  # type: ignore[arg-type]
            row.choice("link_layer", _LAYERS, "InfiniBand"),  # type: ignore[arg-type]
            row.number("line_rate_bytes_per_second", _MOST["bytes per second"]),
        )  # fmt: skip
        node = nodes[row.text("node")]
        moment = _moment(node, row, f"port {port.key}", known_only=True)
        if node.ports.setdefault(port.key, port) != port:
            raise row.error(
                f"{clean(port.key)} changes its role, link layer or line rate", "Use the same values in all rows."
            )
        moment.fabric[port.key] = _values(row, metrics)
        moment.states[port.key] = row.text("state") or "ACTIVE"


def _moment(node: _Node, row: Row, device: str, *, known_only: bool = False) -> _Moment:
    """The moment of a row, which must come after the device's last. `known_only`: it must be one of the GPUs'."""
    row.need("ts")
    ts = row.number("ts", _LAST_TS, _FIRST_TS)
    assert ts is not None
    if ts <= node.last.get(device, 0.0):
        raise row.error(f"ts of {clean(device)} does not increase", "Sort the rows by time, with one row per time.")
    if known_only and ts not in node.moments:
        raise row.error(
            "no GPU row of this node has this ts", "Use the timestamps of the GPU rows for the fabric rows."
        )
    node.last[device] = ts
    interval = row.number("interval_seconds", 86400.0)
    moment = node.moments.setdefault(ts, _Moment(row.line, interval))
    moment.interval = moment.interval or interval
    return moment


def _values(row: Row, metrics: Mapping[str, Metric]) -> dict[str, float]:
    found = {}
    for name, metric in metrics.items():
        value = row.number(name, _MOST[metric.unit], -100.0 if metric.unit == "celsius" else 0.0)
        if value is not None:
            found[name] = value
    return found


def _series(path: Path, node: _Node) -> NodeSeries:
    times = sorted(node.moments)
    steps = [later - earlier for earlier, later in pairwise(times)]
    usual = median(steps) if steps else None
    ticks = []
    for ts, step in zip(times, [usual, *steps], strict=True):
        moment = node.moments[ts]
        # A step much longer than the rest is a gap in the series, not a long interval.
        guess = None if step is None or usual is None else usual if step > 3 * usual else step
        interval = moment.interval or guess
        if not interval:
            raise UsageError(
                f"{clean(path.name)}:{moment.line}: unknown interval length of this row.",
                "Add the column interval_seconds.",
            )
        ticks.append(Tick(ts, interval, moment.gpus, moment.fabric, moment.states))
    return NodeSeries(node.gpus, node.ports, tuple(ticks))
