"""What each GPU of a fleet did on average over the window, and what its findings wasted hour by hour."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...core.advice_types import Advice, Finding, Unobserved
from ...core.frame import Frame
from ...core.scalars import known, records, text, whole
from ..titles import fact_of, is_waste, waste_of

# Columns of the frame's gpu rows, in base units.
MEASURES = (
    "sm_active", "tensor_active", "dram_active", "nvlink_tx_bytes_per_second", "mem_used_bytes", "power_watts",
)  # fmt: skip
NO_PORTS = "no compute ports observed"
_HOUR = 3600.0
_ACTIVE = 0.02  # mean SM activity of an hour from which on the GPU is in use


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU, or one MIG instance where a GPU is split.

    `values`: means over what was observed, in base units; a measure that was never read is missing. `fabric_util` among
    them is the node's: the mean share of the line rate over its compute ports. `workload`: the id of what held it
    longest in the window, None: nothing did. `index` None: unknown. `unobserved`: why nothing of it was observed in the
    window, None: something was. Without `gpu_uuid` it is the place of a GPU on a node of which none was observed.
    """

    node: str
    gpu_uuid: str
    index: int | None
    sku: str | None
    mig_profile: str | None
    mem_total_bytes: float | None
    workload: str | None
    values: Mapping[str, float]
    unobserved: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.node, self.gpu_uuid


class NodeUse(NamedTuple):
    """`fabric`: its compute ports in words. `gpus` in the order of their indices; where none was observed, as many
    places as there should be GPUs, one at least."""

    node: str
    node_sku: str | None
    fabric: str
    gpus: tuple[GpuUse, ...]


def nodes_with_gpus(frame: Frame, unobserved: Iterable[Unobserved] = ()) -> tuple[NodeUse, ...]:
    """Every node of the frame with its GPUs, by name. `unobserved`: GPUs that exist beside those of the frame, or of
    which the frame has no data; each is one GPU, also where it has MIG instances."""
    dark = {(absent.node, gpu): absent.reason for absent in unobserved for gpu in absent.gpus}
    means = weighted_means(frame.gpu, [f"{name}_mean" for name in MEASURES], ["node", "gpu_uuid"]).set_axis(
        MEASURES, axis=1
    )
    measured = {key: {n: v for n, v in row.items() if not math.isnan(v)} for key, row in means.to_dict("index").items()}
    holders = _holders(frame)
    ports, utils = _ports(frame.fabric)
    parents = set(zip(frame.gpus["node"], frame.gpus["parent_uuid"], strict=True))
    uses: dict[tuple[str, str], GpuUse] = {}
    for row in records(frame.gpus):
        key = node, uuid = str(row["node"]), str(row["gpu_uuid"])
        if key not in dark and (key in parents or (node, str(row["parent_uuid"])) in dark):
            continue  # its instances are listed instead of it, or it instead of them
        values = {**measured.get(key, {}), **({"fabric_util": utils[node]} if node in utils else {})}
        sku, profile, memory = text(row["sku"]) or text(row["name"]), text(row["mig_profile"]), row["mem_total_bytes"]
        holder, index = holders.get(key), whole(row["gpu_index"])
        uses[key] = GpuUse(node, uuid, index, sku, profile, known(memory), holder, values, dark.get(key))
    for key, reason in dark.items():
        uses.setdefault(key, GpuUse(*key, None, None, None, None, None, {}, reason))
    gpus: dict[str, list[GpuUse]] = {}
    for use in sorted(uses.values(), key=lambda use: (use.index is None, use.index or 0, use.gpu_uuid)):
        gpus.setdefault(use.node, []).append(use)
    nodes = []
    for row in records(frame.nodes.sort_values("node")):
        node, count = str(row["node"]), max(whole(row["gpu_count"]) or 1, 1)
        places = gpus.get(node) or [GpuUse(node, "", None, None, None, None, None, {})] * count
        nodes.append(NodeUse(node, text(row["node_sku"]), ports.get(node, NO_PORTS), tuple(places)))
    return tuple(nodes)


def weighted_means(rows: pd.DataFrame, columns: Sequence[str], keys: Sequence[str]) -> pd.DataFrame:
    """Means of columns by `keys`, weighted by observed seconds; NaN where nothing was read."""
    rows = rows.reindex(columns=[*keys, *columns, "observed_seconds"])
    values = rows[list(columns)].astype(float)
    weights = values.notna().mul(rows["observed_seconds"].astype(float).fillna(0.0), axis=0)
    by = [rows[key] for key in keys]
    sums, seconds = (table.groupby(by).sum() for table in (values.fillna(0.0) * weights, weights))
    return sums / seconds.where(seconds > 0)


def compute_ports(fabric: pd.DataFrame) -> pd.DataFrame:
    """The rows of the fabric that are of compute ports."""
    return fabric[fabric["role"] == "compute"] if not fabric.empty else fabric


def _holders(frame: Frame) -> dict[tuple[str, str], str]:
    uses = frame.uses
    if uses.empty:
        return {}
    held = uses["ts_end"].clip(upper=frame.window.end) - uses["ts_start"].clip(lower=frame.window.start)
    sums = uses.assign(held=held).groupby(["node", "gpu_uuid", "workload_id"])["held"].sum().reset_index()
    longest = sums.sort_values(by=["held", "workload_id"]).drop_duplicates(["node", "gpu_uuid"], keep="last")
    return longest.set_index(["node", "gpu_uuid"])["workload_id"].astype(str).to_dict()  # type: ignore[return-value]


def _ports(fabric: pd.DataFrame) -> tuple[dict[str, str], dict[str, float]]:
    """Node -> its compute ports in words (``8 x 400 Gb/s InfiniBand``; no rate where it is unknown or differs), and
    node -> their mean share of the line rate."""
    ports, words = compute_ports(fabric), dict[str, str]()
    if ports.empty:
        return {}, {}
    for node, each in ports.drop_duplicates(["node", "device", "port"], keep="last").groupby("node"):
        rates = set(each["line_rate_bytes_per_second"].dropna())
        rate = f" {rates.pop() * 8e-9:.0f} Gb/s" if len(rates) == 1 else ""
        words[str(node)] = f"{len(each)} x{rate} {'/'.join(sorted(set(map(str, each['link_layer']))))}"
    utils = weighted_means(ports, ["util_mean"], ["node"])["util_mean"].dropna()
    return words, {str(node): float(mean) for node, mean in utils.items()}


class RuleWaste(NamedTuple):
    """The waste of one rule's findings: `total` of the window, `values` by the hour. `rule`: its fact in words."""

    rule: str
    total: float
    values: tuple[float, ...]


class WasteHistory(NamedTuple):
    """`start`: of the first hour (Unix seconds). `priced`: values are US dollars, else GPU-hours. `rules`: the largest
    first; without findings whose GPUs have no row in the window."""

    start: float
    priced: bool
    rules: tuple[RuleWaste, ...]


def waste_history(frame: Frame, advice: Advice) -> WasteHistory:
    """The waste in the findings of `advice` over the window of `frame`, in which they were judged.

    A finding is one figure for the window. Its history is that figure, spread over the hours in which its GPUs were
    observed: of GPUs without use over the hours without activity, of the other rules evenly over its workload's hours.
    """
    claims = [f for f in advice.findings if is_waste(f.rule)]
    priced = bool(claims) and all(f.cost_usd is not None for f in claims)
    hours, rows = max(math.ceil(frame.window.seconds / _HOUR), 1), frame.gpu
    ends, seconds = rows["ts"].to_numpy(float), rows["interval_seconds"].to_numpy(float)
    active = rows["sm_active_mean"].to_numpy(float) > _ACTIVE
    hour = np.clip(((ends - 1.0 - frame.window.start) // _HOUR).astype(int), 0, hours - 1)
    by_gpu = rows.groupby(["node", "gpu_uuid"]).indices if len(rows) else {}
    spans = {w.id: (w.start, w.end) for w in advice.workloads}
    sums: dict[str, np.ndarray] = {}

    def weights(f: Finding, at: np.ndarray) -> np.ndarray:
        """Seconds of each row that count for a finding."""
        start, end = spans.get(f.workload or "", (-math.inf, math.inf))
        held = seconds[at] * ((ends[at] > start) & (ends[at] - seconds[at] < end))
        unused = held * ~active[at]
        return unused if waste_of(f.rule) in ("unused", "surplus") and unused.sum() > 0 else held

    for f in claims:
        amount = (f.cost_usd if priced else f.gpu_hours) or 0.0
        nodes = f.nodes or ((f.node,) if f.node else ())
        places = [by_gpu[node, gpu] for node in nodes for gpu in f.gpus if (node, gpu) in by_gpu]  # type: ignore[index]
        at = np.concatenate(places) if places else np.empty(0, dtype=int)
        weight = weights(f, at)
        if weight.sum() > 0:
            np.add.at(sums.setdefault(f.rule, np.zeros(hours)), hour[at], weight / weight.sum() * amount)
    rules = [RuleWaste(fact_of(rule), float(values.sum()), tuple(values.tolist())) for rule, values in sums.items()]
    largest = sorted((rule for rule in rules if rule.total > 0), key=lambda rule: (-rule.total, rule.rule))
    return WasteHistory(frame.window.start, priced, tuple(largest))
