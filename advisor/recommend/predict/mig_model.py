"""The same work on a MIG instance: memory and bandwidth by memory slices over eight, SMs by their real count."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ....rules.catalog.types import MEMORY_SLICES, GpuSku, MigProfile
from ...core.coded_text import CodedText, coded
from ..constraints import room_bytes
from ..prediction import (
    SIGMA_ACHIEVED_KNOWN,
    SIGMA_SAME_GPU,
    Array,
    Factors,
    Phase,
    Prediction,
    Refusal,
    Use,
    busy_there,
    not_measured,
    time_ratio,
)

INSTANCE_BUSY = "instance-too-busy"


@dataclass(frozen=True, slots=True)
class SliceFit:
    """One profile weighed: `load` is the 95th percentile of the share of time its engine would be busy (1: all of it;
    NaN: not measured, and then it is blocked).

    `blocked_by`: every reason against it; empty: nothing speaks against it. `prediction` None: refused.
    """

    profile: MigProfile
    name: str
    mem_bytes: float
    prediction: Prediction | None
    load: float
    blocked_by: tuple[CodedText, ...]


def slice_factors(sku: GpuSku, profile: MigProfile) -> Factors:
    """How much longer each resource takes on the instance than on the whole GPU. There is no NVLink."""
    return Factors(c=sku.sm_count / profile.sm_count, m=MEMORY_SLICES / profile.memory_slices, n=None)


def predict_slice(sku: GpuSku, profile: MigProfile, use: Use, phase: Phase) -> Prediction | Refusal:
    """Time on the instance over time on the whole GPU, for work that has the instance to itself."""
    refused = not_measured(use, "u_c", "u_m", "u_n")
    if refused is not None:
        return refused
    if use.matters("n"):
        return Refusal(coded("instances-without-nvlink", "the work uses NVLink, and MIG instances have none"))
    ratio = time_ratio(use, phase, slice_factors(sku, profile))
    # Latency stays as it is on the same silicon: only the time that SMs and memory bandwidth rule is in doubt.
    latency = time_ratio(use, phase, Factors(c=0.0, m=0.0, p=0.0, n=0.0, i=0.0))
    sigma = max(SIGMA_ACHIEVED_KNOWN * min(max(1.0 - latency, 0.0) * max(ratio, 1.0), 1.0), SIGMA_SAME_GPU)
    return Prediction(max(ratio, 1e-6), sigma, f"{profile.sm_count} of {sku.sm_count} SMs")


def load_on_slice(sku: GpuSku, profile: MigProfile, use: Use) -> Array:
    """Per row: share of time in which the instance would be busy with today's work; above 1 it falls behind."""
    return busy_there(use, slice_factors(sku, profile))


def weigh_slices(
    sku: GpuSku, use: Use, phase: Phase, *, needed_bytes: float | None, headroom: float
) -> tuple[SliceFit, ...]:
    """Every profile for the work of one GPU, the smallest first, each with what speaks against it.

    `needed_bytes`: memory the work *needs* (not what it took); None: unknown, which blocks. `headroom`: the load that
    an instance may reach. The first unblocked one is the instance to take. Empty: the catalog lists no
    profile of this GPU.
    """
    out = []
    for profile in sorted(sku.mig_profiles, key=lambda p: (p.memory_slices, p.sm_count)):
        mem = sku.mem_bytes * profile.memory_slices / MEMORY_SLICES
        found = predict_slice(sku, profile, use, phase)
        rows = load_on_slice(sku, profile, use)
        load = float(np.percentile(rows, 95)) if rows.size else math.nan
        blocked: list[CodedText] = []
        if isinstance(found, Refusal):
            blocked.append(found.reason)
        if needed_bytes is None:
            blocked.append(coded("instance-memory-unknown", "required memory unknown, and an instance has less"))
        elif needed_bytes > room_bytes(mem):
            room = room_bytes(mem)
            blocked.append(
                CodedText(
                    "instance-too-small",
                    f"it needs {needed_bytes / 1e9:.0f} GB; the instance has room for {room / 1e9:.0f} GB",
                    {"needed_bytes": needed_bytes, "room_bytes": room},
                )
            )
        if load > headroom:
            blocked.append(
                coded(
                    INSTANCE_BUSY,
                    "load would be {load:.0%} at the 95th percentile (limit {headroom:.0%})",
                    load=load, headroom=headroom,
                )
            )  # fmt: skip
        prediction = None if isinstance(found, Refusal) else found
        out.append(SliceFit(profile, profile.name(sku.mem_bytes), mem, prediction, load, tuple(blocked)))
    return tuple(out)
