"""Where a workload stands against what its GPU can do: a roofline, for its own SKU and for others.

Everything is per GPU and for the time its engine was active. Use is measured as shares of the peaks, so FLOP/s and
bytes/s follow from the catalog: the tensor pipe's share times the dense rate, DRAM's share times the bandwidth. Which
precision the pipe ran at no counter tells: 16 bit is assumed, and at 8 bit both the place and its roof would stand
twice as high. Vector pipes (FP32, FP64) are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...rules.catalog.types import GpuSku
from ..core.verdict_types import WorkloadVerdict

# 16-bit tensor rates in the order in which they are taken: T4 and V100 have no BF16.
PRECISIONS = ("bf16", "fp16")
# Where the vector pipes may have done this share of the tensor pipe's work, it is said that they are not counted.
VECTOR_SHARE_MIN = 0.2


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
    missing: tuple[str, ...] = ()

    @property
    def ridge_flop_per_byte(self) -> float:
        """The intensity at which the printed peaks meet: below it memory is the roof, above it compute."""
        return self.peak_flop_per_second / self.peak_bytes_per_second

    @property
    def sustained_ridge_flop_per_byte(self) -> float | None:
        """The same of the sustained roofs; None where one of them is not known."""
        if self.sustained_flop_per_second is None or self.sustained_bytes_per_second is None:
            return None
        return self.sustained_flop_per_second / self.sustained_bytes_per_second

    def peak_at(self, intensity_flop_per_byte: float) -> float:
        """FLOP/s under the printed roofs at an intensity."""
        return min(self.peak_flop_per_second, intensity_flop_per_byte * self.peak_bytes_per_second)

    def sustained_at(self, intensity_flop_per_byte: float) -> float | None:
        """FLOP/s under the sustained roofs; None where one of them is not known."""
        if self.sustained_flop_per_second is None or self.sustained_bytes_per_second is None:
            return None
        return min(self.sustained_flop_per_second, intensity_flop_per_byte * self.sustained_bytes_per_second)


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

    workload: str
    name: str
    kind: str
    bottleneck: str
    place: RooflinePoint | None
    source: Roof | None
    targets: tuple[Roof, ...]
    missing: tuple[str, ...]
    limits: tuple[str, ...] = ()

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


def roof_of(sku: GpuSku) -> Roof | None:
    """The roofs of a catalog entry; None where it has no 16-bit tensor rate."""
    precision = next((name for name in PRECISIONS if _positive(sku.dense_flops.get(name))), None)
    if precision is None or not _positive(sku.mem_bandwidth_bytes_per_second):
        return None
    peak = sku.dense_flops[precision]
    eta_compute, eta_memory = sku.achieved.bf16_gemm, sku.achieved.mem
    missing = [
        f"No published {what} that {sku.name} sustains: only its specified peak is drawn."
        for what, eta in (("matrix rate", eta_compute), ("memory bandwidth", eta_memory))
        if eta is None
    ]
    return Roof(
        sku=sku.name,
        precision=precision,
        peak_flop_per_second=peak,
        sustained_flop_per_second=peak * eta_compute if eta_compute is not None else None,
        peak_bytes_per_second=sku.mem_bandwidth_bytes_per_second,
        sustained_bytes_per_second=(
            sku.mem_bandwidth_bytes_per_second * eta_memory if eta_memory is not None else None
        ),
        missing=tuple(missing),
    )


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
    found = [roof_of(target) for target in targets]
    missing += [
        f"The catalog has no 16-bit tensor rate for {target.name}, so it is not drawn."
        for target, roof in zip(targets, found, strict=True)
        if roof is None
    ]
    drawn = {roof.sku: roof for roof in found if roof is not None and (source is None or roof.sku != source.sku)}
    for roof in (*([source] if source else []), *drawn.values()):
        missing += roof.missing
    return Roofline(
        workload=workload.id,
        name=workload.name,
        kind=workload.kind.label,
        bottleneck=workload.bottleneck.label,
        place=place,
        source=source,
        targets=tuple(drawn.values()),
        missing=tuple(missing),
        limits=_limits(workload, sku, place),
    )


def _place(workload: WorkloadVerdict, source: Roof, missing: list[str]) -> RooflinePoint | None:
    compute, busy_compute = _share(workload, "tensor")
    memory, busy_memory = _share(workload, "hbm")
    for what, share, metric in (
        ("Tensor activity", compute, "tensor_active"),
        ("DRAM activity", memory, "dram_active"),
    ):
        if share is None:
            reason = workload.coverage.missing.get(metric, "nothing of it was measured.")
            missing.append(f"{what} is unknown: {reason}")
        elif share <= 0:
            missing.append(f"{what} is zero, so it has no place between two logarithmic axes.")
    if compute is None or memory is None or compute <= 0 or memory <= 0:
        return None
    if busy_compute != busy_memory:  # one over busy time, the other over all: their ratio would be no intensity
        compute, memory = (workload.features.get(f"{name}_utilization", math.nan) for name in ("tensor", "hbm"))
        if not (_positive(compute) and _positive(memory)):
            missing.append("Compute and memory are unknown over the same time.")
            return None
    return RooflinePoint(
        flop_per_second=compute * source.peak_flop_per_second,
        bytes_per_second=memory * source.peak_bytes_per_second,
        busy=busy_compute and busy_memory,
    )


def _share(workload: WorkloadVerdict, name: str) -> tuple[float | None, bool]:
    """Share of the peak while the engine was active, and True; where that is not known over all time, and False."""
    for key, busy in ((f"{name}_per_engine", True), (f"{name}_utilization", False)):
        value = workload.features.get(key)
        if value is not None and math.isfinite(value):
            return min(max(value, 0.0), 1.0), busy
    return None, False


def _limits(workload: WorkloadVerdict, sku: GpuSku | None, place: RooflinePoint | None) -> tuple[str, ...]:
    if place is None or sku is None:
        return ()
    found = []
    # Means over all time on both sides. The pipe's share is of instructions: a multiply-add each is the most it may be.
    vector = workload.features.get("vector_utilization", 0.0) * sku.dense_flops.get("fp32", 0.0)
    tensor = workload.features.get("tensor_utilization", 0.0) * next(
        sku.dense_flops[p] for p in PRECISIONS if p in sku.dense_flops
    )
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


def _positive(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0
