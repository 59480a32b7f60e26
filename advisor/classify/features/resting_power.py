"""Rest and work by power: what each GPU draws at rest, which rows are idle, and which power only work explains.

A GPU with a CUDA context and nothing to do keeps its clocks up and draws a multiple of a free one (H100 72 to 122 W).
So the level to compare with is its own: a low quantile of its power while every counter is silent, with memory held and
without. What the table of `rules/resting_power.yaml` says bounds it, and stands in where there is no rest.

Idleness is never told by one source alone. The driver's utilization, the profiler's counters and the power (or memory
that nobody holds) are three that fail apart from one another; two of them must agree. Without the profiler (workstation
cards, exporters' defaults) the utilization must be 0 throughout, and the power steady at a level that is no work's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....rules.models.resting_power import RestingPowers
from ...core.frame import Frame
from ...core.steady_rest import is_steady_rest
from ...rulebook import Rulebook
from ..doubts import Doubt, by_gpu, doubts_of, percent
from ..workloads.sku_lookup import GpuIndex, SkuRows
from .soundness import POWER, TRACE

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.intp]

# A GPU is free (not held) where next to nothing of its memory is taken; a bare context takes 0.3 to 0.6 GB.
FREE_MEM_RATIO = 0.005
# Rows of rest by which a GPU's own level is known: fewer may be a pause between two pieces of work.
REST_ROWS_MIN = 3
REST_QUANTILE = 0.1
# A GPU's own level this far above what any context draws is no rest: its counters stand still while it works.
OWN_OVER_TABLE_MAX = 1.25
# Rest varies by temperature, by clock and by how many contexts there are.
REST_MARGIN = 1.25
# So long a GPU must draw it before a counter is called wrong.
FAULT_SECONDS_MIN = 3600.0
# With one source of activity alone, power must be that of a GPU that keeps its clocks down.
SURE_MARGIN = 1.25


def at_rest(
    frame: Frame, index: GpuIndex, out: pd.DataFrame, book: Rulebook, contradicted: Mask
) -> tuple[pd.DataFrame, list[Doubt]]:
    """The measures with ``idle, free, fault, rest_power, rest_free_power, rest_watts, fault_watts``, and what of power
    was not believed.

    `out`: the measures of every row of the frame's `gpu`; `contradicted`: rows whose counters contradict one another.
    `rest_power`, `rest_free_power`: the GPU's own level with memory held and without (NaN: it never rested so);
    `rest_watts`: the most that rest explains; `fault_watts`: from which on only work does. `free`: at rest, and its
    power says that nobody holds it.
    """
    sku, resting = index.rows, book.resting_power
    work_power_share = book.bottlenecks["fault_power_share_min"].value
    rows = _Rows(frame, out, out["quiet"].to_numpy(bool))
    bounds = _bounds(sku, resting)
    free = out["mem"].to_numpy(float) < FREE_MEM_RATIO
    resting_rows = rows.all_quiet & rows.known & ~contradicted
    own_free, own_held = (_own(rows, resting_rows & part) for part in (free, ~free))
    low, high = bounds["low"], bounds["high"]
    with np.errstate(invalid="ignore"):
        plausible = [np.where(own <= OWN_OVER_TABLE_MAX * high, own, np.nan) for own in (own_free, own_held)]
        level = np.fmax.reduce([high, *plausible])
        rest_watts = REST_MARGIN * level
        fault_watts = np.fmax(rest_watts, work_power_share * sku["power_limit"].to_numpy(float))
        fault_watts = np.where(np.isnan(level), np.nan, fault_watts)
        suspect = resting_rows & rows.engine_known & ~rows.instance & (rows.power > fault_watts)
        seconds = out["seconds"].to_numpy(float)
        enough = np.bincount(rows.gpu, weights=np.where(suspect, seconds, 0.0), minlength=1)[rows.gpu]
        fault = contradicted | (suspect & (enough >= FAULT_SECONDS_MIN))
        sure = rows.power <= SURE_MARGIN * np.fmax(low, np.where(own_free <= high, own_free, np.nan))
        explained = ~(rows.power > rest_watts)
    witnessed = (
        rows.two_sources
        | free
        | sure
        | _steady(frame, out, sku["name"], rows, np.where(free, own_free, own_held), high)
    )
    # The parent's power is the work of any of its instances.
    explained |= rows.instance & rows.others_work
    idle = resting_rows & rows.engine_known & witnessed & explained & ~fault
    free_power = book.bottlenecks["idle_power_over_idle_max"].value
    rested = out.assign(
        idle=idle, free=idle & (out["power_over_idle"].to_numpy(float) <= free_power), fault=fault, rest_power=own_held,
        rest_free_power=own_free, rest_watts=rest_watts, fault_watts=fault_watts,
    )  # fmt: skip
    return rested, power_doubts(frame, rested, contradicted)


def _steady(  # noqa: PLR0917
    frame: Frame, out: pd.DataFrame, names: pd.Series, rows: _Rows, own: Floats, high: Floats
) -> Mask:
    """Rows of whole GPUs whose utilization was 0 throughout and whose power stood at a level of rest. `own`: each GPU's
    low quantile of power while quiet; `high`: the most that rest draws by the catalog (NaN: not in it)."""
    gpu, held = frame.gpu, out["mem"].notna().to_numpy()
    at_work = out["power"].where(~out["quiet"]).groupby(names).transform("max").to_numpy(float)
    with np.errstate(invalid="ignore"):
        zero = (gpu["gpu_util_mean"].to_numpy(float) == 0) & ~(gpu["gpu_util_max"].to_numpy(float) > 0)
    power = np.fmax(rows.power, gpu["power_watts_p95"].to_numpy(float))
    steady = is_steady_rest(zero, power, level=own, at_work=at_work, has_memory=held, most=high)
    return steady & ~rows.instance


def power_doubts(frame: Frame, rows: pd.DataFrame, contradicted: Mask) -> list[Doubt]:
    """Power that only work explains while every counter of activity is silent: one doubt for each such GPU."""
    at = rows["fault"].to_numpy(bool) & ~contradicted
    power, rest = rows["power"].to_numpy(float), rows["rest_watts"].to_numpy(float)
    sentences: Mapping[int, str] = {
        first: (
            f"Power {np.nanmean(power[own]):.0f} W (mean), at most {np.nanmax(rest[own]):.0f} W expected "
            f"at rest; {silent_words(rows, own)}"
        )
        for first, own in by_gpu(frame.gpu, at).items()
    }
    return doubts_of(frame.gpu, at, metric="power_watts", code=POWER, sentences=sentences)


def silent_words(rows: pd.DataFrame, at: Ints) -> str:
    """The counters that are known in these rows of the measures, with their means."""
    names = (("GPU_UTIL", "g"), ("SM activity", "sm"), ("tensor activity", "c"), ("DRAM activity", "m"))
    shown = [(name, rows[column].to_numpy(float)[at]) for name, column in names]
    words = [f"{name} {percent(values)}" for name, values in shown if not np.isnan(values).all()]
    return ", ".join(words)


class _Rows:
    """What rest is told from, row by row. A GPU in instances is as busy as all of them, and they share its power."""

    def __init__(self, frame: Frame, out: pd.DataFrame, quiet: Mask) -> None:
        table = frame.gpu
        parent_of = frame.parents
        own = frame.gpu_keys
        self.gpu = own.number
        self.instance = np.zeros(len(table), dtype=np.bool_)
        if parent_of:
            keys = [(str(node), str(uuid)) for node, uuid in own.keys]
            codes = pd.factorize(pd.MultiIndex.from_tuples([parent_of.get(key, key) for key in keys]))[0]
            self.gpu = codes.astype(np.intp)[own.number]
            self.instance = np.array([key in parent_of for key in keys], dtype=np.bool_)[own.number]
        util, sm, m, c = (values.to_numpy(float) for values in (table["gpu_util_mean"], out["sm"], out["m"], out["c"]))
        self.power, burst = out["power"].to_numpy(float), out["sm_p95"].to_numpy(float)
        profiled = ~np.isnan(sm) | ~np.isnan(m)
        with np.errstate(invalid="ignore"):
            # Without the engine no counter may show a trace of work: a stuck one would hide it. SMs that wait show less
            # than the memory they wait for, so both must be known: without one of them a row must not become idle.
            # Nor may a twentieth of the seconds show one: the engine was busy for longer than any SM.
            traceless = (sm < TRACE) & (m < TRACE) & ~(c >= TRACE) & ~(burst >= TRACE)
            self.engine_known = ~np.isnan(util) | traceless
        self.known = ~np.isnan(util) | profiled
        self.two_sources = ~np.isnan(util) & profiled
        self.all_quiet, self.others_work = quiet, np.zeros(len(table), dtype=np.bool_)
        if self.instance.any():
            self._join(table, quiet, several=(~np.isnan(sm) | ~np.isnan(util)) & (~np.isnan(m) | ~np.isnan(c)))

    def _join(self, table: pd.DataFrame, quiet: Mask, *, several: Mask) -> None:
        """Rows of a GPU and of its instances at one moment. `several`: rows that know two counters of activity."""
        moment = pd.DataFrame({"gpu": self.gpu, "ts": table["ts"], "length": table["interval_seconds"]})
        code = moment.groupby(["gpu", "ts", "length"], sort=False, dropna=False).ngroup().to_numpy()
        count = int(code.max()) + 1
        busy = np.bincount(code, weights=self.instance & ~quiet, minlength=count)
        parts = np.bincount(code, weights=self.instance, minlength=count)
        blind = np.bincount(code, weights=self.instance & ~(several & self.engine_known), minlength=count)
        power = np.full(count, np.nan)
        for mask in (self.instance, ~self.instance):  # the parent's own reading, where there is one, comes last
            known = mask & ~np.isnan(self.power)
            power[code[known]] = self.power[known]
        sliced = parts[code] > 0
        self.power = np.where(sliced, power[code], self.power)
        own = quiet & (self.instance | ~sliced | (busy[code] == 0))
        self.others_work = self.instance & (busy[code] - (~quiet & self.instance) > 0)
        self.all_quiet = own
        # The parent's counters see nothing of its instances: these speak for it.
        speaks = sliced & ~self.instance
        self.engine_known = np.where(speaks, blind[code] == 0, self.engine_known)
        self.known = np.where(speaks, True, self.known)
        self.two_sources = np.where(speaks, blind[code] == 0, np.where(self.instance, several, self.two_sources))


def _own(rows: _Rows, at: Mask) -> Floats:
    """The low quantile of each GPU's power over these rows of it; NaN where they are too few."""
    whole = at & ~rows.others_work & ~np.isnan(rows.power)
    if not whole.any():
        return np.full(len(at), np.nan)
    grouped = pd.Series(rows.power[whole]).groupby(rows.gpu[whole])
    level = grouped.quantile(REST_QUANTILE).where(grouped.size() >= REST_ROWS_MIN)
    return np.asarray(level.reindex(rows.gpu), dtype=np.float64)


def _bounds(sku: SkuRows, resting: RestingPowers) -> dict[str, Floats]:
    """Lowest and highest power of a context at rest for every row, by its SKU, else by its power limit."""
    limit = sku["power_limit"].to_numpy(float)
    names = sku["name"]
    low = names.map({name: one.low_watts for name, one in resting.gpus.items()}).to_numpy(float)
    high = names.map({name: one.high_watts for name, one in resting.gpus.items()}).to_numpy(float)
    return {
        "low": np.where(np.isnan(low), resting.low_share * limit, low),
        "high": np.where(np.isnan(high), resting.high_share * limit, high),
    }
