"""A frame with the work that nobody named: GPUs that work and belong to nobody become workloads of basis `activity`.

What is promised of their ids: the same data give the same ids. A workload whose start lies in the data is named by its
cluster, its first GPU and its start to the quarter of an hour; one that was there before, by its cluster and its GPUs.
So the id of a running workload changes once, when its start leaves the window. `series_id` is the cluster's and the
GPUs': what runs on them next week is the same series, and recommendations, which go by the series, stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ....agent.inventory.identity.ids import workload_id
from ....agent.store.reading import queries
from ...core.frame import Frame, Window
from ..resolution import HOUR, concat
from .gangs import find_gangs
from .owned import Device, Spans, column, engine_use, owned_spans, touching, unowned, unowned_devices
from .series import DeviceSeries, Floats, Gang
from .spans import FREE_BYTES_MOST, FREE_BYTES_USUAL

BASIS = "activity"
# Starts are named to this much: the same start read again, a sample earlier or later, is mostly the same.
START_SECONDS = 900.0
# So much of a device's time makes a use; less is left out, as at the edges of what others hold.
LEAST_USE_SECONDS = 300.0
# The newest minutes are formed a little later: what still ran at the last of them runs on.
LAG_SECONDS = 900.0

Finer = Callable[[Sequence[Device], Window], Sequence[DeviceSeries]]


@dataclass(frozen=True, slots=True)
class FoundWork:
    """A piece of work. `spans`: of each device, when it held it and nobody else did."""

    gang: Gang
    spans: Mapping[Device, Spans]


def with_activity(frame: Frame, finer: Finer) -> Frame:
    """The frame with what is found added to `uses` and `workloads`.

    `finer`: asked for series of these devices in rows of minutes; of a device that it tells nothing of, or not from the
    window's start, the frame's own rows serve, with edges to the hour.
    """
    owned = owned_spans(frame)
    devices = unowned_devices(frame, owned)
    if not devices:
        return frame
    fine = [one for one in finer(devices, frame.window) if len(one.ts)]
    found = _found(_gangs(frame, devices, fine, owned), owned, frame.window)
    if not found:
        return frame
    uses, workloads = _tables(found, frame)
    return replace(
        frame,
        uses=concat([frame.uses, uses], queries.USES.columns),
        workloads=concat([frame.workloads, workloads], queries.WORKLOADS.columns),
    )


def activity_uses(frame: Frame) -> pd.DataFrame:
    """The frame's uses that were inferred."""
    return frame.uses[frame.uses["basis"] == BASIS] if not frame.uses.empty else frame.uses


def _gangs(
    frame: Frame, devices: Sequence[Device], fine: Sequence[DeviceSeries], owned: Mapping[Device, Spans]
) -> list[Gang]:
    begins: dict[str, float] = {}
    for one in fine:
        first = float(one.ts[0]) - one.step_seconds
        begins[one.node] = min(first, begins.get(one.node, first))
    told = {(one.node, one.gpu_uuid) for one in fine}
    coarse = _own_rows(frame, devices, {d: begins[d[0]] if d in told else float("inf") for d in devices})
    fabric = _fabric(frame)
    early, late = (
        list(find_gangs([_masked(_with_fabric(one, fabric), owned.get((one.node, one.gpu_uuid), [])) for one in own]))
        for own in (coarse, fine)
    )
    return _stitched(early, late)


def _own_rows(frame: Frame, devices: Sequence[Device], until: Mapping[Device, float]) -> list[DeviceSeries]:
    """The frame's own rows of these devices, as far as no finer series tell of them."""
    wanted, out = set(devices), []
    for key, at in frame.gpu.groupby(["node", "gpu_uuid"], sort=True).indices.items():
        device = (str(key[0]), str(key[1]))  # type: ignore[index]
        if device not in wanted:
            continue
        rows = frame.gpu.iloc[at]
        ts = rows["ts"].to_numpy(float)
        early = ts <= until[device] + 1.0
        if early.sum() < 2:
            continue
        rows, ts = rows[early], ts[early]
        step = float(rows["interval_seconds"].max())
        out.append(
            DeviceSeries(
                *device, ts, step, engine_use(rows), column(rows, "mem_used_bytes_mean"),
                column(rows, "power_watts_mean"),
                means=True,
            )
        )  # fmt: skip
    return out


def _masked(one: DeviceSeries, owned: Spans) -> DeviceSeries:
    """The series with what others held shown as free: what comes before and after is apart."""
    theirs = touching(one.ts - one.step_seconds, one.ts, owned)
    if not theirs.any():
        return one
    mem = one.mem_used_bytes
    if mem is not None:
        known = mem[mem >= 0]
        low = float(known.min()) if len(known) else 0.0
        mem = np.where(theirs, low if low <= FREE_BYTES_MOST else FREE_BYTES_USUAL, mem)
    use = None if one.gpu_util is None else np.where(theirs, 0.0, one.gpu_util)
    power = None if one.power_watts is None else np.where(theirs, np.nan, one.power_watts)
    return replace(one, gpu_util=use, mem_used_bytes=mem, power_watts=power)


def _fabric(frame: Frame) -> dict[str, tuple[Floats, Floats, Floats]]:
    """Per node: begins and ends of rows, and what its ports carried in each, bytes per second."""
    rows = frame.fabric
    if rows.empty:
        return {}
    rows = rows[rows["role"] != "storage"]
    sent, received = column(rows, "tx_bytes_per_second_mean"), column(rows, "rx_bytes_per_second_mean")
    begin = column(rows, "ts") - column(rows, "interval_seconds")
    table = pd.DataFrame({"node": rows["node"], "ts": rows["ts"], "begin": begin, "rate": np.fmax(sent, received)})
    table = table.dropna(subset=["rate"]).groupby(["node", "ts"], sort=True).agg({"begin": "min", "rate": "sum"})
    out = {}
    for node, own in table.reset_index().groupby("node", sort=False):
        out[str(node)] = own["begin"].to_numpy(float), own["ts"].to_numpy(float), own["rate"].to_numpy(float)
    return out


def _with_fabric(one: DeviceSeries, fabric: Mapping[str, tuple[Floats, Floats, Floats]]) -> DeviceSeries:
    known = fabric.get(one.node)
    if known is None:
        return one
    begin, end, rate = known
    at = np.searchsorted(end, one.ts - 1e-3)
    near = np.minimum(at, len(end) - 1)
    told = (at < len(end)) & (one.ts > begin[near])
    return replace(one, fabric_bytes_per_second=np.where(told, rate[near], np.nan))


def _stitched(early: list[Gang], late: list[Gang]) -> list[Gang]:
    """Gangs of the hours and of the minutes after them, joined where the same GPUs go on from one to the other.

    Minutes see more: what they tell apart, or together, was so in the hours before.
    """
    if not early or not late:
        return early + late
    out = [one for one in early if not one.open_end]
    going = _divided([one for one in early if one.open_end], [one for one in late if one.open_start])
    for one in late:
        before = going.get(one.gpus) if one.open_start else None
        if before is not None and abs(one.start - before.end) <= 2 * HOUR:
            out.append(replace(before, end=one.end, open_end=one.open_end))
            del going[one.gpus]
        else:
            out.append(one)
    return out + list(going.values())


def _divided(early: Sequence[Gang], late: Sequence[Gang]) -> dict[tuple[Device, ...], Gang]:
    """The early gangs by their GPUs, cut or put together as the late ones are, where these hold the same GPUs."""
    going = {one.gpus: one for one in early}
    for one in early:
        parts = [part for part in late if set(part.gpus) < set(one.gpus)]
        if sum(len(part.gpus) for part in parts) == len(one.gpus):
            del going[one.gpus]
            going |= {part.gpus: replace(one, gpus=part.gpus) for part in parts}
    for whole in late:
        parts = [one for gpus, one in going.items() if set(gpus) < set(whole.gpus)]
        starts = [part.start for part in parts]
        if sum(len(part.gpus) for part in parts) == len(whole.gpus) and max(starts) - min(starts) <= 2 * HOUR:
            for part in parts:
                del going[part.gpus]
            going[whole.gpus] = replace(parts[0], gpus=whole.gpus)
    return going


def _found(gangs: Sequence[Gang], owned: Mapping[Device, Spans], window: Window) -> list[FoundWork]:
    found = []
    # A gang's start is the middle of its devices': one of them may have been at other work until a little later.
    taken: dict[Device, float] = {}
    for gang in sorted(gangs, key=lambda one: (one.start, one.gpus)):
        start, end = max(gang.start, window.start), min(gang.end, window.end)
        if gang.open_start and start - window.start <= HOUR:
            start = window.start
        if gang.open_end and window.end - end <= LAG_SECONDS:
            end = window.end
        spans: dict[Device, Spans] = {}
        for device in gang.gpus:
            begin = max(start, taken.get(device, start))
            taken[device] = max(end, taken.get(device, end))
            own = [(a, b) for a, b in unowned(begin, end, owned.get(device, [])) if b - a >= LEAST_USE_SECONDS]
            if own:
                spans[device] = own
        if spans:
            found.append(FoundWork(gang, spans))
    return found


def _tables(found: Sequence[FoundWork], frame: Frame) -> tuple[pd.DataFrame, pd.DataFrame]:
    clusters = dict(zip(frame.nodes["node"].astype(str), frame.nodes["cluster"], strict=True))
    kinds = {}
    if not frame.gpus.empty:
        kinds = {
            (str(n), str(u)): k for n, u, k in zip(*(frame.gpus[c] for c in ("node", "gpu_uuid", "kind")), strict=True)
        }
    uses, workloads = [], []
    for one in found:
        devices = sorted(one.spans)
        cluster = clusters.get(devices[0][0])
        cluster = cluster if isinstance(cluster, str) else ""
        every = [part for device in devices for part in device]
        series = "s-" + workload_id(cluster, BASIS, "series", *every).removeprefix("w-")
        start = min(span[0][0] for span in one.spans.values())
        end = max(span[-1][1] for span in one.spans.values())
        if one.gang.open_start:
            key = workload_id(cluster, BASIS, "open", *every)
        else:
            key = workload_id(cluster, BASIS, *devices[0], str(round(one.gang.start / START_SECONDS)))
        uses += [
            {"workload_id": key, "node": node, "gpu_uuid": uuid, "basis": BASIS, "ts_start": a, "ts_end": b,
             "shared": 0.0, "mem_used_bytes": np.nan}
            for node, uuid in devices for a, b in one.spans[node, uuid]
        ]  # fmt: skip
        name = name_of(devices, {kinds.get(device) for device in devices} == {"mig"})
        workloads.append({
            "workload_id": key, "series_id": series, "name": name, "scheduler": None, "first_seen": start,
            "last_seen": end,
        })  # fmt: skip
    return (
        pd.DataFrame(uses).reindex(columns=[*queries.USES.columns]),
        pd.DataFrame(workloads).reindex(columns=[*queries.WORKLOADS.columns]).astype(
            dict.fromkeys(queries.WORKLOADS.text, object)
        ),
    )  # fmt: skip


def name_of(devices: Sequence[Device], are_instances: bool = False) -> str:
    """``unattributed on gpu-015 and 3 more nodes (32 GPUs)``."""
    nodes = sorted({node for node, _ in devices})
    more = len(nodes) - 1
    where = nodes[0] + (f" and {more} more node{'s' if more > 1 else ''}" if more else "")
    what = "MIG instance" if are_instances else "GPU"
    return f"unattributed on {where} ({len(devices)} {what}{'s' if len(devices) > 1 else ''})"
