"""MIG instances: the same work on one, and how those of half-empty GPUs pack onto fewer, so that whole GPUs fall free.
Memory and bandwidth of an instance are its memory slices over eight, its SMs their real count."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ....rules.catalog.types import MEMORY_SLICES, GpuSku, MigProfile
from ...classify.types import MigInstance
from ...core.coded_text import CodedText, coded
from ..constraints import room_bytes
from ..prediction import SIGMA_KNOWN, SIGMA_SAME, Factors, Phase, Prediction, Use, not_measured, time_ratio, times

INSTANCE_BUSY = "instance-too-busy"
# Memory slices at which a profile may begin (NVIDIA's MIG user guide, A100 and H100), by compute and memory slices.
_PLACES: Mapping[tuple[int, int], tuple[int, ...]] = {
    (1, 1): (0, 1, 2, 3, 4, 5, 6), (1, 2): (0, 2, 4, 6), (2, 2): (0, 2, 4), (3, 4): (0, 4), (4, 4): (0,), (7, 8): (0,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SliceFit:
    """One profile evaluated: `load` is the 95th percentile of the share of time its engine would be busy (NaN: not
    measured, and then it is blocked). `blocked_by`: every reason against it. `prediction` None: refused."""

    profile: MigProfile
    name: str
    prediction: Prediction | None
    load: float
    blocked_by: tuple[CodedText, ...]


def slice_factors(sku: GpuSku, profile: MigProfile) -> Factors:
    """How much longer each resource takes on the instance than on the whole GPU. There is no NVLink."""
    return Factors(c=sku.sm_count / profile.sm_count, m=MEMORY_SLICES / profile.memory_slices, n=None)


def predict_slice(sku: GpuSku, profile: MigProfile, use: Use, phase: Phase) -> Prediction | CodedText:
    """Time on the instance over time on the whole GPU, for work that has the instance to itself."""
    if refused := not_measured(use, "u_c", "u_m", "u_n"):
        return refused
    if use.matters("n"):
        return coded("instances-without-nvlink", "the work uses NVLink, and MIG instances have none")
    ratio = time_ratio(use, phase, slice_factors(sku, profile))
    # Latency stays as it is on the same silicon: only the time that SMs and memory bandwidth rule is in doubt.
    latency = time_ratio(use, phase, Factors(c=0.0, m=0.0, p=0.0, n=0.0, i=0.0))
    sigma = max(SIGMA_KNOWN * min(max(1.0 - latency, 0.0) * max(ratio, 1.0), 1.0), SIGMA_SAME)
    return Prediction(max(ratio, 1e-6), sigma, f"{profile.sm_count} of {sku.sm_count} SMs")


def weigh_slices(
    sku: GpuSku, use: Use, phase: Phase, *, needed_bytes: float | None, headroom: float
) -> tuple[SliceFit, ...]:
    """Every profile for the work of one GPU, the smallest first, each with what speaks against it. `needed_bytes`:
    memory the work *needs*; None: unknown, which blocks. `headroom`: the load that an instance may reach."""
    out = []
    for profile in sorted(sku.mig_profiles, key=lambda p: (p.memory_slices, p.sm_count)):
        room = room_bytes(sku.mem_bytes * profile.memory_slices / MEMORY_SLICES)
        predicted = predict_slice(sku, profile, use, phase)
        # Above 1 the instance falls behind today's work.
        rows = times(use, slice_factors(sku, profile))[2]
        load = float(np.percentile(rows, 95)) if rows.size else math.nan
        blocked = [predicted] if isinstance(predicted, CodedText) else []
        if needed_bytes is None:
            blocked.append(coded("instance-memory-unknown", "required memory unknown, and an instance has less"))
        elif needed_bytes > room:
            text = f"it needs {needed_bytes / 1e9:.0f} GB; the instance has room for {room / 1e9:.0f} GB"
            blocked.append(CodedText("instance-too-small", text, {"needed_bytes": needed_bytes, "room_bytes": room}))
        if load > headroom:
            template = "load would be {load:.0%} at the 95th percentile (limit {headroom:.0%})"
            blocked.append(coded(INSTANCE_BUSY, template, load=load, headroom=headroom))
        prediction = None if isinstance(predicted, CodedText) else predicted
        out.append(SliceFit(profile, profile.name(sku.mem_bytes), prediction, load, tuple(blocked)))
    return tuple(out)


def fits(profiles: Sequence[tuple[int, int]]) -> bool:
    """Whether one GPU can hold instances of so many compute and memory slices at once."""

    def placed(left: Sequence[tuple[int, int]], taken: int) -> bool:
        masks = [((1 << left[0][1]) - 1) << start for start in _PLACES.get(left[0], ())] if left else []
        return not left or any(placed(left[1:], taken | mask) for mask in masks if not mask & taken)

    return sum(compute for compute, _ in profiles) <= 7 and placed(sorted(profiles, key=lambda p: -p[1]), 0)


def pack(instances: Sequence[MigInstance]) -> tuple[list[str], list[str], list[MigInstance]] | None:
    """The emptiest GPUs emptied onto the others: GPUs that hold instances afterwards, GPUs that fall free, instances
    that restart. None where a held instance's slices are not known."""
    keep: dict[str, list[MigInstance]] = {}
    for mig_instance in instances:
        if mig_instance.held:
            if mig_instance.compute is None or mig_instance.memory is None:
                return None
            keep.setdefault(mig_instance.parent_uuid, []).append(mig_instance)
    order = sorted(keep, key=lambda gpu: (sum(mig_instance.compute or 0 for mig_instance in keep[gpu]), gpu))
    freed: list[str] = []
    moved: list[MigInstance] = []
    touched: set[str] = set()

    def hold(instances: Sequence[MigInstance]) -> bool:
        return fits([(instance.compute or 0, instance.memory or 0) for instance in instances])

    for gpu in (uuid for uuid in order if uuid not in touched):
        trial = {other: list(mig_instances) for other, mig_instances in keep.items() if other != gpu}
        places: list[str] = []
        for mig_instance in sorted(keep[gpu], key=lambda part: (-(part.memory or 0), part.gpu_uuid)):
            there = next((o for o in reversed(order) if o in trial and hold([*trial[o], mig_instance])), None)
            if there is None:
                break
            trial[there].append(mig_instance)
            places.append(there)
        else:
            moved += keep[gpu]
            touched |= set(places)
            freed.append(gpu)
            keep = trial
    return list(keep), freed, moved
