"""What each GPU did in each span: it worked, it rested (by the judge of rest), it spun in a collective, or unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ...rules.policy.watch import WatchRules
from ..classify.features.rest import (
    CONTRADICTED,
    HELD,
    TRACED,
    WORKED,
    Activity,
    Since,
    judge_rest,
    rested_since,
)
from ..core.recent import FINE_SECONDS, Detail, Recent, Rows, Values
from ..rulebook import Rulebook
from .timeline import Floats, Mask, Timeline, is_observed, joined, low_level, timeline_of

# A level that a job keeps while it works; below it has no habit that a spin could break.
_USUAL_TENSOR_MIN, _USUAL_DRAM_MIN = 0.03, 0.15
# Power of a GPU that waits in a collective, against its usual power at work: it computes nothing.
_SPIN_POWER_SHARE, _BLIND_SPIN_POWER_SHARE = 0.7, 0.5
# Traffic of a job that lives on its links, and that of a flag that ranks wait on, bytes a second.
_USUAL_LINKS, _SILENT_LINKS = 50e6, 20e6
# Spans that count as a job's usual work, and the share of them that lies below its usual level: a hang of hours must
# not become the habit that it is held against.
_USUAL_WORK, _USUAL = 0.3, 0.75


@dataclass(frozen=True)
class GpuSigns:
    """Masks of (GPUs, spans): `work`, `rest` and `spin` exclude one another (a spinning GPU is in `spin` alone); what
    is in none is not known. A trace of work is work. `contradicted`: counters at rest while power says that it works.
    `held`: memory is held. `power`: watts; `rest_watts`: of each GPU, its own level at rest (NaN: it never rested
    within view). `active`: whether anything tells a GPU's activity."""

    work: Mask
    rest: Mask
    spin: Mask
    contradicted: Mask
    held: Mask
    power: Values
    rest_watts: Floats
    active: Mask


def gpu_signs(recent: Recent, line: Timeline, book: Rulebook, rules: WatchRules) -> GpuSigns:
    """The signs of all GPUs of a reading."""
    count = len(recent.gpus)
    shape = (count, line.count)
    names = ("util", "engine_max", "engine_p95", "sm", "tensor", "dram", "power_watts", "mem_used_ratio", "observed")
    measures = {name: joined(recent.gpu, name, count, line) for name in (*names, "links_bytes_per_second")}
    flat = {name: measures[name].ravel().astype(np.float64) for name in names}

    def each(values: Iterable[object], dtype: type) -> np.ndarray:
        return np.repeat(np.array(list(values), dtype=dtype), line.count)

    missing = np.full(count * line.count, np.nan)
    rest = judge_rest(
        Activity(
            gpu=each(range(count), np.intp), observed=is_observed(measures["observed"]).ravel(), util=flat["util"],
            engine_max=flat["engine_max"], engine_p95=flat["engine_p95"], sm=flat["sm"], sm_p95=missing,
            pipes=flat["tensor"], dram=flat["dram"], power=flat["power_watts"], power_p95=missing,
            memory=flat["mem_used_ratio"], sku=pd.Series(each((gpu.sku or "" for gpu in recent.gpus), object)),
            limit=each((gpu.power_limit_watts or np.nan for gpu in recent.gpus), np.float64),
            instance=each((gpu.part < 1.0 for gpu in recent.gpus), np.bool_),
        ),
        book,
    )  # fmt: skip
    state = rest.state.reshape(shape)
    active = (state == WORKED) | (state == TRACED)
    own = np.where(np.isnan(rest.held_watts), rest.free_watts, rest.held_watts).reshape(shape)
    spin = _spins(active, measures, rules, book.rest.trace_tensor_min)
    held = measures["mem_used_ratio"] >= book.rest.memory_held_min
    told = np.isfinite(measures["util"]) | np.isfinite(measures["sm"]) | np.isfinite(measures["dram"])
    return GpuSigns(
        active & ~spin, state >= HELD, spin, state == CONTRADICTED, held, measures["power_watts"],
        own[:, 0] if line.count else np.full(count, np.nan), told,
    )  # fmt: skip


def rested_before(recent: Recent, line: Timeline, book: Rulebook, rules: WatchRules) -> Floats:
    """Since when each GPU rested up to the first observed row, by the hours before it; NaN: they do not show it."""
    past, unknown = recent.past, np.full(len(recent.gpus), np.nan)
    if not past.count or past.end < line.observed_from:
        return unknown
    detail = Detail(Rows(past.end, FINE_SECONDS, 0), past)
    hours = timeline_of(detail)
    before = hours.ends - hours.seconds < line.observed_from
    rest = gpu_signs(replace(recent, gpu=detail), hours, book, rules).rest[:, before]
    # An hour that is not known may hide work.
    since = since_of(hours.ends[before], hours.seconds[before], ~rest, rest).since
    return np.where(since < line.observed_from, since, unknown)


def since_of(ends: Floats, seconds: Floats, active: Mask, rests: Mask, gap_seconds: float = np.inf) -> Since:
    """`rested_since` of each row of masks over the same spans."""
    count, spans = active.shape
    subject, begin, end = np.repeat(np.arange(count), spans), np.tile(ends - seconds, count), np.tile(ends, count)
    return rested_since(
        subject, begin, end, active=active.ravel(), rests=rests.ravel(), count=count, gap_seconds=gap_seconds
    )


def _spins(active: Mask, measures: dict[str, Values], rules: WatchRules, trace_tensor: float) -> Mask:
    """Spans in which a kernel runs all the time and nothing comes of it: ranks that wait in a collective.

    Told only of GPUs whose usual work shows on the tensor cores or in memory, and whose links are silent; where the
    links are not measured, whose power has fallen far below its usual level.
    """
    tensor, dram, power = measures["tensor"], measures["dram"], measures["power_watts"]
    links, engine = measures["links_bytes_per_second"], np.fmax(measures["util"], measures["sm"])
    with np.errstate(invalid="ignore"):
        busy = active & (engine >= _USUAL_WORK)
        usual_tensor, usual_dram, usual_links, usual_power = (
            low_level(values, _USUAL, busy)[:, None] for values in (tensor, dram, links, power)
        )
        computes = tensor > trace_tensor
        by_tensor = (usual_tensor >= _USUAL_TENSOR_MIN) & (tensor <= rules.spin_tensor_share_max * usual_tensor)
        by_dram = (usual_dram >= _USUAL_DRAM_MIN) & (dram <= rules.spin_dram_max / 2) & ~computes
        silent = (links <= _SILENT_LINKS) | (links <= rules.spin_links_share_max * usual_links)
        silent |= ~np.isfinite(links) & (power <= _SPIN_POWER_SHARE * usual_power)
        profiled = (dram <= rules.spin_dram_max) & (by_tensor | by_dram) & silent
        # Counters that are missing or stand still say nothing; links and power that fall together do.
        still = ~(usual_tensor > 0) & ~(usual_dram > 0) & ~computes
        blind = (
            still & ~(dram > rules.spin_dram_max) & (usual_links >= _USUAL_LINKS)
            & (links <= rules.spin_links_share_max * usual_links) & (power <= _BLIND_SPIN_POWER_SHARE * usual_power)
        )  # fmt: skip
        return active & (engine >= rules.spin_engine_min) & (profiled | blind)
