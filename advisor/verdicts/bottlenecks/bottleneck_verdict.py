"""From the labels of a workload's rows to its verdict: shares of its time, how sure, and why, in words with figures."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.advice_types import BottleneckVerdict
from ...core.dominant_label import leading, ruling
from .links import SETTLES

Floats = npt.NDArray[np.float64]

# Work that waits for nobody's requests: where its engine rests, it is the host or the input that it waits for.
_JOBS = ("training", "fine-tuning", "batch-inference")
# Work that waits for somebody's requests: where its engine rests, it lacks those, however busy the node's cores are.
_ON_DEMAND = ("online-inference", "interactive")
# What an engine that rests looks like while it works: the host shows in none of these.
_MASKS_HOST = ("compute", "hbm-bandwidth", "mixed", "latency", "unknown")
# Confidence where use is held against an assumed efficiency, and where samples are longer than what they should show.
# Judgements, not measurements: one in five such verdicts is expected to be wrong.
_ASSUMED, _COARSE = 0.8, 0.8
# A second label is worth naming from this share of the busy time on.
_WORTH_NAMING = 0.1
# A GPU is the suspect where it was the late one for most of the time that somebody was.
_SUSPECT_SHARE_MIN = 0.5


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
    own, rows = labels.to_numpy()[at], measures.iloc[at]
    if kind in _JOBS:
        own = np.where(rows["starved"].to_numpy(bool) & np.isin(own.astype(str), _MASKS_HOST), "host-input", own)
    if kind in _ON_DEMAND:
        own = np.where(own == "host-input", rows["hostless"].to_numpy(), own)
    seconds = pd.Series(weights).groupby(own).sum().sort_values(ascending=False)
    shares = {str(label): round(float(value) / total, 4) for label, value in seconds.items()}
    exact = {str(label): float(value) / total for label, value in seconds.items()}
    ruled = ruling(exact, dominant)
    if kind == "idle" or ruled == "idle":
        share = shares.get("idle", 0.0)
        return BottleneckVerdict("idle", _confidence(share, coverage), shares, (f"Idle in {share:.0%} of the time.",))
    busy = seconds.drop("idle", errors="ignore")
    if busy.empty or busy.sum() <= 0:
        return BottleneckVerdict("unknown", 0.0, shares, ("It was never seen at work.",))
    lead = leading({label: value for label, value in exact.items() if label != "idle"})
    share = float(busy[lead] / busy.sum())
    evidence = [f"{_NAMES[lead]} in {share:.0%} of its busy time."]
    if share < dominant:
        names = ", ".join(f"{_NAMES[str(k)].lower()} {v / busy.sum():.0%}" for k, v in busy.items())
        evidence = [f"No single limit rules its busy time: {names}."]
    else:
        beside = [f"{_NAMES[str(k)].lower()} {v / busy.sum():.0%}" for k, v in busy.drop(lead).items()
                  if v >= _WORTH_NAMING * busy.sum()]  # fmt: skip
        evidence.extend([f"Beside it: {', '.join(beside)}."] if beside else [])
    chosen = own == lead
    ruling_rows = rows[chosen]
    evidence.extend(_numbers(ruled, ruling_rows, weights[chosen]))
    if ruled == "straggler":
        evidence.extend(_suspect(rows, weights))
    if ruled == "unknown":
        evidence.extend(_unsettled(ruling_rows))
    doubt, doubts = _doubts(ruled, ruling_rows)
    confidence = round(doubt * _confidence(share, coverage), 3)
    return BottleneckVerdict(ruled, confidence, shares, (*evidence, *doubts))  # type: ignore[arg-type]


def _doubts(label: str, rows: pd.DataFrame) -> tuple[float, list[str]]:
    """A factor on the confidence, and a sentence for each reason."""
    factor, said = 1.0, []
    if label in _MASKS_HOST:
        for name, what in (("assumed_c", "compute"), ("assumed_m", "memory bandwidth")):
            if rows[name].any():
                factor = _ASSUMED
                said.append(
                    f"What {what} this GPU sustains was never measured: the middle of other GPUs is assumed, for this "
                    "label alone."
                )
    if rows["coarse"].any() and label not in ("idle", "throttled"):
        seconds = float(rows["sample_seconds"].median())
        factor *= _COARSE
        said.append(
            f"Samples of {seconds:.0f} s are means over many steps: what waits for what within them was not seen, only "
            "the levels."
        )
        rival = rows[["i", "u_n", "wire"]].max(axis=1).mean()
        if label == "unknown" and rival >= 0.2:
            said.append(
                f"Compute at {rows['label_c'].mean():.0%} and a link at {rival:.0%}: either may be the limit; samples "
                "of 1 s would tell."
            )
        elif label == "unknown" and rows["sm"].mean() >= 0.5:
            said.append("It may be bound by compute, or wait for one of its ranks; samples of 1 s would tell.")
    return factor, said


def _unsettled(rows: pd.DataFrame) -> list[str]:
    """Where links that nobody measured leave open what it waits for: which, and what would settle it."""
    lacks = {name for text in set(rows["lacks"]) for name in str(text).split(",") if name}
    if not lacks:
        return []
    return [
        f"Its engine is active {rows['g'].mean():.0%} of the time while compute and memory are hardly used: it waits "
        "for launches or for other GPUs, and what is not measured would tell which.",
        *(sentence for name, sentence in SETTLES.items() if name in lacks),
    ]


def _suspect(rows: pd.DataFrame, weights: Floats) -> list[str]:
    """Which GPU the others wait for: the one that waits least, or does the same work at a lower clock."""
    slowed = (rows["late"] | rows["waiting"]).to_numpy(bool)
    if not slowed.any():
        return []
    table, seconds = rows[slowed], pd.Series(weights[slowed])
    late = table["late"].to_numpy(bool)
    by_gpu = seconds[late].groupby([table[name].to_numpy()[late] for name in ("node", "gpu_uuid", "gpu_index")]).sum()
    if by_gpu.empty or by_gpu.max() < _SUSPECT_SHARE_MIN * by_gpu.sum():
        return ["Which GPU is late changes: no single one is the suspect."]
    node, uuid, number = by_gpu.idxmax()
    mine = (table["gpu_uuid"] == uuid).to_numpy(bool) & late
    one, others = table[mine], table[~late]

    def told(name: str) -> tuple[float, float]:
        return float(one[name].mean()), float(others[name].mean())

    waits, clock, held = told("waits"), told("clock_ratio"), told("throttled")
    said = [
        f"The suspect is GPU {number:.0f} of {node} ({uuid}): it waits {waits[0]:.0%} of the time while the others "
        f"wait {waits[1]:.0%}, for the same work."
        if waits[1] - waits[0] >= _WORTH_NAMING
        else f"The suspect is GPU {number:.0f} of {node} ({uuid}): it does the same work more slowly."
    ]
    if clock[0] < 0.95 * clock[1]:
        said.append(
            f"Its SM clock is {clock[0] / clock[1]:.0%} of the others', and throttle reasons hold {held[0]:.0%} of its "
            f"time against {held[1]:.0%} of theirs."
        )
    return said


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

    u_c, u_m, g = mean("label_c"), mean("label_m"), mean("g")
    use = told(
        f"It uses {u_m:.0%} of the memory bandwidth and {u_c:.0%} of the compute that this GPU sustains, "
        f"with the engine active {g:.0%} of the time.",
        u_c,
        u_m,
        g,
    )
    i, i_share, r_i = mean("i"), mean("i_share"), mean("tensor_fabric_correlation")
    carried = mean("wire_bytes")
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
            *(told(f"The busiest port of its nodes carries {carried / 1e9:.2g} GB/s.", carried) if np.isnan(i) else []),
        ],
        "latency": [
            *told(f"The ports of its nodes are quiet: the busiest carries {carried / 1e6:.3g} MB/s.", carried),
            *told(f"NVLink is quiet: {n:.1%} of its peak.", n),
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
