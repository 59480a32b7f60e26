"""A fleet without labels as our agent's databases hold it: rollups of seconds, and the newest seconds themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo import rollup
from skuwise.agent.model import FabricPort, Gpu, Period, Tick
from skuwise.agent.model import Node as AgentNode
from skuwise.agent.store.file.codec import RollupTable
from skuwise.agent.store.writing.node_writer import NodeWriter
from skuwise.agent.store.writing.writer import Writer

from .description import Node
from .jobs import GPUS, HOUR
from .names import unique
from .unlabelled import MINUTE, BareFleet, Lived, used_bytes, watts

Rows = npt.NDArray[np.floating]
_LINKS = {"H100-SXM5": 18, "A100-SXM4-80GB": 12}


def write_databases(fleet: BareFleet, lived: Lived, folder: Path, *, samples_seconds: float = HOUR) -> list[Path]:
    """One file a node: minutes and hours of all the time, samples of its last `samples_seconds`. No workload is known
    to the agent: nothing runs under a scheduler, and no process is told."""
    folder.mkdir(parents=True, exist_ok=True)
    power, used = watts(fleet, lived), used_bytes(fleet, lived)
    files = []
    for number, node in enumerate(fleet.nodes):
        file = folder / f"{node.name}.db"
        with Writer.open(file, now=lambda: fleet.end) as writer:
            about = _node(node)
            _write(writer.for_node(about, fleet.start), fleet, lived, number, power, used, samples_seconds)
        files.append(file)
    return files


def _node(node: Node) -> AgentNode:
    return AgentNode(
        node=node.name, cluster="bare", machine_id=unique("machine", node.name).replace("-", ""),
        boot_id=unique("boot", node.name).replace("-", ""), gpu_count=GPUS, agent_version="simulated",
    )  # fmt: skip


def _gpus(node: Node) -> list[Gpu]:
    model = node.gpu
    return [
        Gpu(
            uuid=node.uuid(index), index=index, name=model.name, sku=model.sku,
            pci_bus_id=f"00000000:{0x18 + 0x11 * index:02X}:00.0", mem_total_bytes=model.memory_mib * 2**20,
            power_limit_watts=float(model.limit_watts), nvlink_links=_LINKS.get(model.sku),
            nvlink_bytes_per_second=model.nvlink_bytes_per_second or None, driver_version="550.90.07",
        )
        for index in range(GPUS)
    ]  # fmt: skip


def _ports(node: Node) -> list[FabricPort]:
    if node.machine.fabric != "infiniband":
        return []
    rate = node.machine.port_bytes_per_second
    return [FabricPort(f"mlx5_{n}", 1, "compute", "InfiniBand", rate) for n in range(node.machine.fabric_ports)]


def _write(
    writer: NodeWriter, fleet: BareFleet, lived: Lived, number: int, power: Rows, used: Rows, samples_seconds: float
) -> None:
    node = fleet.nodes[number]
    gpus, ports = _gpus(node), _ports(node)
    writer.set_gpus(gpus, fleet.start)
    writer.set_ports(ports, fleet.start)
    rows = slice(number * GPUS, (number + 1) * GPUS)
    values: dict[str, Rows] = {
        "gpu_util": lived.util[rows], "sm_active": 0.85 * lived.engine[rows], "tensor_active": lived.tensor[rows],
        "dram_active": lived.dram[rows], "mem_used_bytes": used[rows], "power_watts": power[rows],
        "sm_clock_hertz": np.where(lived.context[rows], 1.0, 0.2) * node.gpu.sm_mhz[1] * 1e6,
        "throttle_reasons": np.zeros_like(lived.util[rows]),
    }  # fmt: skip
    traffic = lived.wire[number] * node.machine.port_bytes_per_second + 40.0
    seen = lived.seen[number]
    for period, length in (("minute", MINUTE), ("hour", HOUR)):
        _rollups(writer, fleet, node, gpus, ports, values, traffic, seen, period, length)  # type: ignore[arg-type]
    writer.put_ticks(_ticks(fleet, gpus, ports, values, traffic, seen, samples_seconds))
    writer.set_node(_node(node), fleet.end)


def _rollups(
    writer: NodeWriter, fleet: BareFleet, node: Node, gpus: Sequence[Gpu], ports: Sequence[FabricPort],
    values: dict[str, Rows], traffic: Rows, seen: npt.NDArray[np.bool_], period: Period, length: int,
) -> None:  # fmt: skip
    """Periods that the agent saw for the most part; one that it saw in part is left out, as a coarse stand-in."""
    count = fleet.seconds // length
    there = seen[: count * length].reshape(count, length).mean(axis=1) > 0.5
    ends = fleet.start + (np.arange(count)[there] + 1.0) * length

    def cut(rows: Rows) -> Rows:
        rows = np.atleast_2d(rows)[:, : count * length].reshape(-1, count, length)[:, there]
        return rows.reshape(-1, length)

    observed = np.full(len(ends), float(length))
    columns = rollup.gpu_columns(
        {name: cut(rows) for name, rows in values.items()}, np.tile(observed, len(gpus)), period,
        mem_total_bytes=float(node.gpu.memory_mib * 2**20), power_limit_watts=float(node.gpu.limit_watts),
        nvlink_bytes_per_second=node.gpu.nvlink_bytes_per_second or 1.0, fabric=None,
    )  # fmt: skip
    _put(writer, f"gpu_{period}", ends, [gpu.uuid for gpu in gpus], columns)  # type: ignore[arg-type]
    if ports:
        rate = node.machine.port_bytes_per_second
        bytes_ = {f"{way}_bytes_per_second": np.tile(cut(traffic), (len(ports), 1)) for way in ("tx", "rx")}
        rates = np.full(len(ends) * len(ports), rate)
        columns = rollup.fabric_columns(bytes_, np.tile(observed, len(ports)), period, rates)
        _put(writer, f"fabric_{period}", ends, [port.key for port in ports], columns)  # type: ignore[arg-type]


def _put(
    writer: NodeWriter, table: RollupTable, ends: Rows, devices: Sequence[str], columns: rollup.Columns
) -> None:  # fmt: skip
    lists: list[Sequence[object]] = [
        np.tile(ends, len(devices)).tolist(), [device for device in devices for _ in range(len(ends))],
        *(one.tolist() for one in columns.values()),
    ]  # fmt: skip
    writer.put_rollups(table, ["ts", "device", *columns], zip(*lists, strict=True))


def _ticks(
    fleet: BareFleet, gpus: Sequence[Gpu], ports: Sequence[FabricPort], values: dict[str, Rows], traffic: Rows,
    seen: npt.NDArray[np.bool_], samples_seconds: float,
) -> Iterator[Tick]:  # fmt: skip
    states = {port.key: "ACTIVE" for port in ports}
    for second in range(max(0, int(fleet.seconds - samples_seconds)), fleet.seconds):
        if not seen[second]:
            continue
        found = {gpu.uuid: {name: float(rows[g, second]) for name, rows in values.items()}
                 for g, gpu in enumerate(gpus)}  # fmt: skip
        sent = {f"{way}_bytes_per_second": float(traffic[second]) for way in ("tx", "rx")}
        yield Tick(fleet.start + second + 1.0, 1.0, found, {port.key: sent for port in ports}, states, {})
