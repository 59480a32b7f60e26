"""Shapes of the work itself: its steps, its links, what a busy second holds, how large it is.

Each is relative: shares of time, of a peak, never watts, bytes or a SKU's name. A shape that cannot be told is 0, and
so is its opposite: what is missing speaks for nothing. Second-fine shapes count only where samples are that fine.
"""

from __future__ import annotations

from ..features.features import PERIOD_INTERVAL_MAX_SECONDS, Features
from .kind_signal import B, F, I, KindSignal, O, T, busy_share, density, is_fine, octaves, ramp


def _periodic(f: Features, low: float, high: float) -> float:
    known = f.get("elapsed_hours", 0.0) >= 0.5 and f.get("resolution_seconds", 1.0) <= PERIOD_INTERVAL_MAX_SECONDS
    return ramp(f.get("period_share"), low, high) if known else 0.0


def _many_nodes(f: Features) -> bool:
    return f.get("nodes", 1.0) >= 2


WORK_SHAPES: tuple[KindSignal, ...] = (
    KindSignal(
        "periodic",
        lambda f: _periodic(f, 0.3, 0.8) * ramp(f.get("period_strength"), 0.2, 0.7),
        "It repeats a step of {period_seconds:.0f} s through {period_share:.0%} of its busy time (autocorrelation "
        "{period_strength:.2f}).",
        (T, F), (O, B, I),
    ),
    KindSignal("aperiodic", lambda f: _periodic(f, 0.3, 0.05), "It repeats no step of 1 to 120 s.", (O, B, I), (T, F)),
    KindSignal(
        "fabric-busy",
        lambda f: ramp(f.get("fabric_utilization"), 0.005, 0.03) if _many_nodes(f) else 0.0,
        "It runs on {nodes:.0f} nodes and keeps {fabric_utilization:.1%} of their fabric busy.",
        (T,), (B, I),
    ),
    KindSignal(
        "fabric-silent",
        lambda f: ramp(f.get("fabric_utilization"), 0.01, 0.002) if _many_nodes(f) else 0.0,
        "It runs on {nodes:.0f} nodes but their fabric carries next to nothing.",
        (O, B), (T,),
    ),
    KindSignal(
        "larger-than-a-node",
        lambda f: float(_many_nodes(f) or f.get("gpus", 1.0) > 8),
        "It is larger than one node of 8 GPUs.",
        (T,), (F, B, I),
    ),
    KindSignal("one-gpu", lambda f: float(f.get("gpus", 1.0) <= 1), "It runs on one GPU.", (I,), (T,)),
    KindSignal(
        "whole-node",
        lambda f: ramp(f.get("gpus"), 3.0, 8.0) if not _many_nodes(f) else 0.0,
        "It holds {gpus:.0f} GPUs of one node.",
        (T, F, O), (I,),
    ),
    KindSignal(
        "collectives",
        lambda f: min(ramp(f.get("nvlink_utilization"), 0.02, 0.15), ramp(f.get("nvlink_symmetry"), 0.7, 0.9)),
        "NVLink is busy ({nvlink_utilization:.0%}) and carries as much out as in: collectives.",
        (T, F), (B, I),
    ),
    KindSignal(
        "links-with-compute",
        lambda f: ramp(f.get("tensor_nvlink_correlation"), 0.1, 0.6) if is_fine(f) else 0.0,
        "NVLink is busy in the same seconds as the tensor cores.",
        (O,), (I,),
    ),
    KindSignal(
        "links-against-compute",
        lambda f: ramp(f.get("tensor_nvlink_correlation"), -0.05, -0.5) if is_fine(f) else 0.0,
        "NVLink is busy in the seconds in which the tensor cores wait.",
        (T, F), (O, B, I),
    ),
    KindSignal(
        "bandwidth-bound",
        lambda f: ramp(octaves(f), 0.0, 1.0),
        "Memory bandwidth is used {memory_times:.1f} times as much as compute, as when tokens are decoded.",
        (O, B), (T, F),
    ),
    KindSignal(
        "compute-bound",
        lambda f: ramp(octaves(f), 0.0, -1.0),
        "Compute is used {compute_times:.1f} times as much as memory bandwidth.",
        (T, F, B), (O, I),
    ),
    KindSignal(
        "dense-seconds",
        lambda f: ramp(density(f), 0.35, 0.65),
        "A busy second holds much work: {density:.0%} of what the GPU can do.",
        (T, F, O, B), (I,),
    ),
    KindSignal(
        "thin-seconds",
        lambda f: ramp(density(f), 0.35, 0.1),
        "Even a busy second holds little work: {density:.0%} of what the GPU can do.",
        (I,), (T, F, B),
    ),
    KindSignal(
        "write-bursts",
        lambda f: ramp(f.get("write_bursts"), 0.03, 0.25),
        "The host writes in bursts in {write_bursts:.0%} of the hours, as checkpoints do.",
        (T, F), (O, I),
    ),
    KindSignal(
        "bus-busy", lambda f: ramp(f.get("pcie_utilization"), 0.08, 0.35), "PCIe is busy ({pcie_utilization:.0%}).",
        (B, T), (I,),
    ),
    KindSignal(
        "always-busy",
        lambda f: ramp(busy_share(f), 0.8, 0.95),
        "It is busy in {busy:.0%} of the time: nobody stops to think.",
        (T, F, B), (I, O),
    ),
    KindSignal(
        "seldom-busy",
        lambda f: ramp(busy_share(f), 0.35, 0.15),
        "It works in short bursts: busy in {busy:.0%} of the time.",
        (O, I), (T, F, B),
    ),
    KindSignal(
        "pauses",
        lambda f: ramp(f.get("idle_run_hours"), 0.03, 0.2) if is_fine(f) else 0.0,
        "In a usual hour it pauses for {pause_minutes:.0f} minutes on end.",
        (I,), (T, F, B),
    ),
    KindSignal(
        "uneven-seconds",
        lambda f: ramp(f.get("sm_active_cv"), 0.3, 0.9) if is_fine(f) else 0.0,
        "Its activity changes from second to second.",
        (O, I), (T, F, B),
    ),
    KindSignal(
        "even-seconds",
        lambda f: ramp(f.get("sm_active_cv"), 0.15, 0.04) if is_fine(f) else 0.0,
        "Its activity hardly changes from second to second.",
        (T, F, B, O), (I,),
    ),
)  # fmt: skip
