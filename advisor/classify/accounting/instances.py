"""The MIG instances at the end of the window, and who held them."""

from __future__ import annotations

from ...core.frame import Frame
from ..types import MigInstance
from ..workloads.attribution import Attribution
from ..workloads.sku_lookup import GpuIndex

# An instance that has no row in the last hours of the window is gone: its GPU was divided anew.
PRESENT_SECONDS = 2 * 3600.0


def instances(frame: Frame, attribution: Attribution, index: GpuIndex) -> tuple[MigInstance, ...]:
    """By node, GPU and id."""
    parent_of = frame.parents
    if not parent_of or frame.gpu.empty:
        return ()
    end = frame.window.end - PRESENT_SECONDS
    seen = frame.gpu[(frame.gpu["observed_seconds"] > 0) & (frame.gpu["ts"] > end)]
    there = {(str(n), str(u)) for n, u in zip(seen["node"], seen["gpu_uuid"], strict=True)}
    held: dict[tuple[str, str], list[str]] = {}
    for session in attribution.sessions:
        if session.last_seen > end:
            for key in session.gpus:
                held.setdefault(key, []).append(session.workload_id)
    found = []
    for key, parent in parent_of.items():
        if key not in there:
            continue
        slices = index.slices[key]
        found.append(
            MigInstance(
                key[0], key[1], parent[1], index.profiles.get(key, "unknown profile"),
                slices.compute if slices else None,
                slices.memory if slices else None, tuple(held.get(key, ())),
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda one: (one.node, one.parent_uuid, one.gpu_uuid)))
