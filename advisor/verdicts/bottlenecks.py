"""What holds a workload back: a question per row, in order, then shares of time.

The order matters (a throttled GPU looks latency-bound, one that waits for the network looks idle), and the numbers
are rules/bottlenecks.yaml's. Rows are hours or minutes, whose means blur what happened within. Three things bring it
back: seconds counted in bins (how long a link was busy), correlations taken at 1 s (whether compute fell while it was),
and the share of time the engine was active, by which means are scaled to the busy part.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...rules.thresholds import Threshold
from ..model import BottleneckVerdict

Mask = npt.NDArray[np.bool_]


def label_rows(measures: pd.DataFrame, thresholds: Mapping[str, Threshold]) -> pd.Series:
    """The bottleneck of every row of `measures`, by the ordered questions; ``unknown`` where too little is measured."""
    t = {name: threshold.value for name, threshold in thresholds.items()}
    r = {name: measures[name].to_numpy(float) for name in measures.columns if measures[name].dtype != bool}
    idle, fault = measures["idle"].to_numpy(bool), measures["fault"].to_numpy(bool)
    with np.errstate(invalid="ignore", divide="ignore"):
        busy_share = np.clip(np.where(np.isnan(r["g"]), 1.0, r["g"]), 0.05, 1.0)
        # Means over the busy part: an hour that served for half of its time used the memory twice as hard meanwhile.
        compute, memory = r["u_c"] / busy_share, r["u_m"] / busy_share
        vector = r["v"] / busy_share
        compute = np.fmax(compute, vector)
        questions: list[tuple[str, Mask]] = [
            ("unknown", fault),
            ("idle", idle),
            ("throttled", _throttled(r, t, busy_share)),
            ("network", _network(r, t, compute, memory)),
            ("nvlink", _nvlink(r, t, compute, memory)),
            ("pcie", _pcie(r, t, compute, memory)),
            ("host-input", _host(r, t)),
            ("straggler", _spin(r, t)),
            ("hbm-bandwidth", (memory >= t["hbm_util"]) & ~(memory < t["hbm_dominance"] * compute)),
            ("compute", (compute >= t["compute_util"]) & ~(compute < t["compute_dominance"] * memory)),
            ("mixed", (compute >= t["mixed_util"]) & (memory >= t["mixed_util"])),
            ("latency", _latency(r, t, compute, memory)),
            # What is used most by a clear margin, though below the level at which it surely is the limit.
            ("hbm-bandwidth", (memory >= t["mixed_util"]) & (memory >= t["hbm_dominance"] * compute)),
            ("compute", (compute >= t["mixed_util"]) & (compute >= t["compute_dominance"] * memory)),
        ]
        label = np.select([mask for _, mask in questions], [name for name, _ in questions], default="unknown").astype(
            object
        )
    return pd.Series(label, index=measures.index)


def _throttled(r: Mapping[str, npt.NDArray[np.float64]], t: Mapping[str, float], busy: npt.NDArray) -> Mask:
    return (r["throttled"] / busy >= t["throttled_share"]) & (r["clock_ratio"] < t["throttled_clock_ratio"])


def _network(r: Mapping[str, npt.NDArray], t: Mapping[str, float], compute: npt.NDArray, memory: npt.NDArray) -> Mask:
    often = (r["i_share"] >= t["network_share"]) | (
        (r["q_rank"] >= t["network_wait_decile"]) & (r["q"] > 0) & (r["i"] >= t["network_share"])
    )
    waits = r["tensor_fabric_correlation"] < t["network_correlation"]
    # Without a correlation (steps shorter than the sampling) the link must be the busiest thing there is.
    alone = np.isnan(r["tensor_fabric_correlation"]) & (r["i"] >= t["network_util"])
    # The seconds it waits must outweigh those in which it computes: else the wait costs a little and binds nothing.
    outweighs = ~(np.fmax(compute, memory) > np.fmax(r["i_share"], r["i"]))
    return ((often & waits) | alone) & outweighs


def _nvlink(r: Mapping[str, npt.NDArray], t: Mapping[str, float], compute: npt.NDArray, memory: npt.NDArray) -> Mask:
    often = r["n_share"] >= t["nvlink_share"]
    waits = r["tensor_nvlink_correlation"] < t["nvlink_correlation"]
    alone = np.isnan(r["tensor_nvlink_correlation"]) & (r["u_n"] >= t["nvlink_util"])
    outweighs = ~(np.fmax(compute, memory) > np.fmax(r["n_share"], r["u_n"]))
    return ((often & waits) | alone) & outweighs


def _pcie(r: Mapping[str, npt.NDArray], t: Mapping[str, float], compute: npt.NDArray, memory: npt.NDArray) -> Mask:
    # The mean of an hour blurs copies that alternate with work: bursts at the limit, and enough of them.
    bursts = (r["p_p95"] >= t["pcie_util"]) & (r["p_share"] >= t["pcie_share"])
    quiet = ~(r["sm"] >= t["pcie_sm_max"])
    return ((r["p"] >= t["pcie_util"]) | bursts) & quiet & ~(np.fmax(compute, memory) > np.fmax(r["p_share"], r["p"]))


def _host(r: Mapping[str, npt.NDArray], t: Mapping[str, float]) -> Mask:
    starved = r["g"] < t["host_engine_max"]
    links = np.fmax(np.fmax(np.nan_to_num(r["n"]), np.nan_to_num(r["i"])), np.nan_to_num(r["p"]))
    cause = ~np.isnan(r["period_strength"]) | (r["cpu"] >= t["host_cpu_min"]) | (r["io_wait"] >= t["host_io_wait_min"])
    return starved & (links < t["host_link_max"]) & cause


def _spin(r: Mapping[str, npt.NDArray], t: Mapping[str, float]) -> Mask:
    links = np.fmax(np.nan_to_num(r["n"]), np.nan_to_num(r["i"]))
    return (
        (r["sm"] >= t["spin_sm_min"])
        & (r["c"] < t["spin_tensor_max"])
        & ~(r["v"] >= t["spin_dram_max"])
        & (r["m"] < t["spin_dram_max"])
        & (links < t["spin_link_max"])
    )


def _latency(r: Mapping[str, npt.NDArray], t: Mapping[str, float], compute: npt.NDArray, memory: npt.NDArray) -> Mask:
    low = (compute < t["latency_util_max"]) & (memory < t["latency_util_max"]) & ~(r["u_n"] >= t["latency_util_max"])
    thin = (r["o"] < t["latency_occupancy_max"]) | (r["sm"] < t["latency_sm_max"])
    return (r["g"] >= t["latency_engine_min"]) & low & thin


def judge_bottleneck(
    labels: pd.Series, measures: pd.DataFrame, mine: pd.DataFrame, *, kind: str, coverage: float, dominant: float
) -> BottleneckVerdict:
    """One workload's verdict from the labels of its rows (`labels` and `measures` are those of the whole frame).

    `coverage`: share of its time that was observed; `dominant`: share of the busy time that a label needs to rule.
    """
    at = mine["row"].to_numpy(int)
    weights = mine["seconds"].to_numpy(float)
    total = float(weights.sum())
    if total <= 0:
        return BottleneckVerdict("unknown", 0.0, {"unknown": 1.0}, ("Nothing of it was observed.",))
    own = labels.to_numpy()[at]
    seconds = pd.Series(weights).groupby(own).sum().sort_values(ascending=False)
    shares = {str(label): round(float(value) / total, 4) for label, value in seconds.items()}
    if kind == "idle" or shares.get("idle", 0.0) >= 0.95:
        share = shares.get("idle", 0.0)
        return BottleneckVerdict("idle", _confidence(share, coverage), shares, (f"Idle in {share:.0%} of the time.",))
    busy = seconds.drop("idle", errors="ignore")
    if busy.empty or busy.sum() <= 0:
        return BottleneckVerdict("unknown", 0.0, shares, ("It was never seen at work.",))
    label, share = str(busy.index[0]), float(busy.iloc[0] / busy.sum())
    evidence = [f"{_NAMES[label]} in {share:.0%} of its busy time."]
    if share < dominant:
        names = ", ".join(f"{_NAMES[str(k)].lower()} {v / busy.sum():.0%}" for k, v in busy.items())
        known = busy.drop("unknown", errors="ignore")
        label = "mixed" if known.sum() >= 0.5 * busy.sum() else "unknown"
        evidence = [f"No single limit rules its busy time: {names}."]
    chosen = own == str(busy.index[0])
    evidence.extend(_numbers(label, measures.iloc[at[chosen]], weights[chosen]))
    return BottleneckVerdict(label, _confidence(share, coverage), shares, tuple(evidence))  # type: ignore[arg-type]


def _confidence(share: float, coverage: float) -> float:
    """How sure: the share of the time that says so, less where part of the time was not seen."""
    return round(min(0.99, share * (0.5 + 0.5 * min(1.0, coverage))), 3)


_NAMES = {
    "compute": "Compute limits it",
    "hbm-bandwidth": "Memory bandwidth limits it",
    "nvlink": "NVLink limits it",
    "network": "The network between nodes limits it",
    "pcie": "PCIe limits it",
    "host-input": "It waits for the host or its input",
    "straggler": "It waits in collectives",
    "latency": "Launches and dependencies limit it",
    "throttled": "It is throttled",
    "idle": "It is idle",
    "mixed": "Compute and memory bandwidth limit it alike",
    "unknown": "No limit can be named",
}


def _numbers(label: str, rows: pd.DataFrame, weights: npt.NDArray[np.float64]) -> list[str]:
    """The figures behind the label, over the rows that carry it."""

    def mean(name: str) -> float:
        v = rows[name].to_numpy(float)
        ok = ~np.isnan(v)
        return float(np.average(v[ok], weights=weights[ok])) if weights[ok].sum() > 0 else float("nan")

    def told(text: str, *values: float) -> list[str]:
        return [text] if not any(np.isnan(v) for v in values) else []

    u_c, u_m, g = mean("u_c"), mean("u_m"), mean("g")
    use = told(
        f"It uses {u_m:.0%} of the memory bandwidth and {u_c:.0%} of the compute that this GPU sustains, "
        f"with the engine active {g:.0%} of the time.",
        u_c,
        u_m,
        g,
    )
    i, i_share, r_i = mean("i"), mean("i_share"), mean("tensor_fabric_correlation")
    n, n_share, r_n = mean("n"), mean("n_share"), mean("tensor_nvlink_correlation")
    p, p95, sm = mean("p"), mean("p_p95"), mean("sm")
    cpu, io_wait, throttled, clock = mean("cpu"), mean("io_wait"), mean("throttled"), mean("clock_ratio")
    fall = "Tensor activity falls while it is busy (correlation {:.2f})."
    special: dict[str, list[str]] = {
        "network": [
            *told(
                f"The fabric runs at {i:.0%} of line rate, above half of it in {i_share:.0%} of seconds.", i, i_share
            ),
            *told(fall.format(r_i), r_i),
        ],
        "nvlink": [
            *told(f"NVLink runs at {n:.0%} of its peak and is busy in {n_share:.0%} of seconds.", n, n_share),
            *told(fall.format(r_n), r_n),
        ],
        "pcie": told(f"PCIe runs at {p:.0%} of its peak in the mean and {p95:.0%} at the 95th percentile.", p, p95),
        "throttled": told(
            f"Throttle reasons hold {throttled:.0%} of the time and the SM clock is {clock:.0%} of the one behind the "
            "peak.",
            throttled,
            clock,
        ),
        "host-input": told(f"Host CPU is {cpu:.0%} busy, IO wait {io_wait:.0%}.", cpu, io_wait),
        "straggler": told(f"SMs are active {sm:.0%} of the time while tensor and memory stand still: they poll.", sm),
    }
    return [*special.get(label, []), *use]
