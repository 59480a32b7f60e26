"""Reads ``gpus/*.yaml``: GPUs with their aliases.

Datasheets print rates with sparsity (twice the dense rate), tables one die of two, and pair products two cards
together. The number of SMs, the clock and the FLOP per clock expose such a factor of two, so figures are checked.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from ..base.sanitize import quoted
from ..base.typed import Name, Positive, Sourced, Strict, Text, place, wrong
from ..base.yaml_loader import layers, read_folders
from .types import GIB, Achieved, FigureSource, GpuSku, MigProfile, Sms

Precision = Literal["fp64", "fp32", "fp16", "bf16", "fp8", "int8", "fp4"]
MemoryType = Literal["HBM2", "HBM2e", "HBM3", "HBM3e", "GDDR6", "GDDR7"]
Check = Literal["tensor", "clock", "fp32", "precisions", "int8", "fp4", "memory", "nvlink", "xgmi", "power"]
Megahertz = Annotated[float, Meta(gt=100, le=5000)]
Watts = Annotated[float, Meta(gt=0, le=3000)]
_NOT_WORD = re.compile(r"[^a-z0-9]+")
# GT/s per lane by PCIe generation: 128b/130b up to 5, FLIT mode with 242 of 256 bytes from 6 (PCI-SIG).
_PCIE_GT = {3: 8.0 * 128 / 130, 4: 16.0 * 128 / 130, 5: 32.0 * 128 / 130, 6: 64.0 * 242 / 256}

# Dense FP16 tensor FLOP per clock and SM, by compute capability (NVIDIA's architecture whitepapers; CDNA3: per CU;
# Pascal has none: FP16 on the vector pipes).
FLOP_PER_CLOCK_PER_SM = {
    "6.0": 256, "7.0": 1024, "7.5": 1024, "8.0": 2048, "8.6": 1024, "8.9": 1024, "9.0": 4096, "10.0": 8192,
    "10.3": 8192, "12.0": 1024, "gfx942": 2048,
}  # fmt: skip
# Parts sold with less than their architecture has (vendor datasheets): half, or a capped rate.
_SOLD_WITH = {"A10G": 512, "L40": 512, "L20": 512, "H20-96GB": 1037}
# FP32 FLOP per clock and SM: 64 cores up to GA100, 128 from GA10x on, a multiply-add counting twice (same sources).
_FP32_PER_CLOCK_PER_SM = {"6.0": 128, "7.0": 128, "7.5": 128, "8.0": 128}
_FP32_ELSE = 256
# Memory bandwidth of one GPU by type, GB/s: the range of the entries that ship, rounded outwards. Half the figure of an
# HBM part (one die, one stack of two) is mostly outside.
_BANDWIDTH_GB_PER_SECOND = {
    "HBM2": (700, 1600), "HBM2e": (1400, 2100), "HBM3": (3000, 5400), "HBM3e": (4500, 8200), "GDDR6": (250, 1000),
    "GDDR7": (1000, 1850),
}  # fmt: skip
# One link, one way, GB/s, by NVLink generation. AMD's datasheet of MI300X has 128 GB/s a link for both directions.
_LINK_GB_PER_SECOND: Mapping[int | str | None, float] = {2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0, "xgmi": 64.0}
# A rate by another, which has half of it or the same. Rates are printed with three digits: 3 % off are accepted.
_PAIRS: tuple[tuple[Check, Precision, Precision, int], ...] = (
    ("precisions", "bf16", "fp16", 1), ("precisions", "fp8", "fp16", 2), ("int8", "int8", "fp16", 2),
    ("fp4", "fp4", "fp8", 2),
)  # fmt: skip


class _Tensor(Strict, frozen=True):
    reference_mhz: Megahertz
    flop_per_clock_per_sm: Positive
    basis: Literal["published", "back-solved", "observed"]
    active_at_peak: Annotated[float, Meta(gt=0, le=1)] = 1.0


class _Memory(Strict, frozen=True):
    gb: Annotated[float, Meta(gt=0, le=4096)]
    type: MemoryType
    gb_per_second: Positive
    mib: Positive | None = None


class _Link(Strict, frozen=True):
    gb_per_second_one_way: Positive
    links: Annotated[int, Meta(ge=1, le=64)]
    generation: Annotated[int, Meta(ge=1, le=9)] | None = None


class _Pcie(Strict, frozen=True):
    generation: Literal[3, 4, 5, 6]
    lanes: Annotated[int, Meta(ge=1, le=16)]


class _Gpu(Sourced, frozen=True, kw_only=True):
    """An entry of a file; rules/gpus/nvidia.yaml explains the keys."""

    aliases: tuple[Text, ...] = ()
    asked_as: tuple[Text, ...] = ()
    architecture: Text
    compute_capability: Text
    sm_count: Sms
    boost_mhz: Megahertz
    tensor: _Tensor
    dense_tflops: Annotated[Mapping[Precision, Positive], Meta(min_length=1)]
    memory: _Memory
    nvlink: _Link | None = None
    xgmi: _Link | None = None
    pcie: _Pcie
    tdp_watts: Watts
    min_limit_watts: Watts | None = None
    mig_slices_max: Annotated[int, Meta(ge=0, le=8)]
    mig_profiles: tuple[MigProfile, ...] = ()
    form_factor: Text
    achieved: Achieved = Achieved()
    unchecked: Mapping[Check, Text] = {}
    note: Text | None = None
    grade: Literal["A", "B", "C"]


class _File(Strict, frozen=True):
    vendor: Text
    gpus: Mapping[Name, _Gpu]


def normalise(name: str) -> str:
    """A GPU's name for comparison: lower case, one dash between words, without a leading NVIDIA."""
    return _NOT_WORD.sub("-", name.casefold()).strip("-").removeprefix("nvidia-")


def load_gpus(rules_dir: Path | None = None) -> tuple[dict[str, GpuSku], dict[str, str], dict[str, str]]:
    """`Catalog.gpus`, `index` and `asked`. Raises RulesError, also for figures that contradict one another."""

    def use(file: object, top: _File) -> Mapping[str, tuple[GpuSku, tuple[str, ...], object]]:
        for name, entry in top.gpus.items():
            for sentence in _contradictions(name, entry):
                remedy = "Correct the figure, or give the reason under 'unchecked'."
                raise wrong(file, place("gpus", name), sentence, remedy)
        return {name: (_gpu(name, top.vendor, entry), entry.asked_as, file) for name, entry in top.gpus.items()}

    gpus = read_folders([layer / "gpus" for _, layer in layers(rules_dir)], _File, use)
    index = _index((name, (name, *gpu.aliases), file) for name, (gpu, _, file) in gpus.items())
    asked = _index((name, asked_as, file) for name, (_, asked_as, file) in gpus.items())
    return {name: gpu for name, (gpu, _, _) in gpus.items()}, index, asked | index


def with_note(source: str, note: str | None) -> str:
    return f"{source}. Note: {note}" if note else source


def _index(names: Iterable[tuple[str, tuple[str, ...], object]]) -> dict[str, str]:
    index: dict[str, str] = {}
    for name, aliases, file in names:
        for alias in aliases:
            other = index.setdefault(normalise(alias), name)
            if other != name:
                sentence = f"{quoted(alias)} already names gpu {quoted(other)} (exactly one may)"
                raise wrong(file, place("gpus", name, "aliases"), sentence, "Remove one of them.")
    return index


def _gpu(name: str, vendor: str, entry: _Gpu) -> GpuSku:
    same = {field.name for field in fields(GpuSku)} & {*entry.__struct_fields__} - {"source"}
    unchanged: dict[str, Any] = {key: getattr(entry, key) for key in same}
    memory, nvlink, xgmi = entry.memory, entry.nvlink, entry.xgmi
    return GpuSku(
        **unchanged,
        name=name,
        vendor=vendor,
        boost_hertz=entry.boost_mhz * 1e6,
        tensor_reference_hertz=entry.tensor.reference_mhz * 1e6,
        dense_flops={precision: tflops * 1e12 for precision, tflops in entry.dense_tflops.items()},
        mem_bytes=int(memory.gb * GIB if memory.mib is None else memory.mib * 1024**2),
        mem_bandwidth_bytes_per_second=memory.gb_per_second * 1e9,
        nvlink_bytes_per_second=nvlink and nvlink.gb_per_second_one_way * 1e9,
        nvlink_links=nvlink and nvlink.links,
        pcie_bytes_per_second=_PCIE_GT[entry.pcie.generation] * entry.pcie.lanes * 1e9 / 8,
        source=FigureSource(with_note(entry.source, entry.note), entry.as_of, entry.grade),
        xgmi_bytes_per_second=xgmi and xgmi.gb_per_second_one_way * 1e9,
        tensor_active_at_peak=entry.tensor.active_at_peak,
    )


def _contradictions(name: str, entry: _Gpu) -> Iterator[str]:
    rates, memory, tensor, capability = entry.dense_tflops, entry.memory, entry.tensor, entry.compute_capability
    fp32 = entry.sm_count * _FP32_PER_CLOCK_PER_SM.get(capability, _FP32_ELSE) * entry.boost_mhz / 1e6
    most = _SOLD_WITH.get(name, FLOP_PER_CLOCK_PER_SM.get(capability, math.inf))
    # Also where the reference clock was solved from the rate: a rate off by two needs an impossible clock. The lowest
    # of the parts sold is H100 NVL with .87, the highest GB200 with .97 of their highest clock.
    clock = rates.get("fp16", math.nan) * 1e6 / (entry.sm_count * tensor.flop_per_clock_per_sm)
    # The check, the figure's name, its value (NaN: not stated), and the least and most that it can be.
    checks = [
        ("tensor", "flop_per_clock_per_sm", tensor.flop_per_clock_per_sm, 0, most),
        ("tensor", "the fp16 rate over SMs x FLOP x clock", clock / tensor.reference_mhz, 0.98, 1.02),
        ("clock", "the clock that the fp16 rate asks for", clock, 0.75 * entry.boost_mhz, 1.02 * entry.boost_mhz),
        ("fp32", "the fp32 rate", rates.get("fp32", math.nan), 0.97 * fp32, 1.03 * fp32),
        ("memory", f"gb_per_second of {memory.type}", memory.gb_per_second, *_BANDWIDTH_GB_PER_SECOND[memory.type]),
        ("memory", "mib of memory beside its gb", (memory.mib or math.nan) / 1024, 0.8 * memory.gb, 1.05 * memory.gb),
        ("xgmi", "the number of links, NVLink and Infinity Fabric,", bool(entry.nvlink) + bool(entry.xgmi), 0, 1),
        ("power", "the power limit of one GPU", entry.tdp_watts, 30, 1500),
        ("power", "the lowest power limit", entry.min_limit_watts or math.nan, 0.1 * entry.tdp_watts, entry.tdp_watts),
    ]
    for check, precision, base, factor in _PAIRS:
        figure, expected = rates.get(precision, math.nan), factor * rates.get(base, math.nan)
        checks.append((check, f"the {precision} rate", figure, 0.97 * expected, 1.03 * expected))
    for check, link in (("nvlink", entry.nvlink), ("xgmi", entry.xgmi)):
        if link is not None:
            rate = _LINK_GB_PER_SECOND.get(check if check == "xgmi" else link.generation, math.nan)
            of_link = link.gb_per_second_one_way / link.links
            checks.append((check, f"{check} of one link, one way,", of_link, 0.98 * rate, 1.02 * rate))
    for check, what, figure, low, high in checks:
        if check not in entry.unchecked and (figure < low or figure > high):
            twice = " (twice: is it the rate with sparsity?)" if 1.9 * high <= figure <= 2.1 * high else ""
            half = " (half: is it one die of two?)" if 0.45 * low <= figure <= 0.55 * low else ""
            yield f"{what} is {figure:.4g} and must be from {low:.4g} to {high:.4g}{twice}{half}"
