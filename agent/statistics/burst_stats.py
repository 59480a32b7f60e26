"""Statistics of a burst of readings at some 10 Hz of one GPU: pure functions from its readings to one frozen value.

A second is too coarse for most training steps. A burst sees rhythms from 0.2 s up to half its own length; a faster one
is not seen, or seen as a slower one (aliasing).
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from statistics import median

from . import rollup_stats as stats

# What a burst reads of a GPU; all from GPM.
BURST_METRICS = frozenset(
    {"sm_active", "tensor_active", "dram_active", "nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second"}
)
# Whose rhythm counts: the first of these that has one. Steps show best in the tensor pipe; work that does not use it,
# or keeps it evenly busy, shows its rhythm in the SMs or in memory.
_RHYTHM = ("tensor_active", "sm_active", "dram_active")
# Fewer readings than this are no burst: as many as a correlation needs (dynamics.MIN_PAIRS).
MIN_READINGS = 20
# Two samples a period are the least that can show it.
_LEAST_LAG = 2


@dataclass(frozen=True, slots=True)
class BurstReading:
    """One GPU's means over the `seconds` before `end_seconds` (monotonic), in base units. `fabric_bytes_per_second`:
    traffic of all the node's compute ports in about the same time; None: not known."""

    end_seconds: float
    seconds: float
    values: Mapping[str, float]
    fabric_bytes_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Burst:
    """The fast dynamics of one GPU in `seconds` seen up to `ts` (Unix seconds), from `n` readings.

    `period_seconds` is the rhythm's period, in training the step's time, and `period_strength` (0..1) how well it
    repeats. `duty` is the share of time in which the SMs were active at all (`ACTIVE_SM`), `idle_run_seconds` the
    longest time in which they were not, `sm_active_cv` their standard deviation over their mean. The correlations
    (-1..1) are of tensor activity with NVLink and with fabric traffic: above 0 they go together, below 0 they take
    turns. None: unknown (no rhythm, a flat signal, no such link).
    """

    gpu_uuid: str
    ts: float
    seconds: float
    n: int
    period_seconds: float | None = None
    period_strength: float | None = None
    duty: float | None = None
    idle_run_seconds: float | None = None
    sm_active_cv: float | None = None
    tensor_nvlink_correlation: float | None = None
    tensor_fabric_correlation: float | None = None


def burst_of(gpu_uuid: str, ts: float, readings: Sequence[BurstReading]) -> Burst | None:
    """The readings of one GPU, oldest first, as a burst that ended at `ts`; None where they are too few."""
    if len(readings) < MIN_READINGS:
        return None
    ends = [reading.end_seconds for reading in readings]
    seconds = [reading.seconds for reading in readings]
    values = {name: [reading.values.get(name) for reading in readings] for name in BURST_METRICS}
    active, tensor = values["sm_active"], values["tensor_active"]
    inactive = stats.below(active, stats.ACTIVE_SM)
    idle = stats.share_of_time(inactive, seconds)
    nvlink = stats.larger(values["nvlink_tx_bytes_per_second"], values["nvlink_rx_bytes_per_second"])
    period = strength = None
    for name in _RHYTHM:
        if len(readings) - values[name].count(None) >= MIN_READINGS:
            grid, step = even_grid(values[name], ends, seconds)
            if peak := stats.autocorrelation_peak(grid, _LEAST_LAG, len(grid) // 2):  # at most half of what was seen
                curve = stats.autocorrelation(grid, floor(peak[0])) or ()
                period, strength = _fundamental(curve, *peak) * step, peak[1]
                break
    return Burst(
        gpu_uuid=gpu_uuid,
        ts=ts,
        seconds=sum(seconds),
        n=len(readings),
        period_seconds=period,
        period_strength=strength,
        duty=None if idle is None else 1 - idle,
        idle_run_seconds=stats.longest_run_seconds(inactive, ends, seconds),
        sm_active_cv=stats.coefficient_of_variation(active),
        tensor_nvlink_correlation=stats.pearson(tensor, nvlink),
        tensor_fabric_correlation=stats.pearson(tensor, [reading.fabric_bytes_per_second for reading in readings]),
    )


def even_grid(
    values: Sequence[float | None], ends: Sequence[float], seconds: Sequence[float]
) -> tuple[list[float | None], float]:
    """The values on an even grid, and its step: the median length of an interval. Each slot takes the value of the
    interval that holds its middle, and None where none does: late readings do not shift those after them."""
    step = median(seconds)
    start = ends[0] - seconds[0]
    grid: list[float | None] = []
    for slot in range(round((ends[-1] - start) / step)):
        middle = start + (slot + 0.5) * step
        place = min(bisect_left(ends, middle), len(ends) - 1)
        held = ends[place] - seconds[place] <= middle <= ends[place]
        grid.append(values[place] if held else None)
    return grid, step


def _fundamental(curve: Sequence[float], lag: float, height: float) -> float:
    """`lag`, or the part of it that is the period in truth. A period of a few samples and a fraction has its peak
    between two lags, and is lower at both than a multiple that falls on one. The peak of a signal of sharp steps falls
    by 4 / period a lag; no peak is sharper."""
    for parts in (4, 3, 2):
        part = lag / parts
        near = max((floor(part), ceil(part)), key=lambda place: curve[place] if place < len(curve) else -1.0)
        away = abs(part - near)
        if near <= _LEAST_LAG or away > 0.6 or near + 1 >= len(curve):
            continue
        is_peak = curve[near] >= max(curve[near - 1], curve[near + 1])
        if is_peak and curve[near] >= stats.PEAK_SHARE * height * (1.0 - 4.0 * away / part):
            return part
    return lag
