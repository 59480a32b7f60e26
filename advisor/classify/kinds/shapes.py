"""Shapes that distinguish kinds: each a number from 0 (not so) to 1 (clearly so), a sentence, and the kinds it can
support.

A shape may only ever raise the kinds it speaks for and lower those it speaks against; how much is fitted
(rules/kind_model.yaml). So evidence is monotone whatever examples a model was made from. Each is relative: shares of
time, of a peak or a limit, never watts, bytes or a SKU's name. A shape without data is 0, and so is its
opposite: what is missing speaks for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from string import Formatter

from ....rules.policy.labels import WORKING_KINDS, KindLabel
from ...core.coded_text import CodedText, coded
from ..features.features import PERIOD_INTERVAL_MAX_SECONDS, Features

# Runs and duty counted over samples farther apart than this are of something else.
FINE_SECONDS = 5.0
# Fewer hours do not show a night or an evening.
COURSE_HOURS_MIN = 5.0
T, F, O, B, I = WORKING_KINDS  # noqa: E741


@dataclass(frozen=True, slots=True)
class Shape:
    """`measure`: 0..1 from the features; `sentence`: a template over the features and what `derived` adds to them.

    `speaks_for`, `speaks_against`: the kinds that it may raise and lower; of all others it says nothing.
    """

    name: str
    measure: Callable[[Features], float]
    sentence: str
    speaks_for: tuple[KindLabel, ...]
    speaks_against: tuple[KindLabel, ...]

    def level(self, features: Features) -> float:
        """How clearly it is so, 0..1. What cannot be said in words, because a number of it is missing, is 0."""
        level = self.measure(features)
        if level <= 0:
            return 0.0
        return level if features.keys() >= _named(self.sentence) or self._numbers(features) is not None else 0.0

    def told(self, features: Features) -> CodedText:
        """The statement (its code is ``shape-`` and the name), for features that give a level above 0."""
        return coded(f"shape-{self.name}", self.sentence, **(self._numbers(features) or {}))

    def _numbers(self, features: Features) -> dict[str, float] | None:
        """What the sentence names, or None where some of it is missing."""
        names = _named(self.sentence)
        values = features if features.keys() >= names else {**features, **derived(features)}
        return {name: values[name] for name in names} if values.keys() >= names else None

    def bounds(self, kind: str, most: float) -> tuple[float, float]:
        """The least and the most log-odds that it may add to a kind at level 1."""
        return (0.0 if kind not in self.speaks_against else -most, 0.0 if kind not in self.speaks_for else most)


@cache
def _named(sentence: str) -> AbstractSet[str]:
    """What a sentence names, in its order."""
    return dict.fromkeys(name for _, name, _, _ in Formatter().parse(sentence) if name).keys()


def derived(features: Features) -> Mapping[str, float]:
    """Numbers that sentences name beside the features, those that are known."""
    out: dict[str, float] = {}
    ratio = octaves(features)
    if ratio is not None:
        out["memory_times"], out["compute_times"] = 2**ratio, 2**-ratio
    for name, value in (("density", density(features)), ("busy", busy_share(features))):
        if value is not None:
            out[name] = value
    if "idle_run_hours" in features:
        out["pause_minutes"] = 60 * features["idle_run_hours"]
    out["days"] = features.get("chain_hours", 0.0) / 24
    return out


def ramp(value: float | None, low: float, high: float) -> float:
    """0 up to `low`, 1 from `high` on, straight between; 0 where the value is missing. Falls where high < low."""
    if value is None or math.isnan(value):
        return 0.0
    return min(1.0, max(0.0, (value - low) / (high - low)))


def is_fine(features: Features) -> bool:
    """Whether its samples are near enough to one another to show seconds."""
    return features.get("resolution_seconds", 1.0) <= FINE_SECONDS


def busy_share(features: Features) -> float | None:
    """Share of the time at work: of the seconds where they are known, else the engine's mean."""
    engine = _engine(features)
    return features.get("duty", engine) if is_fine(features) else engine


def octaves(features: Features) -> float | None:
    """Memory bandwidth over compute, each as a share of what the GPU sustains (else of its peak), in powers of two."""
    busy = max(
        features.get("hbm_of_sustained_busy_p95", features.get("hbm_utilization", 0.0)),
        features.get("tensor_of_sustained_busy_p95", features.get("tensor_utilization", 0.0)),
    )
    ratio = features.get("memory_over_compute")
    if ratio is None and "hbm_per_engine" in features and "tensor_per_engine" in features:
        ratio = features["hbm_per_engine"] / max(features["tensor_per_engine"], 0.01)
    return None if ratio is None or busy < 0.05 else math.log2(max(ratio, 1e-3))


def density(features: Features) -> float | None:
    """The more of compute and memory bandwidth, relative to the peak, that a second of busy engine holds."""
    if "hbm_per_engine" not in features or "tensor_per_engine" not in features:
        return None
    return max(features["hbm_per_engine"], features["tensor_per_engine"])


def _engine(f: Features) -> float | None:
    return f.get("engine_active", f.get("sm_active"))


def _several(f: Features) -> float:
    return float(f.get("gpus", 1.0) >= 2)


def low_in_lockstep(f: Features) -> float:
    """How clearly several GPUs are little used and move as one, without a sign of requests (day, memory pool)."""
    requests = max(_daily(f), _same_hours(f), _pool(f))
    return _several(f) * ramp(f.get("sync"), 0.2, 0.6) * ramp(_engine(f), 0.6, 0.4) * (1 - requests)


def _daily(f: Features) -> float:
    return min(ramp(f.get("diurnal_share"), 0.1, 0.4), ramp(f.get("diurnal_amplitude"), 0.02, 0.08))


def _same_hours(f: Features) -> float:
    return ramp(f.get("day_before"), 0.3, 0.8)


def _many_nodes(f: Features) -> bool:
    return f.get("nodes", 1.0) >= 2


def _day(f: Features) -> bool:
    return f.get("elapsed_hours", 0.0) >= 20.0


def _span(f: Features) -> float:
    return f.get("chain_hours", 0.0)


def _periodic(f: Features, low: float, high: float) -> float:
    is_resolved = f.get("elapsed_hours", 0.0) >= 0.5 and f.get("resolution_seconds", 1.0) <= PERIOD_INTERVAL_MAX_SECONDS
    return ramp(f.get("period_share"), low, high) if is_resolved else 0.0


def _pool(f: Features) -> float:
    """Memory of an engine that preallocates; half of it where the level is all that was seen."""
    if "mem_flat" in f:
        return ramp(f["mem_flat"], 0.0, 1.0)
    return 0.5 if 0.88 <= f.get("mem_level", 0.0) <= 0.95 else 0.0


def _full(f: Features) -> float:
    return ramp(f.get("active_fill"), 0.6, 0.85) * ramp(f.get("active_engine"), 0.4, 0.7)


SHAPES: tuple[Shape, ...] = (
    # The work itself: its steps, its links, its size, what a busy second holds.
    Shape(
        "periodic",
        lambda f: _periodic(f, 0.3, 0.8) * ramp(f.get("period_strength"), 0.2, 0.7),
        "Step of {period_seconds:.0f} s repeats in {period_share:.0%} of its busy time (autocorrelation "
        "{period_strength:.2f}).",
        (T, F), (O, B, I),
    ),
    Shape("aperiodic", lambda f: _periodic(f, 0.3, 0.05), "No repeated step of 1 to 120 s.", (O, B, I), (T, F)),
    Shape(
        "fabric-busy",
        lambda f: ramp(f.get("fabric_utilization"), 0.002, 0.02) if _many_nodes(f) else 0.0,
        "Runs on {nodes:.0f} nodes, fabric utilization {fabric_utilization:.1%}.",
        (T,), (B, I),
    ),
    # A training on two nodes was measured at 244 MB/s a port, 0.5 % of the line rate: little traffic is not silence.
    Shape(
        "fabric-silent",
        lambda f: ramp(f.get("fabric_utilization"), 0.004, 0.001) if _many_nodes(f) else 0.0,
        "Runs on {nodes:.0f} nodes with almost no traffic on their fabric.",
        (O, B), (T,),
    ),
    Shape(
        "larger-than-a-node",
        lambda f: float(_many_nodes(f) or f.get("gpus", 1.0) > 8),
        "Larger than one node of 8 GPUs.",
        (T,), (F, B, I),
    ),
    # Where memory bandwidth shows that tokens are decoded, several GPUs are one engine's as well.
    Shape(
        "several-gpus", lambda f: 0.0 if _many_nodes(f) else _several(f) * (1 - ramp(octaves(f), 0.0, 1.0)),
        "Holds {gpus:.0f} GPUs of one node.",
        (T, F), (I,),
    ),
    Shape(
        "in-lockstep",
        lambda f: _several(f) * ramp(f.get("sync"), 0.3, 0.8) * (1 - ramp(octaves(f), 0.0, 1.0)),
        "Its GPUs rise and fall together (correlation {sync:.2f}).",
        (T, F), (I,),
    ),
    # Rollouts of reinforcement learning and offload to the CPU look so; replicas of a service do not move together.
    Shape(
        "low-in-lockstep",
        low_in_lockstep,
        "Its GPUs rise and fall together, busy {busy:.0%} of the time: a job limited by its host or its phases.",
        (T, F), (O, B, I),
    ),
    # Layers spread over GPUs keep one of them busy at a time; independent replicas are uncorrelated.
    Shape(
        "in-turns", lambda f: _several(f) * ramp(f.get("sync"), -0.05, -0.3),
        "Its GPUs work by turns (correlation {sync:.2f}): one job spread over them.",
        (T, F), (O, B, I),
    ),
    Shape(
        "collectives",
        lambda f: min(ramp(f.get("nvlink_utilization"), 0.02, 0.15), ramp(f.get("nvlink_symmetry"), 0.7, 0.9)),
        "NVLink utilization {nvlink_utilization:.0%}, as much sent as received: typical of collectives.",
        (T, F), (B, I),
    ),
    Shape(
        "links-against-compute",
        lambda f: ramp(f.get("tensor_nvlink_correlation"), -0.05, -0.5) if is_fine(f) else 0.0,
        "NVLink is busy in seconds in which tensor cores wait.",
        (T, F), (O, B, I),
    ),
    Shape(
        "bandwidth-bound", lambda f: ramp(octaves(f), 0.0, 1.0),
        "Memory bandwidth use is {memory_times:.1f} times the compute use, typical of decoding tokens.",
        (O, B), (T, F),
    ),
    Shape(
        "compute-bound", lambda f: ramp(octaves(f), 0.0, -1.0),
        "Compute use is {compute_times:.1f} times the memory bandwidth use.",
        (T, F, B), (O, I),
    ),
    Shape(
        "thin-seconds", lambda f: ramp(density(f), 0.35, 0.1),
        "Low load even in busy seconds: {density:.0%} of what the GPU sustains.",
        (I,), (T, F, B),
    ),
    Shape(
        "power-at-limit",
        lambda f: ramp(f.get("power_of_limit"), 0.86, 0.97) * ramp(_engine(f), 0.5, 0.8),
        "Power at {power_of_limit:.0%} of the limit at work: matrix products fill the GPU.",
        (T, F), (O, B, I),
    ),
    # Decoding waits for memory: V100, RTX 4090 and L40S were seen at 0.63 to 0.89 of their limit with a busy engine.
    Shape(
        "busy-below-power-limit",
        lambda f: (1 - _several(f)) * ramp(_engine(f), 0.6, 0.72) * ramp(_engine(f), 0.99, 0.94)
        * ramp(f.get("power_of_limit"), 0.5, 0.62) * ramp(f.get("power_of_limit"), 0.95, 0.9),
        "Busy {busy:.0%} of the time at {power_of_limit:.0%} of the power limit, typical of generating in batches.",
        (B, O), (T, F),
    ),
    Shape(
        "small-kernels",
        lambda f: ramp(_engine(f), 0.8, 0.95) * ramp(f.get("power_of_limit"), 0.5, 0.3),
        "Busy {busy:.0%} of the time at only {power_of_limit:.0%} of the power limit: a loop of small kernels.",
        (T, F), (O, B, I),
    ),
    Shape(
        "write-bursts", lambda f: ramp(f.get("write_bursts"), 0.03, 0.25),
        "Host write bursts in {write_bursts:.0%} of the hours, typical of checkpoints.",
        (T, F), (O, I),
    ),
    Shape(
        "bus-busy", lambda f: ramp(f.get("pcie_utilization"), 0.08, 0.35), "PCIe utilization {pcie_utilization:.0%}.",
        (B, T), (I,),
    ),
    Shape(
        "always-busy", lambda f: ramp(busy_share(f), 0.8, 0.95),
        "Busy {busy:.0%} of the time, without the pauses of interactive work.",
        (T, F, B), (I, O),
    ),
    Shape(
        "seldom-busy", lambda f: ramp(busy_share(f), 0.35, 0.15),
        "Short bursts of work: busy {busy:.0%} of the time.",
        (O, I), (T, F, B),
    ),
    Shape(
        "pauses", lambda f: ramp(f.get("idle_run_hours"), 0.03, 0.2) if is_fine(f) else 0.0,
        "Pauses for {pause_minutes:.0f} minutes without a break in a typical hour.",
        (I,), (T, F, B),
    ),
    # The course by the hour: when it works and rests.
    Shape(
        "never-rests", lambda f: ramp(f.get("active_share"), 0.9, 0.99) * ramp(f.get("elapsed_hours"), 20.0, 36.0),
        "Active in {active_share:.0%} of the hours, day and night.",
        (T, O, B), (I,),
    ),
    Shape(
        "light-all-day",
        # Of a few hours it may be an afternoon's; a whole day holds a night. What is the same in every hour is a loop.
        lambda f: min(ramp(f.get("active_share"), 0.55, 0.8), ramp(f.get("active_engine"), 0.5, 0.2))
        * ramp(f.get("elapsed_hours"), 2.0, 20.0),
        "Light load in nearly every hour: {active_engine:.0%} of the time in {active_share:.0%} of the hours.",
        (O,), (T, F, B, I),
    ),
    # Demand comes and goes within an hour; a loop that waits for its host does not.
    Shape(
        "steady-below-full",
        lambda f: ramp(f.get("active_fill"), 0.5, 0.8) * ramp(f.get("active_engine"), 0.75, 0.5),
        "Steady at {active_engine:.0%} within the hour ({active_fill:.0%} of its busiest minutes): a loop that waits "
        "for its host, not demand.",
        (T, F), (O, I, B),
    ),
    Shape(
        "even-below-full",
        lambda f: (1 - _several(f)) * ramp(f.get("active_engine"), 0.98, 0.93) * ramp(f.get("active_engine"), 0.5, 0.65)
        * ramp(f.get("active_swing", 0.0), 0.15, 0.05),
        "Busy {active_engine:.0%} of the time on one GPU, hour by hour the same.",
        (B,), (O, I),
    ),
    Shape(
        "even-for-a-day",
        lambda f: min(ramp(f.get("active_swing"), 0.1, 0.04), ramp(f.get("active_engine"), 0.95, 0.85))
        * ramp(f.get("active_share"), 0.95, 1.0) * ramp(f.get("elapsed_hours"), 12.0, 24.0),
        "Load is the same in every hour and below the limit ({active_engine:.0%} of the time): too even "
        "for user demand.",
        (T, F, B), (O, I),
    ),
    Shape(
        "seldom-at-work", lambda f: ramp(f.get("active_share"), 0.55, 0.3) if _day(f) else 0.0,
        "Active in only {active_share:.0%} of the hours.",
        (I, B), (T, O),
    ),
    Shape(
        "full-hours",
        lambda f: min(ramp(f.get("active_fill"), 0.7, 0.92), ramp(f.get("active_engine"), 0.5, 0.8)),
        "Active for whole hours: {active_engine:.0%} of the time in its active hours.",
        (T, F, B), (O, I),
    ),
    Shape(
        "bursts", lambda f: ramp(f.get("active_fill"), 0.6, 0.3),
        "Load comes in bursts: the hourly mean is {active_fill:.0%} of the busiest minutes.",
        (O, I), (T, F, B),
    ),
    Shape(
        "graded-hours",
        lambda f: ramp(f.get("between_share"), 0.2, 0.6) if f.get("elapsed_hours", 0.0) >= COURSE_HOURS_MIN else 0.0,
        "Medium load in {between_share:.0%} of the hours, typical of varying demand.",
        (O, I), (T, F, B),
    ),
    Shape(
        "rests-at-night",
        lambda f: min(ramp(f.get("rest_hours_max"), 5.0, 9.0), ramp(f.get("active_share"), 0.8, 0.6)) if _day(f)
        else 0.0,
        "Idle for up to {rest_hours_max:.0f} hours in a row.",
        (I, B), (T, O),
    ),
    Shape(
        "often-interrupted", lambda f: ramp(f.get("rests_per_day"), 1.5, 4.0) if _day(f) else 0.0,
        "Starts again {rests_per_day:.1f} times a day after an hour of rest.",
        (I, O), (T, F, B),
    ),
    Shape(
        "daily", _daily,
        "Load follows the time of day: {diurnal_share:.0%} of its variance is a 24 h wave.",
        (O,), (T, F, B),
    ),
    Shape(
        "steady",
        lambda f: ramp(f.get("swing"), 0.12, 0.03) * ramp(f.get("active_share", 1.0), 0.2, 0.5)
        if f.get("elapsed_hours", 0.0) >= 6 else 0.0,
        "Load hardly changes from hour to hour ({swing:.0%}).",
        (T, B, F), (O, I),
    ),
    Shape(
        "same-hours", _same_hours,
        "Load repeats at the same hour of the day (correlation {day_before:.2f}).",
        (O, B), (T, F),
    ),
    Shape(
        "working-hours",
        lambda f: min(ramp(f.get("working_hours_share"), 0.7, 0.95), ramp(f.get("active_share"), 0.8, 0.5)),
        "{working_hours_share:.0%} of the work is done in the same ten hours of the day.",
        (I, B), (T, F, O),
    ),
    # Memory. What is allocated once is no sign of a service by itself: caching allocators of trainings do so, too.
    Shape(
        "memory-pool", _pool,
        "{mem_level:.0%} of the memory is allocated once and never changes: typical of an engine that "
        "preallocates.",
        (O, B), (I,),
    ),
    Shape(
        "memory-still", lambda f: ramp(f.get("mem_hourly_cv"), 0.01, 0.002) if not _pool(f) else 0.0,
        "Memory use is constant: it changes by less than {mem_hourly_cv:.1%} from hour to hour.",
        (O, T), (I,),
    ),
    Shape(
        "memory-moves", lambda f: ramp(f.get("mem_hourly_cv"), 0.04, 0.3),
        "Memory use changes by {mem_hourly_cv:.0%} from hour to hour.",
        (I, F, B), (O, T),
    ),
    Shape(
        "memory-much",
        lambda f: ramp(f.get("mem_max"), 0.3, 0.55) * _full(f) if not _pool(f) else 0.0,
        "{mem_max:.0%} of the memory used under full load, typical of gradients and activations.",
        (T, F), (B,),
    ),
    Shape(
        "memory-little", lambda f: ramp(f.get("mem_max"), 0.3, 0.12) * _full(f),
        "Only {mem_max:.0%} of the memory used under full load: little more than the weights.",
        (B,), (T, F),
    ),
    Shape(
        "memory-kept",
        lambda f: ramp(f.get("mem_kept_at_rest"), 0.6, 0.9) * ramp(f.get("active_share"), 0.95, 0.8),
        "Memory is kept at rest.",
        (O, I), (B, T, F),
    ),
    # How long it lives and whether it comes again.
    Shape(
        "older-than-days", lambda f: ramp(_span(f), 48.0, 120.0), "Running for {days:.0f} days.", (O, I), (F, B),
    ),
    Shape(
        "came-and-went", lambda f: ramp(f.get("ended"), 0.0, 1.0) * ramp(_span(f), 28.0, 20.0),
        "Started and ended within {chain_hours:.1f} hours.",
        (F, B), (O, T),
    ),
    Shape(
        "short-and-full",
        lambda f: _full(f) * ramp(f.get("mem_max"), 0.25, 0.5) * ramp(f.get("ended"), 0.0, 1.0)
        * ramp(_span(f), 28.0, 20.0) * (1.0 - _pool(f)),
        "Full load for {chain_hours:.1f} hours with {mem_max:.0%} of the memory, then ended.",
        (F,), (B, O, I),
    ),
    Shape(
        "begins-at-one-hour",
        lambda f: ramp(f.get("series_start_spread_hours"), 3.0, 0.7) * ramp(f.get("series_run_hours"), 24.0, 14.0),
        "Runs of the series start at the same hour of the day, within {series_start_spread_hours:.1f} h.",
        (B,), (T, F, I),
    ),
    Shape(
        "runs-recur",
        lambda f: ramp(f.get("series_runs"), 1.5, 3.5) * ramp(f.get("series_run_hours"), 24.0, 14.0),
        "One of {series_runs:.0f} runs of a series, {series_run_hours:.1f} hours each.",
        (F, B), (T, O),
    ),
)  # fmt: skip


def levels(features: Features) -> dict[str, float]:
    """Every shape's level, in the order of `SHAPES`."""
    return {shape.name: shape.level(features) for shape in SHAPES}


# Any features that make every shape say something; the fingerprint is taken around them.
PROBE: Mapping[str, float] = {
    "resolution_seconds": 1.0, "hours": 60.0, "elapsed_hours": 30.0, "chain_hours": 60.0, "ended": 0.5, "gpus": 2.0,
    "nodes": 1.5, "period_share": 0.4, "period_seconds": 8.0, "period_strength": 0.5, "fabric_utilization": 0.003,
    "nvlink_utilization": 0.1, "nvlink_symmetry": 0.8, "tensor_nvlink_correlation": -0.3, "diurnal_share": 0.3,
    "diurnal_amplitude": 0.05, "swing": 0.08, "mem_flat": 0.5, "mem_level": 0.6, "mem_max": 0.4,
    "memory_over_compute": 1.2, "sync": 0.5, "power_of_limit": 0.9,
    "hbm_of_sustained_busy_p95": 0.5, "tensor_of_sustained_busy_p95": 0.4, "hbm_per_engine": 0.3,
    "tensor_per_engine": 0.3, "write_bursts": 0.1, "pcie_utilization": 0.15, "duty": 0.45, "engine_active": 0.5,
    "idle_run_hours": 0.1, "active_share": 0.7, "rest_hours_max": 7.0, "rests_per_day": 2.0,
    "active_engine": 0.55, "active_fill": 0.7, "active_swing": 0.08, "between_share": 0.25, "day_before": 0.4,
    "working_hours_share": 0.8, "mem_hourly_cv": 0.05, "mem_kept_at_rest": 0.8, "series_runs": 2.0,
    "series_run_hours": 18.0, "series_start_spread_hours": 1.5,
}  # fmt: skip


def fingerprint(shapes: Iterable[Shape]) -> str:
    """What a model was trained for: the shapes' names in order, the kinds they affect, and their levels on a fixed
    grid of features."""
    digest = sha256()
    probes = [dict(PROBE), *({**PROBE, name: PROBE[name] * scale} for name in PROBE for scale in (0.0, 0.5, 2.0))]
    for shape in shapes:
        said = ",".join(f"{shape.level(probe):.6f}" for probe in probes)
        digest.update(f"{shape.name}:{shape.speaks_for}:{shape.speaks_against}:{said}\n".encode())
    return digest.hexdigest()[:16]
