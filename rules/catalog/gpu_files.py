"""Reads ``gpus/*.yaml``: GPUs with their aliases.

A GPU's figures must stand some arithmetic: datasheets print rates with sparsity (twice the dense rate), scraped tables
give one die of two, and pair products give two cards together: each is off by a factor of two, which the number of SMs,
the clock and the FLOP an SM can do per clock expose.
"""

from __future__ import annotations

import math
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
Grade = Literal["A", "B", "C"]
MemoryType = Literal["HBM2", "HBM2e", "HBM3", "HBM3e", "GDDR6", "GDDR7"]
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


@dataclass(frozen=True)
class GpuLibrary:
    """Every GPU by name; `index` maps normalised names and aliases to the name, `asked` what only people say."""

    gpus: Mapping[str, GpuSku]
    index: Mapping[str, str]
    asked: Mapping[str, str]
    entries: Mapping[str, GpuEntry] = field(default_factory=dict)

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
class GpuEntry:
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
class _File:
    vendor: Text
    gpus: Mapping[Name, GpuEntry]


def load_gpus(rules_dir: Path | None = None) -> GpuLibrary:
    """The GPUs alone: the cheap way for the agent. Every entry has passed `check_gpu`."""
    gpus: dict[str, GpuSku] = {}
    entries: dict[str, GpuEntry] = {}
    files: dict[str, object] = {}

    def read_one(file: Traversable | Path, here: set[str]) -> None:
        top = read(file, _File)
        for name, entry in top.gpus.items():
            if name in here:
                raise wrong(
                    file, place("gpus", name), "another file of this folder has this entry already", "Keep one."
                )
            here.add(name)
            gpus[name] = _gpu(name, top.vendor, entry)
            entries[name], files[name] = entry, file
            for sentence in check_gpu(gpus[name], entry):
                remedy = "Correct the figure, or give the reason under 'unchecked'."
                raise wrong(file, place("gpus", name), sentence, remedy)

    read_folders(rules_dir, "gpus", read_one)
    index = _index(((name, (name, *gpu.aliases)) for name, gpu in gpus.items()), files)
    asked = _index(((name, one.asked_as) for name, one in entries.items()), files)
    asked = {key: name for key, name in asked.items() if key not in index}
    return GpuLibrary(gpus, index, asked, entries)


def _index(names: Iterable[tuple[str, tuple[str, ...]]], files: Mapping[str, object]) -> dict[str, str]:
    index: dict[str, str] = {}
    for name, spoken in names:
        for alias in spoken:
            key = normalise(alias)
            if index.setdefault(key, name) != name:
                sentence = f"{quoted(alias)} already names gpu {quoted(index[key])} (exactly one may)"
                raise wrong(files[name], place("gpus", name, "aliases"), sentence, "Remove one of them.")
    return index


def _gpu(name: str, vendor: str, entry: GpuEntry) -> GpuSku:
    own = {one.name for one in fields(GpuSku)} - {"source"}
    same: dict[str, Any] = {one.name: getattr(entry, one.name) for one in fields(entry) if one.name in own}
    memory, nvlink, xgmi = entry.memory, entry.nvlink, entry.xgmi
    return GpuSku(
        **same,
        name=name,
        vendor=vendor,
        boost_hertz=entry.boost_mhz * 1e6,
        tensor_reference_hertz=entry.tensor.reference_mhz * 1e6,
        dense_flops={
            get_arg: entry.dense_tflops[get_arg] * 1e12
            for get_arg in get_args(Precision)
            if get_arg in entry.dense_tflops
        },
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


def with_note(source: str, note: str | None) -> str:
    """Who says a figure, with what there is to say of it."""
    return f"{source}. Note: {note}" if note else source


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
_LESS_SHARP = 0.03


def check_gpu(gpu: GpuSku, entry: GpuEntry) -> Iterator[str]:
    """One sentence for each figure that cannot be; nothing where all stand."""
    for check, what, found, low, high in _figures(gpu, entry):
        if check not in entry.unchecked and not low <= found <= high:
            twice = " (twice: is it the rate with sparsity?)" if 1.9 * high <= found <= 2.1 * high else ""
            half = " (half: is it one die of two?)" if 0.45 * low <= found <= 0.55 * low else ""
            yield f"{what} is {found:.4g} and must be from {low:.4g} to {high:.4g}{twice}{half}"


def _figures(gpu: GpuSku, entry: GpuEntry) -> Iterator[tuple[Check, str, float, float, float]]:
    """The check, what it looks at, what is found there, and from what to what it can be."""

    def around(expected: float, tolerance: float = _TOLERANCE) -> tuple[float, float]:
        return expected * (1 - tolerance), expected * (1 + tolerance)

    rates, memory, tensor = entry.dense_tflops, entry.memory, entry.tensor
    sold_with = FLOP_PER_CLOCK_PER_SM.get(gpu.compute_capability, math.inf)
    yield "tensor", "flop_per_clock_per_sm", tensor.flop_per_clock_per_sm, 0, _SOLD_WITH.get(gpu.name, sold_with)
    flop_per_clock = gpu.sm_count * tensor.flop_per_clock_per_sm
    if "fp16" in rates:
        expected = flop_per_clock * tensor.reference_mhz / 1e6
        yield "tensor", "the fp16 rate over SMs x FLOP x clock", rates["fp16"] / expected, *around(1)
        # Holds also where the reference clock was solved from the rate: a rate off by two asks for an impossible clock.
        # The lowest of the parts sold are H100 NVL with .87, the highest GB200 with .97 of their highest clock.
        clock = rates["fp16"] * 1e6 / flop_per_clock
        yield "clock", "the clock that the fp16 rate asks for", clock, 0.75 * entry.boost_mhz, 1.02 * entry.boost_mhz
    if "fp32" in rates:
        per_clock = _FP32_PER_CLOCK_PER_SM.get(gpu.compute_capability, _FP32_ELSE)
        expected = gpu.sm_count * per_clock * entry.boost_mhz / 1e6
        yield "fp32", "the fp32 rate", rates["fp32"], *around(expected, _LESS_SHARP)
    pairs: tuple[tuple[Check, Precision, Precision, int], ...] = (
        ("precisions", "bf16", "fp16", 1), ("precisions", "fp8", "fp16", 2), ("int8", "int8", "fp16", 2),
        ("fp4", "fp4", "fp8", 2),
    )  # fmt: skip
    for check, name, base, factor in pairs:
        if name in rates and base in rates:
            yield check, f"the {name} rate", rates[name], *around(factor * rates[base], _LESS_SHARP)
    low, high = _BANDWIDTH_GB_PER_SECOND.get(memory.type, (0.0, math.inf))
    yield "memory", f"gb_per_second of {memory.type}", memory.gb_per_second, low, high
    yield "memory", "mib of memory beside its gb", gpu.mem_bytes / _GIB, 0.8 * memory.gb, 1.05 * memory.gb
    of_nvlink = _NVLINK_GB_PER_SECOND_PER_LINK.get((entry.nvlink and entry.nvlink.generation) or 0)
    links: tuple[tuple[Check, _Link | None, float | None], ...] = (
        ("nvlink", entry.nvlink, of_nvlink), ("xgmi", entry.xgmi, _XGMI_GB_PER_SECOND_PER_LINK)
    )  # fmt: skip
    for check, link, of_one in links:
        if link is not None and of_one is not None:
            yield check, f"{check} of one link, one way,", link.gb_per_second_one_way / link.links, *around(of_one)
    yield "xgmi", "the number of links, NVLink and Infinity Fabric,", bool(entry.nvlink) + bool(entry.xgmi), 0, 1
    yield "power", "the power limit of one GPU", entry.tdp_watts, 30, 1500
    if entry.min_limit_watts is not None:
        yield "power", "the lowest power limit", entry.min_limit_watts, 0.1 * entry.tdp_watts, entry.tdp_watts
