"""One workload over time: its metrics as lines on one time axis, with the reference values of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from ....rules.catalog.types import GpuSku
from ....rules.policy.thresholds import WasteRule
from ...core.frame import Frame
from ...core.verdict_types import WorkloadVerdict
from ...recommend.rules import RULES
from .device_series import DeviceGauge, by_minute
from .fleet_map import compute_ports, weighted_means

# column of the frame -> (name, unit, factor to the unit)
_GPU = {
    "sm_active_mean": ("SM active", "%", 100.0),
    "tensor_active_mean": ("tensor active", "%", 100.0),
    "dram_active_mean": ("DRAM active", "%", 100.0),
    "nvlink_tx_bytes_per_second_mean": ("NVLink sent", "GB/s a GPU", 1e-9),
    "mem_used_bytes_mean": ("memory used", "GiB a GPU", 1 / 1024**3),
    "power_watts_mean": ("power", "W a GPU", 1.0),
}
_PORT = {"tx_bytes_per_second_mean": ("fabric sent", "GB/s a port", 1e-9)}


class Level(NamedTuple):
    """A reference value for the line named `of`, in its unit."""

    of: str
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class WorkloadTimeline:
    """`ends`: the ends of the intervals, Unix seconds, rising. A metric that was never read has no line."""

    ends: tuple[float, ...]
    lines: tuple[DeviceGauge, ...]
    levels: tuple[Level, ...]


def timeline_of(
    frame: Frame, workload: WorkloadVerdict, sku: GpuSku | None, rules: Mapping[str, WasteRule]
) -> WorkloadTimeline:
    """The timeline of a workload: means over its GPUs, and over the compute ports of its nodes, while it held them,
    weighted by observed seconds. `sku`: the catalog's entry of its GPUs; None: no levels of the GPU."""
    levels = _levels(frame, workload, sku, rules)
    frame = by_minute(frame, workload.nodes)
    uses = frame.uses[frame.uses["workload_id"] == workload.id]
    gpu = _while_held(frame.gpu, uses, ["node", "gpu_uuid"])
    ports = _while_held(compute_ports(frame.fabric), uses, ["node"])
    means = weighted_means(gpu, list(_GPU), ["ts"]).join(weighted_means(ports, list(_PORT), ["ts"]), how="outer")
    means = means.dropna(axis=1, how="all").sort_index()
    lines = tuple(
        DeviceGauge(name, unit, tuple(None if math.isnan(v) else float(v) * factor for v in means[column]))
        for column, (name, unit, factor) in {**_GPU, **_PORT}.items()
        if column in means
    )
    return WorkloadTimeline(tuple(float(ts) for ts in means.index) if lines else (), lines, levels)


def _while_held(rows: pd.DataFrame, uses: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    if rows.empty or uses.empty:
        return rows.iloc[:0]
    spans = uses.groupby(keys, as_index=False).agg(held_from=("ts_start", "min"), held_to=("ts_end", "max"))
    near = rows[rows["node"].isin(spans["node"])].merge(spans, on=keys)
    return near[(near["ts"] > near["held_from"]) & (near["ts"] - near["interval_seconds"] < near["held_to"])]


def _levels(
    frame: Frame, workload: WorkloadVerdict, sku: GpuSku | None, rules: Mapping[str, WasteRule]
) -> tuple[Level, ...]:
    """What the GPU sustains, holds and is rated for, and the thresholds of the waste rules; an unknown figure has no
    level."""
    ports = compute_ports(frame.fabric)
    rates = ports[ports["node"].isin(workload.nodes)]["line_rate_bytes_per_second"].dropna().unique()
    levels, capacity = list[Level](), {"fabric sent": rates[0] * 1e-9 if len(rates) == 1 else None}
    if sku is not None:
        memory, nvlink = sku.mem_bytes / 1024**3, sku.nvlink_bytes_per_second
        shares = (("tensor active", sku.achieved.bf16_gemm), ("DRAM active", sku.achieved.mem))
        levels = [Level(of, f"{of.split()[0]} sustained", 100 * share) for of, share in shares if share]
        levels += [Level("memory used", "all of its memory", memory), Level("power", "rated power", sku.tdp_watts)]
        capacity |= {"NVLink sent": nvlink and nvlink * 1e-9, "memory used": memory}
    for rule in RULES:
        of, threshold, name = rule.line or ("", "", "")
        if most := capacity.get(of):
            share = rules[rule.id].of(workload.owner).value(threshold)
            levels.append(Level(of, f"{name} {share * 100:g} %", share * most))
    power, over = workload.features.get("power_watts"), workload.features.get("power_over_idle")
    return (*levels, *((Level("power", "idle power", power / over),) if power and over else ()))
