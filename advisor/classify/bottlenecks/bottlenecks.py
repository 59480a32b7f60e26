"""What holds a workload back: ordered questions per row (rules/bottlenecks.yaml), then shares of time.

Rows are hours or minutes, whose means blur what happened within. Seconds counted in bins, correlations at 1 s and the
share of time the engine was active bring it back. Where samples are longer than the parts of a step, the link's level
is compared with compute's and memory's.

Labels do not flicker: an answer that was yes stays yes until its measure falls below a lower level, and a label of less
than some minutes is part of what was before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....rules.policy.thresholds import Levels
from ...core.column_rows import Columns, with_one_nothing
from ...core.segments import Floats, Mask, runs
from .links import Links

Numbers = Mapping[str, Floats]

# Thresholds that are left upwards, not downwards; the rest of the levels are left downwards.
_NVLINK_MEANS = ["nvlink_tx_bytes_per_second_mean", "nvlink_rx_bytes_per_second_mean"]
_UPPER = frozenset({"throttled_clock_ratio"})
# Resolution is no level: a correlation is as good at leaving as at entering. Rated power is none either: a small card
# that once was below it would never be seen at it again.
_ONE_LEVEL = frozenset({"correlation_sample_max", "throttled_power_max"})
# Rows with these labels are what they are, however short.
_LOOSE = ("idle", "unknown")


def label_rows(gpu: pd.DataFrame, rows: pd.DataFrame, ranks: Columns, links: Links, levels: Levels) -> pd.DataFrame:
    """The measures with the bottleneck of every row of the frame's `gpu` as `label` (``unknown``: too little is
    measured), and: `several`, `late`, `waiting` (flags), `lost` (share of time) of its rank, `starved` (the engine
    rests although no link is in use), `thin` (little of the GPU is filled while it works), `hostless` (the label were
    it not for the host), `coarse` (samples too long for correlations), `wire`, `wire_bytes` (the node's busiest port),
    `nvlink_bytes` (bytes per second, busier direction), `exchange` (`i`, of Ethernet where the job uses that), `lacks`
    (missing measurements, keys of `evidence.SETTLES`, with commas). `ranks`: who waits for whom; `links`: what it may
    wait for."""
    t = vars(levels)
    r = {str(name): column.to_numpy(float) for name, column in rows.items()}
    # A node without RDMA communicates over Ethernet, and so does a job anywhere whose collectives fell back to TCP.
    r["i"] = np.where(links.apart, np.fmax(r["i"], links.ethernet), r["i"])
    idle, fault = rows["idle"].to_numpy(bool), rows["fault"].to_numpy(bool)
    first = [("unknown", fault), ("idle", idle), ("straggler", ranks["waiting"].astype(np.bool_))]
    # The levels at which an answer that was yes becomes no: each easier to meet than the level that made it yes.
    share = t["leave_share"]
    easier = {
        name: min(1.0, value / share) if name in _UPPER else value / share if name.endswith("_max") else value * share
        for name, value in t.items()
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        entering, flags = _answers(r, t, links)
        leaving, _ = _answers(r, easier | {name: t[name] for name in _ONE_LEVEL}, links)
    along = courses(gpu)
    names = [*(name for name, _ in (*first, *entering)), "unknown"]
    pairs = zip((*first, *entering), (*first, *leaving), strict=True)
    masks = [latched(enter, stay, along) for (_, enter), (_, stay) in pairs]
    *codes, unknown = np.arange(len(names), dtype=np.int8)
    chosen = np.select(masks, codes, default=unknown)
    loose = np.isin(chosen, [n for n, name in enumerate(names) if name in _LOOSE])
    label = settled(chosen, along, hold_seconds=t["hold_seconds"], loose=loose)
    rest = [code for code in codes if names[code] != "host-input"]
    hostless = np.select([masks[code] for code in rest], rest, default=unknown)
    words = np.array(names, dtype=object)
    unsettled = (label == unknown) & ~fault & ~idle
    blind = unsettled & np.logical_and.reduce([np.isnan(r[name]) for name in ("sm", "label_c", "label_m")])
    lacks = np.where(flags.pop("works_thinly") & unsettled, links.lacks, "")
    lacks = np.where(unsettled & (r["g"] < t["busy_share_min"]), "work", np.where(blind, "activity", lacks))
    about = {
        "label": words[label], **ranks, "hostless": words[hostless],
        "starved": flags["starved"], "thin": flags["thin"] & ~idle & ~fault,
        "wire": links.wire, "wire_bytes": links.wire_bytes,
        "nvlink_bytes": gpu[_NVLINK_MEANS].max(axis=1, skipna=False),
        "exchange": r["i"], "lacks": lacks,
        "coarse": r["sample_seconds"] > t["correlation_sample_max"],
        **{name: gpu[name] for name in ("node", "gpu_uuid", "gpu_index")},
    }  # fmt: skip
    return with_one_nothing(rows.assign(**about))


def _answers(r: Numbers, t: Mapping[str, float], links: Links) -> tuple[list[tuple[str, Mask]], dict[str, Mask]]:
    """Every question with its answer per row; the first yes is the label. With them the flags `starved`, `thin` and
    `works_thinly`, on which labels of a workload's kind rest."""
    g, sm = r["g"], r["sm"]
    # An hour that served for half of its time used the memory twice as hard in that half. Where it was seldom at work,
    # a quotient of two small shares says nothing.
    busy = np.where(g > 0, g, 1.0)
    seldom = g < t["busy_share_min"]
    compute = np.where(seldom, np.nan, np.fmax(r["label_c"], r["v"]) / busy)
    memory = np.where(seldom, np.nan, r["label_m"] / busy)
    most = np.fmax(compute, memory)
    low = (compute < t["latency_util_max"]) & (memory < t["latency_util_max"])
    works = g >= t["latency_engine_min"]
    # Kernels that fill little of the GPU while it works: by its SMs, else its warps, else its power. Large matrix
    # products fill the SMs with few warps: occupancy speaks only where SM activity does not. Where both are missing (an
    # exporter's defaults), unmeasured pipes may be full. They would draw power.
    by_warps = np.isnan(sm) & (r["o"] / busy < t["latency_occupancy_max"])
    by_power = np.isnan(sm) & np.isnan(r["o"]) & (r["rated_power"] < t["latency_power_max"])
    thin = low & ((sm / busy < t["latency_sm_max"]) | by_warps | by_power)
    # Coarse: what the link and the tensor cores do within a sample cannot be separated by a correlation.
    coarse = r["sample_seconds"] > t["correlation_sample_max"]
    # A link that takes more of the time than anything on the GPU, though not by enough to be named: what waits for
    # what was not measured.
    rival = np.fmax(np.nan_to_num(r["i"]), np.nan_to_num(r["u_n"]))
    clear = ~(coarse & (rival >= t["link_level"]) & (most < rival))
    # Whether everything that its work could wait for is known and next to unused; that no other's traffic is its own.
    quiet = (~links.inside | (links.within < t["latency_link_max"])) & (~links.spans | links.wire_quiet)
    foreign = (links.wire >= t["network_wait_min"]) & (links.inside | links.alone)
    linked = np.fmax.reduce((r["n"], r["i"], r["p"]))  # the busiest; NaN where none is known
    # The engine rests while no link is in use, and more than GPU use says so: SM activity, a link or a busy host. A
    # collective keeps the engine busy, so unmeasured links do not explain the rest: what lacks is work.
    caused = (r["cpu"] >= t["host_cpu_min"]) | (r["io_wait"] >= t["host_io_wait_min"])
    shown = ~np.isnan(sm) | ~np.isnan(linked) | caused
    starved = (g < t["host_engine_max"]) & ~(linked >= t["host_link_max"]) & shown
    # Compute was seen to work in the very seconds in which the fabric is busy, of which there are others.
    varies = (r["i_share"] >= t["network_share"]) & (r["i_share"] <= 1 - t["network_share"])
    overlapped = varies & (r["tensor_fabric_correlation"] > -t["network_correlation"])
    leads_memory = (memory >= t["mixed_util"]) & (memory >= t["hbm_dominance"] * compute)
    leads_compute = (compute >= t["mixed_util"]) & (compute >= t["compute_dominance"] * memory)
    at_power = (r["rated_power"] >= t["compute_power_min"]) & (sm >= t["compute_power_sm_min"])
    crowded = (r["q_rank"] >= t["network_wait_decile"]) & (r["q"] > 0) & (r["i"] >= t["network_share"])
    # The mean of an hour blurs copies that alternate with work: bursts at the limit, and enough of them.
    copies = (r["p"] >= t["pcie_util"]) | ((r["p_p95"] >= t["pcie_util"]) & (r["p_share"] >= t["pcie_share"]))

    def leads(level: Floats) -> Mask:
        return (level >= t["link_level"]) & ~(level < t["link_dominance"] * most)

    def binds(level: Floats, share: Floats, often: Mask, correlation: Floats, falls_below: float) -> Mask:
        """A link binds where compute falls while it is busy, or, where steps are too short to show that, where it leads
        all else. `level`: its use; `share`: of busy seconds; `often`: where that is enough of them."""
        # The seconds it waits must outweigh those in which it computes: else the wait costs a little and binds nothing.
        falls = often & (correlation < falls_below) & ~coarse & ~(most > np.fmax(share, level))
        return falls | ((coarse | np.isnan(correlation)) & leads(level))

    answers = [
        ("throttled", _throttled(r, t, busy) & ~seldom),
        ("network", binds(r["i"], r["i_share"], (r["i_share"] >= t["network_share"]) | crowded,
                          r["tensor_fabric_correlation"], t["network_correlation"])),
        ("nvlink", binds(r["u_n"], r["n_share"], r["n_share"] >= t["nvlink_share"],
                         r["tensor_nvlink_correlation"], t["nvlink_correlation"])),
        ("pcie", ((copies & ~(most > np.fmax(r["p_share"], r["p"]))) | (coarse & leads(r["p"])))
         & ~(r["sm"] >= t["pcie_sm_max"])),
        # A rhythm that carries most of what varies is a step's; a weaker one is found among any requests.
        ("host-input", starved & (caused | (r["period_strength"] >= t["host_period_min"]))),
        # A rank that polls for another waits on a link that is silent, and that must have been seen.
        ("straggler", (sm >= t["spin_sm_min"]) & (r["c"] < t["spin_tensor_max"]) & (r["m"] < t["spin_dram_max"])
         & ~(r["v"] >= t["spin_dram_max"]) & ~(np.fmax(r["n"], r["i"]) >= t["spin_link_max"]) & quiet),
        ("hbm-bandwidth", clear & (memory >= t["hbm_util"]) & ~(memory < t["hbm_dominance"] * compute)),
        ("compute", clear & (compute >= t["compute_util"]) & ~(compute < t["compute_dominance"] * memory)),
        # At its rated power the SMs are what takes it, unless memory is saturated.
        ("compute", clear & at_power & ((memory < t["hbm_util"]) | (compute >= memory))),
        ("mixed", clear & (compute >= t["mixed_util"]) & (memory >= t["mixed_util"])),
        # Nothing on the GPU is used, and the wire is: that is what it waits for, whatever compute does by the second.
        # Steps shorter than a sample show no correlation, and spinning that never ends does not vary.
        ("network", works & low & (links.spans | links.alone) & (links.wire >= t["network_wait_min"])
         & (coarse | ~overlapped)),
        # Nothing on the GPU is full, and NVLink carries what collectives of small tensors take much of the time for.
        ("nvlink", works & (compute < t["latency_util_max"]) & (memory < t["hbm_util"]) & links.inside
         & (r["n"] >= t["nvlink_wait_min"])),
        # The same of PCIe between GPUs that have nothing else: a collective there sustains a fraction of the link.
        ("pcie", works & low & links.inside & ~links.bridged & (r["p"] >= t["pcie_wait_min"])),
        # A link used as much as that may be what it waits for, and so may an unmeasured one.
        ("latency", works & thin & ~(np.fmax(linked, r["u_n"]) >= t["latency_util_max"]) & quiet & ~foreign),
        # What is used most by a clear margin, though below the level at which it surely is the limit.
        ("hbm-bandwidth", clear & leads_memory),
        ("compute", clear & leads_compute),
    ]  # fmt: skip
    return answers, {"starved": starved, "thin": thin & quiet & ~foreign, "works_thinly": works & thin}


def _throttled(r: Numbers, t: Mapping[str, float], busy: Floats) -> Mask:
    """Its clock is below what its specification counts on, for a reason that the driver reports; or, where no reason is
    reported, so far below that only a fault or a setting explains it."""
    # At its rated power a GPU gives all it has, and its clock is what that power allows. A small card is there by
    # design long before a mean over pauses shows it: what it drew at work counts, the most where its rest is not known.
    rest = np.nan_to_num(r["rated_power"] / r["power_over_idle"])
    free = ~((r["rated_power"] - (1 - busy) * rest) / busy >= t["throttled_power_max"])
    reported = (r["throttled"] / busy >= t["throttled_share"]) & (r["clock_ratio"] < t["throttled_clock_ratio"])
    # The clock may fall while the engine rests: the most that it can have been meanwhile counts.
    at_work = (r["clock_ratio"] - (1 - busy) * t["throttled_resting_clock_min"]) / busy
    alone = np.isnan(r["throttled"]) & (r["g"] >= t["latency_engine_min"]) & (at_work < t["throttled_clock_alone_max"])
    return free & (reported | alone)


# Rows of one GPU further apart than this share of their own length do not follow one another.
HOLE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Courses:
    """How the rows of a table follow one another: `order` sorts them by GPU and time, `starts` marks (in that order)
    the first row of each GPU and the first after a hole, `seconds` is what each row observed (in that order)."""

    order: npt.NDArray[np.intp]
    starts: Mask
    seconds: npt.NDArray[np.float64]


def courses(gpu: pd.DataFrame) -> Courses:
    """The courses of a frame's `gpu`: columns ``node, gpu_uuid, ts, interval_seconds, observed_seconds``."""
    node, device = pd.factorize(gpu["node"])[0], pd.factorize(gpu["gpu_uuid"])[0]
    ts, length = gpu["ts"].to_numpy(float), gpu["interval_seconds"].to_numpy(float)
    order = np.lexsort((ts, device, node)).astype(np.intp)
    after = order[1:]
    hole = ts[after] - length[after] - ts[order[:-1]] > HOLE_SHARE * length[after]
    starts = runs(node[order], device[order], breaks=hole) if len(order) else np.empty(0, dtype=np.bool_)
    return Courses(order, starts, np.nan_to_num(gpu["observed_seconds"].to_numpy(float))[order])


def latched(enter: Mask, stay: Mask, along: Courses) -> Mask:
    """The answers to one question: yes from where `enter` holds until `stay` does not. Rows as in the table."""
    came, kept = enter[along.order], stay[along.order]
    # A row that does not enter or leave answers as the last one that did; the first row of a series always does.
    said = came | ~kept | along.starts
    out = np.empty(len(enter), dtype=np.bool_)
    out[along.order] = came[np.maximum.accumulate(np.where(said, np.arange(len(said)), 0))]
    return out


def settled(labels: npt.NDArray, along: Courses, *, hold_seconds: float, loose: Mask) -> npt.NDArray:
    """Labels whose runs last at least `hold_seconds`: a shorter run is taken as what was before it. `loose`: rows
    (idle, unseen, contradictory) that are what they are, however short, and whose label nothing takes on."""
    if not len(labels):
        return labels.copy()
    row_labels, free = labels[along.order], loose[along.order]
    new = runs(row_labels, free, breaks=along.starts[1:])
    run, first = np.cumsum(new) - 1, np.nonzero(new)[0]
    stands = (np.bincount(run, weights=along.seconds) >= hold_seconds) | free[first] | along.starts[first]
    stands[1:] |= free[first[:-1]]
    last = np.maximum.accumulate(np.where(stands, np.arange(len(first)), 0))
    out = np.empty_like(labels)
    out[along.order] = row_labels[first[last[run]]]
    return out
