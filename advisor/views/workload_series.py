"""What one workload's GPUs and ports did over time, as lines on one time axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from ..core.frame import Frame

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
