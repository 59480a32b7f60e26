"""What a judged window says of one workload's use: its figures, its course, and when its GPUs last did something."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..classify.features.rest import rested_since
from ..classify.types import Verdicts
from ..core.card_types import COURSE_SPANS, Course, Use
from ..core.frame import Frame
from ..core.verdict_types import WorkloadVerdict

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
    peak, total = _memory(frame, verdicts, w)
    read, written = _disk(frame, w)
    rests = rests_of(verdicts, w)
    return Use(
        observed=min(1.0, max(0.0, w.coverage.fraction)),
        **{name: _share(w.features.get(key)) for name, key in _FIGURES.items()},
        mem_peak_bytes=peak,
        mem_total_bytes=total,
        disk_read_bytes_per_second=read,
        disk_write_bytes_per_second=written,
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
    ends = rows["ts"].to_numpy(float)[:, None]
    begins = ends - np.maximum(rows["seconds"].to_numpy(float), 1.0)[:, None]
    shared = np.maximum(np.minimum(edges[1:], ends) - np.maximum(edges[:-1], begins), 0.0)
    levels = []
    for name in ("sm", "c"):
        values = rows[name].to_numpy(float)
        told = np.isfinite(values)
        sums, seconds = values[told] @ shared[told], shared[told].sum(axis=0)
        levels.append(tuple(_rounded(s / n) if n > 0 else None for s, n in zip(sums, seconds, strict=True)))
    return Course(w.start, step, *levels)


def _rounded(value: float) -> float:
    return round(min(max(float(value), 0.0), 1.0), 2)


def course_from(start: float, end: float, sm: list[float | None], tensor: list[float | None]) -> Course:
    """A course of spans that are summed already."""
    levels = [tuple(None if one is None else _rounded(one) for one in values) for values in (sm, tensor)]
    return Course(start, (end - start) / max(len(sm), 1), *levels)


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
    seconds = host.loc[during, "observed_seconds"].to_numpy(float)
    means: list[float | None] = []
    for name in ("disk_read_bytes_per_second_mean", "disk_write_bytes_per_second_mean"):
        values = host.loc[during, name].to_numpy(float)
        told = np.isfinite(values) & (seconds > 0)
        means.append(float(np.average(values[told], weights=seconds[told])) if told.any() else None)
    return means[0], means[1]


def _share(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else min(max(float(value), 0.0), 1.0)
