"""Reads ``gpus/*.yaml``: GPUs with their aliases, and accelerators that are only information.

A GPU's figures must stand some arithmetic: datasheets print rates with sparsity (twice the dense rate), scraped tables
give one die of two, and pair products give two cards together: each is off by a factor of two, which the number of SMs,
the clock and the FLOP an SM can do per clock expose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta

from ..base.sanitize import quoted
from ..base.typed import Day, Name, Positive, Text, place, wrong
from ..base.yaml_loader import read, read_folders
from .types import Achieved, FigureSource, GpuSku, MigProfile

Precision = Literal["fp64", "fp32", "fp16", "bf16", "fp8", "int8", "fp4"]
PRECISIONS: tuple[str, ...] = get_args(Precision)
Grade = Literal["A", "B", "C"]
MemoryType = Literal["HBM2", "HBM2e", "HBM3", "HBM3e", "GDDR6", "GDDR7", "HBM", "SRAM"]
Check = Literal["tensor", "clock", "fp32", "precisions", "int8", "fp4", "memory", "nvlink", "xgmi", "power"]
Megahertz = Annotated[float, Meta(gt=100, le=5000)]
Watts = Annotated[float, Meta(gt=0, le=3000)]
Links = Annotated[int, Meta(ge=1, le=64)]
Rates = Annotated[Mapping[Precision, Positive], Meta(min_length=1)]
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_GIB = 1024**3


def normalise(name: str) -> str:
    """A GPU's name as it is compared: lower case, one dash between words, without a leading NVIDIA."""
    return _NOT_WORD.sub("-", name.casefold()).strip("-").removeprefix("nvidia-")


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What a person may compare a GPU with, but skuwise cannot observe. None: no figure that can be relied on."""

    name: str
    vendor: str
    dense_flops: Mapping[str, float]
    mem_bytes: int | None
    mem_bandwidth_bytes_per_second: float | None
    note: str | None
    source: FigureSource


@dataclass(frozen=True)
class GpuLibrary:
    """Every GPU by name; `index` maps normalised names and aliases to the name, `asked` what only people say."""

    gpus: Mapping[str, GpuSku]
    index: Mapping[str, str]
    asked: Mapping[str, str]
    facts: Mapping[str, GpuFacts] = field(default_factory=dict)
    accelerators: tuple[Accelerator, ...] = ()

    def find(self, name: str) -> GpuSku | None:
        """The GPU of exactly this name or alias; None where the catalog has none."""
        key = self.index.get(normalise(name))
        return self.gpus[key] if key is not None else None


@dataclass(frozen=True, slots=True)
class _Tensor:
    reference_mhz: Megahertz
    flop_per_clock_per_sm: Positive
    basis: Literal["published", "back-solved", "observed"]
    active_at_peak: Annotated[float, Meta(gt=0, le=1)] = 1.0


@dataclass(frozen=True, slots=True)
class _Memory:
    gb: Annotated[float, Meta(gt=0, le=4096)]
    type: MemoryType
    gb_per_second: Positive
    mib: Positive | None = None


@dataclass(frozen=True, slots=True)
class _Link:
    gb_per_second_one_way: Positive
    links: Links
    generation: Annotated[int, Meta(ge=1, le=9)] | None = None


@dataclass(frozen=True, slots=True)
class _Pcie:
    generation: Annotated[int, Meta(ge=3, le=6)]
    lanes: Annotated[int, Meta(ge=1, le=16)]

    @property
    def bytes_per_second(self) -> float:
        """One way, before protocol overhead: lanes x rate x line code."""
        # GT/s per lane; 128b/130b up to 5, FLIT mode with 242 of 256 bytes from 6 (PCI-SIG)
        rates = {3: 8.0 * 128 / 130, 4: 16.0 * 128 / 130, 5: 32.0 * 128 / 130, 6: 64.0 * 242 / 256}
        return rates[self.generation] * self.lanes * 1e9 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpu:
    """An entry as files have it; rules/gpus/nvidia.yaml explains the keys. What `GpuSku` has as well is taken as is."""

    aliases: tuple[Text, ...] = ()
    asked_as: tuple[Text, ...] = ()
    architecture: Text
    compute_capability: Text
    sm_count: Annotated[int, Meta(ge=1, le=2000)]
    boost_mhz: Megahertz
    tensor: _Tensor
    dense_tflops: Rates
    memory: _Memory
    nvlink: _Link | None = None
    xgmi: _Link | None = None
    pcie: _Pcie
    tdp_watts: Watts
    min_limit_watts: Watts | None = None
    mig_slices_max: Annotated[int, Meta(ge=0, le=8)]
    mig_profiles: tuple[MigProfile, ...] = ()
    form_factor: Text
    achieved: Achieved = field(default_factory=Achieved)
    unchecked: Mapping[Check, Text] = field(default_factory=dict)
    note: Text | None = None
    source: Text
    as_of: Day
    grade: Grade


@dataclass(frozen=True, slots=True)
class _InformationMemory:
    type: MemoryType
    gb: Positive | None = None
    gb_per_second: Positive | None = None


@dataclass(frozen=True, slots=True)
class _Information:
    vendor: Text
    source: Text
    as_of: Day
    grade: Grade
    dense_tflops: Rates | None = None
    memory: _InformationMemory | None = None
    note: Text | None = None


@dataclass(frozen=True, slots=True)
class _File:
    vendor: Text | None = None
    gpus: Mapping[Name, _Gpu] = field(default_factory=dict)
    information: Mapping[Name, _Information] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.gpus and self.vendor is None:
            raise ValueError("'vendor' is missing", "Add it above 'gpus'.")


def load_gpus(rules_dir: Path | None = None) -> GpuLibrary:
    """The GPUs alone: the cheap way for the agent. Every entry has passed `check_gpu`."""
    gpus: dict[str, GpuSku] = {}
    facts: dict[str, GpuFacts] = {}
    accelerators: dict[str, Accelerator] = {}
    asked_as: dict[str, tuple[str, ...]] = {}
    files: dict[str, object] = {}

    def read_one(file: Traversable | Path, here: set[str]) -> None:
        top = read(file, _File)
        for name, entry in top.gpus.items():
            if name in here:
                raise wrong(
                    file, place("gpus", name), "another file of this folder has this entry already", "Keep one."
                )
            here.add(name)
            gpus[name], facts[name] = _gpu(name, top.vendor or "", entry)
            asked_as[name], files[name] = entry.asked_as, file
            for sentence in check_gpu(gpus[name], facts[name]):
                remedy = "Correct the figure, or give the reason under 'unchecked'."
                raise wrong(file, place("gpus", name), sentence, remedy)
        accelerators.update({name: _accelerator(name, entry) for name, entry in top.information.items()})

    read_folders(rules_dir, "gpus", read_one)
    index = _index(((name, (name, *gpu.aliases)) for name, gpu in gpus.items()), files)
    asked = _index(asked_as.items(), files)
    asked = {key: name for key, name in asked.items() if key not in index}
    return GpuLibrary(gpus, index, asked, facts, tuple(accelerators.values()))


def _index(names: Iterable[tuple[str, tuple[str, ...]]], files: Mapping[str, object]) -> dict[str, str]:
    index: dict[str, str] = {}
    for name, spoken in names:
        for alias in spoken:
            key = normalise(alias)
            if index.setdefault(key, name) != name:
                sentence = f"{quoted(alias)} already names gpu {quoted(index[key])} (exactly one may)"
                raise wrong(files[name], place("gpus", name, "aliases"), sentence, "Remove one of them.")
    return index


def _gpu(name: str, vendor: str, entry: _Gpu) -> tuple[GpuSku, GpuFacts]:
    own = {one.name for one in fields(GpuSku)} - {"source"}
    same: dict[str, Any] = {one.name: getattr(entry, one.name) for one in fields(entry) if one.name in own}
    memory, nvlink, xgmi = entry.memory, entry.nvlink, entry.xgmi
    sku = GpuSku(
        **same,
        name=name,
        vendor=vendor,
        boost_hertz=entry.boost_mhz * 1e6,
        tensor_reference_hertz=entry.tensor.reference_mhz * 1e6,
        dense_flops=_flops(entry.dense_tflops),
        mem_bytes=int(memory.mib * 1024**2) if memory.mib is not None else int(memory.gb * _GIB),
        mem_bandwidth_bytes_per_second=memory.gb_per_second * 1e9,
        nvlink_bytes_per_second=nvlink.gb_per_second_one_way * 1e9 if nvlink else None,
        nvlink_links=nvlink.links if nvlink else None,
        pcie_bytes_per_second=entry.pcie.bytes_per_second,
        source=FigureSource(with_note(entry.source, entry.note), entry.as_of, entry.grade),
        xgmi_bytes_per_second=xgmi.gb_per_second_one_way * 1e9 if xgmi else None,
        xgmi_links=xgmi.links if xgmi else None,
        tensor_active_at_peak=entry.tensor.active_at_peak,
    )
    facts = GpuFacts(
        memory.type, memory.gb, entry.tensor.flop_per_clock_per_sm, entry.tensor.basis,
        nvlink.generation if nvlink else None, dict(entry.unchecked.items()),
    )  # fmt: skip
    return sku, facts


def _flops(tflops: Mapping[Precision, float]) -> Mapping[str, float]:
    return {one: tflops[one] * 1e12 for one in get_args(Precision) if one in tflops}


def with_note(source: str, note: str | None) -> str:
    """Who says a figure, with what there is to say of it."""
    return f"{source}. Note: {note}" if note else source


def _accelerator(name: str, entry: _Information) -> Accelerator:
    gb, bandwidth = (entry.memory.gb, entry.memory.gb_per_second) if entry.memory else (None, None)
    return Accelerator(
        name,
        entry.vendor,
        _flops(entry.dense_tflops or {}),
        None if gb is None else int(gb * _GIB),
        None if bandwidth is None else bandwidth * 1e9,
        entry.note,
        FigureSource(entry.source, entry.as_of, entry.grade),
    )


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
