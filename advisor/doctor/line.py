"""One line beside the advice where much of what it rests on is missing, from what was read for it anyway."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.advice_types import Advice
from ..core.frame import Frame
from ..core.timestamps import span
from .facts import WINDOW_SHARE

# Measure -> the columns of the frame's `gpu` of which one is enough to tell it.
_CORE: Mapping[str, tuple[str, ...]] = {
    "GPU activity": ("gpu_util_mean", "sm_active_mean"),
    "tensor activity": ("tensor_active_mean",),
    "DRAM activity": ("dram_active_mean",),
    "memory used": ("mem_used_bytes_mean",),
    "power": ("power_watts_mean",),
}
# What the driver tells of whole GPUs only: a sliced one has it where any row of it does.
_WHOLE_ONLY = "power"
_MISSING_SHARE = 0.1


def coverage_line(frame: Frame, advice: Advice, command: str) -> str | None:
    """What is poorly covered; None where nothing is. `command`: the ``skuwise doctor`` that tells more of it."""
    s = advice.summary
    missing = sum(len(one.gpus) for one in s.unobserved)
    parts: list[str] = []
    known = _known(frame)
    lacking = [
        f"{name} on {count}"
        for name, count in known.items()
        if s.gpu_count - count > _MISSING_SHARE * s.gpu_count + missing
    ]
    if missing or lacking:
        parts.append(", ".join([f"{s.gpu_count - missing} of {s.gpu_count} GPUs observed", *lacking]))
    window, observed = s.window_hours, s.observed_hours
    if window is not None and observed is not None and observed < WINDOW_SHARE * window:
        parts.append(f"{span(observed * 3600)} of {span(window * 3600)} observed")
    poor = bool(parts)
    if s.cost_usd is None:
        parts.append("no price")
        poor = True
    if poor and frame.fabric.empty:
        parts.append("no fabric counters")
    if poor and len(frame.nodes) and frame.nodes["region"].isna().all():
        parts.append("region unknown")
    return f"Coverage: {'; '.join(parts)}. For remedies run '{command}'." if parts else None


def _known(frame: Frame) -> dict[str, int]:
    """Of how many physical GPUs each core measure is known at all; of sliced ones, by all of their instances."""
    gpu = frame.gpu
    columns = [name for names in _CORE.values() for name in names if name in gpu]
    if gpu.empty:
        return {}
    has = gpu.groupby(["node", "gpu_uuid"], sort=False)[columns].count() > 0
    parents = frame.gpus.dropna(subset=["parent_uuid"])
    parent_of = {
        (node, uuid): (node, parent)
        for node, uuid, parent in zip(parents["node"], parents["gpu_uuid"], parents["parent_uuid"], strict=True)
    }
    sliced = set(parent_of.values())
    # Where instances tell, a parent's own row tells nothing that they do not, but for power, which is the parent's.
    parts = [key for key in has.index if key in parent_of or key not in sliced]
    whole = [parent_of.get(key, key) for key in parts]
    told = has.loc[parts]
    out = {}
    for name, names in _CORE.items():
        if name == _WHOLE_ONLY:
            measured = has[[one for one in names if one in has]].any(axis=1)
            out[name] = len({parent_of.get(key, key) for key in measured.index[measured]})
            continue
        any_of = told[[one for one in names if one in told]].any(axis=1).tolist()
        by_gpu: dict[object, bool] = {}
        for key, known in zip(whole, any_of, strict=True):
            by_gpu[key] = by_gpu.get(key, True) and bool(known)
        out[name] = sum(by_gpu.values())
    return out
