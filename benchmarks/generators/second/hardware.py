"""The hardware of the second generator: peaks from data sheets, sustained shares from published measurements.

Nobody published what matrix products sustain on L4, A10G and T4: theirs are assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from skuwise.agent.model import FabricPort, Gpu, Node

GB = 1e9


@dataclass(frozen=True, slots=True)
class Part:
    """A GPU. Rates per second; `eta_*`: the share of the peak that kernels reach; `gpm`: the driver tells profiling
    metrics without DCGM."""

    sku: str
    driver_name: str
    flops: float
    eta_compute: float
    mem_bytes: float
    bandwidth: float
    eta_memory: float
    nvlink: float
    eta_link: float
    pcie: float
    watts: float
    idle_watts: float
    boost_hertz: float
    reference_hertz: float
    mem_hertz: float


_PARTS = (
    Part("H100-SXM5", "NVIDIA H100 80GB HBM3", 989e12,
         0.82, 85.5e9, 3.35e12, 0.88, 450e9, 0.77, 63e9, 700, 72, 1.98e9, 1.83e9, 2.619e9),
    Part("H200-SXM", "NVIDIA H200", 989e12,
         0.82, 150.7e9, 4.8e12, 0.85, 450e9, 0.77, 63e9, 700, 78, 1.98e9, 1.83e9, 3.201e9),
    Part("A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", 312e12,
         0.80, 85.8e9, 2.039e12, 0.77, 300e9, 0.75, 31.5e9, 400, 58, 1.41e9, 1.41e9, 1.593e9),
    Part("B200-SXM", "NVIDIA B200", 2250e12,
         0.73, 191e9, 7.7e12, 0.83, 900e9, 0.75, 63e9, 1000, 140, 1.965e9, 1.85e9, 3.996e9),
    Part("L40S", "NVIDIA L40S", 362e12,
         0.73, 48.3e9, 864e9, 0.84, 0, 1, 31.5e9, 350, 34, 2.52e9, 2.52e9, 9.001e9),
    Part("L4", "NVIDIA L4", 121e12,
         0.60, 24.1e9, 300e9, 0.78, 0, 1, 31.5e9, 72, 16, 2.04e9, 2.04e9, 6.251e9),
    Part("A10G", "NVIDIA A10G", 70e12,
         0.75, 24.1e9, 600e9, 0.82, 0, 1, 31.5e9, 300, 22, 1.71e9, 1.71e9, 6.251e9),
    Part("T4", "Tesla T4", 65e12,
         0.48, 16.1e9, 300e9, 0.77, 0, 1, 15.75e9, 70, 10, 1.59e9, 1.59e9, 5.001e9),
)  # fmt: skip
PARTS = {part.sku: part for part in _PARTS}


@dataclass(frozen=True, slots=True)
class Host:
    """A kind of node: `nics` ports of `nic_rate` bytes per second each between nodes; `fabric`: what they are."""

    node_sku: str
    part: Part
    gpus: int
    fabric: str
    nics: int
    nic_rate: float
    region: str

    @property
    def fabric_per_gpu(self) -> float:
        return self.nics * self.nic_rate / self.gpus


HOSTS = {
    "h100": Host("coreweave/gd-8xh100ib-i128", PARTS["H100-SXM5"], 8, "infiniband", 8, 50 * GB, "us-east-04"),
    "h200": Host("azure/Standard_ND96isr_H200_v5", PARTS["H200-SXM"], 8, "infiniband", 8, 50 * GB, "eastus"),
    "a100": Host("crusoe/a100-80gb-sxm-ib.8x", PARTS["A100-SXM4-80GB"], 8, "infiniband", 8, 25 * GB, "us-east1-a"),
    "b200": Host("gcp/a4-highgpu-8g", PARTS["B200-SXM"], 8, "roce", 8, 50 * GB, "us-central1"),
    "h100-eth": Host("azure/Standard_ND96is_H100_v5", PARTS["H100-SXM5"], 8, "ethernet", 1, 10 * GB, "eastus"),
    "l40s": Host("massedcompute/L40Sx8", PARTS["L40S"], 8, "none", 0, 0.0, "us"),
    "l4": Host("gcp/g2-standard-96", PARTS["L4"], 8, "none", 0, 0.0, "us-central1"),
    "a10g": Host("aws/g5.48xlarge", PARTS["A10G"], 8, "none", 0, 0.0, "us-east-1"),
    "t4": Host("azure/Standard_NC64as_T4_v3", PARTS["T4"], 4, "none", 0, 0.0, "eastus"),
}


@dataclass(frozen=True, slots=True)
class Machine:
    """A node by name, in the store's identities."""

    name: str
    host: Host
    node: Node
    gpus: tuple[Gpu, ...]
    ports: tuple[FabricPort, ...]


def machine(name: str, host: Host, cluster: str) -> Machine:
    """A node called `name`."""
    digest = sha256(name.encode()).hexdigest()
    node = Node(
        name, cluster, machine_id=digest[:32], boot_id=digest[32:], provider=host.node_sku.partition("/")[0],
        region=host.region, instance_type=host.node_sku.partition("/")[2], node_sku=host.node_sku,
        node_sku_source="metadata", gpu_count=host.gpus, agent_version="second",
    )  # fmt: skip
    return Machine(name, host, node, tuple(_gpu(name, i, host.part) for i in range(host.gpus)), _ports(host))


def _gpu(name: str, index: int, part: Part) -> Gpu:
    d = sha256(f"{name}/{index}".encode()).hexdigest()
    return Gpu(
        f"GPU-{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:32]}", index, part.driver_name, sku=part.sku,
        pci_bus_id=f"00000000:{0x18 + 8 * index:02X}:00.0", mem_total_bytes=int(part.mem_bytes),
        power_limit_watts=part.watts, nvlink_links=18 if part.nvlink else None,
        nvlink_bytes_per_second=part.nvlink or None, driver_version="575.57.08",
    )  # fmt: skip


def _ports(host: Host) -> tuple[FabricPort, ...]:
    layer = "InfiniBand" if host.fabric == "infiniband" else "Ethernet"
    compute = tuple(FabricPort(f"mlx5_{i}", 1, "compute", layer, host.nic_rate) for i in range(host.nics))
    # A storage NIC beside the fabric, whose traffic says nothing about the fabric.
    return (*compute, FabricPort("mlx5_bond_0", 1, "storage", "Ethernet", 12.5 * GB)) if host.nics > 1 else compute
