"""What holds a workload back: a question per row, in order, then shares of time.

The order matters (a throttled GPU looks latency-bound, one that waits for the network looks idle), and the numbers
are rules/bottlenecks.yaml's. Rows are hours or minutes, whose means blur what happened within. Three things bring it
back: seconds counted in bins (how long a link was busy), correlations taken at 1 s (whether compute fell while it was),
and the share of time the engine was active, by which means are scaled to the busy part. Where samples are longer than
the parts of a step none of the three can tell, and levels are compared instead: the link's with compute's and memory's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....rules.policy.thresholds import Threshold
from ...core.column_rows import with_one_nothing
from .hysteresis import courses, latched, settled
from .links import Links
from .stragglers import Lateness

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Numbers = Mapping[str, Floats]

# What each row is asked about. `label_c`, `label_m`: use over what the SKU sustains, assumed where nobody measured it.
_MEASURES = (
    "g", "sm", "o", "c", "v", "m", "n", "i", "p", "q", "u_n", "label_c", "label_m", "i_share", "n_share", "p_share",
    "p_p95", "q_rank", "throttled", "clock_ratio", "tensor_fabric_correlation", "tensor_nvlink_correlation",
    "period_strength", "rated_power", "power_over_idle", "cpu", "io_wait", "sample_seconds",
)  # fmt: skip
# Thresholds that are left upwards, not downwards; the rest of the levels are left downwards.
_UPPER = frozenset({"throttled_clock_ratio"})
# Rows with these labels are what they are, however short.
_LOOSE = ("idle", "unknown")


def label_rows(
    gpu: pd.DataFrame, rows: pd.DataFrame, ranks: Lateness, links: Links, thresholds: Mapping[str, Threshold]
) -> pd.DataFrame:
    """The measures with the bottleneck of every row of the frame's `gpu` as `label`, ``unknown`` where too little is
    measured.

    With it what the judge of a workload needs beside them: `several`, `late`, `waiting` (flags) and `lost` (share of
    time) of its rank beside the others, `starved` (an engine that rests although no link is in use), `thin` (it fills
    little of the GPU while it works, however seldom), `hostless` (the label were it not for the host), `coarse`
    (samples too long for correlations), `wire`, `wire_bytes` (of the node's busiest port), `nvlink_bytes` (bytes per
    second, of the busier direction), `exchange` (`i`, of Ethernet where the job uses that), `lacks` (what is unknown of
    its links where that keeps it from a label), and which GPU it
    is.

    `ranks`: who waits for whom in each row; `links`: what is known of what it may wait for.
    """
    t = {name: threshold.value for name, threshold in thresholds.items()}
    r = {name: rows[name].to_numpy(float) for name in _MEASURES}
    # A node without RDMA communicates over Ethernet, and so does a job anywhere whose collectives fell back to TCP.
    r["i"] = np.where(links.apart, np.fmax(r["i"], links.ethernet), r["i"])
    idle, fault = rows["idle"].to_numpy(bool), rows["fault"].to_numpy(bool)
    entering, leaving = (_answers(r, levels, fault, idle, ranks, links) for levels in (t, _leaving(t)))
    along = courses(gpu)
    masks = [latched(enter, stay, along) for (_, enter), (_, stay) in zip(entering, leaving, strict=True)]
    names = [*(name for name, _ in entering), "unknown"]
    *codes, unknown = np.arange(len(names), dtype=np.int8)
    chosen = np.select(masks, codes, default=unknown)
    loose = np.isin(chosen, [n for n, name in enumerate(names) if name in _LOOSE])
    label = settled(chosen, along, hold_seconds=t["hold_seconds"], loose=loose)
    rest = [code for code in codes if names[code] != "host-input"]
    hostless = np.select([masks[code] for code in rest], rest, default=unknown)
    words = np.array(names, dtype=object)
    about = {
        "label": words[label], "several": ranks.several,
        "late": ranks.late, "waiting": ranks.waiting, "lost": ranks.lost, "hostless": words[hostless],
        "starved": _starved(r, t), "thin": _thinly_served(r, t, links) & ~idle & ~fault,
        "wire": links.wire, "wire_bytes": links.wire_bytes,
        "nvlink_bytes": gpu[[f"nvlink_{way}_bytes_per_second_mean" for way in ("tx", "rx")]].max(axis=1, skipna=False),
        "exchange": r["i"],
        "lacks": np.where(_works_thinly(r, t) & (label == unknown) & ~fault, links.lacks, ""),
        "coarse": r["sample_seconds"] > t["correlation_sample_max"],
        **{name: gpu[name] for name in ("node", "gpu_uuid", "gpu_index")},
    }  # fmt: skip
    return with_one_nothing(rows.assign(**about))


def _thinly_served(r: Numbers, t: Mapping[str, float], links: Links) -> Mask:
    with np.errstate(invalid="ignore", divide="ignore"):
        return _low(r, t) & _thin(r, t) & _still(t, links)


def _leaving(t: Mapping[str, float]) -> dict[str, float]:
    """The levels at which an answer that was yes becomes no: each easier to meet than the level that made it yes."""
    share = t["leave_share"]
    out = {}
    for name, value in t.items():
        if name in _UPPER:
            out[name] = min(1.0, value / share)
        elif name.endswith("_max"):
            out[name] = value / share
        else:
            out[name] = value * share
    # Resolution is no level: a correlation is as good at leaving as at entering. Nor is the rated power: a small card
    # that once was below it would never be seen at it again.
    for name in ("correlation_sample_max", "throttled_power_max"):
        out[name] = t[name]
    return out


def _answers(  # noqa: PLR0917
    r: Numbers, t: Mapping[str, float], fault: Mask, idle: Mask, ranks: Lateness, links: Links
) -> list[tuple[str, Mask]]:
    """Every question with its answer per row; the first yes is the label."""
    with np.errstate(invalid="ignore", divide="ignore"):
        compute, memory = _busy_use(r, t)
        most = np.fmax(compute, memory)
        # Coarse: what the link and the tensor cores do within a sample cannot be told apart by a correlation.
        coarse = r["sample_seconds"] > t["correlation_sample_max"]
        # A link that takes more of the time than anything on the GPU, though not by enough to be named: what waits for
        # what nobody saw.
        rival = np.fmax(np.nan_to_num(r["i"]), np.nan_to_num(r["u_n"]))
        clear = ~(coarse & (rival >= t["link_level"]) & (most < rival))
        return [
            ("unknown", fault),
            ("idle", idle),
            ("straggler", ranks.waiting),
            ("throttled", _throttled(r, t)),
            ("network", _network(r, t, most, coarse)),
            ("nvlink", _nvlink(r, t, most, coarse)),
            ("pcie", _pcie(r, t, most, coarse)),
            ("host-input", _host(r, t)),
            ("straggler", _spin(r, t, links)),
            ("hbm-bandwidth", clear & (memory >= t["hbm_util"]) & ~(memory < t["hbm_dominance"] * compute)),
            ("compute", clear & (compute >= t["compute_util"]) & ~(compute < t["compute_dominance"] * memory)),
            ("compute", clear & _at_power_limit(r, t) & ((memory < t["hbm_util"]) | (compute >= memory))),
            ("mixed", clear & (compute >= t["mixed_util"]) & (memory >= t["mixed_util"])),
            ("network", _waits_on_wire(r, t, links) & (coarse | ~_overlapped(r, t))),
            ("nvlink", _waits_on_nvlink(r, t, links)),
            ("pcie", _waits_on_pcie(r, t, links)),
            ("latency", _latency(r, t, links)),
            # What is used most by a clear margin, though below the level at which it surely is the limit.
            ("hbm-bandwidth", clear & (memory >= t["mixed_util"]) & (memory >= t["hbm_dominance"] * compute)),
            ("compute", clear & (compute >= t["mixed_util"]) & (compute >= t["compute_dominance"] * memory)),
        ]  # fmt: skip


def _throttled(r: Numbers, t: Mapping[str, float]) -> Mask:
    """Its clock is below what its specification counts on, for a reason that the driver tells; or, where no reason is
    told, so far below that only a fault or a setting explains it."""
    busy = _busy(r)
    # At its rated power a GPU gives all it has, and its clock is what that power allows. A small card is there by
    # design long before a mean over pauses shows it: what it drew at work counts, the most where its rest is not known.
    rest = np.nan_to_num(r["rated_power"] / r["power_over_idle"])
    free = ~((r["rated_power"] - (1 - busy) * rest) / busy >= t["throttled_power_max"])
    told = (r["throttled"] / busy >= t["throttled_share"]) & (r["clock_ratio"] < t["throttled_clock_ratio"])
    # The clock may fall while the engine rests: the most that it can have been meanwhile counts.
    at_work = (r["clock_ratio"] - (1 - busy) * t["throttled_resting_clock_min"]) / busy
    shown = (r["g"] >= t["latency_engine_min"]) & (at_work < t["throttled_clock_alone_max"])
    alone = np.isnan(r["throttled"]) & shown
    return free & (told | alone) & ~(r["g"] < t["busy_share_min"])


def _network(r: Numbers, t: Mapping[str, float], most: Floats, coarse: Mask) -> Mask:
    often = (r["i_share"] >= t["network_share"]) | (
        (r["q_rank"] >= t["network_wait_decile"]) & (r["q"] > 0) & (r["i"] >= t["network_share"])
    )
    return _link(
        (r["i"], r["i_share"], r["tensor_fabric_correlation"]), often, t["network_correlation"], t, most, coarse
    )


def _nvlink(r: Numbers, t: Mapping[str, float], most: Floats, coarse: Mask) -> Mask:
    often = r["n_share"] >= t["nvlink_share"]
    link = (r["u_n"], r["n_share"], r["tensor_nvlink_correlation"])
    return _link(link, often, t["nvlink_correlation"], t, most, coarse)


def _link(  # noqa: PLR0917
    link: tuple[Floats, Floats, Floats], often: Mask, falls: float, t: Mapping[str, float], most: Floats, coarse: Mask
) -> Mask:
    """A link binds where compute falls while it is busy, or, where nobody could see that, where it leads all else.

    `link`: its level, the share of busy seconds, and the correlation of tensor activity with it, which `falls` bounds.
    """
    level, share, correlation = link
    # The seconds it waits must outweigh those in which it computes: else the wait costs a little and binds nothing.
    seen = often & (correlation < falls) & ~(most > np.fmax(share, level))
    # Steps shorter than the sampling show no correlation, and means over many steps a false one.
    blind = coarse | np.isnan(correlation)
    return (seen & ~coarse) | (blind & _leads(level, t, most))


def _leads(level: Floats, t: Mapping[str, float], most: Floats) -> Mask:
    return (level >= t["link_level"]) & ~(level < t["link_dominance"] * most)


def _pcie(r: Numbers, t: Mapping[str, float], most: Floats, coarse: Mask) -> Mask:
    # The mean of an hour blurs copies that alternate with work: bursts at the limit, and enough of them.
    bursts = (r["p_p95"] >= t["pcie_util"]) & (r["p_share"] >= t["pcie_share"])
    often = ((r["p"] >= t["pcie_util"]) | bursts) & ~(most > np.fmax(r["p_share"], r["p"]))
    return (often | (coarse & _leads(r["p"], t, most))) & ~(r["sm"] >= t["pcie_sm_max"])


def _busy(r: Numbers) -> Floats:
    """The share of time at work; where nobody told it, all of it."""
    return np.where(r["g"] > 0, r["g"], 1.0)


def _busy_use(r: Numbers, t: Mapping[str, float]) -> tuple[Floats, Floats]:
    """The use of compute and memory at work: an hour that served for half of its time used the memory twice as hard in
    that half. NaN where it was seldom at work."""
    busy = np.where(r["g"] < t["busy_share_min"], np.nan, _busy(r))
    return np.fmax(r["label_c"], r["v"]) / busy, r["label_m"] / busy


def _busiest(*levels: Floats) -> Floats:
    """The highest level that is known; NaN where none is. Whether one that is not known matters, `Links` says."""
    return np.fmax.reduce(levels)


def _starved(r: Numbers, t: Mapping[str, float]) -> Mask:
    """The engine rests while no link is seen in use. A collective keeps the engine busy, so links that nobody measured
    do not explain the rest: what is lacking is work."""
    busy = _busiest(r["n"], r["i"], r["p"]) >= t["host_link_max"]
    return (r["g"] < t["host_engine_max"]) & ~busy & _seen_waiting(r, t)


def _seen_waiting(r: Numbers, t: Mapping[str, float]) -> Mask:
    """Whether more than GPU use was measured of what it may wait for: SM activity, a link, or a host that is busy."""
    known = ~np.isnan(r["sm"]) | ~np.isnan(_busiest(r["n"], r["i"], r["p"]))
    return known | (r["cpu"] >= t["host_cpu_min"]) | (r["io_wait"] >= t["host_io_wait_min"])


def _host(r: Numbers, t: Mapping[str, float]) -> Mask:
    # A rhythm that carries most of what varies is a step's; a weaker one is found among any requests.
    rhythm = r["period_strength"] >= t["host_period_min"]
    cause = rhythm | (r["cpu"] >= t["host_cpu_min"]) | (r["io_wait"] >= t["host_io_wait_min"])
    return _starved(r, t) & cause


def _spin(r: Numbers, t: Mapping[str, float], links: Links) -> Mask:
    busy = _busiest(r["n"], r["i"]) >= t["spin_link_max"]
    return (
        (r["sm"] >= t["spin_sm_min"])
        & (r["c"] < t["spin_tensor_max"])
        & ~(r["v"] >= t["spin_dram_max"])
        & (r["m"] < t["spin_dram_max"])
        & ~busy
        # A rank that polls for another waits on a link that is silent, and that must have been seen.
        & _quiet(links, t["latency_link_max"])
    )


def _quiet(links: Links, within_max: float) -> Mask:
    """Whether everything that its work could wait for is known and next to unused."""
    return (~links.inside | (links.within < within_max)) & (~links.spans | links.wire_quiet)


def _low(r: Numbers, t: Mapping[str, float]) -> Mask:
    compute, memory = _busy_use(r, t)
    return (compute < t["latency_util_max"]) & (memory < t["latency_util_max"])


def _thin(r: Numbers, t: Mapping[str, float]) -> Mask:
    """Kernels that fill little of the GPU while it works: by its SMs, else its warps, else its power."""
    busy = _busy(r)
    # Large matrix products fill the SMs with few warps: occupancy speaks only where SM activity does not.
    by_warps = np.isnan(r["sm"]) & (r["o"] / busy < t["latency_occupancy_max"])
    # Where neither is told (an exporter's defaults), pipes that nobody measures may be full. They would draw power.
    by_power = np.isnan(r["sm"]) & np.isnan(r["o"]) & (r["rated_power"] < t["latency_power_max"])
    return (r["sm"] / busy < t["latency_sm_max"]) | by_warps | by_power


def _works_thinly(r: Numbers, t: Mapping[str, float], *, filled: bool = False) -> Mask:
    """The engine is active and nothing that was measured on the GPU is used: launches, or a collective, take the time.

    `filled`: whatever the SMs say, for a collective may fill them, and few exporters tell.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return (r["g"] >= t["latency_engine_min"]) & _low(r, t) & (filled | _thin(r, t))


def _waits_on_wire(r: Numbers, t: Mapping[str, float], links: Links) -> Mask:
    """Nothing on the GPU is used, and the wire is: that is what it waits for, whatever compute does by the second.
    Steps shorter than a sample show no correlation, and spinning that never ends does not vary."""
    return _works_thinly(r, t, filled=True) & links.own_wire & (links.wire >= t["network_wait_min"])


def _overlapped(r: Numbers, t: Mapping[str, float]) -> Mask:
    """Whether compute was seen to work in the very seconds in which the fabric is busy, of which there are others."""
    varies = (r["i_share"] >= t["network_share"]) & (r["i_share"] <= 1 - t["network_share"])
    return varies & (r["tensor_fabric_correlation"] > -t["network_correlation"])


def _at_power_limit(r: Numbers, t: Mapping[str, float]) -> Mask:
    return (r["rated_power"] >= t["compute_power_min"]) & (r["sm"] >= t["compute_power_sm_min"])


def _waits_on_nvlink(r: Numbers, t: Mapping[str, float], links: Links) -> Mask:
    """Nothing on the GPU is full, and NVLink carries what collectives of small tensors take much of the time for."""
    compute, memory = _busy_use(r, t)
    works = (r["g"] >= t["latency_engine_min"]) & (compute < t["latency_util_max"]) & (memory < t["hbm_util"])
    return works & links.inside & (r["n"] >= t["nvlink_wait_min"])


def _waits_on_pcie(r: Numbers, t: Mapping[str, float], links: Links) -> Mask:
    """The same of PCIe between GPUs that have nothing else: a collective there sustains a fraction of the link."""
    return _works_thinly(r, t, filled=True) & links.inside & ~links.bridged & (r["p"] >= t["pcie_wait_min"])


def _latency(r: Numbers, t: Mapping[str, float], links: Links) -> Mask:
    # A link used as much as that may be what it waits for, and so may one that nobody saw.
    busy = _busiest(r["n"], r["i"], r["p"], r["u_n"]) >= t["latency_util_max"]
    return _works_thinly(r, t) & ~busy & _still(t, links)


def _still(t: Mapping[str, float], links: Links) -> Mask:
    """Whether neither the links inside nor the wire can be what it waits for."""
    foreign = (links.wire >= t["network_wait_min"]) & (links.inside | links.alone)
    return _quiet(links, t["latency_link_max"]) & ~foreign
