"""Reads ``gpus/*.yaml``: GPUs with their aliases, and accelerators that are only information."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ..base.sanitize import quoted
from ..base.typed_fields import Fields
from ..base.yaml_loader import layers, read_table, yaml_files
from .gpu_sanity import CHECKS, GpuFacts, check_gpu
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
