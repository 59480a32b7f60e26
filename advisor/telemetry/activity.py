"""Work without labels: GPUs that work and belong to nobody become workloads of basis `activity`, owner unknown.

GPUs of one node whose busy periods begin and end within one sample of each other are one workload. Periods that fill
the whole window prove less: there a GPU that only held memory is apart from those that worked. Nothing is concluded
across nodes. The same data give the same ids: a workload whose start lies in the data is named by its cluster, its
first GPU and its start to the quarter of an hour, one that was there before by its cluster and its GPUs. `series_id`
is the cluster's and the GPUs': what runs on them next week is the same series.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...agent.inventory.identity.ids import workload_id
from ...agent.store.reading import queries
from ..core.frame import Frame, Window
from .resolution import MINUTE, concat

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Device = tuple[str, str]
Spans = list[tuple[float, float]]

BASIS = "activity"
# What lies so close to a use may be its own start or end: labels and processes are seen some minutes late.
MARGIN_SECONDS = 300.0
# So much time without an owner is looked at; less is a handover.
LEAST_SECONDS = 900.0
# An hour's mean from this use on shows that something worked in it for a minute or two; memory beyond this is held.
USE_MEAN, MEMORY_BYTES = 0.004, 0.8 * 2**30
# From this use on a row counts as work: noise of counters and monitors lies below. The driver's
# reserve, a display or a monitor holds up to so much memory while nothing works.
BUSY_USE, FREE_BYTES_MOST = 0.05, 1.25 * 2**30
# Without memory, rest up to this long is a pause of the same work (checkpoints, evaluation).
PAUSE_SECONDS = 1800.0
# Shorter periods are left out: a health check, a test that the driver works.
SHORTEST_SECONDS = 300.0
# Starts are named to this much.
START_SECONDS = 900.0


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
    """A device was busy in [start, end], Unix seconds. `sample`: the longer of the rows at its edges, seconds. `whole`:
    for the whole window. `worked`: it did more than hold memory."""

    device: Device
    start: float
    end: float
    sample: float
    whole: bool
    worked: bool

    def same(self, other: _Period) -> bool:
        if self.whole and self.worked != other.worked:
            return False
        apart = max(abs(self.start - other.start), abs(self.end - other.end))
        return apart <= max(self.sample, other.sample)


def with_activity(frame: Frame, finer: Finer) -> Frame:
    """The frame with what is found added to `uses` and `workloads`. `finer`: asked for series of these devices in rows
    of minutes; where it tells nothing the frame's own rows serve, with edges to the hour."""
    owned = owned_spans(frame)
    devices = unowned_devices(frame, owned)
    if not devices:
        return frame
    fine = {(one.node, one.gpu_uuid): one for one in finer(devices, frame.window) if len(one.ts)}
    rows = frame.gpu.groupby(["node", "gpu_uuid"], sort=True).indices
    found = [
        period
        for device in devices
        for period in _periods(device, frame.gpu.iloc[rows[device]], fine.get(device), owned.get(device, []))
    ]
    if not found:
        return frame
    uses, workloads = _tables(_together(found, frame.parents), frame)
    return replace(
        frame,
        uses=concat([frame.uses, uses], queries.USES.columns),
        workloads=concat([frame.workloads, workloads], queries.WORKLOADS.columns),
    )


def activity_uses(frame: Frame) -> pd.DataFrame:
    """The frame's uses that were inferred."""
    return frame.uses[frame.uses["basis"] == BASIS] if not frame.uses.empty else frame.uses


def _periods(device: Device, rows: pd.DataFrame, fine: DeviceSeries | None, owned: Spans) -> list[_Period]:
    """When the device was busy while nobody held it: by its fine rows, and before they begin by the frame's."""
    ts, length = column(rows, "ts"), column(rows, "interval_seconds")
    use, mem = engine_use(rows), column(rows, "mem_used_bytes_mean")
    if fine is not None:
        early = ts <= fine.ts[0] - fine.step_seconds + 1.0
        ts, length = np.r_[ts[early], fine.ts], np.r_[length[early], np.full(len(fine.ts), fine.step_seconds)]
        use, mem = np.r_[use[early], fine.use], np.r_[mem[early], fine.mem_used_bytes]
    order = np.argsort(ts, kind="stable")
    ts, length, use, mem = (values[order] for values in (ts, length, use, mem))
    theirs = touching(ts - length, ts, owned)
    with np.errstate(invalid="ignore"):
        busy = np.flatnonzero(((use >= BUSY_USE) | (mem > FREE_BYTES_MOST)) & ~theirs)
    if not len(busy):
        return []
    handed_over = np.diff(np.cumsum(theirs)[busy]) > 0
    cut = np.flatnonzero(((ts - length)[busy[1:]] - ts[busy[:-1]] > PAUSE_SECONDS) | handed_over) + 1
    found: list[_Period] = []
    for part in np.split(busy, cut):
        a, b = part[0], part[-1]
        start, end = float(ts[a] - length[a]), float(ts[b])
        if end - start >= SHORTEST_SECONDS:
            whole, worked = bool(a == 0 and b == len(ts) - 1), bool((use[part] >= BUSY_USE).any())
            found.append(_Period(device, start, end, float(max(length[a], length[b])), whole, worked))
    return found


def _together(periods: Sequence[_Period], instances: Mapping[Device, Device]) -> list[list[_Period]]:
    """The periods of one node that begin and end as one; MIG instances are each by itself."""
    groups: dict[str, list[list[_Period]]] = {}
    # Instances come last, so that no GPU joins one.
    for one in sorted(periods, key=lambda period: (period.device in instances, period.start, period.device)):
        known = groups.setdefault(one.device[0], [])
        alike = next((group for group in known if group[0].same(one)), None)
        if alike is None or one.device in instances:
            known.append([one])
        else:
            alike.append(one)
    return [group for own in groups.values() for group in own]


def _tables(found: Sequence[Sequence[_Period]], frame: Frame) -> tuple[pd.DataFrame, pd.DataFrame]:
    clusters = dict(zip(frame.nodes["node"].astype(str), frame.nodes["cluster"], strict=True))
    uses, workloads = [], []
    for group in sorted(found, key=lambda periods: (periods[0].start, periods[0].device)):
        devices = sorted({one.device for one in group})
        cluster = clusters.get(devices[0][0])
        cluster = cluster if isinstance(cluster, str) else ""
        every = [part for device in devices for part in device]
        series = "s-" + workload_id(cluster, BASIS, "series", *every).removeprefix("w-")
        first = min(one.start for one in group)
        if first - frame.window.start <= MINUTE:
            key = workload_id(cluster, BASIS, "open", *every)
        else:
            key = workload_id(cluster, BASIS, *devices[0], str(round(first / START_SECONDS)))
        spans = [(one.device, max(one.start, frame.window.start), min(one.end, frame.window.end)) for one in group]
        uses += [
            {"workload_id": key, "node": node, "gpu_uuid": uuid, "basis": BASIS, "ts_start": a, "ts_end": b,
             "shared": 0.0, "mem_used_bytes": np.nan}
            for (node, uuid), a, b in spans
        ]  # fmt: skip
        workloads.append({
            "workload_id": key, "series_id": series, "name": name_of(devices, set(devices) <= set(frame.parents)),
            "scheduler": None, "first_seen": min(a for _, a, _ in spans), "last_seen": max(b for _, _, b in spans),
        })  # fmt: skip
    return (
        pd.DataFrame(uses).reindex(columns=[*queries.USES.columns]),
        pd.DataFrame(workloads).reindex(columns=[*queries.WORKLOADS.columns]).astype(
            dict.fromkeys(queries.WORKLOADS.text, object)
        ),
    )  # fmt: skip


def name_of(devices: Sequence[Device], are_instances: bool = False) -> str:
    """``unattributed on gpu-015 (8 GPUs)``."""
    what = "MIG instance" if are_instances else "GPU"
    return f"unattributed on {devices[0][0]} ({len(devices)} {what}{'s' if len(devices) > 1 else ''})"


def owned_spans(frame: Frame) -> Mapping[Device, Spans]:
    """Per device the spans in which somebody held it, widened by the margin, joined and cut to the window. Who holds a
    GPU holds its MIG instances."""
    spans: dict[Device, Spans] = {}
    uses = frame.uses
    if not uses.empty:
        columns = (uses[name].tolist() for name in ("node", "gpu_uuid", "ts_start", "ts_end"))
        for node, uuid, start, end in zip(*columns, strict=True):
            spans.setdefault((str(node), str(uuid)), []).append((float(start), float(end)))
    for device, parent in frame.parents.items():
        if parent in spans:
            spans.setdefault(device, []).extend(spans[parent])
    return {device: _merged(own, frame.window) for device, own in spans.items()}


def _merged(spans: Spans, window: Window) -> Spans:
    out: Spans = []
    for first, last in sorted(spans):
        start, end = max(first - MARGIN_SECONDS, window.start), min(last + MARGIN_SECONDS, window.end)
        if end <= start:
            continue
        if out and start <= out[-1][1] + LEAST_SECONDS:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    if out and out[0][0] <= window.start + LEAST_SECONDS:
        out[0] = (window.start, out[0][1])
    if out and out[-1][1] >= window.end - LEAST_SECONDS:
        out[-1] = (out[-1][0], window.end)
    return out


def unowned_devices(frame: Frame, owned: Mapping[Device, Spans]) -> list[Device]:
    """The devices that worked or held memory at a moment when nobody held them. A GPU that is cut into instances is not
    one: what it does, they do."""
    if frame.gpu.empty:
        return []
    cut = set(frame.parents.values())
    use, mem = engine_use(frame.gpu), column(frame.gpu, "mem_used_bytes_mean")
    ts, length = column(frame.gpu, "ts"), column(frame.gpu, "interval_seconds")
    found: list[Device] = []
    for key, rows in frame.gpu.groupby(["node", "gpu_uuid"], sort=True).indices.items():
        device = (str(key[0]), str(key[1]))  # type: ignore[index]
        if device in cut:
            continue
        free = ~touching(ts[rows] - length[rows], ts[rows], owned.get(device, []))
        with np.errstate(invalid="ignore"):
            told = (use[rows] >= USE_MEAN) | (mem[rows] >= MEMORY_BYTES)
        if bool((free & told).any()):
            found.append(device)
    return found


def touching(begin: Floats, end: Floats, spans: Spans) -> Bools:
    """Whether each row (begin, end] has a part in one of the spans, which are sorted and apart. Of a row of which
    somebody held a part, nobody can tell what the rest did."""
    if not spans:
        return np.zeros(len(begin), dtype=np.bool_)
    starts, ends = (np.array(side) for side in zip(*spans, strict=True))
    return np.searchsorted(ends, begin, side="right") < np.searchsorted(starts, end, side="left")


def engine_use(rows: pd.DataFrame) -> Floats:
    """How much of each row the GPU worked: by the driver's utilization or the SMs, whichever shows more."""
    return np.fmax(column(rows, "gpu_util_mean"), column(rows, "sm_active_mean"))


def column(rows: pd.DataFrame, name: str) -> Floats:
    return rows[name].to_numpy(float) if name in rows else np.full(len(rows), np.nan)
