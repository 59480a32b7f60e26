"""What is simulated: nodes of the catalog with named GPUs and ports, and what each GPU sustains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ...agent.model import FabricPort, Gpu, Node
from ...rules.catalog.types import GpuSku, NodeSku
from ..core.simulated_ids import gpu_uuid, simulated_hex

# What real kernels sustain where the catalog has no measurement: the middle of the measured etas of data-centre parts
# (BF16 GEMM 0.73-0.91, HBM 0.77-0.92, NVLink all-reduce 0.66-0.80).
_ETA_COMPUTE, _ETA_MEMORY, _ETA_LINK = 0.80, 0.85, 0.73
# Cards of 70 W cannot keep their clock: T4 sustains 48 % of its FP32 peak, L4 28 % (NeuSight, GEMM). Nobody published
# their tensor rate; half of the peak is assumed for both.
_ETA_COMPUTE_SMALL, _SMALL_WATTS = 0.50, 100
# Such a card reaches its limit below full use of its parts; others stay under it with real mixes of work.
_POWER_SCALE_SMALL = 1.35

# How a node's agent reads what kernels do: GPM (Hopper and newer), a dcgm-exporter that was set to one second, one at
# its own 30 s with all fields or with its default list, or the driver's gauges alone.
Sensing = Literal["gpm", "dcgm-1s", "dcgm", "dcgm-default", "nvml"]

# Share of the power limit that a GPU draws with no context: 70 of 700 W on H100, 33 of 350 W on L40S, 55 of 400 W on
# A100, 10-13 of 70-72 W on T4 and L4 (nvidia-smi on idle nodes).
_IDLE_POWER_SHARE = {"Turing": 0.14, "Ampere": 0.14, "Ada": 0.095, "Hopper": 0.10, "Blackwell": 0.12}
# Memory clocks that nvidia-smi -q -d CLOCK prints, MHz.
_MEM_CLOCK_MHZ = {"Turing": 5001, "Ampere": 1593, "Ada": 9001, "Hopper": 2619, "Blackwell": 3996}
_DRIVER_NAME = {
    "H100-SXM5": "NVIDIA H100 80GB HBM3",
    "H200-SXM": "NVIDIA H200",
    "A100-SXM4-80GB": "NVIDIA A100-SXM4-80GB",
    "A100-SXM4-40GB": "NVIDIA A100-SXM4-40GB",
    "A100-PCIe-80GB": "NVIDIA A100 80GB PCIe",
    "A10G": "NVIDIA A10G",
    "B200-SXM": "NVIDIA B200",
    "L4": "NVIDIA L4",
    "L40S": "NVIDIA L40S",
    "T4": "Tesla T4",
}

_WITH_GPM = frozenset({"Hopper", "Blackwell"})
# Memory slices (of eight) of an instance by its compute slices (of seven): NVIDIA's MIG user guide, A100 and H100.
MEMORY_SLICES = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}


@dataclass(frozen=True, slots=True)
class SimGpu:
    """A GPU's peaks from the catalog and what it sustains of them (eta, 0..1)."""

    sku: GpuSku
    eta_compute: float
    eta_memory: float
    eta_link: float
    idle_watts: float
    mem_clock_hertz: float
    power_scale: float = 1.0
    node_gpus: int = 8  # whose host it shares

    @property
    def nvlink(self) -> float:
        """One-way NVLink, bytes per second; 0 without."""
        return self.sku.nvlink_bytes_per_second or 0.0

    @property
    def sustained_flops(self) -> float:
        """BF16 FLOP/s that large matrix products reach; FP16 on parts without BF16."""
        return self.sku.dense_flops.get("bf16", self.sku.dense_flops["fp16"]) * self.eta_compute

    @property
    def sustained_bandwidth(self) -> float:
        """Bytes per second that memory-bound kernels reach."""
        return self.sku.mem_bandwidth_bytes_per_second * self.eta_memory


@dataclass(frozen=True, slots=True)
class SimNode:
    """One node of the fleet: the store's identities, and its SKU."""

    node: Node
    sku: NodeSku
    gpu: SimGpu
    gpus: tuple[Gpu, ...]
    ports: tuple[FabricPort, ...]
    sensing: Sensing

    @property
    def has_slices(self) -> bool:
        """Whether a GPU is in MIG mode."""
        return any(gpu.kind == "mig" for gpu in self.gpus)

    @property
    def sliced(self) -> npt.NDArray[np.bool_]:
        """By device: whether it is a GPU that is cut into instances."""
        parents = {gpu.parent_uuid for gpu in self.gpus}
        return np.array([gpu.uuid in parents for gpu in self.gpus])

    @property
    def fabric_bytes_per_gpu(self) -> float:
        """The compute ports' line rate for each GPU, bytes per second; 0 where no port is seen."""
        rates = [self.ports[i].line_rate_bytes_per_second or 0.0 for i in self.compute_ports]
        return sum(rates) / self.sku.gpu_count

    @property
    def compute_ports(self) -> tuple[int, ...]:
        return tuple(i for i, port in enumerate(self.ports) if port.role == "compute")


def sim_gpu(sku: GpuSku, node_gpus: int) -> SimGpu:
    """The catalog's GPU with its etas, and the assumptions above where nobody measured them."""
    achieved = sku.achieved
    small = sku.tdp_watts < _SMALL_WATTS
    return SimGpu(
        sku=sku,
        eta_compute=achieved.bf16_gemm or (_ETA_COMPUTE_SMALL if small else _ETA_COMPUTE),
        eta_memory=achieved.mem or _ETA_MEMORY,
        eta_link=achieved.link_allreduce or _ETA_LINK,
        idle_watts=(0.16 if small else _IDLE_POWER_SHARE.get(sku.architecture, 0.12)) * sku.tdp_watts,
        mem_clock_hertz=_MEM_CLOCK_MHZ.get(sku.architecture, 2619) * 1e6,
        power_scale=_POWER_SCALE_SMALL if small else 1.0,
        node_gpus=node_gpus,
    )


def sim_node(
    name: str,
    sku: NodeSku,
    gpu: GpuSku,
    *,
    tcp_port_counted: bool = False,
    sensing: Sensing | None = None,
    instances: tuple[int, ...] = (),
) -> SimNode:
    """A node called `name`.

    `sensing`: None for GPM where the GPU has it, else a dcgm-exporter at 1 s. `instances`: compute slices of the MIG
    instances into which every GPU is cut.

    `tcp_port_counted`: the node's Ethernet NIC is configured as its compute port and its counters see all traffic.
    Without it a node without RDMA has no port in the fabric's views, as a real agent would find none.
    """
    region = sku.prices[0].region if sku.prices else None
    node = Node(
        node=name,
        cluster="-".join(part for part in (sku.provider, region) if part),
        machine_id=simulated_hex("machine", name)[:32],
        boot_id=simulated_hex("boot", name)[:32],
        provider=sku.provider,
        region=region,
        instance_type=sku.instance_type,
        node_sku=sku.name,
        node_sku_source="metadata",
        gpu_count=sku.gpu_count,
        agent_version="simulated",
    )
    gpus = tuple(_gpu(name, index, gpu) for index in range(sku.gpu_count))
    cut = tuple(_instance(whole, gpu, number, size) for whole in gpus for number, size in enumerate(instances))
    sensing = sensing or ("gpm" if gpu.architecture in _WITH_GPM else "dcgm-1s")
    return SimNode(node, sku, sim_gpu(gpu, sku.gpu_count), (*gpus, *cut), _ports(sku, tcp_port_counted), sensing)


def _gpu(node: str, index: int, sku: GpuSku) -> Gpu:
    return Gpu(
        uuid=gpu_uuid(node, index),
        index=index,
        name=_DRIVER_NAME.get(sku.name, f"NVIDIA {sku.name}"),
        sku=sku.name,
        pci_bus_id=f"0000000{index // 4}:{0x10 + 0x10 * (index % 4):02X}:00.0",
        mem_total_bytes=sku.mem_bytes,
        power_limit_watts=sku.tdp_watts,
        nvlink_links=sku.nvlink_links,
        nvlink_bytes_per_second=sku.nvlink_bytes_per_second,
        driver_version="580.105.08",
    )


def _instance(parent: Gpu, sku: GpuSku, number: int, slices: int) -> Gpu:
    digest = simulated_hex("mig", parent.uuid, str(number))
    eighths = MEMORY_SLICES[slices]
    profile = f"{slices}g.{round(sku.mem_bytes * eighths / 8 / 1e9 / 5) * 5}gb"
    return Gpu(
        uuid=f"MIG-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}",
        index=parent.index,
        name=f"{parent.name} MIG {profile}",
        sku=sku.name,
        kind="mig",
        parent_uuid=parent.uuid,
        slices=slices,
        mig_profile=profile,
        pci_bus_id=parent.pci_bus_id,
        mem_total_bytes=int(sku.mem_bytes * eighths / 8),
        driver_version=parent.driver_version,
    )


def _ports(sku: NodeSku, tcp_port_counted: bool) -> tuple[FabricPort, ...]:
    fabric = sku.fabric
    if fabric.bytes_per_second is None:
        return ()
    nics = fabric.nics or 1
    rate = fabric.bytes_per_second / nics
    if fabric.kind == "infiniband":
        compute = tuple(FabricPort(f"mlx5_ib{i}", 1, "compute", "InfiniBand", rate) for i in range(nics))
        # Beside the fabric there is an Ethernet NIC for storage: its traffic must hide nothing.
        return (*compute, FabricPort("mlx5_an0", 1, "storage", "Ethernet", 12.5e9))
    if fabric.kind == "efa":
        return tuple(FabricPort(f"rdmap{i}s0", 1, "compute", "EFA", rate) for i in range(nics))
    if fabric.kind == "roce":
        return tuple(FabricPort(f"mlx5_{i}", 1, "compute", "Ethernet", rate) for i in range(nics))
    if tcp_port_counted:
        return (FabricPort("mlx5_0", 1, "compute", "Ethernet", fabric.bytes_per_second),)
    return ()
