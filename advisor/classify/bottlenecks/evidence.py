"""What is said of a bottleneck: the figures behind its label, the signatures that the field knows, and what an open one
lacks. Figures are formed for all cases at once (`core.segments`), sentences only for what is shown."""

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from ...core.coded_text import CodedText, Scalar, coded
from ...core.segments import Floats, Mask, over
from ...core.verdict_types import BottleneckVerdict
from ..features.course import PieceRows
from ..features.features import is_burst
from ..workloads.session import kv_percentile

_HOUR = 3600.0
# Hours with and without bursts from which on their work is compared: fewer may differ by chance.
_HOURS_MIN = 3.0
# Large training that is well provided communicates for 0.15 to 0.30 of its time, by published shares; less is no news.
_COMMUNICATION_MIN = 0.15
# Share of the busy time from which on waiting is shown.
_WAITING_MIN = 0.1
_EXPORTER = "to dcgm-exporter's counters CSV (-f), or run the agent."
_LINKS = (
    ("communication-nvlink", "NVLink", "n_share", "u_n", "nvlink_bytes"),
    ("communication-fabric", "the fabric", "i_share", "i", "wire_bytes"),
)
# What is said, by its code. `coded` fills in the figures.
SENTENCES = {
    "checkpoint-cost": "Work in those hours is {less:.1%} lower: a loss of {seconds:.0f} s per such hour, {of_all:.1%} "
    "of all its time.",
    "checkpoint-cost-at-most": "Engine idle for {rests:.0f} s of such an hour: a loss of at most {seconds:.0f} s per "
    "such hour.",
    "collectives-spin": "Engine busy, tensor cores and memory nearly idle for {share:.0%} of its busy time: typical of "
    "collectives that poll.",
    "efficiency-assumed": "Sustained {what} of this GPU has not been measured. The median of other GPUs is assumed for "
    "this verdict only.",
    "fabric-use": "Fabric at {fabric:.0%} of line rate (mean); above 50 % in {busy_share:.0%} of seconds.",
    "host-use": "Host CPU {cpu:.0%} busy, IO wait {io_wait:.0%}.",
    "idle-share": "Idle {share:.0%} of the time.",
    "kv-cache-full": "KV cache {kv_p95:.0%} full (95th percentile, {hours:.0f} h): limited by GPU memory capacity "
    "(hbm-capacity).",
    "kv-cache-preempted": "{requests:.0f} requests preempted from the KV cache in {hours:.0f} h: limited by GPU memory "
    "capacity (hbm-capacity).",
    "missing-activity": "GPU utilization alone shows that kernels ran, not what they waited for. Add "
    f"DCGM_FI_PROF_SM_ACTIVE, DCGM_FI_PROF_PIPE_TENSOR_ACTIVE and DCGM_FI_PROF_DRAM_ACTIVE {_EXPORTER}",
    "missing-ethernet": "Its InfiniBand ports carry no traffic, and Ethernet is not measured. Run node_exporter with "
    "--collector.netdev and --collector.netclass.",
    "missing-gap": "Network port data of its nodes has gaps. Check that node_exporter is scraped all the time.",
    "missing-nvlink": "No NVLink traffic data. Add DCGM_FI_PROF_NVLINK_TX_BYTES and DCGM_FI_PROF_NVLINK_RX_BYTES "
    f"{_EXPORTER}",
    "missing-pcie": f"No PCIe traffic data. Add DCGM_FI_PROF_PCIE_TX_BYTES and DCGM_FI_PROF_PCIE_RX_BYTES {_EXPORTER}",
    "missing-ports": "No network port data for its nodes. Run node_exporter with --collector.netdev, "
    "--collector.netclass and --collector.infiniband, or run the agent.",
    "missing-rdma": "Unknown whether its nodes have InfiniBand. Run node_exporter with --collector.infiniband (and "
    "keep node_scrape_collector_success), or label the nodes with their instance type.",
    "never-at-work": "No activity observed.",
    "no-single-suspect": "No single suspect: the late GPU changes over time.",
    "nothing-observed": "No data for this workload.",
    "nvlink-quiet": "NVLink nearly silent: {nvlink:.1%} of its peak.",
    "nvlink-use": "NVLink at {nvlink:.0%} of its peak (mean), busy in {busy_share:.0%} of seconds.",
    "pcie-use": "PCIe at {pcie:.0%} of its peak (mean), {pcie_p95:.0%} at the 95th percentile.",
    "ranks-poll": "SMs active {sm:.0%} of the time, tensor cores and memory nearly idle: the ranks poll.",
    "ranks-wait": "Ranks wait for a slow rank {share:.0%} of its busy time.",
    "ranks-wait-and-lose": "Ranks wait for a slow rank {share:.0%} of its busy time and lose {lost:.0%} of that time.",
    "samples-are-means": "Samples of {seconds:.0f} s average over many steps: levels are visible, waits within a step "
    "are not.",
    "seldom-at-work": "Too seldom at work to name a bottleneck.",
    "still-counters": "Its nodes' InfiniBand counters do not move, and their Ethernet carries next to nothing: the "
    "counters may be stuck.",
    "suspect-is-slower": "Suspect: GPU {gpu_index:.0f} of {node} ({gpu_uuid}). It does the same work more slowly.",
    "suspect-is-throttled": "SM clock of the suspect: {clock:.0%} of the other GPUs' clock. Throttled {throttled:.0%} "
    "of the time, the others {others_throttled:.0%}.",
    "suspect-waits-least": "Suspect: GPU {gpu_index:.0f} of {node} ({gpu_uuid}). It waits {waits:.0%} of the time, the "
    "other GPUs {others_wait:.0%}, for the same work.",
    "tensor-falls": "Tensor activity falls as link traffic rises (correlation {correlation:.2f}).",
    "throttle-reasons": "Throttled {throttled:.0%} of the time; SM clock {clock:.0%} of the clock of the peak rate.",
    "use-of-the-gpu": "Memory bandwidth {u_m:.0%} and compute {u_c:.0%} of what this GPU sustains; engine active "
    "{engine:.0%} of the time.",
    "waits-for-launches-or-gpus": "Engine active {engine:.0%} of the time, compute and memory hardly used: it waits "
    "for kernel launches or for other GPUs. The missing metrics would show which.",
    "waits-in-collectives": "Nothing on the GPU is full, and NVLink carries much for the small tensors of collectives: "
    "most likely it waits in these.",
}
# Of each label what was measured of what it says: the code, and the measure of each figure in its sentence.
_FIGURES: dict[str, tuple[tuple[str, dict[str, str]], ...]] = {
    "network": (
        ("fabric-use", {"fabric": "i", "busy_share": "i_share"}),
        ("tensor-falls", {"correlation": "tensor_fabric_correlation"}),
    ),
    "nvlink": (
        ("nvlink-use", {"nvlink": "n", "busy_share": "n_share"}),
        ("tensor-falls", {"correlation": "tensor_nvlink_correlation"}),
    ),
    "latency": (("nvlink-quiet", {"nvlink": "n"}),),
    "pcie": (("pcie-use", {"pcie": "p", "pcie_p95": "p_p95"}),),
    "throttled": (("throttle-reasons", {"throttled": "throttled", "clock": "clock_ratio"}),),
    "host-input": (("host-use", {"cpu": "cpu", "io_wait": "io_wait"}),),
    "straggler": (("ranks-poll", {"sm": "sm"}),),
}
_USE = ("use-of-the-gpu", {"u_m": "label_m", "u_c": "label_c", "engine": "g"})
# What would settle an open bottleneck, by what is lacking (`lacks` of a row). The names in the sentences are those of
# the exporters' own options and counters.
SETTLES = {
    "work": "seldom-at-work", "activity": "missing-activity", "nvlink": "missing-nvlink", "pcie": "missing-pcie",
    "ports": "missing-ports", "rdma": "missing-rdma", "ethernet": "missing-ethernet", "still": "still-counters",
    "gap": "missing-gap",
}  # fmt: skip


def say(code: str, **figures: Scalar) -> CodedText:
    return coded(code, SENTENCES[code], **figures)


def figures_behind(label: str, mean: Callable[[str], float]) -> list[CodedText]:
    """What was measured of the label, then of the GPU's use. `mean`: of a measure over the label's rows; NaN: none."""
    named_figures = (
        (code, {key: mean(name) for key, name in of.items()}) for code, of in (*_FIGURES.get(label, ()), _USE)
    )
    said = [say(code, **figures) for code, figures in named_figures if not math.isnan(sum(figures.values()))]
    carried = mean("wire_bytes")
    if label == "latency" and not math.isnan(carried):
        text = f"Network ports nearly silent: the busiest carries {carried / 1e6:.3g} MB/s."
        said.insert(0, CodedText("ports-quiet", text, {"bytes_per_second": carried}))
    return said


def signatures(rows: PieceRows, trains: Mask) -> list[list[CodedText]]:
    """Checkpoints and what they cost, communication, collectives that spin and ranks that wait, in the busy rows of
    each case: they explain a verdict and decide none. `trains`: whether it is training."""
    segments = rows.segments
    works = segments.total(rows.seconds) > 0
    several = segments.any(rows.flags("several")) & works
    ranks = rows.where(segments.spread(several))
    out: list[list[CodedText]] = [[] for _ in range(len(segments))]
    for n, said in _checkpoints(rows.where(segments.spread(works & trains))):
        out[n] += said
    for code, words, busy, use, carried in _LINKS:
        shares, rates = np.fmax(ranks.mean(busy), ranks.mean(use)), ranks.mean(carried)
        for n in np.nonzero(np.isfinite(rates) & (shares >= _COMMUNICATION_MIN))[0]:
            share, rate = min(float(shares[n]), 1.0), float(rates[n])
            usual = "; 15 to 30 % is typical of large training" if trains[n] else ""
            text = f"Communication over {words}: at least {100 * share:.0f} % of its busy time, {rate / 1e9:.3g} GB/s"
            out[n].append(CodedText(code, f"{text} (mean){usual}.", {"share": share, "bytes_per_second": rate}))
    # Over samples longer than the turns, work and waiting are one mean, and the figure is no measurement.
    spins = ranks.segments.mean(np.where(ranks.flags("coarse"), np.nan, ranks.measured("waits")), ranks.seconds)
    for n in np.nonzero(spins >= _WAITING_MIN)[0].tolist():
        out[n].append(say("collectives-spin", share=float(spins[n])))
    waiting = ranks.flags("waiting")
    shares = ranks.segments.mean(waiting.astype(np.float64), ranks.seconds)
    losses = ranks.segments.mean(np.where(waiting, ranks.measured("lost"), np.nan), ranks.seconds)
    for n in np.nonzero(shares >= _WAITING_MIN)[0].tolist():
        share, lost = float(shares[n]), float(losses[n])
        is_open = math.isnan(lost)
        out[n].append(say("ranks-wait", share=share) if is_open else say("ranks-wait-and-lose", share=share, lost=lost))
    return out


def _checkpoints(rows: PieceRows) -> Iterator[tuple[int, list[CodedText]]]:
    """Cases whose host writes in bursts, and the cost: measured where hours can be compared, else an upper bound."""
    segments, weights = rows.segments, rows.seconds
    mean, most, engine = (rows.measured(name) for name in ("disk_write", "disk_write_max", "g"))
    measured = np.isfinite(mean) & np.isfinite(most)
    burst = measured & is_burst(mean, most)
    quiet = measured & ~burst
    held, other = (segments.total(np.where(chosen, weights, 0.0)) for chosen in (burst, quiet))
    if not (held > 0).any():
        return
    work = rows.measured("c")
    work = np.where(segments.spread(segments.any(measured & np.isfinite(work))), work, engine)
    filled = np.divide(mean, most, out=np.full(len(mean), np.nan), where=burst)
    shares = over(held, segments.total(np.where(measured, weights, 0.0)))

    def means(values: Floats, chosen: Mask = burst) -> Floats:
        return segments.mean(np.where(chosen, values, np.nan), weights)

    columns = (means(most), means(mean), means(filled), shares, means(work), means(work, quiet), means(1 - engine))
    for n in np.nonzero(held > 0)[0].tolist():
        rate, written, filled_share, share, with_them, without, rests = (float(column[n]) for column in columns)
        writing, written = _HOUR * filled_share, _HOUR * written
        said = [
            CodedText(
                "checkpoint-bursts",
                f"Host write bursts of {rate / 1e9:.2g} GB/s in {100 * share:.0f} % of its busy hours, "
                f"typical of checkpoints: {written / 1e9:.3g} GB and at least {writing:.0f} s of writing per "
                "such hour.",
                {"bytes_per_second": rate, "share": share, "bytes_per_hour": written, "seconds_per_hour": writing},
            )
        ]
        if min(held[n], other[n]) >= _HOURS_MIN * _HOUR and without > 0 and math.isfinite(with_them):
            less = min(max(1 - with_them / without, 0.0), 1.0)
            said.append(say("checkpoint-cost", less=less, seconds=_HOUR * less, of_all=less * share))
        elif math.isfinite(rests):
            rests = max(_HOUR * rests, 0.0)
            said.append(say("checkpoint-cost-at-most", rests=rests, seconds=min(writing, rests)))
        yield n, said


def with_capacity(
    verdict: BottleneckVerdict, serving: pd.DataFrame, kv_p95_min: float
) -> tuple[BottleneckVerdict, float | None]:
    """The verdict with ``hbm-capacity`` in its evidence where its servers' KV cache is full or evicted requests, and
    the 95th percentile of the cache in use (0..1; None: not reported). `serving`: rows of its servers, at least one.
    Capacity is no label: such an engine still spends its time on memory bandwidth or compute."""
    hours = float(serving["seconds"].sum()) / 3600
    kv_p95, preempted = kv_percentile(serving), serving["preemptions"].sum()
    said: list[CodedText] = []
    if kv_p95 is not None and kv_p95 > kv_p95_min:
        said.append(say("kv-cache-full", kv_p95=kv_p95, hours=hours))
    if preempted >= 1:
        said.append(say("kv-cache-preempted", requests=float(preempted), hours=hours))
    return dataclasses.replace(verdict, evidence=(*verdict.evidence, *said)) if said else verdict, kv_p95


def unsettled(lacking: set[str], engine: float) -> list[CodedText]:
    """The missing measurements that leave its bottleneck open, and what would settle it. `engine`: its active share."""
    lacks = {name for text in lacking for name in text.split(",") if name}
    links = [say("waits-for-launches-or-gpus", engine=engine)] if lacks - {"work", "activity"} else []
    return links + [say(code) for name, code in SETTLES.items() if name in lacks]
