"""The measuring: seconds, or means of a minute, through the store's rollups into a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from skuwise.advisor.demo import (
    rollup,  # the device both generators are measured with; tested against the agent's
)
from skuwise.agent.store.file.codec import RollupTable
from skuwise.agent.store.writing.node_writer import NodeWriter
from skuwise.agent.store.writing.writer import Writer

from .activity import F
from .counters import Counted, Node
from .fleet import HOUR, Builder, Fleet, Placement
from .hardware import Machine


def write(fleet: Fleet, folders: Mapping[int, Path], seed: int) -> None:
    """Write every node of the fleet to a file of its own. `folders`: by the seconds that one sample is the mean of."""
    builder = Builder(seed, fleet.start, 0)
    for machine in fleet.machines:
        node = Node(machine, fleet.seconds)
        for placement in fleet.placements[machine.name]:
            node.place(placement.activity, placement.gpus, placement.at)
        counted = node.count(builder.rng("counters", machine.name))
        for resolution, folder in folders.items():
            _write_one(folder / f"{machine.name}.db", machine, counted, fleet, resolution)


def _write_one(path: Path, machine: Machine, counted: Counted, fleet: Fleet, resolution: int) -> None:
    with Writer.open(path, now=lambda: fleet.start + fleet.seconds) as writer:
        own = writer.for_node(machine.node, fleet.start)
        own.set_gpus(machine.gpus, fleet.start)
        own.set_ports(machine.ports, fleet.start)
        for placement in fleet.placements[machine.name]:
            _use(own, machine, placement, fleet)
        _hours(own, machine, counted, fleet, resolution)
        own.set_node(machine.node, fleet.start + fleet.seconds)


def _use(own: NodeWriter, machine: Machine, placement: Placement, fleet: Fleet) -> None:
    begin = fleet.start + placement.at - placement.since
    stop = fleet.start + min(fleet.seconds, placement.at + placement.activity.seconds)
    level = placement.activity.memory
    for index in placement.gpus:
        own.put_workload_use(
            placement.workload, machine.gpus[index].uuid, begin, stop, "allocation", False,
            int(level.max()) if level is not None else None,
        )  # fmt: skip


def _hours(own: NodeWriter, machine: Machine, counted: Counted, fleet: Fleet, resolution: int) -> None:
    part, hours = machine.host.part, fleet.seconds // HOUR
    ends = fleet.start + HOUR * np.arange(1, hours + 1)

    def rows(values: F) -> F:
        """(devices x hours, samples of the hour)."""
        values = values if values.ndim == 2 else values[None]
        cut = values[:, : hours * HOUR].reshape(-1, HOUR)
        if resolution > 1:
            cut = cut.reshape(len(cut), -1, resolution).mean(axis=2)
        return cut

    def observed(devices: int) -> F:
        return np.full(devices * hours, float(HOUR))

    compute = [i for i, port in enumerate(machine.ports) if port.role == "compute"]
    fabric = None
    if compute:
        traffic = np.maximum(counted.fabric["tx_bytes_per_second"], counted.fabric["rx_bytes_per_second"])[compute]
        fabric = np.tile(rows(traffic.sum(axis=0)), (len(machine.gpus), 1))
    gpus = {name: rows(values) for name, values in counted.gpus.items()}
    if resolution > 1:  # a bitmask has no mean: what held at the end of the minute
        mask = counted.gpus["throttle_reasons"][:, : hours * HOUR].reshape(-1, HOUR)
        gpus["throttle_reasons"] = mask[:, resolution - 1 :: resolution]
    columns = rollup.gpu_columns(
        gpus, observed(len(machine.gpus)), "hour", mem_total_bytes=part.mem_bytes, power_limit_watts=part.watts,
        nvlink_bytes_per_second=part.nvlink, fabric=fabric,
    )  # fmt: skip
    _put(own, "gpu_hour", ends, [gpu.uuid for gpu in machine.gpus], _coarse(columns, resolution))
    if machine.ports:
        rates = np.repeat([port.line_rate_bytes_per_second or np.nan for port in machine.ports], hours)
        values = {name: rows(array) for name, array in counted.fabric.items()}
        columns = rollup.fabric_columns(values, observed(len(machine.ports)), "hour", rates)
        _put(own, "fabric_hour", ends, [port.key for port in machine.ports], _coarse(columns, resolution))
    values = {name: rows(array) for name, array in counted.host.items()}
    _put(own, "host_hour", ends, None, _coarse(rollup.host_columns(values, observed(1), "hour", 1e12), resolution))


def _coarse(columns: rollup.Columns, resolution: int) -> rollup.Columns:
    """What the hour says of itself where a sample is a minute: fewer of them, and no period below two minutes."""
    if resolution == 1:
        return columns
    out = dict(columns)
    for name, values in columns.items():
        if name.endswith("_n"):
            out[name] = np.round(values / resolution)
        elif name in ("period_seconds", "period_strength"):
            out[name] = np.full(len(values), np.nan)
        elif name == "idle_run_seconds":
            out[name] = np.where(values >= HOUR, values, np.minimum(values * resolution, HOUR))
    return out


def _put(own: NodeWriter, table: RollupTable, ends: F, devices: Sequence[str] | None, columns: rollup.Columns) -> None:
    copies = len(devices) if devices else 1
    lists: list[Sequence[object]] = [np.tile(ends, copies).tolist()]
    if devices:
        lists.append([device for device in devices for _ in range(len(ends))])
    lists += [values.tolist() for values in columns.values()]
    names = ["ts", *(["device"] if devices else []), *columns]
    own.put_rollups(table, names, zip(*lists, strict=True))
