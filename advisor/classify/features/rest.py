"""Rest, held and work: the one judge of every row of every GPU, for advice over weeks and for the watch over minutes.

A trace of work by any counter is work. Rest needs two of: the driver's utilization, the profiler's counters, free
memory, power at rest. Where the driver's utilization is the only counter, it must be 0 throughout while power is
steady.

A GPU with a CUDA context keeps its clocks up and draws a multiple of a free one (H100 72 to 122 W), so power is
compared with the GPU's own level: a low quantile while every counter is silent, with memory held and without. Where it
never rested, `rules/resting_power.yaml` applies.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....rules.models import RestingPowers
from ....rules.policy.thresholds import Levels
from ...core.frame import Frame
from ...core.segments import Floats, Ints, Mask
from ...rulebook import Rulebook
from ..types import Doubt, doubts_of
from ..workloads.sku_lookup import GpuIndex
from .soundness import POWER, TRACE
from .utilization import p95_at_most

States = npt.NDArray[np.int8]

# States of a row: not known; work; so little work that a twentieth of its seconds had none; counters at rest while
# only work explains the power; rest with memory held; rest without (or where memory is not measured).
UNKNOWN, WORKED, TRACED, CONTRADICTED, HELD, RESTED = range(6)
# Rows of rest by which a GPU's own level is known: fewer may be a pause between two pieces of work.
_REST_ROWS_MIN = 3
_REST_QUANTILE, _MEDIAN = 0.1, 0.5
# A GPU's own level this far above what any context draws is no rest: its counters stand still while it works.
_OWN_OVER_TABLE_MAX = 1.25


@dataclass(frozen=True)
class Activity:
    """What rows show: one value each, NaN where missing; shares 0..1, watts. `gpu`: the number of each row's GPU (of an
    instance: its parent's). `observed`: rows of which enough was observed. `util`: the driver's utilization;
    `engine_max`, `engine_p95`: of it, or of SM activity; `pipes`: the busiest of the tensor, FP32 and FP64 pipes.
    `memory`: share in use. `sku`: name; `limit`: power limit. `instance`: rows of MIG instances; `moment`: by which
    rows of a GPU and of its instances belong together (None: no parent of an instance has rows)."""

    gpu: Ints
    observed: Mask
    util: Floats
    engine_max: Floats
    engine_p95: Floats
    sm: Floats
    sm_p95: Floats
    pipes: Floats
    dram: Floats
    power: Floats
    power_p95: Floats
    memory: Floats
    sku: pd.Series
    limit: Floats
    instance: Mask
    moment: Ints | None = None


@dataclass(frozen=True)
class Rest:
    """`state`: of each row. `idle`: rows whose time counts as idle: at rest, or with a trace of work. `suspect`: rows
    whose power only work explains while all counters are silent. `held_watts`, `free_watts`: the GPU's own level
    at rest with memory held and without (NaN: it never rested so); `most_watts`: the most that rest explains."""

    state: States
    idle: Mask
    suspect: Mask
    held_watts: Floats
    free_watts: Floats
    most_watts: Floats

    @property
    def rests(self) -> Mask:
        """Rows without a trace of work."""
        return self.state >= HELD


def judge_rest(a: Activity, book: Rulebook, contradicted: Mask | None = None) -> Rest:
    """The state of every row. `contradicted`: rows whose counters contradict one another; they are never rest."""
    rules = book.rest
    low, high = _bounds(a, book.resting_power)
    with np.errstate(invalid="ignore"):
        engine = np.fmax(a.util, a.sm)
        busiest = np.fmax.reduce([engine, a.pipes, a.engine_p95])
        worked = (busiest >= rules.work_engine_min) | (a.dram >= rules.work_dram_min)
        traces = (a.engine_max >= rules.kernel_min) | (a.pipes > rules.trace_tensor_min)
        # What a GPU shows at rest, noise or a kernel that keeps a process alive, is no trace; within limits.
        for values, quiet, least, most in (
            (engine, rules.work_engine_min, rules.trace_engine_min, rules.trace_engine_max),
            (a.dram, rules.trace_dram_max, rules.trace_dram_min, rules.trace_dram_max),
        ):
            floor = _level(values, a.gpu, values < quiet, _MEDIAN, 1)
            traces |= values > np.clip(np.nan_to_num(rules.noise_times * floor), least, most)
        quiet, judged, tells_engine, two, power, others_work = _sources(a, ~worked)
        free = a.memory < rules.memory_held_min
        resting = quiet & judged
        if contradicted is not None:
            resting &= ~contradicted
        whole = resting & ~others_work
        quantile = (_REST_QUANTILE, _REST_ROWS_MIN)
        own_free, own_held = (_level(power, a.gpu, whole & part, *quantile) for part in (free, ~free))
        plausible = [np.where(level <= _OWN_OVER_TABLE_MAX * high, level, np.nan) for level in (own_free, own_held)]
        level = np.fmax.reduce([high, *plausible])
        most = rules.power_margin * level
        fault = np.where(np.isnan(level), np.nan, np.fmax(most, rules.fault_power_share_min * a.limit))
        suspect = resting & tells_engine & ~a.instance & (power > fault)
        sure = power <= rules.power_margin * np.fmax(low, np.where(own_free <= high, own_free, np.nan))
        steady = _is_steady(a, power, np.where(free, own_free, own_held), high, worked, rules)
        # The parent's power is the work of any of its instances.
        explained = ~(power > most) | (a.instance & others_work)
        idle = resting & tells_engine & (two | free | sure | steady) & explained
    state = np.full(len(a.gpu), UNKNOWN, dtype=np.int8)
    state[idle] = RESTED
    state[idle & (a.memory >= rules.memory_held_min)] = HELD
    state[suspect] = CONTRADICTED
    state[judged & quiet & traces] = TRACED
    state[judged & ~quiet] = WORKED
    return Rest(state, idle, suspect, own_held, own_free, most)


def at_rest(
    frame: Frame, index: GpuIndex, out: pd.DataFrame, book: Rulebook, contradicted: Mask
) -> tuple[pd.DataFrame, list[Doubt]]:
    """The measures with more columns, and what of power was not believed. `out`: the measures of the rows;
    `contradicted`: rows whose counters contradict one another. ``quiet``: no known counter shows work. ``idle``: at
    rest, or with a trace of work; ``rests``: without one. ``held``: memory is in use. ``fault``: signals contradict one
    another. ``rest_power``, ``rest_free_power``: the GPU's own level with memory held and without (NaN: it never rested
    so)."""
    a = _activity(frame, index, out)
    rest = judge_rest(a, book, contradicted)
    seconds = np.where(rest.suspect, out["seconds"].to_numpy(float), 0.0)
    drawn = np.bincount(a.gpu, weights=seconds, minlength=1)[a.gpu]
    power_fault = rest.suspect & (drawn >= book.rest.fault_minutes * 60.0)
    rested = out.assign(
        quiet=rest.state != WORKED, idle=rest.idle & ~power_fault, rests=rest.rests & ~power_fault,
        held=a.memory >= book.rest.memory_held_min, fault=contradicted | power_fault, rest_power=rest.held_watts,
        rest_free_power=rest.free_watts,
    )  # fmt: skip

    def sentence(rows: Ints) -> str:
        drawn, most = np.nanmean(a.power[rows]), np.nanmax(rest.most_watts[rows])
        return f"Power {drawn:.0f} W (mean), at most {most:.0f} W expected at rest; all activity counters at rest"

    at = power_fault & ~contradicted
    return rested, doubts_of(frame.gpu, at, metric="power_watts", code=POWER, sentence=sentence)


def _activity(frame: Frame, index: GpuIndex, out: pd.DataFrame) -> Activity:
    gpu, keys, parent_of = frame.gpu, frame.gpu_keys, frame.parents
    number, moment, instance = keys.number, None, np.zeros(len(gpu), dtype=np.bool_)
    if parent_of:
        names = [(str(node), str(uuid)) for node, uuid in keys.keys]
        codes = pd.factorize(pd.MultiIndex.from_tuples([parent_of.get(key, key) for key in names]))[0]
        instance = np.array([key in parent_of for key in names], dtype=np.bool_)[number]
        number = codes.astype(np.intp)[number]
        at = pd.DataFrame({"gpu": number, "ts": gpu["ts"], "length": gpu["interval_seconds"]})
        moment = at.groupby(list(at), sort=False, dropna=False).ngroup().to_numpy().astype(np.intp)
    # Where the driver's utilization is not read, the activity of SMs says how high and how long the engine ran.
    shown = {
        "util": gpu["gpu_util_mean"], "engine_max": out["g_max"],
        "engine_p95": p95_at_most(gpu, "gpu_util").fillna(out["sm_p95"]), "sm": out["sm"], "sm_p95": out["sm_p95"],
        "pipes": out[["c", "v"]].max(axis=1), "dram": out["m"], "power": out["power"],
        "power_p95": gpu["power_watts_p95"], "memory": out["mem"], "limit": index["power_limit"],
    }  # fmt: skip
    values = {name: column.to_numpy(float) for name, column in shown.items()}
    observed = np.ones(len(gpu), dtype=np.bool_)
    return Activity(gpu=number, observed=observed, sku=index["name"], instance=instance, moment=moment, **values)


def _bounds(a: Activity, resting: RestingPowers) -> list[Floats]:
    """Lowest and highest power of a context at rest, watts: by SKU, else by power limit; NaN: neither is known."""
    codes, names = pd.factorize(a.sku)
    powers = [resting.gpus.get(str(name)) for name in names]

    def bound(side: str) -> Floats:
        watts = np.array([*(getattr(p, side) if p else np.nan for p in powers), np.nan], dtype=np.float64)[codes]
        return np.where(np.isnan(watts), getattr(resting.shares, side) * a.limit, watts)

    return [bound("low"), bound("high")]


def _level(values: Floats, gpu: Ints, at: Mask, share: float, least_rows: int) -> Floats:
    """A quantile of each GPU's values over these rows of it, at all of its rows; NaN where they are too few."""
    chosen = at & ~np.isnan(values)
    if not chosen.any():
        return np.full(len(at), np.nan)
    grouped = pd.Series(values[chosen]).groupby(gpu[chosen])
    level = grouped.quantile(share).where(grouped.size() >= least_rows)
    return np.asarray(level.reindex(gpu), dtype=np.float64)


def _is_steady(  # noqa: PLR0917
    a: Activity, power: Floats, measured_level: Floats, high: Floats, worked: Mask, rules: Levels
) -> Mask:
    """Rows of whole GPUs whose utilization was 0 throughout and whose power stood at a level of rest.
    `measured_level`: the low quantile of the GPU's power while quiet; `high`: the most that a context at rest draws."""
    # The most that any of its kind drew at work; -inf: none worked.
    drew = np.where(worked & ~np.isnan(power), power, -np.inf)
    work = pd.Series(drew).groupby(pd.factorize(a.sku)[0]).transform("max").to_numpy(float)
    unused = (a.util == 0) & ~(a.engine_max > 0)
    flat = np.fmax(power, a.power_p95) <= rules.steady_power_ratio * measured_level + rules.steady_power_watts
    below_work = np.where(
        np.isnan(a.memory), np.isfinite(work) & (measured_level <= rules.rest_of_work * work),
        ~(measured_level > rules.rest_of_work_held * work) | np.isinf(work),
    )  # fmt: skip
    most = np.where(np.isnan(high), rules.unknown_rest_watts_max, high)
    return ~a.instance & unused & flat & below_work & (measured_level <= most)


def _sources(a: Activity, quiet: Mask) -> tuple[Mask, Mask, Mask, Mask, Floats, Mask]:
    """What can be said of each row: whether it is quiet, anything can be said, whether the engine ran, by counters of
    two sources; its power, and whether it is an instance's beside others that work, whose power is theirs."""
    driver, profiled = ~np.isnan(a.util), ~np.isnan(a.sm) | ~np.isnan(a.dram)
    # Without the engine no counter may show a trace of work: a stuck one would hide it. SMs that wait show less than
    # the memory they wait for, so both must be known. A twentieth of the seconds may not show one either: the engine
    # was busy for longer than any SM.
    traceless = (a.sm < TRACE) & (a.dram < TRACE) & ~(a.pipes >= TRACE) & ~(a.sm_p95 >= TRACE)
    # An instance has no utilization.
    several = (~np.isnan(a.sm) | driver) & (~np.isnan(a.pipes) | ~np.isnan(a.dram))
    can_tell, engine = a.observed & (driver | profiled), driver | traceless
    two = np.where(a.instance, several, driver & profiled)
    if (code := a.moment) is None:
        return quiet, can_tell, engine, two, a.power, np.zeros(len(quiet), dtype=np.bool_)
    # A GPU in instances is as busy as all of them, and they share its power.
    count = int(code.max(initial=-1)) + 1
    working = a.instance & ~quiet
    masks = (working, a.instance, a.instance & ~(several & engine))
    busy, cut, unclear = (np.bincount(code, weights=mask, minlength=count)[code] for mask in masks)
    power = np.full(count, np.nan)
    for mask in (a.instance, ~a.instance):  # the parent's own reading, where there is one, comes last
        measured = mask & ~np.isnan(a.power)
        power[code[measured]] = a.power[measured]
    # The parent's counters see nothing of its instances: these speak for it.
    speaks = (cut > 0) & ~a.instance
    engine, two = (np.where(speaks, unclear == 0, mask) for mask in (engine, two))
    power, others_work = np.where(cut > 0, power[code], a.power), a.instance & (busy - working > 0)
    return quiet & (~speaks | (busy == 0)), can_tell | speaks, engine, two, power, others_work


@dataclass(frozen=True)
class Since:
    """Since when each subject has rested. `since`: Unix seconds (NaN: no row of rest since its last work); `at_least`:
    its rows show no work just before, so that it may have rested for longer; `last_work`, `newest`: the end of its
    newest row of work (NaN: none) and of rest."""

    since: Floats
    at_least: Mask
    last_work: Floats
    newest: Floats


def rested_since(
    subject: Ints, begin: Floats, end: Floats, *, active: Mask, rests: Mask, count: int, gap_seconds: float = np.inf
) -> Since:
    """Since when `count` subjects have rested: from the end of the last row of work, else from the first row. Rows in
    any order. Rows that are not `active` and not at rest, and time without rows, may hide work: after more than
    `gap_seconds` of it, rest is counted from its end."""
    last = np.full(count, -np.inf)
    np.maximum.at(last, subject[active], end[active])
    first = np.full(count, np.inf)
    np.minimum.at(first, subject, begin)
    since, is_worked = np.fmax(last, first), np.isfinite(last)
    newest = since.copy()  # the end of the newest row of rest
    np.maximum.at(newest, subject[rests], end[rests])
    if np.isfinite(gap_seconds):
        at = np.flatnonzero(rests & (end > since[subject] + 1e-6))
        at = at[np.lexsort((end[at], subject[at]))]
        who = subject[at]
        before = np.concatenate([[0.0], end[at][:-1]])
        before = np.where(np.concatenate([[True], who[1:] != who[:-1]]), since[who], before) if len(at) else before
        late = begin[at] - before > gap_seconds + 1e-6
        np.maximum.at(since, who[late], begin[at][late])
    is_resting = np.isfinite(since) & (newest > since)
    at_least = ~is_worked | (since > last)
    return Since(np.where(is_resting, since, np.nan), at_least, np.where(is_worked, last, np.nan), newest)
