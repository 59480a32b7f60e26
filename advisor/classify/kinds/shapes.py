"""Shapes that distinguish kinds: each a number from 0 (not so) to 1 (clearly so), a sentence, and the kinds it can
support.

A shape may only ever raise the kinds it speaks for and lower those it speaks against; how much is fitted
(rules/kind_model.yaml). So evidence is monotone whatever examples a model was made from. Each is relative: shares of
time, of a peak or a limit, never watts, bytes or a SKU's name. A shape without data is 0, and so is its
opposite: what is missing speaks for nothing.
"""

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
    """`speaks_for`, `speaks_against`: the kinds that it may raise and lower; of all others it says nothing. `measure`:
    0..1 from the features. `sentence`: a template over these and what `with_derived` adds to them."""

    name: str
    speaks_for: tuple[KindLabel, ...]
    speaks_against: tuple[KindLabel, ...]
    measure: Callable[[Features], float]
    sentence: str

    def level(self, numbers: Features) -> float:
        """How clearly it is so, 0..1; 0 where a number of its sentence is missing. `numbers`: of `with_derived`."""
        level = self.measure(numbers)
        return level if level > 0 and numbers.keys() >= _named(self.sentence) else 0.0

    def told(self, numbers: Features) -> CodedText:
        """The statement (its code is ``shape-`` and the name), for features that give a level above 0."""
        return coded(f"shape-{self.name}", self.sentence, **{name: numbers[name] for name in _named(self.sentence)})

    def bounds(self, kind: str, most: float) -> tuple[float, float]:
        """The least and the most log-odds that it may add to a kind at level 1."""
        return (0.0 if kind not in self.speaks_against else -most, 0.0 if kind not in self.speaks_for else most)


@cache
def _named(sentence: str) -> AbstractSet[str]:
    return dict.fromkeys(name for _, name, _, _ in Formatter().parse(sentence) if name).keys()


def with_derived(features: Features) -> Features:
    """The features and more numbers, where these are known. `engine`: active share of it, else of the SMs; `busy`:
    share of the time at work, of the seconds where they are known; `octaves`: memory bandwidth over compute, each as a
    share of what the GPU sustains (else of its peak), in powers of two; `density`: the more of both, relative to the
    peak, that a second of busy engine holds."""
    get = features.get
    engine, ratio = get("engine_active", get("sm_active")), get("memory_over_compute")
    more = {"engine": engine, "busy": get("duty", engine) if is_fine(features) else engine}
    more["days"] = get("chain_hours", 0.0) / 24
    if "hbm_per_engine" in features and "tensor_per_engine" in features:
        memory, compute = features["hbm_per_engine"], features["tensor_per_engine"]
        more["density"] = max(memory, compute)
        ratio = memory / max(compute, 0.01) if ratio is None else ratio
    memory = get("hbm_of_sustained_busy_p95", get("hbm_utilization", 0.0))
    compute = get("tensor_of_sustained_busy_p95", get("tensor_utilization", 0.0))
    if ratio is not None and not max(memory, compute) < 0.05:
        more["octaves"] = octaves = math.log2(max(ratio, 1e-3))
        more |= {"memory_times": 2**octaves, "compute_times": 2**-octaves}
    if "idle_run_hours" in features:
        more["pause_minutes"] = 60 * features["idle_run_hours"]
    return {**features, **{name: value for name, value in more.items() if value is not None}}


def ramp(f: Features, name: str, low: float, high: float, missing: float = math.nan) -> float:
    """0 up to `low`, 1 from `high` on, straight between; 0 where the number is missing. Falls where high < low."""
    value = f.get(name, missing)
    return 0.0 if math.isnan(value) else min(1.0, max(0.0, (value - low) / (high - low)))


def is_fine(features: Features) -> bool:
    """Whether its samples are near enough to one another to show seconds."""
    return features.get("resolution_seconds", 1.0) <= FINE_SECONDS


def _several(f: Features) -> float:
    return float(f.get("gpus", 1.0) >= 2)


def _many_nodes(f: Features) -> float:
    return float(f.get("nodes", 1.0) >= 2)


def _day(f: Features) -> float:
    return float(f.get("elapsed_hours", 0.0) >= 20.0)


def low_in_lockstep(numbers: Features) -> float:
    """How clearly several GPUs are little used and move as one, without a sign of requests (day, memory pool)."""
    requests = max(_daily(numbers), ramp(numbers, "day_before", 0.3, 0.8), _pool(numbers))
    return _several(numbers) * ramp(numbers, "sync", 0.2, 0.6) * ramp(numbers, "engine", 0.6, 0.4) * (1 - requests)


def _daily(f: Features) -> float:
    return min(ramp(f, "diurnal_share", 0.1, 0.4), ramp(f, "diurnal_amplitude", 0.02, 0.08))


def _periodic(f: Features, low: float, high: float) -> float:
    is_resolved = f.get("elapsed_hours", 0.0) >= 0.5 and f.get("resolution_seconds", 1.0) <= PERIOD_INTERVAL_MAX_SECONDS
    return is_resolved * ramp(f, "period_share", low, high)


def _pool(f: Features) -> float:
    if "mem_flat" in f:
        return ramp(f, "mem_flat", 0.0, 1.0)
    return 0.5 if 0.88 <= f.get("mem_level", 0.0) <= 0.95 else 0.0


def _full(f: Features) -> float:
    return ramp(f, "active_fill", 0.6, 0.85) * ramp(f, "active_engine", 0.4, 0.7)


SHAPES: tuple[Shape, ...] = (
    # The work itself: its steps, its links, its size, what a busy second holds.
    Shape(
        "periodic", (T, F), (O, B, I), lambda f: _periodic(f, 0.3, 0.8) * ramp(f, "period_strength", 0.2, 0.7),
        "Step of {period_seconds:.0f} s repeats in {period_share:.0%} of its busy time (autocorrelation "
        "{period_strength:.2f}).",
    ),
    Shape("aperiodic", (O, B, I), (T, F), lambda f: _periodic(f, 0.3, 0.05), "No repeated step of 1 to 120 s."),
    Shape(
        "fabric-busy", (T,), (B, I), lambda f: _many_nodes(f) * ramp(f, "fabric_utilization", 0.002, 0.02),
        "Runs on {nodes:.0f} nodes, fabric utilization {fabric_utilization:.1%}.",
    ),
    # A training on two nodes was measured at 244 MB/s a port, 0.5 % of the line rate: little traffic is not silence.
    Shape(
        "fabric-silent", (O, B), (T,), lambda f: _many_nodes(f) * ramp(f, "fabric_utilization", 0.004, 0.001),
        "Runs on {nodes:.0f} nodes with almost no traffic on their fabric.",
    ),
    Shape(
        "larger-than-a-node", (T,), (F, B, I), lambda f: float(_many_nodes(f) or f.get("gpus", 1.0) > 8),
        "Larger than one node of 8 GPUs.",
    ),
    # Where memory bandwidth shows that tokens are decoded, several GPUs are one engine's as well.
    Shape(
        "several-gpus", (T, F), (I,), lambda f: (1 - _many_nodes(f)) * _several(f) * (1 - ramp(f, "octaves", 0.0, 1.0)),
        "Holds {gpus:.0f} GPUs of one node.",
    ),
    Shape(
        "in-lockstep", (T, F), (I,),
        lambda f: _several(f) * ramp(f, "sync", 0.3, 0.8) * (1 - ramp(f, "octaves", 0.0, 1.0)),
        "Its GPUs rise and fall together (correlation {sync:.2f}).",
    ),
    # Rollouts of reinforcement learning and offload to the CPU look so; replicas of a service do not move together.
    Shape(
        "low-in-lockstep", (T, F), (O, B, I), low_in_lockstep,
        "Its GPUs rise and fall together, busy {busy:.0%} of the time: a job limited by its host or its phases.",
    ),
    # Layers spread over GPUs keep one of them busy at a time; independent replicas are uncorrelated.
    Shape(
        "in-turns", (T, F), (O, B, I), lambda f: _several(f) * ramp(f, "sync", -0.05, -0.3),
        "Its GPUs work by turns (correlation {sync:.2f}): one job spread over them.",
    ),
    Shape(
        "collectives", (T, F), (B, I),
        lambda f: min(ramp(f, "nvlink_utilization", 0.02, 0.15), ramp(f, "nvlink_symmetry", 0.7, 0.9)),
        "NVLink utilization {nvlink_utilization:.0%}, as much sent as received: typical of collectives.",
    ),
    Shape(
        "links-against-compute", (T, F), (O, B, I),
        lambda f: is_fine(f) * ramp(f, "tensor_nvlink_correlation", -0.05, -0.5),
        "NVLink is busy in seconds in which tensor cores wait.",
    ),
    Shape(
        "bandwidth-bound", (O, B), (T, F), lambda f: ramp(f, "octaves", 0.0, 1.0),
        "Memory bandwidth use is {memory_times:.1f} times the compute use, typical of decoding tokens.",
    ),
    Shape(
        "compute-bound", (T, F, B), (O, I), lambda f: ramp(f, "octaves", 0.0, -1.0),
        "Compute use is {compute_times:.1f} times the memory bandwidth use.",
    ),
    Shape(
        "thin-seconds", (I,), (T, F, B), lambda f: ramp(f, "density", 0.35, 0.1),
        "Low load even in busy seconds: {density:.0%} of what the GPU sustains.",
    ),
    Shape(
        "power-at-limit", (T, F), (O, B, I),
        lambda f: ramp(f, "power_of_limit", 0.86, 0.97) * ramp(f, "engine", 0.5, 0.8),
        "Power at {power_of_limit:.0%} of the limit at work: matrix products fill the GPU.",
    ),
    # Decoding waits for memory: V100, RTX 4090 and L40S were seen at 0.63 to 0.89 of their limit with a busy engine.
    Shape(
        "busy-below-power-limit", (B, O), (T, F),
        lambda f: (1 - _several(f)) * ramp(f, "engine", 0.6, 0.72) * ramp(f, "engine", 0.99, 0.94)
        * ramp(f, "power_of_limit", 0.5, 0.62) * ramp(f, "power_of_limit", 0.95, 0.9),
        "Busy {busy:.0%} of the time at {power_of_limit:.0%} of the power limit, typical of generating in batches.",
    ),
    Shape(
        "small-kernels", (T, F), (O, B, I),
        lambda f: ramp(f, "engine", 0.8, 0.95) * ramp(f, "power_of_limit", 0.5, 0.3),
        "Busy {busy:.0%} of the time at only {power_of_limit:.0%} of the power limit: a loop of small kernels.",
    ),
    Shape(
        "write-bursts", (T, F), (O, I), lambda f: ramp(f, "write_bursts", 0.03, 0.25),
        "Host write bursts in {write_bursts:.0%} of the hours, typical of checkpoints.",
    ),
    Shape(
        "bus-busy", (B, T), (I,), lambda f: ramp(f, "pcie_utilization", 0.08, 0.35),
        "PCIe utilization {pcie_utilization:.0%}.",
    ),
    Shape(
        "always-busy", (T, F, B), (I, O), lambda f: ramp(f, "busy", 0.8, 0.95),
        "Busy {busy:.0%} of the time, without the pauses of interactive work.",
    ),
    Shape(
        "seldom-busy", (O, I), (T, F, B), lambda f: ramp(f, "busy", 0.35, 0.15),
        "Short bursts of work: busy {busy:.0%} of the time.",
    ),
    Shape(
        "pauses", (I,), (T, F, B), lambda f: is_fine(f) * ramp(f, "idle_run_hours", 0.03, 0.2),
        "Pauses for {pause_minutes:.0f} minutes without a break in a typical hour.",
    ),
    # The course by the hour: when it works and rests.
    Shape(
        "never-rests", (T, O, B), (I,),
        lambda f: ramp(f, "active_share", 0.9, 0.99) * ramp(f, "elapsed_hours", 20.0, 36.0),
        "Active in {active_share:.0%} of the hours, day and night.",
    ),
    Shape(
        # Of a few hours it may be an afternoon's; a whole day holds a night. What is the same in every hour is a loop.
        "light-all-day", (O,), (T, F, B, I),
        lambda f: min(ramp(f, "active_share", 0.55, 0.8), ramp(f, "active_engine", 0.5, 0.2))
        * ramp(f, "elapsed_hours", 2.0, 20.0),
        "Light load in nearly every hour: {active_engine:.0%} of the time in {active_share:.0%} of the hours.",
    ),
    # Demand comes and goes within an hour; a loop that waits for its host does not.
    Shape(
        "steady-below-full", (T, F), (O, I, B),
        lambda f: ramp(f, "active_fill", 0.5, 0.8) * ramp(f, "active_engine", 0.75, 0.5),
        "Steady at {active_engine:.0%} within the hour ({active_fill:.0%} of its busiest minutes): a loop that waits "
        "for its host, not demand.",
    ),
    Shape(
        "even-below-full", (B,), (O, I),
        lambda f: (1 - _several(f)) * ramp(f, "active_engine", 0.98, 0.93) * ramp(f, "active_engine", 0.5, 0.65)
        * ramp(f, "active_swing", 0.15, 0.05, 0.0),
        "Busy {active_engine:.0%} of the time on one GPU, hour by hour the same.",
    ),
    Shape(
        "even-for-a-day", (T, F, B), (O, I),
        lambda f: min(ramp(f, "active_swing", 0.1, 0.04), ramp(f, "active_engine", 0.95, 0.85))
        * ramp(f, "active_share", 0.95, 1.0) * ramp(f, "elapsed_hours", 12.0, 24.0),
        "Load is the same in every hour and below the limit ({active_engine:.0%} of the time): too even for user "
        "demand.",
    ),
    Shape(
        "seldom-at-work", (I, B), (T, O), lambda f: _day(f) * ramp(f, "active_share", 0.55, 0.3),
        "Active in only {active_share:.0%} of the hours.",
    ),
    Shape(
        "full-hours", (T, F, B), (O, I),
        lambda f: min(ramp(f, "active_fill", 0.7, 0.92), ramp(f, "active_engine", 0.5, 0.8)),
        "Active for whole hours: {active_engine:.0%} of the time in its active hours.",
    ),
    Shape(
        "bursts", (O, I), (T, F, B), lambda f: ramp(f, "active_fill", 0.6, 0.3),
        "Load comes in bursts: the hourly mean is {active_fill:.0%} of the busiest minutes.",
    ),
    Shape(
        "graded-hours", (O, I), (T, F, B),
        lambda f: (f.get("elapsed_hours", 0.0) >= COURSE_HOURS_MIN) * ramp(f, "between_share", 0.2, 0.6),
        "Medium load in {between_share:.0%} of the hours, typical of varying demand.",
    ),
    Shape(
        "rests-at-night", (I, B), (T, O),
        lambda f: _day(f) * min(ramp(f, "rest_hours_max", 5.0, 9.0), ramp(f, "active_share", 0.8, 0.6)),
        "Idle for up to {rest_hours_max:.0f} hours in a row.",
    ),
    Shape(
        "often-interrupted", (I, O), (T, F, B), lambda f: _day(f) * ramp(f, "rests_per_day", 1.5, 4.0),
        "Starts again {rests_per_day:.1f} times a day after an hour of rest.",
    ),
    Shape(
        "daily", (O,), (T, F, B), _daily,
        "Load follows the time of day: {diurnal_share:.0%} of its variance is a 24 h wave.",
    ),
    Shape(
        "steady", (T, B, F), (O, I),
        lambda f: ramp(f, "swing", 0.12, 0.03) * ramp(f, "active_share", 0.2, 0.5, 1.0)
        if f.get("elapsed_hours", 0.0) >= 6 else 0.0,
        "Load hardly changes from hour to hour ({swing:.0%}).",
    ),
    Shape(
        "same-hours", (O, B), (T, F), lambda f: ramp(f, "day_before", 0.3, 0.8),
        "Load repeats at the same hour of the day (correlation {day_before:.2f}).",
    ),
    Shape(
        "working-hours", (I, B), (T, F, O),
        lambda f: min(ramp(f, "working_hours_share", 0.7, 0.95), ramp(f, "active_share", 0.8, 0.5)),
        "{working_hours_share:.0%} of the work is done in the same ten hours of the day.",
    ),
    # Memory. What is allocated once is no sign of a service by itself: caching allocators of trainings do so, too.
    Shape(
        "memory-pool", (O, B), (I,), _pool,
        "{mem_level:.0%} of the memory is allocated once and never changes: typical of an engine that preallocates.",
    ),
    Shape(
        "memory-still", (O, T), (I,), lambda f: (not _pool(f)) * ramp(f, "mem_hourly_cv", 0.01, 0.002),
        "Memory use is constant: it changes by less than {mem_hourly_cv:.1%} from hour to hour.",
    ),
    Shape(
        "memory-moves", (I, F, B), (O, T), lambda f: ramp(f, "mem_hourly_cv", 0.04, 0.3),
        "Memory use changes by {mem_hourly_cv:.0%} from hour to hour.",
    ),
    Shape(
        "memory-much", (T, F), (B,), lambda f: (not _pool(f)) * ramp(f, "mem_max", 0.3, 0.55) * _full(f),
        "{mem_max:.0%} of the memory used under full load, typical of gradients and activations.",
    ),
    Shape(
        "memory-little", (B,), (T, F), lambda f: ramp(f, "mem_max", 0.3, 0.12) * _full(f),
        "Only {mem_max:.0%} of the memory used under full load: little more than the weights.",
    ),
    Shape(
        "memory-kept", (O, I), (B, T, F),
        lambda f: ramp(f, "mem_kept_at_rest", 0.6, 0.9) * ramp(f, "active_share", 0.95, 0.8),
        "Memory is kept at rest.",
    ),
    # How long it lives and whether it comes again.
    Shape(
        "older-than-days", (O, I), (F, B), lambda f: ramp(f, "chain_hours", 48.0, 120.0, 0.0),
        "Running for {days:.0f} days.",
    ),
    Shape(
        "came-and-went", (F, B), (O, T), lambda f: ramp(f, "ended", 0.0, 1.0) * ramp(f, "chain_hours", 28.0, 20.0, 0.0),
        "Started and ended within {chain_hours:.1f} hours.",
    ),
    Shape(
        "short-and-full", (F,), (B, O, I),
        lambda f: _full(f) * ramp(f, "mem_max", 0.25, 0.5) * ramp(f, "ended", 0.0, 1.0)
        * ramp(f, "chain_hours", 28.0, 20.0, 0.0) * (1.0 - _pool(f)),
        "Full load for {chain_hours:.1f} hours with {mem_max:.0%} of the memory, then ended.",
    ),
    Shape(
        "begins-at-one-hour", (B,), (T, F, I),
        lambda f: ramp(f, "series_start_spread_hours", 3.0, 0.7) * ramp(f, "series_run_hours", 24.0, 14.0),
        "Runs of the series start at the same hour of the day, within {series_start_spread_hours:.1f} h.",
    ),
    Shape(
        "runs-recur", (F, B), (T, O),
        lambda f: ramp(f, "series_runs", 1.5, 3.5) * ramp(f, "series_run_hours", 24.0, 14.0),
        "One of {series_runs:.0f} runs of a series, {series_run_hours:.1f} hours each.",
    ),
)  # fmt: skip


def levels(features: Features) -> dict[str, float]:
    """Every shape's level, in the order of `SHAPES`."""
    numbers = with_derived(features)
    return {shape.name: shape.level(numbers) for shape in SHAPES}


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
    scaled = ({**PROBE, name: PROBE[name] * scale} for name in PROBE for scale in (0.0, 0.5, 2.0))
    probes = [with_derived(probe) for probe in (PROBE, *scaled)]
    for shape in shapes:
        said = ",".join(f"{shape.level(probe):.6f}" for probe in probes)
        digest.update(f"{shape.name}:{shape.speaks_for}:{shape.speaks_against}:{said}\n".encode())
    return digest.hexdigest()[:16]
