"""Reads ``gpus/*.yaml``: GPUs with their aliases, and accelerators that are only information.

A GPU's figures must stand some arithmetic: datasheets print rates with sparsity (twice the dense rate), scraped tables
give one die of two, and pair products give two cards together: each is off by a factor of two, which the number of SMs,
the clock and the FLOP an SM can do per clock expose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ..base.sanitize import quoted
from ..base.typed_fields import Fields
from ..base.yaml_loader import layers, read_table, yaml_files
from .types import MEMORY_SLICES, Achieved, FigureSource, GpuSku, MigProfile

PRECISIONS = ("fp64", "fp32", "fp16", "bf16", "fp8", "int8", "fp4")
GRADES = ("A", "B", "C")
BASES = ("published", "back-solved", "observed")
MEMORY_TYPES = ("HBM2", "HBM2e", "HBM3", "HBM3e", "GDDR6", "GDDR7", "HBM", "SRAM")
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


def load_gpus(rules_dir: Path | None = None) -> GpuLibrary:
    """The GPUs alone: the cheap way for the agent. Every entry has passed the checks of `checks.py`."""
    gpus: dict[str, GpuSku] = {}
    facts: dict[str, GpuFacts] = {}
    entries: dict[str, Fields] = {}
    accelerators: dict[str, Accelerator] = {}
    asked_as: dict[str, tuple[str, ...]] = {}
    for layer in layers(rules_dir):
        here: set[str] = set()
        for file in yaml_files(layer.joinpath("gpus")):
            top = Fields(str(file), read_table(file), file.name)
            vendor = top.text_or_none("vendor")
            table = top.table_or_none("gpus")
            for name, entry in table.entries(lambda name: f"gpu {quoted(name)}") if table else ():
                if name in here:
                    raise entry.fault(None, "another file of this folder has this entry already", "Keep one.")
                here.add(name)
                if vendor is None:
                    raise top.fault("gpus", "'vendor' is missing", "Add it above 'gpus'.")
                gpus[name], facts[name], asked_as[name] = _gpu(name, vendor, entry)
                entries[name] = entry
            table = top.table_or_none("information")
            for name, entry in table.entries(lambda name: f"accelerator {quoted(name)}") if table else ():
                accelerators[name] = _accelerator(name, entry)
            top.done()
    for name, one in facts.items():
        for sentence in check_gpu(gpus[name], one):
            raise entries[name].fault(None, sentence, "Correct the figure, or give the reason under 'unchecked'.")
    index = _index(((name, (name, *gpu.aliases)) for name, gpu in gpus.items()), entries)
    asked = _index(asked_as.items(), entries)
    return GpuLibrary(
        MappingProxyType(gpus),
        MappingProxyType(index),
        MappingProxyType({key: name for key, name in asked.items() if key not in index}),
        MappingProxyType(facts),
        tuple(accelerators.values()),
    )


def _index(names: Iterable[tuple[str, tuple[str, ...]]], entries: Mapping[str, Fields]) -> dict[str, str]:
    index: dict[str, str] = {}
    for name, spoken in names:
        for alias in spoken:
            key = normalise(alias)
            if index.setdefault(key, name) != name:
                sentence = f"{quoted(alias)} already names gpu {quoted(index[key])} (exactly one may)"
                raise entries[name].fault("aliases", sentence, "Remove one of them.")
    return index


def _gpu(name: str, vendor: str, entry: Fields) -> tuple[GpuSku, GpuFacts, tuple[str, ...]]:
    tensor = entry.subtable("tensor")
    memory = entry.subtable("memory")
    nvlink = entry.table_or_none("nvlink")
    xgmi = entry.table_or_none("xgmi")
    pcie = entry.subtable("pcie")
    achieved = entry.table_or_none("achieved")
    memory_gb = memory.number("gb", above=0, maximum=4096)
    memory_mib = memory.number_or_none("mib", above=0)
    boost_mhz = entry.number("boost_mhz", above=100, maximum=5000)
    sku = GpuSku(
        name=name,
        vendor=vendor,
        architecture=entry.text("architecture"),
        compute_capability=entry.text("compute_capability"),
        sm_count=entry.whole("sm_count", minimum=1, maximum=2000),
        boost_hertz=boost_mhz * 1e6,
        tensor_reference_hertz=tensor.number("reference_mhz", above=100, maximum=5000) * 1e6,
        dense_flops=_flops(entry.subtable("dense_tflops")),
        mem_bytes=int(memory_mib * 1024**2) if memory_mib is not None else int(memory_gb * _GIB),
        mem_bandwidth_bytes_per_second=memory.number("gb_per_second", above=0) * 1e9,
        nvlink_bytes_per_second=nvlink.number("gb_per_second_one_way", above=0) * 1e9 if nvlink else None,
        nvlink_links=nvlink.whole("links", minimum=1, maximum=64) if nvlink else None,
        pcie_bytes_per_second=_pcie(pcie),
        tdp_watts=entry.number("tdp_watts", above=0, maximum=3000),
        mig_slices_max=entry.whole("mig_slices_max", maximum=8),
        form_factor=entry.text("form_factor"),
        achieved=Achieved(
            *(
                achieved.number_or_none(key, above=0, maximum=1)
                for key in ("bf16_gemm", "fp8_gemm", "fp4_gemm", "mem", "link_allreduce", "fp32_gemm")
            )
        )
        if achieved
        else Achieved(),
        aliases=entry.texts("aliases"),
        source=_source(entry),
        mig_profiles=tuple(_mig_profile(one) for one in entry.tables("mig_profiles")),
        min_limit_watts=entry.number_or_none("min_limit_watts", above=0, maximum=3000),
        xgmi_bytes_per_second=xgmi.number("gb_per_second_one_way", above=0) * 1e9 if xgmi else None,
        xgmi_links=xgmi.whole("links", minimum=1, maximum=64) if xgmi else None,
        tensor_active_at_peak=tensor.number_or_none("active_at_peak", above=0, maximum=1) or 1.0,
    )
    unchecked = entry.table_or_none("unchecked")
    facts = GpuFacts(
        memory_type=memory.text("type", MEMORY_TYPES),
        memory_gb=memory_gb,
        flop_per_clock_per_sm=tensor.number("flop_per_clock_per_sm", above=0),
        tensor_basis=tensor.text("basis", BASES),
        nvlink_generation=nvlink.whole("generation", minimum=1, maximum=9) if nvlink else None,
        unchecked={check: reason for check in CHECKS if unchecked and (reason := unchecked.text_or_none(check))},
    )
    asked_as = entry.texts("asked_as")
    return sku, facts, asked_as


def _flops(table: Fields) -> Mapping[str, float]:
    rates = {p: rate * 1e12 for p in PRECISIONS if (rate := table.number_or_none(p, above=0)) is not None}
    if not rates:
        raise table.fault(None, "no rate is given", f"Give one of {', '.join(PRECISIONS)}.")
    return MappingProxyType(rates)


def _mig_profile(entry: Fields) -> MigProfile:
    return MigProfile(
        entry.whole("compute_slices", minimum=1, maximum=7),
        entry.whole("memory_slices", minimum=1, maximum=MEMORY_SLICES),
        entry.whole("sm_count", minimum=1, maximum=2000),
    )


def _pcie(pcie: Fields) -> float:
    """Bytes per second one way, before protocol overhead: lanes x rate x line code."""
    # GT/s per lane; 128b/130b up to 5, FLIT mode with 242 of 256 bytes from 6 (PCI-SIG)
    rates = {3: 8.0 * 128 / 130, 4: 16.0 * 128 / 130, 5: 32.0 * 128 / 130, 6: 64.0 * 242 / 256}
    generation = pcie.whole("generation", minimum=3, maximum=6)
    return rates[generation] * pcie.whole("lanes", minimum=1, maximum=16) * 1e9 / 8


def _source(entry: Fields) -> FigureSource:
    note = entry.text_or_none("note")
    text = entry.text("source")
    return FigureSource(f"{text}. Note: {note}" if note else text, entry.date("as_of"), entry.text("grade", GRADES))


def _accelerator(name: str, entry: Fields) -> Accelerator:
    memory = entry.table_or_none("memory")
    flops = entry.table_or_none("dense_tflops")
    gb = memory.number_or_none("gb", above=0) if memory else None
    bandwidth = memory.number_or_none("gb_per_second", above=0) if memory else None
    if memory:
        memory.text_or_none("type", MEMORY_TYPES)
    note = entry.text_or_none("note")
    return Accelerator(
        name,
        entry.text("vendor"),
        _flops(flops) if flops else {},
        int(gb * _GIB) if gb is not None else None,
        bandwidth * 1e9 if bandwidth is not None else None,
        note,
        FigureSource(entry.text("source"), entry.date("as_of"), entry.text("grade", GRADES)),
    )


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
