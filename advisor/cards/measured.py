"""What a judged window says of one workload's use: its figures, its course, and when its GPUs last did something."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..classify.features.rest import rested_since
from ..classify.types import Verdicts
from ..core.card_types import COURSE_SPANS, Course, Use
from ..core.frame import Frame
from ..core.verdict_types import WorkloadVerdict

_BYTES = ("disk_read_bytes_per_second", "disk_write_bytes_per_second")
_FIGURES = {
    "sm_active": "sm_active", "tensor_active": "tensor_utilization", "engine_active": "engine_active",
    "fabric": "fabric_utilization", "nvlink": "nvlink_utilization", "cpu": "cpu", "io_wait": "io_wait",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rests:
    """GPU-hours of rest, since when it has rested without a trace of work (Unix seconds; None: it works), and how many
    GPUs never worked."""

    gpu_hours: float
    since: float | None
    unused: int


def use_of(frame: Frame, verdicts: Verdicts, w: WorkloadVerdict) -> Use:
    """The figures of a workload. What is not measured is None."""
    features = w.features
    figures = {name: _share(features.get(key)) for name, key in _FIGURES.items()}
    peak, total = _memory(frame, verdicts, w)
    rests = rests_of(verdicts, w)
    disk = _disk(frame, w)
    return Use(
        observed=min(1.0, max(0.0, w.coverage.fraction)),
        **figures,
        mem_peak_bytes=peak,
        mem_total_bytes=total,
        disk_read_bytes_per_second=disk[0],
        disk_write_bytes_per_second=disk[1],
        idle_gpu_hours=None if rests is None else rests.gpu_hours,
        idle_since=None if rests is None else rests.since,
        unused=None if rests is None else rests.unused,
    )


def rests_of(verdicts: Verdicts, w: WorkloadVerdict) -> Rests | None:
    """When its GPUs rested; None: nothing tells, or signals contradict one another."""
    rows = verdicts.usage_of([w.id], "idle", "rests", "g", "seconds", "gpu_uuid", "ts")
    if rows.empty or w.features.get("fault_share", 0.0) > 0.0:
        return None
    rows = rows[rows["idle"] | rows["g"].notna()]
    if rows.empty:
        return None
    idle, rest = rows["idle"].to_numpy(bool), rows["rests"].to_numpy(bool)
    seconds, end = rows["seconds"].to_numpy(float), rows["ts"].to_numpy(float)
    # A row at rest ends a work that may have lasted until it began.
    found = rested_since(np.zeros(len(rows), dtype=np.intp), end - seconds, end, active=~rest, rests=rest, count=1)
    since = float(found.since[0])
    never = set(w.gpus) - set(rows["gpu_uuid"][~idle])
    return Rests(
        float(seconds[idle].sum()) / 3600 * w.gpu_part,
        max(since, w.start) if since < end.max() - 1.0 else None,
        len(never),
    )


def course_of(verdicts: Verdicts, w: WorkloadVerdict) -> Course:
    """SM and tensor activity by equal spans of its life, each row spread over the time that it tells of."""
    life = w.end - w.start
    rows = verdicts.usage_of([w.id], "ts", "seconds", "sm", "c")
    if life <= 0 or rows.empty:
        return Course(w.start, 0.0)
    count = min(COURSE_SPANS, max(1, round(life / 60.0)))
    step = life / count
    edges = w.start + step * np.arange(count + 1)
    gpus = max(len(w.gpus), 1)
    ends = rows["ts"].to_numpy(float)
    begins = ends - np.maximum(rows["seconds"].to_numpy(float), 1.0)
    return Course(
        w.start, step, _spread(rows["sm"], begins, ends, edges), _spread(rows["c"], begins, ends, edges)
    ) if gpus else Course(w.start, step)  # fmt: skip


def _spread(column: pd.Series, begins: np.ndarray, ends: np.ndarray, edges: np.ndarray) -> tuple[float | None, ...]:
    values = column.to_numpy(float)
    told = np.isfinite(values)
    sums, weights = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for value, begin, end in zip(values[told], begins[told], ends[told], strict=True):
        first = max(int(np.searchsorted(edges, begin, side="right")) - 1, 0)
        last = min(int(np.searchsorted(edges, end, side="left")), len(sums))
        at = np.arange(first, last)
        shared = np.minimum(edges[at + 1], end) - np.maximum(edges[at], begin)
        sums[at] += value * np.maximum(shared, 0.0)
        weights[at] += np.maximum(shared, 0.0)
    return tuple(_rounded(s / w) if w > 0 else None for s, w in zip(sums, weights, strict=True))


def course_from(start: float, end: float, sm: list[float | None], tensor: list[float | None]) -> Course:
    """A course of spans that are summed already."""
    return Course(
        start, (end - start) / max(len(sm), 1),
        tuple(None if one is None else _rounded(one) for one in sm),
        tuple(None if one is None else _rounded(one) for one in tensor),
    )  # fmt: skip


def _rounded(value: float) -> float:
    return round(min(max(float(value), 0.0), 1.0), 2)


def _memory(frame: Frame, verdicts: Verdicts, w: WorkloadVerdict) -> tuple[float | None, float | None]:
    """The most memory in use on any one of its GPUs, and how much that GPU has."""
    devices = frame.gpus[frame.gpus["gpu_uuid"].isin(w.gpus)] if len(frame.gpus) else frame.gpus
    sizes = devices["mem_total_bytes"].dropna() if len(devices) else pd.Series(dtype=float)
    total = float(sizes.max()) if len(sizes) else None
    top = w.features.get("mem_max")
    if top is None:
        ratios = verdicts.usage_of([w.id], "mem_used_ratio")["mem_used_ratio"].dropna()
        top = float(ratios.max()) if len(ratios) else None
    if top is None or total is None or not math.isfinite(top):
        return None, total
    return min(float(top), 1.0) * total, total


def _disk(frame: Frame, w: WorkloadVerdict) -> tuple[float | None, float | None]:
    """Mean bytes read and written per second by each of its nodes while it ran."""
    host = frame.host
    if not len(host):
        return None, None
    during = (host["ts"] > w.start) & (host["ts"] - host["interval_seconds"] < w.end) & host["node"].isin(w.nodes)
    rows = host[during]
    seconds = rows["observed_seconds"].to_numpy(float)
    read, written = (_mean(rows[f"{name}_mean"].to_numpy(float), seconds) for name in _BYTES)
    return read, written


def _mean(values: np.ndarray, weights: np.ndarray) -> float | None:
    told = np.isfinite(values) & (weights > 0)
    return float(np.average(values[told], weights=weights[told])) if told.any() else None


def _share(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else min(max(float(value), 0.0), 1.0)


def reasons_of(w: WorkloadVerdict, use: Use, *, has_fabric: str | None, nvlink: str | None) -> Mapping[str, str]:
    """Why figures are missing. `has_fabric`, `nvlink`: why those of the links are, where it is known."""
    told = {"sm_active": "sm_active", "tensor_active": "tensor_active", "mem_peak_bytes": "mem_used_bytes"}
    why: dict[str, str] = {}
    for name, metric in told.items():
        if getattr(use, name) is None:
            why[name] = w.coverage.missing.get(metric, "not reported by this source")
    if use.fabric is None:
        why["fabric"] = has_fabric or "no counters of a compute fabric"
    if use.nvlink is None:
        why["nvlink"] = nvlink or w.coverage.missing.get("nvlink_tx_bytes_per_second", "no NVLink counters")
    if use.cpu is None:
        why["cpu"] = "no host metrics in this source"
    if use.disk_read_bytes_per_second is None:
        why["disk"] = "no disk metrics in this source"
    if use.idle_gpu_hours is None:
        fault = w.features.get("fault_share", 0.0) > 0.0
        why["idle_gpu_hours"] = "the signals contradict one another" if fault else "GPU activity is not measured"
    return why
