"""What each GPU did in each span: it worked, it rested (by the judge of rest), it spun in a collective, or unknown; and
what each workload did, by all of its GPUs, its own engine and its hosts."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...rules.policy.thresholds import Levels
from ..classify.features.rest import CONTRADICTED, HELD, TRACED, WORKED, Activity, judge_rest
from ..core.incident_types import Floats, Mask, Recent, Spans, Values
from ..rulebook import Rulebook

# At least half of a span must be observed for its means to count.
_OBSERVED_HALF = 0.5
# A level that a job keeps while it works; below it has no habit that a spin could break.
_USUAL_TENSOR_MIN, _USUAL_DRAM_MIN = 0.03, 0.15
# Power of a GPU that waits in a collective, against its usual power at work: it computes nothing.
_SPIN_POWER_SHARE, _BLIND_SPIN_POWER_SHARE = 0.7, 0.5
# Traffic of a job that lives on its links, and that of a flag that ranks wait on, bytes a second.
_USUAL_LINKS, _SILENT_LINKS = 50e6, 20e6
# Spans that count as a job's usual work, and the share of them that lies below its usual level: a hang of hours must
# not become its usual work. A host's level without load.
_USUAL_WORK, _USUAL, _BASE = 0.3, 0.75, 0.1


@dataclass(frozen=True)
class GpuSigns:
    """Masks of (GPUs, spans): `work`, `rest` and `spin` exclude one another (a spinning GPU is in `spin` alone); what
    is in none is not known. A trace of work is work. `contradicted`: counters at rest while power says that it works.
    `held`: memory is held."""

    work: Mask
    rest: Mask
    spin: Mask
    contradicted: Mask
    held: Mask


def gpu_signs(recent: Recent, book: Rulebook, rules: Levels) -> GpuSigns:
    """The signs of all GPUs of a reading."""
    count, spans = len(recent.gpus), len(recent.spans.ends)
    limit, sku = [gpu.power_limit_watts or np.nan for gpu in recent.gpus], [gpu.sku or "" for gpu in recent.gpus]
    judged = ("util", "engine_max", "engine_p95", "sm", "tensor", "dram", "power_watts", "mem_used_ratio")
    flat = {name: recent.gpu[name].ravel().astype(np.float64) for name in judged}
    rest = judge_rest(
        Activity(
            gpu=np.repeat(np.arange(count), spans), observed=recent.gpu["observed"].ravel() >= _OBSERVED_HALF,
            util=flat["util"], engine_max=flat["engine_max"], engine_p95=flat["engine_p95"], sm=flat["sm"],
            sm_p95=np.nan * flat["sm"], pipes=flat["tensor"], dram=flat["dram"], power=flat["power_watts"],
            power_p95=np.nan * flat["sm"], memory=flat["mem_used_ratio"], limit=np.repeat(limit, spans),
            sku=pd.Series(np.repeat(np.array(sku, dtype=object), spans)),
            instance=np.repeat(np.array([gpu.part < 1.0 for gpu in recent.gpus], dtype=np.bool_), spans),
        ),
        book,
    )  # fmt: skip
    state = rest.state.reshape(count, spans)
    active = (state == WORKED) | (state == TRACED)
    spin = _spins(active, recent, rules, book.rest.trace_tensor_min)
    is_held = recent.gpu["mem_used_ratio"] >= book.rest.memory_held_min
    return GpuSigns(active & ~spin, state >= HELD, spin, state == CONTRADICTED, is_held)


def _spins(active: Mask, recent: Recent, rules: Levels, trace_tensor: float) -> Mask:
    """Spans in which ranks wait in a collective: a kernel runs all the time, the usual work on tensor cores or memory
    is gone, and links are silent (where these are not measured: power is far below its usual level)."""
    tensor, dram, power = recent.gpu["tensor"], recent.gpu["dram"], recent.gpu["power_watts"]
    links, engine = recent.gpu["links_bytes_per_second"], np.fmax(recent.gpu["util"], recent.gpu["sm"])
    busy = active & (engine >= _USUAL_WORK)
    usual_tensor, usual_dram, usual_links, usual_power = (
        low_level(values, _USUAL, busy)[:, None] for values in (tensor, dram, links, power)
    )
    computes = tensor > trace_tensor
    by_tensor = (usual_tensor >= _USUAL_TENSOR_MIN) & (tensor <= rules.spin_tensor_share_max * usual_tensor)
    by_dram = (usual_dram >= _USUAL_DRAM_MIN) & (dram <= rules.spin_dram_max / 2) & ~computes
    fell = links <= rules.spin_links_share_max * usual_links
    silent = (links <= _SILENT_LINKS) | fell | (~np.isfinite(links) & (power <= _SPIN_POWER_SHARE * usual_power))
    profiled = (dram <= rules.spin_dram_max) & (by_tensor | by_dram) & silent
    # Counters that are missing or stand still say nothing; links and power that fall together do.
    still = ~(usual_tensor > 0) & ~(usual_dram > 0) & ~computes & ~(dram > rules.spin_dram_max)
    blind = still & (usual_links >= _USUAL_LINKS) & fell & (power <= _BLIND_SPIN_POWER_SHARE * usual_power)
    return active & (engine >= rules.spin_engine_min) & (profiled | blind)


@dataclass(frozen=True)
class HoldSigns:
    """Masks of (holds, spans) from each hold's begin on: `work`: a GPU worked, or its engine had requests; `progress`:
    work beyond a spin; `rest`: every GPU rested; `stall`: every GPU rested or spun. `host`: its
    hosts were busy, and no other workload on them explains it. `queue`: its engine had requests waiting or running.
    `host_known`: of each hold, whether its hosts are measured at all. `fabric`: share of line rate of the compute
    ports of all of its nodes (NaN: not measured). `free`: no GPU of it held memory."""

    work: Mask
    progress: Mask
    rest: Mask
    stall: Mask
    spin: Mask
    host: Mask
    queue: Mask
    fabric: Values
    host_known: Mask
    free: Mask


def hold_signs(recent: Recent, gpus: GpuSigns, rules: Levels) -> HoldSigns:
    """The signs of all holds of a reading."""
    working, spin, held = (of_holds(recent, mask, np.any) for mask in (gpus.work, gpus.spin, gpus.held))
    # By the engine's own metrics; NaN, where it has none, is no request.
    queue: Mask = np.logical_or.reduce([values > 0 for values in recent.service.values()])
    inside = recent.spans.ends > np.array([[hold.since] for hold in recent.holds]).reshape(-1, 1) + 1e-6
    host, host_known, fabric = _hosts(recent, working | spin, rules)
    return HoldSigns(
        work=(working | spin | queue) & inside, progress=(working | queue) & inside,
        rest=of_holds(recent, gpus.rest, np.all) & ~queue & inside,
        stall=of_holds(recent, gpus.rest | gpus.spin, np.all) & ~queue & inside, spin=spin & ~working & inside,
        host=host & inside, queue=queue & inside, fabric=fabric, host_known=host_known, free=~held & inside,
    )  # fmt: skip


def of_holds(recent: Recent, mask: Mask, judge: Callable[..., Mask]) -> Mask:
    """Of each hold, whether any, or all, of its GPUs are in a mask of GPUs; of one without GPUs, no."""
    out = np.zeros((len(recent.holds), mask.shape[1]), dtype=np.bool_)
    for n, hold in enumerate(recent.holds):
        out[n] = judge(mask[list(hold.gpus)], axis=0) if hold.gpus else False
    return out


def _hosts(recent: Recent, working: Mask, rules: Levels) -> tuple[Mask, Mask, Values]:
    """Of each hold: spans in which a host of it was busy and no other workload there worked; whether its hosts are
    measured; what its fabric carried, as a share of line rate."""
    cpu, disk, network = (recent.node[n] for n in ("cpu_util", "disk_bytes_per_second", "network_bytes_per_second"))
    base_cpu, *bases = (np.nan_to_num(low_level(values, _BASE))[:, None] for values in (cpu, disk, network))
    busy = cpu >= base_cpu + rules.host_cpu_rise_min
    for values, base in zip((disk, network), bases, strict=True):
        busy |= values >= np.maximum(rules.host_bytes_per_second_min, rules.host_times * base)
    io = np.isfinite(disk) | np.isfinite(network)
    measured: Mask = np.logical_and(np.isfinite(cpu).any(axis=1), io.any(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        # Both ways over what one way can carry twice.
        share = recent.node["fabric_bytes_per_second"] / (2 * recent.node["fabric_line_bytes_per_second"])
    place = {node.node: n for n, node in enumerate(recent.nodes)}
    homes = [sorted({place[recent.gpus[gpu].node] for gpu in hold.gpus}) for hold in recent.holds]
    load = np.zeros(busy.shape, dtype=np.intp)
    for n, rows in enumerate(homes):
        if recent.holds[n].is_workload:
            load[rows] += working[n]
    host, is_measured = np.zeros_like(working), np.zeros(len(homes), dtype=np.bool_)
    fabric = np.full(working.shape, np.nan, dtype=np.float32)
    for n, rows in enumerate(homes):
        if rows:
            host[n] = (busy[rows] & (load[rows] == working[n])).any(axis=0)
            is_measured[n] = measured[rows].all()
            fabric[n] = share[rows].max(axis=0)  # NaN in any is NaN: silence of a part is unknown
    return host, is_measured, fabric


def observed_from(recent: Recent) -> float:
    """The begin of the first span in which any GPU was observed."""
    at = np.flatnonzero((recent.gpu["observed"] > 0).any(axis=0))
    return float(recent.spans.ends[at[0]] - recent.spans.seconds[at[0]]) if len(at) else recent.spans.start


def low_level(values: Values, share: float, where: Mask | None = None) -> Floats:
    """The value of each row below which `share` of its known values lie; NaN where none is known. `where`: only
    these."""
    ordered = np.sort(values if where is None else np.where(where, values, np.nan), axis=1)  # NaN last
    count = np.isfinite(ordered).sum(axis=1)
    at = np.clip((count * share).astype(int), 0, np.maximum(count - 1, 0))
    return np.where(count > 0, ordered[np.arange(len(ordered)), at], np.nan).astype(np.float64)


def last_true(mask: Mask, spans: Spans) -> Floats:
    """The end of the last span of each row that is true; NaN where none is."""
    at = mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)
    return np.where(mask.any(axis=1), spans.ends[at], np.nan)
