"""Rest and work of the rows of a frame, by the one judge of them (`rest`), and power that contradicts the counters."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.frame import Frame
from ...rulebook import Rulebook
from ..doubts import Doubt, by_gpu, doubts_of, percent
from ..workloads.sku_lookup import GpuIndex
from .rest import WORKED, Activity, judge_rest, rest_bounds
from .soundness import POWER
from .utilization import p95_at_most

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.intp]


def at_rest(
    frame: Frame, index: GpuIndex, out: pd.DataFrame, book: Rulebook, contradicted: Mask
) -> tuple[pd.DataFrame, list[Doubt]]:
    """The measures with the columns below, and what of power was not believed.

    `out`: the measures of every row of the frame's `gpu`; `contradicted`: rows whose counters contradict one another.
    ``quiet``: no known counter shows work. ``idle``: at rest, or with a trace of work; ``rests``: without one.
    ``held``: memory is in use. ``fault``: signals contradict one another. ``rest_power``, ``rest_free_power``: the
    GPU's own level with memory held and without (NaN: it never rested so).
    """
    a = activity(frame, index, out, book)
    rest = judge_rest(a, book.rest, contradicted)
    seconds = np.where(rest.suspect, out["seconds"].to_numpy(float), 0.0)
    drawn = np.bincount(a.gpu, weights=seconds, minlength=1)[a.gpu]
    power_fault = rest.suspect & (drawn >= book.rest.fault_minutes * 60.0)
    rested = out.assign(
        quiet=rest.state != WORKED, idle=rest.idle & ~power_fault, rests=rest.rests & ~power_fault,
        held=a.memory >= book.rest.memory_held_min, fault=contradicted | power_fault, rest_power=rest.held_watts,
        rest_free_power=rest.free_watts,
    )  # fmt: skip
    at = power_fault & ~contradicted
    sentences = {
        first: (
            f"Power {np.nanmean(a.power[own]):.0f} W (mean), at most {np.nanmax(rest.most_watts[own]):.0f} W expected "
            f"at rest; {_silent(rested, own)}"
        )
        for first, own in by_gpu(frame.gpu, at).items()
    }
    return rested, doubts_of(frame.gpu, at, metric="power_watts", code=POWER, sentences=sentences)


def activity(frame: Frame, index: GpuIndex, out: pd.DataFrame, book: Rulebook) -> Activity:
    """The rows of a frame's `gpu`, for the judge of rest."""
    gpu, keys, sku = frame.gpu, frame.gpu_keys, index
    number, parent_of = keys.number, frame.parents
    moment: Ints | None = None
    instance = np.zeros(len(gpu), dtype=np.bool_)
    if parent_of:
        names = [(str(node), str(uuid)) for node, uuid in keys.keys]
        codes = pd.factorize(pd.MultiIndex.from_tuples([parent_of.get(key, key) for key in names]))[0]
        instance = np.array([key in parent_of for key in names], dtype=np.bool_)[number]
        number = codes.astype(np.intp)[number]
        at = pd.DataFrame({"gpu": number, "ts": gpu["ts"], "length": gpu["interval_seconds"]})
        moment = at.groupby(list(at), sort=False, dropna=False).ngroup().to_numpy().astype(np.intp)
    limit = sku["power_limit"].to_numpy(float)
    low, high = rest_bounds(sku["name"], limit, book.resting_power)
    # Where the driver's utilization is not read, the activity of SMs says how high and how long the engine ran.
    p95 = p95_at_most(gpu, "gpu_util").fillna(out["sm_p95"]).to_numpy(float)
    measured = {name: out[column].to_numpy(float) for name, column in _MEASURES.items()}
    return Activity(
        gpu=number, observed=np.ones(len(gpu), dtype=np.bool_), util=gpu["gpu_util_mean"].to_numpy(float),
        engine_max=out["g_max"].to_numpy(float), engine_p95=p95, pipes=out[["c", "v"]].max(axis=1).to_numpy(float),
        power_p95=gpu["power_watts_p95"].to_numpy(float), sku=pd.factorize(sku["name"])[0].astype(np.intp), low=low,
        high=high, limit=limit, instance=instance, moment=moment, **measured,
    )  # fmt: skip


_MEASURES = {"sm": "sm", "sm_p95": "sm_p95", "dram": "m", "power": "power", "memory": "mem"}


def _silent(rows: pd.DataFrame, at: Ints) -> str:
    """The counters that are known in these rows of the measures, with their means."""
    names = (("GPU_UTIL", "g"), ("SM activity", "sm"), ("tensor activity", "c"), ("DRAM activity", "m"))
    shown = [(name, rows[column].to_numpy(float)[at]) for name, column in names]
    return ", ".join(f"{name} {percent(values)}" for name, values in shown if not np.isnan(values).all())
