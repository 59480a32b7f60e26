"""What is simulated: nodes of the catalog with named GPUs and ports, and what each GPU sustains."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Self

import numpy as np
import numpy.typing as npt

from ...agent.model import FabricPort, Gpu, LinkLayer, Node
from ...rules.catalog.types import GpuSku, NodeSku
from ..core.fleet_identity import gpu_uuid, simulated_hex
from .seeded_rng import TABLES

_GPUS = TABLES["gpus"]
# Names and link layers of compute ports.
_PORTS: dict[str, tuple[str, LinkLayer]] = {
    "infiniband": ("mlx5_ib{}", "InfiniBand"),
    "efa": ("rdmap{}s0", "EFA"),
    "roce": ("mlx5_{}", "Ethernet"),
}


@dataclass(frozen=True, slots=True)
class SimGpu:
    """A GPU's peaks from the catalog and what it sustains of them (eta, 0..1). `node_gpus` share its host."""

    sku: GpuSku
    eta_compute: float
    eta_memory: float
    eta_link: float
    idle_watts: float
    mem_clock_hertz: float
    power_scale: float
    node_gpus: int

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

    @property
    def compute_ports(self) -> list[int]:
        return [i for i, port in enumerate(self.ports) if port.role == "compute"]

    @property
    def has_fabric(self) -> bool:
        """Whether the node has a separate network for the GPUs, which costs money and may be silent."""
        return self.sku.fabric.kind in _PORTS and bool(self.compute_ports)

    @property
    def host_mem_bytes(self) -> float:
        """1 TiB where the catalog does not know, the middle of 8-GPU nodes."""
        return float(self.sku.host_mem_bytes or 1024**4)

    @property
    def whole(self) -> tuple[int, ...]:
        """The indices of all its GPUs."""
        return tuple(range(self.sku.gpu_count))


def sim_node(name: str, sku: NodeSku, gpu: GpuSku, mark: str, *, tcp_port_counted: bool = False) -> SimNode:
    """A node called `name` of the fleet with this mark. Without RDMA it has no port in the fabric's views, as a real
    agent would find none, unless its Ethernet NIC is configured as its compute port (`tcp_port_counted`)."""
    region = sku.prices[0].region if sku.prices else None
    # What was measured of the GPU, else what is assumed.
    small = _GPUS["small"] if gpu.tdp_watts < _GPUS["small"]["watts"] else {}
    assumed = _GPUS | {"power_scale": 1.0, "idle_power": _GPUS["idle_powers"].get(gpu.architecture, 0.12)} | small
    sustained = SimGpu(
        sku=gpu,
        eta_compute=gpu.achieved.bf16_gemm or assumed["eta_compute"],
        eta_memory=gpu.achieved.mem or assumed["eta_memory"],
        eta_link=gpu.achieved.link_allreduce or assumed["eta_link"],
        idle_watts=assumed["idle_power"] * gpu.tdp_watts,
        mem_clock_hertz=_GPUS["memory_clock"].get(gpu.architecture, 2619) * 1e6,
        power_scale=assumed["power_scale"],
        node_gpus=sku.gpu_count,
    )
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
    gpus = tuple(
        Gpu(
            uuid=gpu_uuid(mark, name, index),
            index=index,
            name=_GPUS["driver_names"].get(gpu.name, f"NVIDIA {gpu.name}"),
            sku=gpu.name,
            pci_bus_id=f"0000000{index // 4}:{0x10 + 0x10 * (index % 4):02X}:00.0",
            mem_total_bytes=gpu.mem_bytes,
            power_limit_watts=gpu.tdp_watts,
            nvlink_links=gpu.nvlink_links,
            nvlink_bytes_per_second=gpu.nvlink_bytes_per_second,
            driver_version="580.105.08",
        )
        for index in range(sku.gpu_count)
    )
    return SimNode(node, sku, sustained, gpus, _ports(sku, tcp_port_counted))


def _ports(sku: NodeSku, tcp_port_counted: bool) -> tuple[FabricPort, ...]:
    fabric = sku.fabric
    if fabric.bytes_per_second is None:
        return ()
    if fabric.kind not in _PORTS:
        counted = FabricPort("mlx5_0", 1, "compute", "Ethernet", fabric.bytes_per_second)
        return (counted,) if tcp_port_counted else ()
    device, link_layer = _PORTS[fabric.kind]
    nics = fabric.nics or 1
    ports = [
        FabricPort(device.format(i), 1, "compute", link_layer, fabric.bytes_per_second / nics) for i in range(nics)
    ]
    if fabric.kind == "infiniband":  # beside it an Ethernet NIC for storage: its traffic must hide nothing
        ports.append(FabricPort("mlx5_an0", 1, "storage", "Ethernet", 12.5e9))
    return tuple(ports)


Floats = npt.NDArray[np.float64]

PER_GPU = (
    "compute", "memory", "vector", "sm", "occupancy", "engine", "nvlink", "pcie_tx", "pcie_rx", "fabric_tx",
    "fabric_rx", "mem_used_bytes", "resident", "context_power", "clock_loss", "throttle", "cap_loss", "heat", "blind",
)  # fmt: skip
PER_HOST = ("cpu", "io_wait", "disk_read", "disk_write", "storage_tx", "storage_rx", "host_mem")


class Load(SimpleNamespace):
    """Demand at n seconds on g GPUs, 0 at first: `PER_GPU` (g, n), or (1, n) where all do the same, `PER_HOST` (n,).

    `compute` and `memory` are relative to what the SKU sustains (u in the advice's terms: 1 is the roofline's corner),
    `nvlink` and `pcie` are bytes per second and GPU, `fabric_*` a share of the compute ports' line rate. `resident`
    says whether a context is held, `context_power` by how much that lifts idle power.

    What slows a GPU from outside: `clock_loss` is the share of the SM clock taken away, `throttle` NVML's bits that say
    why, `cap_loss` the share by which somebody set the power limit below the SKU's, `heat` degrees beyond what its own
    power explains. `blind` is 1 where the profiling counters stand at zero whatever runs.
    """

    def __init__(self, gpus: int, seconds: int) -> None:
        shapes = dict.fromkeys(PER_GPU, (gpus, seconds)) | dict.fromkeys(PER_HOST, (seconds,))
        super().__init__(**{name: np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()})

    def place(self, other: "Load", gpus: list[int], where: slice | npt.NDArray[np.bool_]) -> None:
        """Put `other` on these GPUs of this node's load, at these seconds; host demand adds up."""
        for name in PER_GPU:
            getattr(self, name)[gpus, where] = getattr(other, name)
        for name in PER_HOST:
            getattr(self, name)[where] += getattr(other, name)


class Model(SimpleNamespace):
    """A workload's behaviour, pure in time, so that any second can be asked for. Parameters are named as drawn."""

    def but(self, **changed: object) -> Self:
        """The same with some parameters changed."""
        return type(self)(**(vars(self) | changed))

    def with_context(self, seconds: int) -> Load:
        """A load in which nothing but a context is held, by `context_power`."""
        load = Load(1, seconds)
        load.resident[:], load.context_power[:] = 1.0, self.context_power
        return load

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        """Demand in the seconds that end at `t` (Unix seconds), `age` seconds after the (re)start, per GPU and node."""
        raise NotImplementedError
