"""The catalog: GPUs, nodes and prices as frozen values, with the source and date of every figure.

Read from ``rules/gpus/*.yaml`` (by vendor) and ``rules/nodes/*.yaml`` (by provider) through `yaml_loader`.
Rates are dense (never with sparsity), per GPU; bandwidths are bytes per second, links one way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from ..base.typed import Amount, Day, Text


@dataclass(frozen=True, slots=True)
class FigureSource:
    """Where a figure comes from: who says so, when it was read, and how far it was verified (A, B or C)."""

    text: str
    as_of: str | None = None
    grade: str | None = None


# No grid sells a kWh for more: what is above this is per MWh, or in another currency's small coin.
USD_PER_KWH_MAX = 5.0
MEMORY_SLICES = 8  # the memory of a GPU with MIG is cut into eighths
Eta = Annotated[float, Meta(gt=0, le=1)]


@dataclass(frozen=True, slots=True)
class Achieved:
    """Measured share of the peak that real kernels sustain (eta, 0..1). None: nobody measured it here."""

    bf16_gemm: Eta | None = None
    fp8_gemm: Eta | None = None
    fp4_gemm: Eta | None = None
    mem: Eta | None = None
    link_allreduce: Eta | None = None
    fp32_gemm: Eta | None = None


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One way to cut a slice: the SMs it really has and its eighths of memory (and with them of the bandwidth)."""

    compute_slices: Annotated[int, Meta(ge=1, le=7)]
    memory_slices: Annotated[int, Meta(ge=1, le=MEMORY_SLICES)]
    sm_count: Annotated[int, Meta(ge=1, le=2000)]

    def name(self, mem_bytes: float) -> str:
        """As drivers write it, for a GPU with so much memory: ``3g.40gb``."""
        return f"{self.compute_slices}g.{int(self.memory_slices * mem_bytes / MEMORY_SLICES / 1024**3 + 0.5)}gb"


@dataclass(frozen=True, slots=True)
class GpuSku:
    """One GPU. `dense_flops` maps precision (fp64, fp32, fp16, bf16, fp8, int8, fp4) to FLOP/s or OP/s.

    `mig_profiles`: empty where the GPU has no MIG, or nobody listed the SMs of its instances. `min_limit_watts`: the
    lowest power limit that its driver takes; None: nobody told it.
    `xgmi_bytes_per_second`: of Infinity Fabric between AMD GPUs of one node, as `nvlink_bytes_per_second`.
    `tensor_active_at_peak`: what the counter of tensor activity reads at the dense 16-bit rate (0..1): below 1 where
    the pipe could issue more than the product is allowed to.
    """

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
    xgmi_links: int | None = None
    tensor_active_at_peak: float = 1.0

    @property
    def link_bytes_per_second(self) -> float | None:
        """Between the GPUs of one node beside PCIe, of all links of one GPU, one way; None: they have PCIe alone."""
        return self.nvlink_bytes_per_second or self.xgmi_bytes_per_second

    @property
    def joined_on_board(self) -> bool:
        """Whether such a link joins all GPUs of a node: those of modules do, bridges between cards do not."""
        return bool(self.link_bytes_per_second) and not self.nvlink_by_bridge

    @property
    def link_name(self) -> str:
        """What that link is called; of a GPU without one, what it would be."""
        return "Infinity Fabric" if self.xgmi_bytes_per_second else "NVLink"

    @property
    def nvlink_by_bridge(self) -> bool:
        """Whether its NVLink is a bridge that joins two cards (of H200 NVL four), where somebody put one in: modules on
        a board are always joined."""
        return bool(self.nvlink_bytes_per_second) and self.form_factor.startswith("PCIe")


@dataclass(frozen=True, slots=True)
class Fabric:
    """The network between nodes. `bytes_per_second` is the whole node's, one way; `nics` the count of its NICs.

    None: no source that can be relied on says so. `kind` unknown: the provider's source names no fabric.
    """

    kind: str  # infiniband, roce, efa, tcpx, ethernet, none, unknown
    bytes_per_second: float | None
    nics: int | None
    rdma: bool | None


@dataclass(frozen=True, slots=True)
class Price:
    """A price of one whole node (`sku`) per hour, in US dollars.

    `basis`: list (on demand, from the catalog), reserved, owned, committed ... (from a team's price file).
    `committed_until`: an ISO date up to which the money is spent whatever happens. `region_assumed`: `region` is not
    known to be the node's: it stands in for one that is not known, or that has no price.
    """

    id: str
    sku: str
    region: str
    usd_per_hour: Amount
    basis: str
    source: str
    as_of: str
    committed_until: str | None = None
    region_assumed: bool = False


@dataclass(frozen=True, slots=True)
class PowerPrice:
    """What a team pays for electricity in one region (``global``: in all that have no price of their own)."""

    region: Text
    usd_per_kwh: Annotated[float, Meta(gt=0, le=USD_PER_KWH_MAX)]
    source: Text
    as_of: Day


@dataclass(frozen=True, slots=True)
class NodeSku:
    """One rentable node. `name` is ``provider/instance_type``; `gpu` is a name in the GPU catalog.

    `family`: the provider's series; those of one family and host but another fabric are twins (`Catalog.fabric_twins`).
    """

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


COMPUTE_SLICES = 7
_PROFILE = re.compile(r"(?:[1-7]c\.)?([1-7])g\.([0-9]{1,4})gb(?:\+.*)?")
# Memory slices by compute slices where the memory of the GPU is not known; 1g exists with one and with two.
_MEMORY = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices of an instance: of seven for compute, of eight for memory."""

    compute: int
    memory: int

    @property
    def share(self) -> float:
        """The part of the GPU that nobody else can have."""
        return max(self.compute / COMPUTE_SLICES, self.memory / MEMORY_SLICES)


def slices_of(profile: str | None, sku: GpuSku | None) -> Slices | None:
    """The slices of a profile as drivers write it (``3g.40gb``); None where it is not one."""
    if profile is None:
        return None
    for mig_profile in sku.mig_profiles if sku is not None else ():
        if mig_profile.name(sku.mem_bytes) == profile:  # type: ignore[union-attr]
            return Slices(mig_profile.compute_slices, mig_profile.memory_slices)
    match = _PROFILE.fullmatch(profile)
    if match is None or int(match.group(1)) not in _MEMORY:
        return None
    compute = int(match.group(1))
    memory = _MEMORY[compute]
    if sku is not None and sku.mem_bytes > 0:
        # Names round the memory of an instance up or down by one.
        part = float(match.group(2)) * 1024**3 / (sku.mem_bytes / MEMORY_SLICES)
        memory = min(max(round(part), 1), MEMORY_SLICES)
    return Slices(compute, memory)


def shares(slices: Sequence[Slices | None]) -> list[float]:
    """The part of its GPU that each of the instances is that are there at once; together at most 1. An instance of
    which nothing is known has an equal share of what the others leave."""
    known = [slice_.share if slice_ is not None else 0.0 for slice_ in slices]
    unknown = sum(one is None for one in slices)
    total = sum(known)
    if total > 1:
        known, total = [one / total for one in known], 1.0
    rest = (1.0 - total) / unknown if unknown else 0.0
    return [part if one is not None else rest for one, part in zip(slices, known, strict=True)]
