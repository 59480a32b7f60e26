"""The catalog as frozen values: GPUs, nodes and prices, with the source and date of every figure.

Rates are dense (never with sparsity), per GPU; bandwidths are bytes per second, links one way.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from msgspec import Meta

from ..base.typed import Amount, AsOf, Strict, Text

USD_PER_KWH_MAX = 5.0  # above any grid's price: then it is per MWh, or in another currency
GIB = 1024**3
MEMORY_SLICES, COMPUTE_SLICES = 8, 7  # of a GPU with MIG (NVIDIA MIG user guide)
_PROFILE = re.compile(r"(?:[1-7]c\.)?([1-7])g\.([0-9]{1,4})gb(?:\+.*)?")
# Memory slices by compute slices where the memory of the GPU is unknown; 1g exists with one and with two.
_MEMORY = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
Eta = Annotated[float, Meta(gt=0, le=1)]
Sms = Annotated[int, Meta(ge=1, le=2000)]


class FigureSource(Strict, frozen=True):
    """Source of a figure, the day it was read, and the grade of its verification (A, B or C)."""

    text: str
    as_of: str | None = None
    grade: str | None = None


class Achieved(Strict, frozen=True):
    """Measured share of the peak that real kernels sustain (eta, 0..1). None: not measured."""

    bf16_gemm: Eta | None = None
    fp8_gemm: Eta | None = None
    fp4_gemm: Eta | None = None
    mem: Eta | None = None
    link_allreduce: Eta | None = None
    fp32_gemm: Eta | None = None


class MigProfile(Strict, frozen=True):
    """A shape of MIG instances: its slices of compute and of memory (and bandwidth), and the SMs it really has."""

    compute_slices: Annotated[int, Meta(ge=1, le=COMPUTE_SLICES)]
    memory_slices: Annotated[int, Meta(ge=1, le=MEMORY_SLICES)]
    sm_count: Sms

    def name(self, mem_bytes: float) -> str:
        """The driver's name on a GPU with this memory: ``3g.40gb``."""
        return f"{self.compute_slices}g.{int(self.memory_slices * mem_bytes / MEMORY_SLICES / GIB + 0.5)}gb"


@dataclass(frozen=True, slots=True)
class GpuSku:
    """A GPU model. `dense_flops`: precision (fp64, fp32, fp16, bf16, fp8, int8, fp4) to FLOP/s or OP/s. `mig_profiles`:
    empty also where the SMs of its instances are unknown. `min_limit_watts`: the lowest limit of the driver; None:
    unknown. `xgmi_bytes_per_second`: Infinity Fabric between AMD GPUs of a node. `tensor_active_at_peak`: the tensor
    activity counter at the dense 16-bit rate, below 1 where the product is limited below the rate of its pipes."""

    name: str
    vendor: str
    architecture: str
    compute_capability: str
    sm_count: int
    boost_hertz: float
    tensor_reference_hertz: float
    dense_flops: Mapping[str, float]
    mem_bytes: int
    mem_bandwidth_bytes_per_second: float
    nvlink_bytes_per_second: float | None
    nvlink_links: int | None
    pcie_bytes_per_second: float
    tdp_watts: float
    mig_slices_max: int
    form_factor: str
    achieved: Achieved
    aliases: tuple[str, ...]
    source: FigureSource
    mig_profiles: tuple[MigProfile, ...] = ()
    min_limit_watts: float | None = None
    xgmi_bytes_per_second: float | None = None
    tensor_active_at_peak: float = 1.0

    @property
    def link_bytes_per_second(self) -> float | None:
        """All links of one GPU to the others of its node beside PCIe, one way; None: PCIe only."""
        return self.nvlink_bytes_per_second or self.xgmi_bytes_per_second

    @property
    def joined_on_board(self) -> bool:
        """Whether these links join all GPUs of a node: those of modules do, bridges between cards do not."""
        return bool(self.link_bytes_per_second) and not self.nvlink_by_bridge

    @property
    def link_name(self) -> str:
        """Name of these links; NVLink where there are none."""
        return "Infinity Fabric" if self.xgmi_bytes_per_second else "NVLink"

    @property
    def nvlink_by_bridge(self) -> bool:
        """Whether its NVLink is an optional bridge between two cards (H200 NVL: four)."""
        return bool(self.nvlink_bytes_per_second) and self.form_factor.startswith("PCIe")


@dataclass(frozen=True, slots=True)
class Fabric:
    """The network between nodes: bandwidth of the whole node, one way, and its NICs. None: no reliable source."""

    kind: str  # infiniband, roce, efa, tcpx, ethernet, none, unknown
    bytes_per_second: float | None
    nics: int | None
    rdma: bool | None


@dataclass(frozen=True, slots=True)
class Price:
    """A price of one whole node (`sku`) per hour. `basis`: list (on demand, from the catalog), owned, committed ...
    `committed_until`: ISO date until which the money is spent in any case. `region_assumed`: the node's region is
    unknown or has no price, and `region` replaces it."""

    id: str
    sku: str
    region: str
    usd_per_hour: Amount
    basis: str
    source: str
    as_of: str
    committed_until: str | None = None
    region_assumed: bool = False


class PowerPrice(Strict, frozen=True):
    """A team's price of electricity in a region (``global``: in all that have no price of their own)."""

    region: Text
    usd_per_kwh: Annotated[float, Meta(gt=0, le=USD_PER_KWH_MAX)]
    source: Text
    as_of: AsOf


@dataclass(frozen=True, slots=True)
class NodeSku:
    """A node type, by name ``provider/instance_type``. `gpu`: name in the catalog; `family`: the provider's series."""

    name: str
    provider: str
    instance_type: str
    gpu: str
    gpu_count: int
    intra_node_link: str  # nvswitch, nvlink-bridge, pcie, none, xgmi, unknown
    fabric: Fabric
    vcpus: int | None
    host_mem_bytes: int | None
    prices: tuple[Price, ...]
    source: FigureSource
    family: str | None = None


class Slices(NamedTuple):
    """Slices of a MIG instance: of seven for compute, of eight for memory."""

    compute: int
    memory: int

    @property
    def share(self) -> float:
        """The part of the GPU that others cannot use: the larger of both."""
        return max(self.compute / COMPUTE_SLICES, self.memory / MEMORY_SLICES)


def slices_of(profile: str | None, sku: GpuSku | None) -> Slices | None:
    """The slices of a profile as drivers write it (``3g.40gb``); None where it is not one."""
    for shape in sku.mig_profiles if sku is not None else ():
        if shape.name(sku.mem_bytes) == profile:  # type: ignore[union-attr]
            return Slices(shape.compute_slices, shape.memory_slices)
    match = _PROFILE.fullmatch(profile or "")
    if match is None or int(match[1]) not in _MEMORY:
        return None
    memory = _MEMORY[int(match[1])]
    if sku is not None and sku.mem_bytes > 0:
        # Names round the memory of an instance up or down by one.
        slices = round(float(match[2]) * GIB / (sku.mem_bytes / MEMORY_SLICES))
        memory = min(max(slices, 1), MEMORY_SLICES)
    return Slices(int(match[1]), memory)
