"""Where a workload stands against what its GPU can do: a roofline, for its own SKU and for others, and its sentences.

Everything is per GPU and for the time its engine was active. Use is measured as shares of the peaks, so FLOP/s and
bytes/s follow from the catalog: the tensor pipe's share times the dense rate, DRAM's share times the bandwidth. Which
precision the pipe ran at no counter tells: 16 bit is assumed, and at 8 bit both the place and its roof would stand
twice as high. Vector pipes (FP32, FP64) are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....rules.base.sanitize import clean
from ....rules.catalog.types import GpuSku
from ...core.formatting import percent
from ...core.verdict_types import WorkloadVerdict

# 16-bit tensor rates in the order in which they are taken: T4 and V100 have no BF16.
PRECISIONS = ("bf16", "fp16")
# Where the vector pipes may have done this share of the tensor pipe's work, it is said that they are not counted.
VECTOR_SHARE_MIN = 0.2
ROOFS = 4  # of its own GPU and of others: as many as can be told apart
_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Roof:
    """What one GPU of a SKU can do. `peak_*`: as printed (dense); `sustained_*`: what kernels were measured to reach.

    None: nobody measured it; `missing` says so, in sentences.
    """

    sku: str
    precision: str
    peak_flop_per_second: float
    sustained_flop_per_second: float | None
    peak_bytes_per_second: float
    sustained_bytes_per_second: float | None
    missing: tuple[str, ...]

    def peak_at(self, intensity_flop_per_byte: float) -> float:
        """FLOP/s under the printed roofs at an intensity."""
        return min(self.peak_flop_per_second, intensity_flop_per_byte * self.peak_bytes_per_second)

    def sustained_at(self, intensity_flop_per_byte: float) -> float | None:
        """FLOP/s under the sustained roofs; None where one of them is not known."""
        if self.sustained_flop_per_second is None or self.sustained_bytes_per_second is None:
            return None
        return min(self.sustained_flop_per_second, intensity_flop_per_byte * self.sustained_bytes_per_second)

    def words(self) -> str:
        """What a GPU sustains, and what is printed of it."""
        flops = amount(self.sustained_flop_per_second, "FLOP/s")
        moved = amount(self.sustained_bytes_per_second, "B/s")
        printed = f"{amount(self.peak_flop_per_second, 'FLOP/s')} and {amount(self.peak_bytes_per_second, 'B/s')}"
        return f"{clean(self.sku)} sustains {flops} ({self.precision.upper()}) and {moved}; printed {printed}"


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """What a workload reaches on one GPU. `busy`: over the time the engine was active; else over all its time."""

    flop_per_second: float
    bytes_per_second: float
    busy: bool

    @property
    def intensity_flop_per_byte(self) -> float:
        return self.flop_per_second / self.bytes_per_second


@dataclass(frozen=True, slots=True)
class Roofline:
    """A workload's place under the roofs of its own SKU and of `targets`.

    `place` or `source` None: it cannot be drawn, and `missing` says why. `limits`: what the drawing does not show.
    """

    place: RooflinePoint | None
    source: Roof | None
    targets: tuple[Roof, ...]
    missing: tuple[str, ...]
    limits: tuple[str, ...]

    @property
    def roofs(self) -> tuple[Roof, ...]:
        """Those that are drawn, its own first."""
        return (*([self.source] if self.source else []), *self.targets)[:ROOFS]

    @property
    def use_of_sustained(self) -> float | None:
        """FLOP/s reached over what its SKU sustains at this intensity; None where either is not known."""
        if self.place is None or self.source is None:
            return None
        roof = self.source.sustained_at(self.place.intensity_flop_per_byte)
        return None if roof is None else self.place.flop_per_second / roof

    def bound_on(self, target: Roof) -> float | None:
        """What the target sustains over what the source sustains, at the workload's intensity: how the roof above it
        moves. A bound on work that stands at its roof, no prediction of time."""
        if self.place is None or self.source is None:
            return None
        here = self.source.sustained_at(self.place.intensity_flop_per_byte)
        there = target.sustained_at(self.place.intensity_flop_per_byte)
        return None if here is None or there is None else there / here

    def place_sentences(self) -> list[str]:
        """The place in sentences: the first for its own SKU, then one for each target."""
        place, source = self.place, self.source
        if place is None or source is None:
            return ["It has no place under these roofs." if source else "No roofline can be drawn."]
        intensity, share = place.intensity_flop_per_byte, self.use_of_sustained
        when = "while its engine was active" if place.busy else "over all its time"
        told = (
            f"{amount(place.flop_per_second, 'FLOP/s')} at {amount(place.bytes_per_second, 'B/s')} per GPU {when}: "
            f"{intensity:.3g} FLOP per byte"
        )
        if share is None:
            told += f", {percent(place.flop_per_second / source.peak_at(intensity))} of the printed roof there."
        else:
            side = "compute" if source.sustained_at(intensity) == source.sustained_flop_per_second else "memory"
            told += f", {percent(share)} of the {side} roof that {source.sku} sustains."
        bounds = [(target.sku, self.bound_on(target)) for target in self.roofs[1:]]
        words = "On {} the roof at this intensity is x{:.2f}: a bound, no prediction of time."
        return [told, *(words.format(sku, bound) for sku, bound in bounds if bound is not None)]

    def sentences(self) -> list[str]:
        """The figures with their units, what the workload reaches of them, and what is not known."""
        roofs = (roof.words() for roof in self.roofs)
        return [clean(one) for one in (*roofs, *self.place_sentences(), *self.limits, *self.missing)]


def roof_of(sku: GpuSku) -> Roof | None:
    """The roofs of a catalog entry; None where it has no 16-bit tensor rate."""
    precision = next((name for name in PRECISIONS if sku.dense_flops.get(name)), None)
    if precision is None:
        return None
    peak, moved = sku.dense_flops[precision], sku.mem_bandwidth_bytes_per_second
    compute, memory = sku.achieved.bf16_gemm, sku.achieved.mem
    missing = tuple(
        f"No published {what} that {sku.name} sustains: only its specified peak is drawn."
        for what, share in (("matrix rate", compute), ("memory bandwidth", memory))
        if share is None
    )
    sustained = (None if share is None else whole * share for whole, share in ((peak, compute), (moved, memory)))
    flops, bytes_ = sustained
    return Roof(sku.name, precision, peak, flops, moved, bytes_, missing)


def roofline(workload: WorkloadVerdict, sku: GpuSku | None, targets: Sequence[GpuSku] = ()) -> Roofline:
    """The roofline of a workload. `sku`: the catalog's entry of its GPUs, None where it has none."""
    missing: list[str] = []
    source = roof_of(sku) if sku is not None else None
    if any(uuid.startswith("MIG-") for uuid in workload.gpus):
        source = None
        missing.append("It runs on MIG instances, so the peaks of the whole GPU do not apply.")
    elif sku is None:
        missing.append("Its GPUs are not one SKU of the catalog, so there is no roof to compare with.")
    elif source is None:
        missing.append(f"The catalog has no 16-bit tensor rate for {sku.name}, so there is no roof to draw.")
    place = _place(workload, source, missing) if source is not None else None
    found = {target.name: roof_of(target) for target in targets}
    dark = [name for name, roof in found.items() if roof is None]
    missing += [f"The catalog has no 16-bit tensor rate for {name}, so it is not drawn." for name in dark]
    drawn = tuple(roof for name, roof in found.items() if roof and (source is None or name != source.sku))
    for roof in (*([source] if source else []), *drawn):
        missing += roof.missing
    limits = _limits(workload, sku, place) if place is not None and sku is not None else ()
    return Roofline(place, source, drawn, tuple(missing), limits)


def _place(workload: WorkloadVerdict, source: Roof, missing: list[str]) -> RooflinePoint | None:
    """Shares of the peaks while the engine was active; over all time where one of them is known so alone."""

    def share(name: str) -> float | None:
        value = workload.features.get(name, math.nan)
        return min(max(value, 0.0), 1.0) if math.isfinite(value) else None

    names = ("tensor", "hbm")
    busy = [share(f"{name}_per_engine") for name in names]
    always = [share(f"{name}_utilization") for name in names]
    known = [own if own is not None else every for own, every in zip(busy, always, strict=True)]
    told = (("Tensor activity", "tensor_active"), ("DRAM activity", "dram_active"))
    for (what, metric), value in zip(told, known, strict=True):
        if value is None:
            missing.append(f"{what} is unknown: {workload.coverage.missing.get(metric, 'nothing of it was measured.')}")
        elif value <= 0:
            missing.append(f"{what} is zero, so it has no place between two logarithmic axes.")
    if not all(known):
        return None
    # One over busy time, the other over all: their ratio would be no intensity.
    compute, memory = busy if None not in busy else always
    if not compute or not memory:
        missing.append("Compute and memory are unknown over the same time.")
        return None
    flops, moved = compute * source.peak_flop_per_second, memory * source.peak_bytes_per_second
    return RooflinePoint(flops, moved, None not in busy)


def _limits(workload: WorkloadVerdict, sku: GpuSku, place: RooflinePoint) -> tuple[str, ...]:
    found = []
    # Means over all time on both sides. The pipe's share is of instructions: a multiply-add each is the most it may be.
    vector = workload.features.get("vector_utilization", 0.0) * sku.dense_flops.get("fp32", 0.0)
    rate = next(sku.dense_flops[precision] for precision in PRECISIONS if precision in sku.dense_flops)
    tensor = workload.features.get("tensor_utilization", 0.0) * rate
    if vector >= VECTOR_SHARE_MIN * tensor:
        found.append(
            f"Its vector pipes did up to {vector / tensor:.2g} times the work of its tensor pipe, not counted here: "
            "its place is too low."
            if tensor > 0
            else "Its vector pipes' work is not counted."
        )
    if not place.busy:
        found.append("The active time of its engine is unknown: the point is the mean over all its time.")
    return tuple(found)


def amount(value: float | None, unit: str) -> str:
    """A rate with its unit, to three digits."""
    if value is None:
        return f"unknown {unit}"
    factor, prefix = next(((f, p) for f, p in _UNITS if value >= f), (1.0, ""))
    return f"{value / factor:.3g} {prefix}{unit}"
