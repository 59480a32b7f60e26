"""One workload over time: its measures as lines on one axis, what they are held against, and its roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from ....rules.catalog.loader import Catalog
from ....rules.catalog.types import GpuSku
from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Advice
from ...core.frame import Frame
from ...core.verdict_types import WorkloadVerdict
from ...recommend.rules import RULES
from ..subjects import recommended
from .minutes import by_minute
from .roofline import ROOFS, Roofline, roof_of, roofline

# column of the frame -> (name, unit, factor to the unit)
_GPU = {
    "sm_active_mean": ("SM active", "%", 100.0),
    "tensor_active_mean": ("tensor active", "%", 100.0),
    "dram_active_mean": ("DRAM active", "%", 100.0),
    "nvlink_tx_bytes_per_second_mean": ("NVLink sent", "GB/s a GPU", 1e-9),
    "mem_used_bytes_mean": ("memory used", "GiB a GPU", 1 / 1024**3),
    "power_watts_mean": ("power", "W a GPU", 1.0),
}
_PORT = "tx_bytes_per_second_mean"


@dataclass(frozen=True, slots=True)
class MeasureLine:
    """One measure. `values` stand beside `History.ends`; None: not measured."""

    name: str
    unit: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class History:
    """`ends`: the ends of the intervals, Unix seconds, rising. A measure that was never read has no line."""

    ends: tuple[float, ...]
    lines: tuple[MeasureLine, ...]


def history_of(frame: Frame, workload_id: str) -> History:
    """The history of a workload: means over its GPUs, and over the compute ports of its nodes, while it held them.

    Each row counts by the seconds that were observed in it. A workload that the frame does not know has none.
    """
    uses = frame.uses[frame.uses["workload_id"] == workload_id]
    gpu = _held(frame.gpu, uses, ["node", "gpu_uuid"])
    lines = [(name, unit, _mean(gpu, column) * factor) for column, (name, unit, factor) in _GPU.items()]
    ports = frame.fabric[frame.fabric["role"] == "compute"] if not frame.fabric.empty else frame.fabric
    lines.append(("fabric sent", "GB/s a port", _mean(_held(ports, uses, ["node"]), _PORT) * 1e-9))
    told = {(name, unit): series for name, unit, series in lines if series.notna().any()}
    if not told:
        return History((), ())
    table = pd.DataFrame(told).sort_index()
    return History(
        tuple(float(ts) for ts in table.index),
        tuple(
            MeasureLine(name, unit, tuple(None if math.isnan(v) else float(v) for v in table[(name, unit)]))
            for name, unit in told
        ),
    )


def _held(rows: pd.DataFrame, uses: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The rows of devices that `uses` name, as far as they lie within the use."""
    if rows.empty or uses.empty:
        return rows.iloc[:0]
    spans = uses.groupby(keys, as_index=False).agg(held_from=("ts_start", "min"), held_to=("ts_end", "max"))
    near = rows[rows["node"].isin(spans["node"])].merge(spans, on=keys)
    return near[(near["ts"] > near["held_from"]) & (near["ts"] - near["interval_seconds"] < near["held_to"])]


def _mean(rows: pd.DataFrame, column: str) -> pd.Series:
    """Mean of a column by `ts`, weighted by observed seconds; NaN where nothing was read."""
    if rows.empty or column not in rows:
        return pd.Series(dtype=float)
    weight = rows["observed_seconds"].where(rows[column].notna(), 0.0)
    sums = pd.DataFrame({"ts": rows["ts"], "w": weight, "v": rows[column].fillna(0.0) * weight}).groupby("ts").sum()
    return (sums["v"] / sums["w"]).where(sums["w"] > 0)


@dataclass(frozen=True, slots=True)
class Level:
    """A value that lines named `of` are held against, in their unit."""

    of: str
    name: str
    value: float


def levels_of(
    frame: Frame, workload: WorkloadVerdict, sku: GpuSku | None, rules: Mapping[str, WasteRule]
) -> tuple[Level, ...]:
    """The levels of a workload. `sku`: the catalog's entry of its GPUs; None: only what needs none is told. A figure
    that nobody published has no level.
    """
    own = {name: rule.of(workload.owner) for name, rule in rules.items()}
    found: list[Level] = []
    if sku is not None:
        shares = (("tensor active", sku.achieved.bf16_gemm), ("DRAM active", sku.achieved.mem))
        found += [Level(of, f"{of.split()[0]} sustained", 100 * eta) for of, eta in shares if eta]
        if sku.nvlink_bytes_per_second:
            found += _of_rules("NVLink sent", own, sku.nvlink_bytes_per_second * 1e-9)
        gib = sku.mem_bytes / 1024**3
        found += [
            Level("memory used", "all of its memory", gib),
            *_of_rules("memory used", own, gib),
            Level("power", "rated power", sku.tdp_watts),
        ]
    rate = _line_rate(frame, workload)
    if rate is not None:
        found += _of_rules("fabric sent", own, rate * 1e-9)
    power, over = workload.features.get("power_watts"), workload.features.get("power_over_idle")
    if power and over:
        found.append(Level("power", "idle power", power / over))
    return tuple(found)


def _of_rules(of: str, rules: Mapping[str, WasteRule], whole: float) -> list[Level]:
    """The thresholds of waste rules for one line. `whole`: what the GPU or the node has of it, in the line's unit."""
    lines = [(rules[one.id], one.line) for one in RULES if one.line is not None and one.line[0] == of]
    shares = [(words, rule.value(threshold)) for rule, (_, threshold, words) in lines]
    return [Level(of, f"{words} {share * 100:g} %", share * whole) for words, share in shares]


def _line_rate(frame: Frame, workload: WorkloadVerdict) -> float | None:
    """Of one compute port of its nodes, bytes per second one way; None: there is none, or they differ."""
    rows = frame.fabric
    if rows.empty or "line_rate_bytes_per_second" not in rows:
        return None
    ports = rows[rows["node"].isin(workload.nodes) & (rows["role"] == "compute")]
    rates = ports["line_rate_bytes_per_second"].dropna().unique()
    return float(rates[0]) if len(rates) == 1 and rates[0] > 0 else None


@dataclass(frozen=True, slots=True)
class WorkloadTimeline:
    history: History
    levels: tuple[Level, ...]
    roofline: Roofline


def timeline_of(
    frame: Frame, advice: Advice, workload: WorkloadVerdict, catalog: Catalog, rules: Mapping[str, WasteRule]
) -> WorkloadTimeline:
    """`advice`: where its ways out stand. The roofs are those of its GPU, of the GPUs it might move to, and then of
    others that the provider of its node sells and somebody measured."""
    sku = catalog.gpu(workload.gpu_sku) if workload.gpu_sku else None
    return WorkloadTimeline(
        history_of(by_minute(frame, workload.nodes), workload.id),
        levels_of(frame, workload, sku, rules),
        roofline(workload, sku, _candidates(advice, workload, catalog)),
    )


def _candidates(advice: Advice, workload: WorkloadVerdict, catalog: Catalog) -> list[GpuSku]:
    found = {sku.name: sku for sku in recommended(advice, workload, catalog)}
    node = catalog.node(workload.node_sku) if workload.node_sku else None
    sold = [catalog.gpu(n.gpu) for n in catalog.nodes.values() if node is not None and n.provider == node.provider]
    others = {sku.name: sku for sku in sold if sku is not None and sku.name != workload.gpu_sku}
    for sku in sorted(others.values(), key=lambda one: (-one.mem_bandwidth_bytes_per_second, one.name)):
        roof = roof_of(sku)
        if roof is not None and not roof.missing:
            found.setdefault(sku.name, sku)
    return list(found.values())[: ROOFS - 1]
