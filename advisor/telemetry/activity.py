"""Work without labels: active GPUs without a holder become workloads of basis `activity`, owner unknown.

GPUs of one node whose busy periods begin and end within one sample of each other are one workload; of periods that fill
the whole window, a GPU that only held memory is apart from those that worked. The same data give the same ids: a
workload is named by its cluster, its first GPU and its start to the quarter of an hour, one that was there before the
window by its cluster and its GPUs, as its `series_id` is.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...agent.jobs.ids import workload_id
from ..core.formatting import counted
from ..core.frame import Frame, Window
from ..core.scalars import records, text
from . import queries
from .resolution import MINUTE, concat

Floats = npt.NDArray[np.float64]
Device = tuple[str, str]

BASIS = "activity"
MARGIN_SECONDS = 300.0  # labels and processes are seen some minutes late
LEAST_SECONDS = 900.0  # less time without an owner is a handover
# An hour's mean from this use on shows that something worked in it for a minute or two; memory beyond this is held.
USE_MEAN, MEMORY_BYTES = 0.004, 0.8 * 2**30
# Counters' noise lies below this use; the driver, a display or a monitor holds up to so much memory.
BUSY_USE, FREE_BYTES_MOST = 0.05, 1.25 * 2**30
PAUSE_SECONDS = 1800.0  # checkpoints, evaluation
SHORTEST_SECONDS = 300.0  # health checks are shorter
START_SECONDS = 900.0  # starts are named to this much


@dataclass(frozen=True, slots=True)
class DeviceSeries:
    """One GPU or MIG instance over time. `ts`: ends of intervals, Unix seconds, rising; `step_seconds`: how far apart.
    `use`: share of the time in which it worked, 0..1; `mem_used_bytes`: each as long as `ts`, NaN where missing."""

    node: str
    gpu_uuid: str
    ts: Floats
    step_seconds: float
    use: Floats
    mem_used_bytes: Floats


Finer = Callable[[Sequence[Device], Window], Sequence[DeviceSeries]]


@dataclass(frozen=True, slots=True)
class _Period:
    """A device was busy. `sample`: the longer row at its edges, seconds; `held`: only with memory, the whole window."""

    device: Device
    start: float
    end: float
    sample: float
    held: bool

    def same(self, other: Self) -> bool:
        apart = max(abs(self.start - other.start), abs(self.end - other.end))
        return apart <= max(self.sample, other.sample) and self.held == other.held


def with_activity(frame: Frame, finer: Finer) -> Frame:
    """The frame with what is found. `finer`: rows of minutes of devices; where it has none the frame's serve."""
    owned = _owned_spans(frame)
    rows = _rows_by_device(frame, owned)
    fine = {(s.node, s.gpu_uuid): s for s in finer([*rows], frame.window) if len(s.ts)} if rows else {}
    for device, series in fine.items():
        begin = series.ts - series.step_seconds
        minutes = pd.DataFrame({"begin": begin, "end": series.ts, "use": series.use, "mem": series.mem_used_bytes})
        rows[device] = pd.concat([rows[device][rows[device]["end"] <= begin[0] + 1.0], minutes])
    periods = [period for device, spans in rows.items() for period in _periods(device, spans, owned[device])]
    return _with_work(frame, _together(periods, frame.parents)) if periods else frame


def _owned_spans(frame: Frame) -> defaultdict[Device, Floats]:
    """By device the spans in which somebody held it or its whole GPU, widened, joined and cut to the window."""
    window = frame.window
    edges = [(window.start, window.start), (window.end, window.end)]
    spans: dict[Device, list[tuple[float, float]]] = defaultdict(lambda: [*edges])
    for use in records(frame.uses):
        start = max(float(use["ts_start"]) - MARGIN_SECONDS, window.start)
        end = min(float(use["ts_end"]) + MARGIN_SECONDS, window.end)
        if start < end:
            spans[str(use["node"]), str(use["gpu_uuid"])].append((start, end))
    for device, parent in frame.parents.items():
        spans[device] += spans[parent]
    owned = defaultdict[Device, Floats](lambda: np.array(edges))
    for device, every in spans.items():
        starts, ends = np.array(sorted(every)).T
        reach = np.maximum.accumulate(ends)
        first = np.flatnonzero(np.r_[True, starts[1:] > reach[:-1] + LEAST_SECONDS])
        owned[device] = np.c_[starts[first], reach[np.r_[first[1:] - 1, -1]]]
    return owned


def _rows_by_device(frame: Frame, owned: Mapping[Device, Floats]) -> dict[Device, pd.DataFrame]:
    """The rows ``begin, end, use, mem`` of each device that worked or held memory without a holder, except GPUs
    that are cut into instances: what they do, those do."""
    gpu, divided = frame.gpu, set(frame.parents.values())
    rows_of_gpu: dict[Device, pd.DataFrame] = {}
    table = pd.DataFrame({
        "node": gpu["node"], "uuid": gpu["gpu_uuid"], "begin": gpu["ts"] - gpu["interval_seconds"], "end": gpu["ts"],
        "use": engine_use(gpu), "mem": gpu["mem_used_bytes_mean"],
    }).sort_values("end")  # fmt: skip
    for (node, uuid), rows in table.groupby(["node", "uuid"]):
        device = (str(node), str(uuid))
        works = (rows["use"] >= USE_MEAN) | (rows["mem"] >= MEMORY_BYTES)
        if device not in divided and (works & ~_touching(rows, owned[device])).any():
            rows_of_gpu[device] = rows
    return rows_of_gpu


def _periods(device: Device, rows: pd.DataFrame, owned: Floats) -> list[_Period]:
    theirs = _touching(rows, owned)
    begin, end, use, mem = (rows[name].to_numpy(float) for name in ("begin", "end", "use", "mem"))
    busy = np.flatnonzero(((use >= BUSY_USE) | (mem > FREE_BYTES_MOST)) & ~theirs)
    handed_over = np.diff(np.cumsum(theirs)[busy]) > 0
    cut = np.flatnonzero((begin[busy[1:]] - end[busy[:-1]] > PAUSE_SECONDS) | handed_over) + 1
    periods: list[_Period] = []
    for part in np.split(busy, cut) if len(busy) else ():
        a, b = part[0], part[-1]
        if end[b] - begin[a] >= SHORTEST_SECONDS:
            sample = float(max(end[a] - begin[a], end[b] - begin[b]))
            held = a == 0 and b == len(end) - 1 and not (use[part] >= BUSY_USE).any()
            periods.append(_Period(device, float(begin[a]), float(end[b]), sample, bool(held)))
    return periods


def _together(periods: Sequence[_Period], instances: Mapping[Device, Device]) -> list[list[_Period]]:
    """The periods of one node that begin and end as one; MIG instances are each by itself."""
    groups: dict[str, list[list[_Period]]] = defaultdict(list)
    for entry in sorted(periods, key=lambda period: (period.device in instances, period.start, period.device)):
        of_node = groups[entry.device[0]]
        alike = next((group for group in of_node if group[0].same(entry)), None)
        if alike is None or entry.device in instances:
            of_node.append([entry])
        else:
            alike.append(entry)
    return [group for of_node in groups.values() for group in of_node]


def _with_work(frame: Frame, groups: Sequence[Sequence[_Period]]) -> Frame:
    clusters = {str(row["node"]): text(row["cluster"]) or "" for row in records(frame.nodes)}
    start, end = frame.window.start, frame.window.end
    uses, workloads = [], []
    for group in groups:
        devices = sorted({p.device for p in group})
        node, every = devices[0][0], [part for device in devices for part in device]
        cluster, first, last = clusters.get(node, ""), min(p.start for p in group), max(p.end for p in group)
        named_by = ("open", *every) if first - start <= MINUTE else (*devices[0], str(round(first / START_SECONDS)))
        key = workload_id(cluster, BASIS, *named_by)
        uses += [
            {"workload_id": key, "node": node, "gpu_uuid": period.device[1], "basis": BASIS, "shared": 0.0,
             "ts_start": max(period.start, start), "ts_end": min(period.end, end)}
            for period in group
        ]  # fmt: skip
        what = counted(len(devices), "MIG instance" if set(devices) <= set(frame.parents) else "GPU")
        workloads.append({
            "workload_id": key, "name": f"unattributed on {node} ({what})",
            "series_id": "s-" + workload_id(cluster, BASIS, "series", *every).removeprefix("w-"),
            "first_seen": max(first, start), "last_seen": min(last, end),
        })  # fmt: skip
    columns, texts = queries.WORKLOADS.columns, dict.fromkeys(queries.WORKLOADS.text, object)
    added = pd.DataFrame(workloads).reindex(columns=[*columns]).astype(texts)
    return replace(
        frame,
        uses=concat([frame.uses, pd.DataFrame(uses)], [*dict.fromkeys([*queries.USES.columns, *frame.uses.columns])]),
        workloads=concat([frame.workloads, added], columns),
    )


def _touching(rows: pd.DataFrame, spans: Floats) -> npt.NDArray[np.bool_]:
    begin, end = rows["begin"].to_numpy(float), rows["end"].to_numpy(float)
    return np.searchsorted(spans[:, 1], begin, side="right") < np.searchsorted(spans[:, 0], end, side="left")


def engine_use(rows: pd.DataFrame) -> Floats:
    """How much of each row the GPU worked: by the driver's utilization or the SMs, whichever shows more."""
    return np.fmax(rows["gpu_util_mean"].to_numpy(float), rows["sm_active_mean"].to_numpy(float))
