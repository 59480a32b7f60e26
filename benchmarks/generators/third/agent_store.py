"""Workloads at one sample a second, as the agent stores them: a database a node, with rollups of minutes and hours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from skuwise.advisor.demo import rollup  # the measuring device: seconds into the store's columns
from skuwise.agent.model import FabricPort, Gpu, Node, Period, Workload
from skuwise.agent.store.codec import RollupTable
from skuwise.agent.store.node_writer import NodeWriter
from skuwise.agent.store.writer import Writer

from ..first.rollup import gpu_columns
from .exporters import HOST, RESERVED_GIB
from .findings import Figures, deserved
from .fleet import Fleet, Run
from .fleet import Workload as Planned
from .hardware import GIB, Machine
from .rhythm import HOUR, F, jitter
from .work import BYTES, Load, power

PAGE = 30
_RATE = "{}_bytes_per_second"
_NEEDS_DCGM = ("sm_active", "sm_occupancy", "tensor_active", "dram_active")
_RATIO = {"gpu_util": "engine", "sm_active": "sm", "sm_occupancy": "occupancy"}
_RATIO |= {"tensor_active": "tensor", "dram_active": "dram"}
_HOPPER = ("H100", "H200", "B200")
_THERMAL, _IDLE = 0x20, 0x1


def write_node(fleet: Fleet, folder: Path) -> Planned:
    """Let the fleet's one workload run, and write its nodes. Gives the workload with what is true of it."""
    (workload,) = fleet.workloads
    rng = fleet.rng(6)
    by_pages = fleet.machines[0].shape.part not in _HOPPER and rng.random() < 0.4
    nodes = {machine.name: _Seconds(machine, fleet.seconds, rng) for machine in fleet.machines}
    for number, run in enumerate(workload.runs):
        draws = fleet.rng(4, workload.number, number)
        load = workload.course(draws, run.end - run.start, fleet.start + run.start)
        rank = 0
        for machine, slots in run.members:
            for slot in slots:
                rank_load, which = load, rank
                if workload.archetype.independent and rank:
                    rank_load, which = workload.course(draws, run.end - run.start, fleet.start + run.start), 0
                nodes[machine.name].add(rng, slot.index, rank_load, which, run, gpus=len(machine.slots))
                rank += 1
    silent: dict[str, bool | None] = {
        name: store.is_silent() for name, store in nodes.items() if store.machine.shape.fabric == "ib"
    }
    figures = [node.figures() for node in nodes.values()]
    most = Figures(*(max(getattr(f, name) for f in figures) for name in ("most", "compute", "memory", "nvlink")))
    if workload.kind == "interactive" and max(store.busy() for store in nodes.values()) < 0.005:
        workload.kind = workload.bottleneck = None  # never used
    verdicts = deserved(workload, most, fleet.machines, silent)
    # Waste needs 30 hours of data: only false findings can be counted here.
    workload.findings = {rule: None if is_deserved else is_deserved for rule, is_deserved in verdicts.items()}
    for name, node_store in nodes.items():
        _write(folder / f"{name}.db", fleet, workload, node_store, by_pages=by_pages)
    return workload


class _Seconds:
    """What a node did, by second."""

    def __init__(self, machine: Machine, seconds: int, rng: np.random.Generator) -> None:
        self.machine, self.seconds = machine, seconds
        part, count = machine.part, len(machine.slots)
        links = [name for name in BYTES[:4] if part.nvlink or not name.startswith("nvlink")]
        names = [*_RATIO, "mem_used_bytes", "power_watts", "sm_clock_hertz", *map(_RATE.format, links)]
        self.gpus = {name: np.zeros((count, seconds), np.float32) for name in names}
        self.gpus["power_watts"] += part.idle_watts * jitter(rng, seconds, 0.01)
        self.gpus["sm_clock_hertz"] += np.float32(0.17 * part.boost_mhz * 1e6)
        self.throttle = np.full((count, seconds), float(_IDLE), np.float32)
        self.host = {name: np.zeros(seconds, np.float32) for name in HOST if name != "host_memory"}
        self.host["cpu"] += np.float32(rng.uniform(0.3, 1.5)) * jitter(rng, seconds, 0.4)
        self.host["write"] += np.float32(3e5) * jitter(rng, seconds, 1.0)

    def add(self, rng: np.random.Generator, index: int, load: Load, rank: int, run: Run, *, gpus: int) -> None:
        part, here, count = self.machine.part, slice(run.start, run.end), run.end - run.start
        level = np.float32(rng.normal(1, 0.015))
        for name, channel in _RATIO.items():
            noise = jitter(rng, count, 0.02) * (1 if channel == "engine" else level)
            counted = np.float32(part.tensor_counter if channel == "tensor" else 1)
            self.gpus[name][index, here] = np.clip(load.of(channel, rank) * noise, 0, 1) * counted
        for channel in BYTES[:4]:
            name = _RATE.format(channel)
            if name in self.gpus:
                self.gpus[name][index, here] = load.of(channel, rank) * jitter(rng, count, 0.03)
        memory = np.minimum(load.of("memory", rank), 0.985)
        self.gpus["mem_used_bytes"][index, here] = memory * np.float32((part.gib - RESERVED_GIB) * GIB)
        watts = power(part, load, rank, self.machine.context_share)
        self.gpus["power_watts"][index, here] = watts * jitter(rng, count, 0.01)
        clock = np.where(memory > 0.01, load.of("clock", rank), np.float32(0.17))
        self.gpus["sm_clock_hertz"][index, here] = np.round(clock * part.boost_mhz / 15) * np.float32(15e6)
        mask = np.where(load.engine > 0.01, 0, _IDLE)
        if load.throttled is not None:
            mask = np.where(load.throttled > 0.5, _THERMAL, mask)
        self.throttle[index, here] = mask
        for name, values in self.host.items():
            share = 1 / gpus if name in ("iowait", "write") else 1
            values[here] += getattr(load, name) * np.float32(share)

    def figures(self) -> Figures:
        part, g = self.machine.part, {name: _half_minutes(values) for name, values in self.gpus.items()}
        compute = g["tensor_active"] / part.tensor_counter / part.eta_compute * (part.boost_mhz / part.reference_mhz)
        nvlink = g["nvlink_tx_bytes_per_second"] / part.nvlink if part.nvlink else np.zeros_like(compute)
        pcie = np.maximum(g["pcie_tx_bytes_per_second"], g["pcie_rx_bytes_per_second"]) / part.pcie
        most = np.maximum.reduce([compute, g["dram_active"] / part.eta_hbm, nvlink, pcie])
        memory = g["mem_used_bytes"] / (part.gib * GIB)
        ranks = (most, 99), (compute, 95), (memory, 99.5), (nvlink, 99.5)
        return Figures(*(float(np.percentile(values, rank)) for values, rank in ranks))

    def is_silent(self) -> bool:
        rate = self.machine.shape.ports * self.machine.shape.port_bits / 8
        return float(np.percentile(np.maximum(self.host["fabric_tx"], self.host["fabric_rx"]), 99.5)) < 0.01 * rate

    def busy(self) -> float:
        return float((self.gpus["gpu_util"] > 0.05).mean())


def _half_minutes(values: F) -> F:
    return values[:, : values.shape[1] // 30 * 30].reshape(len(values), -1, 30).mean(axis=2)


def _write(path: Path, fleet: Fleet, workload: Planned, node: _Seconds, *, by_pages: bool) -> None:
    machine, part, end = node.machine, node.machine.part, fleet.start + fleet.seconds
    facts: dict[str, Any] = {"mem_total_bytes": int((part.gib - RESERVED_GIB) * GIB)}
    facts |= {"power_limit_watts": float(part.tdp), "nvlink_bytes_per_second": part.nvlink or None}
    gpus = [Gpu(slot.uuid, slot.index, part.model, **facts) for slot in machine.slots]
    shape = machine.shape
    ports = [FabricPort("eth0", 1, "unknown", "Ethernet", shape.port_bits / 8)] * shape.ports
    if shape.fabric == "ib":
        ports = [FabricPort(f"mlx5_{i}", 1, "compute", "InfiniBand", shape.port_bits / 8) for i in range(shape.ports)]
    about = Node(machine.name, region=shape.region, instance_type=shape.instance_type, gpu_count=len(gpus))
    with Writer.open(path, now=lambda: end) as writer:
        node_writer = writer.for_node(about, fleet.start)
        node_writer.set_gpus(gpus, fleet.start)
        node_writer.set_ports(ports, fleet.start)
        for number, run in enumerate(workload.runs):
            who = _workload(fleet, workload, run, number)
            begin, stop = fleet.start + run.start - run.since, fleet.start + run.end
            for slot in (slot for member, slots in run.members if member is machine for slot in slots):
                used = int(node.gpus["mem_used_bytes"][slot.index, run.start : run.end].max())
                node_writer.put_workload_use(who, slot.uuid, begin, stop, "allocation", False, used)
        _rollups(node_writer, fleet, node, ports, "minute", 60, by_pages=by_pages)
        _rollups(node_writer, fleet, node, ports, "hour", HOUR, by_pages=by_pages)
        node_writer.set_node(about, end)


def _workload(fleet: Fleet, workload: Planned, run: Run, number: int) -> Workload:
    name = run.name
    series = f"third/{fleet.seed}/{workload.number}"
    if name.pod is None:
        return Workload(f"{series}/{number}", series, name.base, "slurm", job_id=name.job or str(number))
    kind = "StatefulSet" if name.owner_kind == "Notebook" else name.owner_kind
    return Workload(
        f"{series}/{number}",
        series,
        name.base,
        "kubernetes",
        namespace=name.namespace,
        pod=name.pod,
        controller_kind=kind,
        image=name.image,
    )


def _rollups(
    writer: NodeWriter,
    fleet: Fleet,
    node: _Seconds,
    ports: Sequence[FabricPort],
    period: Period,
    seconds: int,
    *,
    by_pages: bool,
) -> None:
    machine, part, rows = node.machine, node.machine.part, fleet.seconds // seconds
    ends = fleet.start + seconds * np.arange(1, rows + 1)
    count = len(machine.slots)
    gpus = {name: values.reshape(-1, seconds) for name, values in node.gpus.items()}
    if by_pages:
        for name in _NEEDS_DCGM:
            means = gpus[name].reshape(len(gpus[name]), -1, PAGE).mean(axis=2)
            pages = np.full_like(gpus[name], np.nan)
            pages[:, PAGE - 1 :: PAGE] = means
            gpus[name] = pages
    gpus["mem_clock_hertz"] = np.full_like(gpus["gpu_util"], part.memory_mhz * 1e6)
    gpus["throttle_reasons"] = node.throttle.reshape(-1, seconds)
    tx, rx = node.host["fabric_tx"], node.host["fabric_rx"]
    is_ib = machine.shape.fabric == "ib"
    fabric = np.tile(np.maximum(tx, rx).reshape(-1, seconds), (count, 1)) if is_ib else None
    limits = {"mem_total_bytes": (part.gib - RESERVED_GIB) * GIB, "power_limit_watts": part.tdp}
    limits["nvlink_bytes_per_second"] = part.nvlink or 1.0
    columns = gpu_columns(gpus, np.full(count * rows, float(seconds)), period, **limits, fabric=fabric)
    _put(writer, f"gpu_{period}", ends, [slot.uuid for slot in machine.slots], columns)
    rng, rate = fleet.rng(7), machine.shape.port_bits / 8
    flows: dict[str, list[F]] = {"tx_bytes_per_second": [], "rx_bytes_per_second": []}
    for _ in ports:
        for (name, parts), flow in zip(flows.items(), (tx, rx), strict=True):
            # What comes from shared storage passes the Ethernet port alone.
            whole = flow / len(ports) if is_ib else flow + node.host["storage_rx"] * (1 if name[0] == "r" else 0.02)
            parts.append((np.minimum(whole, rate) * jitter(rng, fleet.seconds, 0.01)).astype(np.float32))
    values = {name: np.concatenate(parts).reshape(-1, seconds) for name, parts in flows.items()}
    observed = np.full(len(ports) * rows, float(seconds))
    columns = rollup.fabric_columns(values, observed, period, np.full(len(observed), rate))
    _put(writer, f"fabric_{period}", ends, [port.key for port in ports], columns)
    cores = max(machine.shape.cores * count // machine.shape.gpus, 2)
    busy = np.clip(node.host["cpu"] / cores, 0, 1)
    memory = machine.shape.host_gib * GIB
    host = {
        "cpu_util": busy,
        "io_wait": np.clip(node.host["iowait"], 0, 1 - busy),
        "mem_used_bytes": np.full(fleet.seconds, 0.2 * memory, np.float32),
        "disk_read_bytes_per_second": node.host["read"],
        "disk_write_bytes_per_second": node.host["write"],
    }
    values = {name: values_by_second.reshape(-1, seconds) for name, values_by_second in host.items()}
    columns = rollup.host_columns(values, np.full(rows, float(seconds)), period, memory)
    _put(writer, f"host_{period}", ends, None, columns)


def _put(writer: NodeWriter, table: str, ends: F, devices: Sequence[str] | None, columns: rollup.Columns) -> None:
    copies = len(devices) if devices else 1
    lists: list[Sequence[object]] = [np.tile(ends, copies).tolist()]
    if devices:
        lists.append([device for device in devices for _ in range(len(ends))])
    lists += [values.tolist() for values in columns.values()]
    names = ["ts", *(["device"] if devices else []), *columns]
    writer.put_rollups(cast("RollupTable", table), names, zip(*lists, strict=True))
