"""What a GPU sustains, in base units: measured efficiencies of the catalog, else assumptions that say so."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...rules.catalog.types import GpuSku

# Peak by precision asked for: the first that the GPU has. Four-bit integers are weights only: they compute in 16 bits.
_PEAKS = {
    "fp64": ("fp64",),
    "fp32": ("fp32",),
    "bf16": ("bf16", "fp16"),
    "fp16": ("fp16", "bf16"),
    "fp8": ("fp8", "bf16", "fp16"),
    "int8": ("int8", "fp16"),
    "fp4": ("fp4", "fp8", "bf16", "fp16"),
    "int4": ("bf16", "fp16"),
}
# Bytes of one weight.
BYTES = {"fp64": 8.0, "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5, "int4": 0.5}
PRECISIONS = tuple(_PEAKS)

# The part of each architecture that was measured, for its siblings without a published figure.
_MEASURED = {"hopper": (0.82, 989.4e12 / 700), "ampere": (0.80, 312e12 / 400), "ada": (0.73, 362e12 / 350),
             "blackwell": (0.73, 2250e12 / 1000)}  # fmt: skip
_OTHER = 0.60  # an architecture of which no figure is known at all
_FP32 = 0.75  # SGEMM: 0.73 on H100, 0.88 on A100, 0.28 on L4 (which its 72 W limit)
_MEMORY = 0.84  # the middle of 0.77 to 0.92
_CLOCK_LIMITS = (0.8, 1.25)
_LINK = 0.70  # NVLink all-reduce, measured at 0.66 to 0.80
# Share of PCIe's one-way rate that an all-reduce reaches between GPUs of one node: L40S measured 0.63 with two GPUs and
# about 0.55 under TensorRT-LLM 0.12 with tensor parallelism of 4 and 8, RTX PRO 6000 0.40 (hosts differ much).
PCIE_ALL_REDUCE = 0.55


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one GPU: FLOP/s of matrix products and of vector work, bytes/s of memory and of PCIe, the clock. `all_reduce`:
    bus bandwidth between the GPUs of one node. `assumed`: unpublished figures, in words."""

    matrix: float
    vector: float
    memory: float
    all_reduce: float
    pcie: float
    clock_hertz: float
    assumed: tuple[str, ...]


def rates_of(sku: GpuSku, precision: str = "bf16") -> Rates | None:
    """What `sku` sustains at `precision`; None where the catalog has no matrix rate for it at all."""
    if (peak := next((sku.dense_flops[p] for p in _PEAKS[precision] if p in sku.dense_flops), None)) is None:
        return None
    assumed: list[str] = []
    share = _matrix_share(sku, precision, assumed)
    if (memory := sku.achieved.mem) is None:
        assumed.append(f"the sustained memory bandwidth of {sku.name}")
        memory = _MEMORY
    # Bridges are sold apart, and join two cards: TensorRT-LLM 0.14 on A100-PCIe took three times as long as on A100-SXM
    # with two GPUs and more.
    if sku.link_bytes_per_second and sku.joined_on_board:
        link = sku.link_bytes_per_second * (sku.achieved.link_allreduce or _LINK)
    else:
        link = sku.pcie_bytes_per_second * PCIE_ALL_REDUCE
    return Rates(
        matrix=peak * share,
        vector=sku.dense_flops.get("fp32", peak / 16),
        memory=sku.mem_bandwidth_bytes_per_second * memory,
        all_reduce=link,
        pcie=sku.pcie_bytes_per_second,
        clock_hertz=sku.boost_hertz,
        assumed=tuple(assumed),
    )


def clock_ratio(here_hertz: float, there_hertz: float) -> float:
    """By how much longer latency takes at another clock, within what was ever seen."""
    return min(max(here_hertz / there_hertz, _CLOCK_LIMITS[0]), _CLOCK_LIMITS[1])


def family(sku: GpuSku) -> str:
    """The architecture's family: Blackwell and Blackwell Ultra count as one."""
    name = sku.architecture.lower()
    return "blackwell" if name.startswith("blackwell") else name


def _matrix_share(sku: GpuSku, precision: str, assumed: list[str]) -> float:
    achieved = {"fp32": sku.achieved.fp32_gemm, "fp8": sku.achieved.fp8_gemm, "fp4": sku.achieved.fp4_gemm}
    if (measured := achieved.get(precision)) is not None:
        return measured
    if precision in ("fp32", "fp4", "int8", "fp64") and (precision == "fp32" or precision in sku.dense_flops):
        assumed.append(f"the sustained {precision.upper()} rate of {sku.name}")
    if precision == "fp32" or (precision == "fp4" and "fp4" in sku.dense_flops):
        return _FP32 if precision == "fp32" else 0.50  # B200 0.53 to 0.59, B300 0.42 of the printed rate
    if sku.achieved.bf16_gemm is not None:
        return sku.achieved.bf16_gemm
    assumed.append(f"the sustained matrix rate of {sku.name}")
    # A sibling with less power for the same rate clocks lower: dynamic power grows with about the square of the clock.
    # H100-PCIe and H100-NVL behave so in MLPerf Inference 4.1 (0.65 and 0.7 of the SXM part's speed).
    share, flops_per_watt = _MEASURED.get(family(sku), (_OTHER, 0.0))
    peak = sku.dense_flops.get("bf16") or sku.dense_flops.get("fp16")
    return share * min(1.0, math.sqrt(flops_per_watt * sku.tdp_watts / peak)) if peak and flops_per_watt else share
