"""Shapes of the work itself: its steps, its links, what a busy second holds, how large it is.

Each is relative: shares of time, of a peak, never watts, bytes or a SKU's name. A shape that cannot be told is 0, and
so is its opposite: what is missing speaks for nothing. Second-fine shapes count only where samples are that fine.
"""

from __future__ import annotations

from ..features.at_work import PERIOD_INTERVAL_MAX_SECONDS
from ..features.features import Features
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
        "Step of {period_seconds:.0f} s repeats in {period_share:.0%} of its busy time (autocorrelation "
        "{period_strength:.2f}).",
        (T, F), (O, B, I),
    ),
    KindSignal("aperiodic", lambda f: _periodic(f, 0.3, 0.05), "No repeated step of 1 to 120 s.", (O, B, I), (T, F)),
    KindSignal(
        "fabric-busy",
        lambda f: ramp(f.get("fabric_utilization"), 0.005, 0.03) if _many_nodes(f) else 0.0,
        "Runs on {nodes:.0f} nodes, fabric utilization {fabric_utilization:.1%}.",
        (T,), (B, I),
    ),
    KindSignal(
        "fabric-silent",
        lambda f: ramp(f.get("fabric_utilization"), 0.01, 0.002) if _many_nodes(f) else 0.0,
        "Runs on {nodes:.0f} nodes with almost no traffic on their fabric.",
        (O, B), (T,),
    ),
    KindSignal(
        "larger-than-a-node",
        lambda f: float(_many_nodes(f) or f.get("gpus", 1.0) > 8),
        "Larger than one node of 8 GPUs.",
        (T,), (F, B, I),
    ),
    KindSignal("one-gpu", lambda f: float(f.get("gpus", 1.0) <= 1), "Runs on one GPU.", (I,), (T,)),
    KindSignal(
        "whole-node",
        lambda f: ramp(f.get("gpus"), 3.0, 8.0) if not _many_nodes(f) else 0.0,
        "Holds {gpus:.0f} GPUs of one node.",
        (T, F, O), (I,),
    ),
    KindSignal(
        "collectives",
        lambda f: min(ramp(f.get("nvlink_utilization"), 0.02, 0.15), ramp(f.get("nvlink_symmetry"), 0.7, 0.9)),
        "NVLink utilization {nvlink_utilization:.0%}, as much sent as received: typical of collectives.",
        (T, F), (B, I),
    ),
    KindSignal(
        "links-with-compute",
        lambda f: ramp(f.get("tensor_nvlink_correlation"), 0.1, 0.6) if is_fine(f) else 0.0,
        "NVLink and tensor cores are busy in the same seconds.",
        (O,), (I,),
    ),
    KindSignal(
        "links-against-compute",
        lambda f: ramp(f.get("tensor_nvlink_correlation"), -0.05, -0.5) if is_fine(f) else 0.0,
        "NVLink is busy in seconds in which tensor cores wait.",
        (T, F), (O, B, I),
    ),
    KindSignal(
        "bandwidth-bound",
        lambda f: ramp(octaves(f), 0.0, 1.0),
        "Memory bandwidth use is {memory_times:.1f} times the compute use, typical of decoding tokens.",
        (O, B), (T, F),
    ),
    KindSignal(
        "compute-bound",
        lambda f: ramp(octaves(f), 0.0, -1.0),
        "Compute use is {compute_times:.1f} times the memory bandwidth use.",
        (T, F, B), (O, I),
    ),
    KindSignal(
        "dense-seconds",
        lambda f: ramp(density(f), 0.35, 0.65),
        "High load in busy seconds: {density:.0%} of what the GPU sustains.",
        (T, F, O, B), (I,),
    ),
    KindSignal(
        "thin-seconds",
        lambda f: ramp(density(f), 0.35, 0.1),
        "Low load even in busy seconds: {density:.0%} of what the GPU sustains.",
        (I,), (T, F, B),
    ),
    KindSignal(
        "write-bursts",
        lambda f: ramp(f.get("write_bursts"), 0.03, 0.25),
        "Host write bursts in {write_bursts:.0%} of the hours, typical of checkpoints.",
        (T, F), (O, I),
    ),
    KindSignal(
        "bus-busy", lambda f: ramp(f.get("pcie_utilization"), 0.08, 0.35), "PCIe utilization {pcie_utilization:.0%}.",
        (B, T), (I,),
    ),
    KindSignal(
        "always-busy",
        lambda f: ramp(busy_share(f), 0.8, 0.95),
        "Busy {busy:.0%} of the time, without the pauses of interactive work.",
        (T, F, B), (I, O),
    ),
    KindSignal(
        "seldom-busy",
        lambda f: ramp(busy_share(f), 0.35, 0.15),
        "Short bursts of work: busy {busy:.0%} of the time.",
        (O, I), (T, F, B),
    ),
    KindSignal(
        "pauses",
        lambda f: ramp(f.get("idle_run_hours"), 0.03, 0.2) if is_fine(f) else 0.0,
        "Pauses for {pause_minutes:.0f} minutes without a break in a typical hour.",
        (I,), (T, F, B),
    ),
    KindSignal(
        "uneven-seconds",
        lambda f: ramp(f.get("sm_active_cv"), 0.3, 0.9) if is_fine(f) else 0.0,
        "Activity varies from second to second.",
        (O, I), (T, F, B),
    ),
    KindSignal(
        "even-seconds",
        lambda f: ramp(f.get("sm_active_cv"), 0.15, 0.04) if is_fine(f) else 0.0,
        "Activity hardly varies from second to second.",
        (T, F, B, O), (I,),
    ),
)  # fmt: skip
