"""The shapes that tell kinds apart, each a number from 0 (not so) to 1 (clearly so) and a sentence.

They are what the model of rules/kind_model.yaml weighs, and all it sees. Each is relative: shares of time, of a peak,
of a day, never watts, bytes or a SKU's name. A shape that cannot be told is 0, and so is its opposite: what is missing
speaks for nothing. Second-fine shapes count only where samples are that fine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from string import Formatter

from ...core.coded_text import CodedText, coded
from ..features.features import PERIOD_INTERVAL_MAX_SECONDS, Features

# Runs and duty counted over samples farther apart than this are of something else.
FINE_SECONDS = 5.0
# What a sentence may name beside the features.
_ADDED = ("memory_times", "compute_times", "density", "busy", "pause_minutes", "days")


@dataclass(frozen=True, slots=True)
class KindSignal:
    """`measure`: 0..1 from the features; `sentence`: a template over the features and what `told` adds to them."""

    name: str
    measure: Callable[[Features], float]
    sentence: str

    def level(self, features: Features) -> float:
        """How clearly it is so, 0..1. What cannot be said in words, because a number of it is missing, is 0."""
        level = self.measure(features)
        return level if level <= 0 or all(name in features for name in _numbers(self.sentence)) else 0.0

    def told(self, features: Features) -> CodedText:
        """The statement (its code is ``shape-`` and the name), for features that give a level above 0."""
        octaves = _octaves(features) or 0.0
        values = (
            2**octaves, 2**-octaves, _density(features) or 0.0, _busy_share(features) or 0.0,
            60 * features.get("idle_run_hours", 0.0), _span(features) / 24,
        )  # fmt: skip
        known = {**features, **dict(zip(_ADDED, values, strict=True))}
        named = {name: known[name] for _, name, _, _ in Formatter().parse(self.sentence) if name}
        return coded(f"shape-{self.name}", self.sentence, **named)


@cache
def _numbers(sentence: str) -> frozenset[str]:
    """The features that a sentence names."""
    return frozenset(name for _, name, _, _ in Formatter().parse(sentence) if name).difference(_ADDED)


def ramp(value: float | None, low: float, high: float) -> float:
    """0 up to `low`, 1 from `high` on, straight between; 0 where the value is missing. Falls where high < low."""
    if value is None or math.isnan(value):
        return 0.0
    return min(1.0, max(0.0, (value - low) / (high - low)))


def fingerprint(shapes: Iterable[KindSignal]) -> str:
    """What a model was trained for: the shapes' names in order, and their levels on a fixed grid of features."""
    digest = sha256()
    probes = [dict(PROBE), *({**PROBE, name: PROBE[name] * scale} for name in PROBE for scale in (0.0, 0.5, 2.0))]
    for shape in shapes:
        digest.update(f"{shape.name}:{','.join(f'{shape.level(probe):.6f}' for probe in probes)}\n".encode())
    return digest.hexdigest()[:16]


def levels(features: Features) -> dict[str, float]:
    """Every shape's level, in the order of `SHAPES`."""
    return {shape.name: shape.level(features) for shape in SHAPES}


def _fine(f: Features) -> bool:
    return f.get("resolution_seconds", 1.0) <= FINE_SECONDS


def _periodic(f: Features, low: float, high: float) -> float:
    known = f.get("elapsed_hours", 0.0) >= 0.5 and f.get("resolution_seconds", 1.0) <= PERIOD_INTERVAL_MAX_SECONDS
    return ramp(f.get("period_share"), low, high) if known else 0.0


def _many_nodes(f: Features) -> bool:
    return f.get("nodes", 1.0) >= 2


def _swing(f: Features) -> float | None:
    return f.get("swing") if f.get("elapsed_hours", 0.0) >= 6 else None


def _daily(f: Features) -> float:
    return min(ramp(f.get("diurnal_share"), 0.1, 0.4), ramp(f.get("diurnal_amplitude"), 0.02, 0.08))


def _busy_share(f: Features) -> float | None:
    """Share of the time at work: of the seconds where they are known, else the engine's mean."""
    return f.get("duty", f.get("engine_active")) if _fine(f) else f.get("engine_active", f.get("sm_active"))


def _recurs(f: Features) -> float:
    """Whether rests come again and again: all idle hours of a GPU over the longest run of them."""
    hours = f.get("idle_share", 0.0) * f.get("hours", 0.0) / max(f.get("gpus", 1.0), 1.0)
    stretch = f.get("idle_stretch_hours")
    return 1.0 if stretch is None else ramp(hours / max(stretch, 0.25), 1.1, 2.0)


def _octaves(f: Features) -> float | None:
    """Memory bandwidth over compute, each as a share of what the GPU sustains (else of its peak), in powers of two."""
    busy = max(
        f.get("hbm_of_sustained_busy_p95", f.get("hbm_utilization", 0.0)),
        f.get("tensor_of_sustained_busy_p95", f.get("tensor_utilization", 0.0)),
    )
    ratio = f.get("memory_over_compute")
    if ratio is None and "hbm_per_engine" in f and "tensor_per_engine" in f:
        ratio = f["hbm_per_engine"] / max(f["tensor_per_engine"], 0.01)
    return None if ratio is None or busy < 0.05 else math.log2(max(ratio, 1e-3))


def _density(f: Features) -> float | None:
    """The more of compute and memory bandwidth, relative to the peak, that a second of busy engine holds."""
    if "hbm_per_engine" not in f or "tensor_per_engine" not in f:
        return None
    return max(f["hbm_per_engine"], f["tensor_per_engine"])


def _pool(f: Features) -> float:
    """Memory of an engine that preallocates; half of it where the level is all that was seen."""
    if "mem_flat" in f:
        return ramp(f["mem_flat"], 0.0, 1.0)
    return 0.5 if 0.88 <= f.get("mem_level", 0.0) <= 0.95 else 0.0


def _span(f: Features) -> float:
    return f.get("chain_hours", 0.0)


SHAPES: tuple[KindSignal, ...] = (
    KindSignal(
        "periodic",
        lambda f: _periodic(f, 0.3, 0.8) * ramp(f.get("period_strength"), 0.2, 0.7),
        "It repeats a step of {period_seconds:.0f} s through {period_share:.0%} of its busy time (autocorrelation "
        "{period_strength:.2f}).",
    ),
    KindSignal(
        "aperiodic",
        lambda f: _periodic(f, 0.3, 0.05),
        "It repeats no step of 1 to 120 s.",
    ),
    KindSignal(
        "fabric-busy",
        lambda f: ramp(f.get("fabric_utilization"), 0.005, 0.03) if _many_nodes(f) else 0.0,
        "It runs on {nodes:.0f} nodes and keeps {fabric_utilization:.1%} of their fabric busy.",
    ),
    KindSignal(
        "fabric-silent",
        lambda f: ramp(f.get("fabric_utilization"), 0.01, 0.002) if _many_nodes(f) else 0.0,
        "It runs on {nodes:.0f} nodes but their fabric carries next to nothing.",
    ),
    KindSignal(
        "larger-than-a-node",
        lambda f: float(_many_nodes(f) or f.get("gpus", 1.0) > 8),
        "It is larger than one node of 8 GPUs.",
    ),
    KindSignal("one-gpu", lambda f: float(f.get("gpus", 1.0) == 1), "It runs on one GPU."),
    KindSignal(
        "collectives",
        lambda f: min(ramp(f.get("nvlink_utilization"), 0.02, 0.15), ramp(f.get("nvlink_symmetry"), 0.7, 0.9)),
        "NVLink is busy ({nvlink_utilization:.0%}) and carries as much out as in: collectives.",
    ),
    KindSignal(
        "links-with-compute",
        lambda f: ramp(f.get("tensor_nvlink_correlation"), 0.1, 0.6) if _fine(f) else 0.0,
        "NVLink is busy in the same seconds as the tensor cores.",
    ),
    KindSignal(
        "links-against-compute",
        lambda f: ramp(f.get("tensor_nvlink_correlation"), -0.05, -0.5) if _fine(f) else 0.0,
        "NVLink is busy in the seconds in which the tensor cores wait.",
    ),
    KindSignal("daily", _daily, "Its load follows the day: {diurnal_share:.0%} of its variance is a 24 h wave."),
    KindSignal(
        "not-daily", lambda f: 1.0 - _daily(f) if "diurnal_share" in f else 0.0, "Its load does not follow the day."
    ),
    KindSignal(
        "steady",
        lambda f: ramp(_swing(f), 0.1, 0.03),
        "Its load is the same hour after hour, as of a queue that never empties.",
    ),
    KindSignal("swinging", lambda f: ramp(_swing(f), 0.1, 0.4), "Its load varies by {swing:.0%} from hour to hour."),
    KindSignal(
        "drifting",
        lambda f: min(ramp(f.get("drift"), 0.3, 0.8), ramp(_swing(f), 0.05, 0.2)),
        "Its load rises and falls slowly, over hours.",
    ),
    KindSignal(
        "memory-pool",
        _pool,
        "{mem_level:.0%} of the memory is taken once and never moves: an engine that preallocates.",
    ),
    KindSignal(
        "memory-still",
        lambda f: ramp(f.get("mem_cv"), 0.01, 0.002) if not _pool(f) else 0.0,
        "Its memory does not move, at {mem_level:.0%} of the GPU: not the level of a pool.",
    ),
    KindSignal(
        "memory-moves", lambda f: ramp(f.get("mem_cv"), 0.01, 0.05), "The memory in use varies by {mem_cv:.0%}."
    ),
    KindSignal(
        "bandwidth-bound",
        lambda f: ramp(_octaves(f), 0.0, 1.0),
        "Memory bandwidth is used {memory_times:.1f} times as much as compute, as when tokens are decoded.",
    ),
    KindSignal(
        "compute-bound",
        lambda f: ramp(_octaves(f), 0.0, -1.0),
        "Compute is used {compute_times:.1f} times as much as memory bandwidth.",
    ),
    KindSignal(
        "dense-seconds",
        lambda f: ramp(_density(f), 0.35, 0.65),
        "A busy second holds much work: {density:.0%} of what the GPU can do.",
    ),
    KindSignal(
        "thin-seconds",
        lambda f: ramp(_density(f), 0.35, 0.1),
        "Even a busy second holds little work: {density:.0%} of what the GPU can do.",
    ),
    KindSignal(
        "write-bursts",
        lambda f: ramp(f.get("write_bursts"), 0.03, 0.25),
        "The host writes in bursts in {write_bursts:.0%} of the hours, as checkpoints do.",
    ),
    KindSignal(
        "bus-busy", lambda f: ramp(f.get("pcie_utilization"), 0.08, 0.35), "PCIe is busy ({pcie_utilization:.0%})."
    ),
    KindSignal(
        "always-busy",
        lambda f: ramp(_busy_share(f), 0.8, 0.95),
        "It is busy in {busy:.0%} of the time: nobody stops to think.",
    ),
    KindSignal(
        "seldom-busy",
        lambda f: ramp(_busy_share(f), 0.35, 0.15),
        "It works in short bursts: busy in {busy:.0%} of the time.",
    ),
    KindSignal(
        "rests",
        lambda f: ramp(f.get("idle_share"), 0.1, 0.5) * _recurs(f),
        "It rests again and again: idle in {idle_share:.0%} of the time.",
    ),
    KindSignal(
        "long-rests",
        lambda f: ramp(f.get("idle_stretch_hours"), 1.5, 6.0) * ramp(f.get("idle_share"), 0.05, 0.2) * _recurs(f),
        "It rests for up to {idle_stretch_hours:.0f} hours on end.",
    ),
    KindSignal(
        "pauses",
        lambda f: ramp(f.get("idle_run_hours"), 0.03, 0.2) if _fine(f) else 0.0,
        "In a usual hour it pauses for {pause_minutes:.0f} minutes on end.",
    ),
    KindSignal(
        "uneven-seconds",
        lambda f: ramp(f.get("sm_active_cv"), 0.3, 0.9) if _fine(f) else 0.0,
        "Its activity changes from second to second.",
    ),
    KindSignal(
        "even-seconds",
        lambda f: ramp(f.get("sm_active_cv"), 0.15, 0.04) if _fine(f) else 0.0,
        "Its activity hardly changes from second to second.",
    ),
    KindSignal("older-than-a-day", lambda f: ramp(_span(f), 20.0, 28.0), "It has run for {chain_hours:.0f} hours."),
    KindSignal("older-than-days", lambda f: ramp(_span(f), 48.0, 120.0), "It has run for {days:.0f} days."),
    KindSignal(
        "came-and-went",
        lambda f: ramp(f.get("ended"), 0.0, 1.0) * ramp(_span(f), 28.0, 20.0),
        "It came and went within {chain_hours:.1f} hours.",
    ),
    KindSignal("ended", lambda f: ramp(f.get("ended"), 0.0, 1.0), "It ended."),
)

# Any features that make every shape say something; the fingerprint is taken around them.
PROBE: Mapping[str, float] = {
    "resolution_seconds": 1.0, "hours": 60.0, "elapsed_hours": 30.0, "chain_hours": 60.0, "ended": 0.5, "gpus": 2.0,
    "nodes": 1.5, "period_share": 0.4, "period_seconds": 8.0, "period_strength": 0.5, "fabric_utilization": 0.006,
    "nvlink_utilization": 0.1, "nvlink_symmetry": 0.8, "tensor_nvlink_correlation": 0.3, "diurnal_share": 0.3,
    "diurnal_amplitude": 0.05, "swing": 0.15, "drift": 0.5, "mem_flat": 0.5, "mem_level": 0.6, "mem_cv": 0.012,
    "memory_over_compute": 1.2, "hbm_of_sustained_busy_p95": 0.5, "tensor_of_sustained_busy_p95": 0.4,
    "hbm_per_engine": 0.3, "tensor_per_engine": 0.3, "write_bursts": 0.1, "pcie_utilization": 0.15, "duty": 0.45,
    "engine_active": 0.5, "idle_share": 0.15, "idle_stretch_hours": 3.0, "idle_run_hours": 0.1, "sm_active_cv": 0.3,
}  # fmt: skip
