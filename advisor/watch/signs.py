"""What each GPU did in each span: it worked, it rested, it spun in a collective, or that is not known.

Rest is never told by one source alone: of the driver's utilization, the profiler's counters, power at its resting level
and memory that nobody holds two must agree. A trace of work by any of them is work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...rules.models.resting_power import RestingPowers
from ...rules.policy.watch import WatchRules
from ..classify.features.resting_power import FREE_MEM_RATIO
from ..core.recent import FINE_SECONDS, Detail, Recent, Rows, Values
from ..core.steady_rest import is_steady_rest
from .timeline import Floats, Mask, Timeline, is_observed, joined, low_level, timeline_of

# Rows below this are candidates for the noise floor of a GPU at rest.
_QUIET_ENGINE = 0.05
_QUIET_DRAM = 0.02
_REST_QUANTILE = 0.1
_MEDIAN = 0.5
# Multiples of a threshold beyond which memory traffic is no floor whatever the GPU usually shows.
_DRAM_FLOOR_TIMES = 4.0
# A level that a job keeps while it works; below it has no habit that a spin could break.
_USUAL_TENSOR_MIN, _USUAL_DRAM_MIN = 0.03, 0.15
# Power of a GPU that waits in a collective, against its usual power at work: it computes nothing.
_SPIN_POWER_SHARE, _BLIND_SPIN_POWER_SHARE = 0.7, 0.5
# Traffic of a job that lives on its links, bytes a second.
_USUAL_LINKS = 50e6
# Traffic below this is that of a flag that ranks wait on (bytes a second).
_SILENT_LINKS = 20e6


@dataclass(frozen=True)
class GpuSigns:
    """Masks of (GPUs, spans): `work`, `rest` and `spin` exclude one another (a spinning GPU is in `spin` alone); what
    is in none is not known. `contradicted`: counters at rest while power says that it works. `held`: memory is held.
    `power`: watts; `rest_watts`: of each GPU, its own level at rest (NaN: it never rested within view)."""

    work: Mask
    rest: Mask
    spin: Mask
    contradicted: Mask
    held: Mask
    power: Values
    rest_watts: Floats


def gpu_signs(recent: Recent, line: Timeline, resting: RestingPowers, rules: WatchRules) -> GpuSigns:
    """The signs of all GPUs of a reading."""
    count = len(recent.gpus)

    def measure(name: str) -> Values:
        return joined(recent.gpu, name, count, line)

    engine, engine_max, util = measure("engine"), measure("engine_max"), measure("util")
    sm, tensor, dram = measure("sm"), measure("tensor"), measure("dram")
    power, memory = measure("power_watts"), measure("mem_used_ratio")
    profiled = np.isfinite(sm) | np.isfinite(tensor) | np.isfinite(dram)
    driver = np.isfinite(util)
    seen = is_observed(measure("observed")) & (np.isfinite(engine) | profiled | driver)
    engine = np.fmax(engine, np.fmax(util, sm))

    with np.errstate(invalid="ignore"):
        floor = low_level(engine, _MEDIAN, seen & (engine < _QUIET_ENGINE))[:, None]
        trace = np.clip(np.nan_to_num(rules.noise_times * floor), rules.trace_engine_min, rules.work_engine_max)
        dram_floor = low_level(dram, _MEDIAN, seen & (dram < _QUIET_DRAM))[:, None]
        dram_trace = np.clip(
            np.nan_to_num(rules.noise_times * dram_floor), rules.dram_work_min, _DRAM_FLOOR_TIMES * rules.dram_work_min
        )
        active = seen & (
            (engine > trace) | (engine_max >= rules.kernel_min) | (dram > dram_trace)
            | (tensor > rules.tensor_work_min)
        )  # fmt: skip
        quiet = seen & ~active
        held = memory >= FREE_MEM_RATIO
        rest_watts = low_level(power, _REST_QUANTILE, quiet)
        bound = np.array([_most_at_rest(gpu.sku, gpu.power_limit_watts, resting) for gpu in recent.gpus])
        # A level of its own that no context draws is no rest: its counters stand still while it works.
        own = np.where(rest_watts <= bound * rules.rest_power_margin, rest_watts, np.nan)
        most = np.fmax(bound, own)[:, None] * rules.rest_power_margin
        whole = np.array([gpu.part >= 1.0 for gpu in recent.gpus], dtype=np.bool_)[:, None]
        contradicted = quiet & whole & (power > most)
        low_power = whole & (power <= most)
        low_power |= whole & is_steady_rest(
            (util == 0) & ~(engine_max > 0), power, level=rest_watts[:, None], most=bound[:, None],
            at_work=_at_work(recent, power, active)[:, None], has_memory=np.isfinite(memory),
        )  # fmt: skip
    free = np.isfinite(memory) & ~held
    sources = driver.astype(np.int8) + profiled + low_power + free
    # An instance has no utilization and no power of its own.
    rest = quiet & ~contradicted & ((sources >= 2) | (~whole & profiled))
    spin = _spins(active, engine, tensor, dram, measure("links_bytes_per_second"), power, rules)
    return GpuSigns(active & ~spin, rest, spin, contradicted, held, power, rest_watts)


def _at_work(recent: Recent, power: Values, active: Mask) -> Floats:
    """The most that GPUs of each GPU's SKU draw at work, watts; NaN where none of them worked."""
    own = np.where(active, power, -np.inf).max(axis=1, initial=-np.inf)
    of_sku: dict[str | None, float] = {}
    for gpu, watts in zip(recent.gpus, own, strict=True):
        of_sku[gpu.sku] = max(float(watts), of_sku.get(gpu.sku, -np.inf))
    most = np.array([of_sku[gpu.sku] for gpu in recent.gpus])
    return np.where(np.isfinite(most), most, np.nan)


def rested_since(recent: Recent, line: Timeline, resting: RestingPowers, rules: WatchRules) -> Floats:
    """Since when each GPU rested up to the first observed row, by the hours before it; NaN: they do not show it."""
    past, unknown = recent.past, np.full(len(recent.gpus), np.nan)
    if not past.count or past.end < line.observed_from:
        return unknown
    detail = Detail(Rows(past.end, FINE_SECONDS, 0), past)
    hours = timeline_of(detail)
    before = hours.ends - hours.seconds < line.observed_from
    active = np.logical_not(gpu_signs(replace(recent, gpu=detail), hours, resting, rules).rest[:, before])
    ends = hours.ends[before]
    last = ends[len(ends) - 1 - np.argmax(active[:, ::-1], axis=1)]
    since = np.where(active.any(axis=1), last, hours.start)
    return np.where(since < line.observed_from, since, unknown)


def _most_at_rest(sku: str | None, limit_watts: float | None, resting: RestingPowers) -> float:
    """The most that a GPU of this SKU draws with a context at rest, watts; NaN where nothing is known of it."""
    known = resting.gpus.get(sku) if sku is not None else None
    if known is not None:
        return known.high_watts
    return limit_watts * resting.high_share if limit_watts else np.nan


def _spins(  # noqa: PLR0917 - the measures that together make a spin
    active: Mask, engine: Values, tensor: Values, dram: Values, links: Values, power: Values, rules: WatchRules
) -> Mask:
    """Spans in which a kernel runs all the time and nothing comes of it: ranks that wait in a collective.

    Told only of GPUs whose usual work shows on the tensor cores or in memory, and whose links are silent; where the
    links are not measured, whose power has fallen far below its usual level.
    """
    with np.errstate(invalid="ignore"):
        busy = active & (engine >= _USUAL_WORK)
        usual_tensor = low_level(tensor, _USUAL, busy)[:, None]
        usual_dram = low_level(dram, _USUAL, busy)[:, None]
        usual_links = low_level(links, _USUAL, busy)[:, None]
        by_tensor = (usual_tensor >= _USUAL_TENSOR_MIN) & (tensor <= rules.spin_tensor_share_max * usual_tensor)
        by_dram = (
            (usual_dram >= _USUAL_DRAM_MIN) & (dram <= rules.spin_dram_max / 2) & ~(tensor > rules.tensor_work_min)
        )
        usual_power = low_level(power, _USUAL, busy)[:, None]
        silent = (links <= _SILENT_LINKS) | (links <= rules.spin_links_share_max * usual_links)
        silent |= ~np.isfinite(links) & (power <= _SPIN_POWER_SHARE * usual_power)
        profiled = (dram <= rules.spin_dram_max) & (by_tensor | by_dram) & silent
        # Counters that are missing or stand still say nothing; links and power that fall together do.
        still = ~(usual_tensor > 0) & ~(usual_dram > 0) & ~(tensor > rules.tensor_work_min)
        blind = (
            still & ~(dram > rules.spin_dram_max) & (usual_links >= _USUAL_LINKS)
            & (links <= rules.spin_links_share_max * usual_links) & (power <= _BLIND_SPIN_POWER_SHARE * usual_power)
        )  # fmt: skip
        return active & (engine >= rules.spin_engine_min) & (profiled | blind)


# Spans that count as a job's usual work, and the share of them that lies below its usual level: a hang of hours must
# not become the habit that it is held against.
_USUAL_WORK = 0.3
_USUAL = 0.75
