"""Arithmetic that a GPU's figures must stand: it refuses sparse rates given as dense, and figures of half a GPU or two.

Datasheets print rates with sparsity (twice the dense rate), scraped tables give one die of two, and pair products give
two cards together: each is off by a factor of two, which the number of SMs, the clock and the FLOP an SM can do per
clock expose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .types import GpuSku

CHECKS = ("tensor", "clock", "fp32", "precisions", "int8", "fp4", "memory", "nvlink", "xgmi", "power")

# Dense FP16 tensor FLOP per clock and SM, by compute capability (NVIDIA's architecture whitepapers; CDNA3: per CU;
# Pascal has none: FP16 on the vector pipes).
# Some parts are sold with half of it (A10G, L40, L20) or a capped rate (H20): their entries say so.
FLOP_PER_CLOCK_PER_SM = {
    "6.0": 256, "7.0": 1024, "7.5": 1024, "8.0": 2048, "8.6": 1024, "8.9": 1024, "9.0": 4096, "10.0": 8192,
    "10.3": 8192, "12.0": 1024, "gfx942": 2048,
}  # fmt: skip

# Parts sold with less than their architecture has (vendor datasheets of A10G, L40, L20 and H20): beside their siblings'
# figure, a doubled rate would pass for right.
_SOLD_WITH = {"A10G": 512, "L40": 512, "L20": 512, "H20-96GB": 1037}

# FP32 FLOP per clock and SM: 64 cores up to GA100, 128 from GA10x on, a multiply-add counting twice (same sources).
_FP32_PER_CLOCK_PER_SM = {"6.0": 128, "7.0": 128, "7.5": 128, "8.0": 128}
_FP32_ELSE = 256

# What one GPU with each kind of memory delivers in the parts sold so far, GB/s: the widest range of the entries that
# ship, rounded outwards. Half the figure of an HBM part (one die, one stack of two) mostly falls outside.
_BANDWIDTH_GB_PER_SECOND = {
    "HBM2": (700, 1600), "HBM2e": (1400, 2100), "HBM3": (3000, 5400), "HBM3e": (4500, 8200), "GDDR6": (250, 1000),
    "GDDR7": (1000, 1850),
}  # fmt: skip

# One link, one way, GB/s (NVLink 2 to 4: 25; NVLink 5: 50). A bidirectional figure taken for one way doubles it.
_NVLINK_GB_PER_SECOND_PER_LINK = {2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0}
# The same of Infinity Fabric between GPUs: AMD's datasheet of MI300X gives 128 GB/s a link for both ways.
_XGMI_GB_PER_SECOND_PER_LINK = 64.0

_TOLERANCE = 0.02  # rates are printed with three digits
_FP32_TOLERANCE = 0.03
_CLOCK_RANGE = (0.75, 1.02)  # the clock behind the tensor rate, relative to the highest: H100 NVL .87, GB200 .97


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What an entry says beside the SKU itself, for the checks. `unchecked`: check -> why it does not apply."""

    memory_type: str
    memory_gb: float
    flop_per_clock_per_sm: float
    tensor_basis: str
    nvlink_generation: int | None
    unchecked: Mapping[str, str]


def check_gpu(gpu: GpuSku, facts: GpuFacts) -> Iterator[str]:
    """One sentence for each figure that cannot be; nothing where all stand."""
    for check, sentence in _all(gpu, facts):
        if check not in facts.unchecked:
            yield sentence


def _all(gpu: GpuSku, facts: GpuFacts) -> Iterator[tuple[str, str]]:
    yield from _tensor(gpu, facts)
    yield from _precisions(gpu)
    per_clock = _FP32_PER_CLOCK_PER_SM.get(gpu.compute_capability, _FP32_ELSE)
    fp32 = gpu.dense_flops.get("fp32")
    expected = gpu.sm_count * per_clock * gpu.boost_hertz
    if fp32 is not None and not _near(fp32, expected, _FP32_TOLERANCE):
        yield "fp32", f"fp32 is {fp32 / 1e12:g} TFLOP/s, but SMs x {per_clock} x clock give {expected / 1e12:.4g}"
    bandwidth = gpu.mem_bandwidth_bytes_per_second / 1e9
    low, high = _BANDWIDTH_GB_PER_SECOND.get(facts.memory_type, (0.0, float("inf")))
    if not low <= bandwidth <= high:
        yield "memory", f"{bandwidth:g} GB/s is not what {facts.memory_type} delivers on one GPU ({low:g} to {high:g})"
    if not 0.8 * facts.memory_gb <= gpu.mem_bytes / 1024**3 <= 1.05 * facts.memory_gb:
        yield (
            "memory",
            f"mib and gb of memory disagree ({gpu.mem_bytes / 1024**3:.4g} GiB against {facts.memory_gb:g} GB)",
        )
    if gpu.nvlink_bytes_per_second is not None and gpu.nvlink_links:
        per_link = _NVLINK_GB_PER_SECOND_PER_LINK.get(facts.nvlink_generation or 0)
        found = gpu.nvlink_bytes_per_second / gpu.nvlink_links / 1e9
        if per_link is not None and not _near(found, per_link, _TOLERANCE):
            yield "nvlink", f"NVLink {facts.nvlink_generation} gives {per_link:g} GB/s a link one way, not {found:g}"
    if gpu.xgmi_bytes_per_second is not None and gpu.xgmi_links:
        found = gpu.xgmi_bytes_per_second / gpu.xgmi_links / 1e9
        if not _near(found, _XGMI_GB_PER_SECOND_PER_LINK, _TOLERANCE):
            yield "xgmi", f"Infinity Fabric gives {_XGMI_GB_PER_SECOND_PER_LINK:g} GB/s a link one way, not {found:g}"
    if gpu.nvlink_bytes_per_second is not None and gpu.xgmi_bytes_per_second is not None:
        yield "xgmi", "a GPU has NVLink or Infinity Fabric, not both"
    if not 30 <= gpu.tdp_watts <= 1500:
        yield "power", f"a power limit of {gpu.tdp_watts:g} W is not one GPU's"
    if gpu.min_limit_watts is not None and not 0.1 * gpu.tdp_watts <= gpu.min_limit_watts <= gpu.tdp_watts:
        yield "power", f"a lowest power limit of {gpu.min_limit_watts:g} W does not go with {gpu.tdp_watts:g} W"


def _tensor(gpu: GpuSku, facts: GpuFacts) -> Iterator[tuple[str, str]]:
    known, whose = FLOP_PER_CLOCK_PER_SM.get(gpu.compute_capability), f"compute capability {gpu.compute_capability}"
    if gpu.name in _SOLD_WITH:
        known, whose = _SOLD_WITH[gpu.name], gpu.name
    if known is not None and facts.flop_per_clock_per_sm > known:
        yield (
            "tensor",
            f"{facts.flop_per_clock_per_sm:g} FLOP per clock and SM is more than the {known} of {whose} (dense)",
        )
    fp16 = gpu.dense_flops.get("fp16")
    if fp16 is None:
        return
    expected = gpu.sm_count * facts.flop_per_clock_per_sm * gpu.tensor_reference_hertz
    if not _near(fp16, expected, _TOLERANCE):
        twice = " (twice: is it the rate with sparsity?)" if _near(fp16, 2 * expected, 0.1) else ""
        half = " (half: is it one die of two?)" if _near(fp16, expected / 2, 0.1) else ""
        yield (
            "tensor",
            f"fp16 is {fp16 / 1e12:g} TFLOP/s dense, but SMs x FLOP x clock give {expected / 1e12:.4g}{twice}{half}",
        )
    # Holds also where the reference clock was solved from the rate: a rate off by two asks for an impossible clock.
    ratio = fp16 / (gpu.sm_count * facts.flop_per_clock_per_sm * gpu.boost_hertz)
    if not _CLOCK_RANGE[0] <= ratio <= _CLOCK_RANGE[1]:
        yield (
            "clock",
            f"the fp16 rate asks for a clock of {ratio * gpu.boost_hertz / 1e6:.0f} MHz beside a highest clock of "
            f"{gpu.boost_hertz / 1e6:.0f}",
        )


def _precisions(gpu: GpuSku) -> Iterator[tuple[str, str]]:
    rates = gpu.dense_flops
    for check, name, base, factor in (
        ("precisions", "bf16", "fp16", 1),
        ("precisions", "fp8", "fp16", 2),
        ("int8", "int8", "fp16", 2),
        ("fp4", "fp4", "fp8", 2),
    ):
        if name in rates and base in rates and not _near(rates[name], factor * rates[base], 0.03):
            yield (
                check,
                f"{name} is {rates[name] / 1e12:g} TFLOP/s and must be {factor} x {base} ({rates[base] / 1e12:g})",
            )


def _near(value: float, expected: float, tolerance: float) -> bool:
    return abs(value - expected) <= tolerance * expected
