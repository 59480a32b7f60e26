"""node_exporter: its names, labels and units for what an adviser needs of a host.

Rests on: node_exporter's collectors uname, dmi, cpu, meminfo, diskstats, infiniband and netclass (InfiniBand counters
in bytes, rate in bytes per second; node_network_speed_bytes -125000 where a speed is unknown, its issue 1967; absent
where the driver gives none, amzn-drivers issue 289). Simplified: CORES logical processors whatever the machine has, and
the four modes of time that are not nearly 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
from skuwise.tests.server_metrics.prometheus_series import Series

from .behaviors import Activity, Floats
from .description import Node
from .names import unique
from .world import Target, World, address, target

CORES = 8
UNKNOWN_SPEED = -125000.0


def host_address(node: Node) -> str:
    return address("host", node.name)


def node_exporter(world: World, node: Node, rng: np.random.Generator) -> Iterator[Series]:
    if not node.observed.node_exporter:
        return
    instance = f"{host_address(node) if node.observed.kube else node.name}:9100"
    at = target(world.fleet, world.clock, "node-exporter" if node.observed.kube else "node", instance, rng)
    busy = _busy(world, node)
    yield from identity(node, at)
    yield from _host(world, node, at, busy, rng)
    yield from _ethernet(world, node, at, busy, rng)
    if node.machine.fabric == "infiniband":
        yield from _infiniband(world, node, at, busy, rng)


def _busy(world: World, node: Node) -> dict[str, Floats]:
    """Sums over the GPUs of a node. A slice is charged as a seventh or more of its GPU."""
    total: dict[str, Floats] = {one.name: np.zeros(world.clock.count) for one in fields(Activity)}
    for hold, held in world.on(node):
        share = 1.0
        if hold.instance is not None:
            share = max(node.gpu.slices[s.profile][0] for s in node.sliced(hold.gpu) if s.instance == hold.instance) / 7
        for name, so_far in total.items():
            total[name] = so_far + share * getattr(held.activity, name)
    return total


def identity(node: Node, at: Target) -> Iterator[Series]:
    uname = {
        "nodename": node.name, "sysname": "Linux", "machine": "x86_64", "release": "5.15.0-1066-generic",
        "version": "#75-Ubuntu SMP", "domainname": "(none)",
    }  # fmt: skip
    yield at.series("node_uname_info", uname, 1.0)
    yield at.series("node_dmi_info", node.machine.dmi, 1.0)


def _counter(world: World, rate: Floats, rng: np.random.Generator) -> Floats:
    return np.floor(np.cumsum(rate * world.clock.interval_s) + rng.uniform(1e9, 1e12))


def _host(world: World, node: Node, at: Target, busy: dict[str, Floats], rng: np.random.Generator) -> Iterator[Series]:
    count, interval = world.clock.count, world.clock.interval_s
    used = np.clip(0.015 + busy["cpu"] / node.machine.gpus, 0.0, 0.985)
    for core in range(CORES):
        mine = np.clip(used * (1 + 0.1 * rng.standard_normal(count)), 0.0, 0.99)
        parts = {"user": 0.8 * mine, "system": 0.17 * mine, "iowait": 0.03 * mine, "idle": 1 - mine}
        for mode, share in parts.items():
            total = np.round(np.cumsum(share * interval) + rng.uniform(1e4, 1e6), 2)
            yield at.series("node_cpu_seconds_total", {"cpu": str(core), "mode": mode}, total)
    memory = node.machine.memory_gib * 2**30 * 0.985
    taken = np.clip(0.02 + 0.25 * busy["context"] / node.machine.gpus, 0, 0.9) * memory
    taken *= 1 + 0.01 * rng.standard_normal(count)
    yield at.series("node_memory_MemTotal_bytes", {}, float(int(memory)))
    yield at.series("node_memory_MemAvailable_bytes", {}, np.floor(memory - taken))
    yield at.series("node_memory_MemFree_bytes", {}, np.floor((memory - taken) * 0.7))
    noise = 1 + 0.2 * rng.random(count)
    disk = {"device": "nvme0n1"}
    yield at.series("node_disk_read_bytes_total", disk, _counter(world, (busy["disk_read"] + 2e4) * noise, rng))
    yield at.series("node_disk_written_bytes_total", disk, _counter(world, (busy["disk_write"] + 3e5) * noise, rng))


def _ethernet(
    world: World, node: Node, at: Target, busy: dict[str, Floats], rng: np.random.Generator
) -> Iterator[Series]:
    machine = node.machine
    fabric = busy["wire"] / machine.gpus if machine.fabric == "ethernet" else 0.0
    for number, device in enumerate(machine.ethernet):
        base = busy["web"] / len(machine.ethernet) + 3e4 + fabric * machine.ethernet_bytes_per_second
        for name in ("receive", "transmit"):
            rate = base * (1 + 0.05 * rng.standard_normal(world.clock.count)).clip(0.5, 1.2)
            rate = np.minimum(rate, machine.ethernet_bytes_per_second * 0.985)
            yield at.series(f"node_network_{name}_bytes_total", {"device": device}, _counter(world, rate, rng))
        mac = unique("mac", node.name, number).replace("-", "")
        labels = {
            "device": device, "operstate": "up", "adminstate": "up", "duplex": "full",
            "address": ":".join(mac[k : k + 2] for k in range(0, 12, 2)), "broadcast": "ff:ff:ff:ff:ff:ff",
        }  # fmt: skip
        yield at.series("node_network_info", labels, 1.0)
        if machine.ethernet_speed != "absent":
            told = machine.ethernet_bytes_per_second if machine.ethernet_speed == "told" else UNKNOWN_SPEED
            yield at.series("node_network_speed_bytes", {"device": device}, told)
    for name in ("receive", "transmit"):
        local = np.full(world.clock.count, 2e5)
        yield at.series(f"node_network_{name}_bytes_total", {"device": "lo"}, _counter(world, local, rng))


def _infiniband(
    world: World, node: Node, at: Target, busy: dict[str, Floats], rng: np.random.Generator
) -> Iterator[Series]:
    machine = node.machine
    share = busy["wire"] / machine.gpus
    for number in range(machine.fabric_ports):
        port = {"device": f"mlx5_{number}", "port": "1"}
        for name in ("received", "transmitted"):
            noise = (1 + 0.04 * rng.standard_normal(world.clock.count)).clip(0.7, 1.2)
            # A silent port still answers its subnet manager.
            rate = np.minimum(share * noise, 0.97) * machine.port_bytes_per_second + 40.0
            counter = _counter(world, rate, rng)
            yield at.series(f"node_infiniband_port_data_{name}_bytes_total", port, counter)
        yield at.series("node_infiniband_rate_bytes_per_second", port, machine.port_bytes_per_second)
        yield at.series("node_infiniband_state_id", port, 4.0)
        info = {"device": port["device"], "board_id": "MT_0000000838", "firmware_version": "28.39.2048",
                "hca_type": "MT4129"}  # fmt: skip
        yield at.series("node_infiniband_info", info, 1.0)
