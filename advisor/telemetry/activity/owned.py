"""Which GPUs and moments belong to nobody: a frame's rows less its uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ...core.frame import Frame, Window
from .series import Bools, Floats

Device = tuple[str, str]
Spans = list[tuple[float, float]]

# What lies so close to a use may be its own start or end: labels and processes are seen some minutes late.
MARGIN_SECONDS = 300.0
# So much time without an owner is looked at; less is a handover.
LEAST_SECONDS = 900.0
# An hour's mean from this use on shows that something worked in it for a minute or two; memory beyond this is held.
USE_MEAN, MEMORY_BYTES = 0.004, 0.8 * 2**30


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
    return {device: merged_spans(own, MARGIN_SECONDS, frame.window) for device, own in spans.items()}


def merged_spans(spans: Sequence[tuple[float, float]], margin: float, window: Window) -> Spans:
    """Spans widened by `margin`, joined where they touch, cut to the window."""
    out: Spans = []
    for first, last in sorted(spans):
        start, end = max(first - margin, window.start), min(last + margin, window.end)
        if end <= start:
            continue
        if out and start <= out[-1][1] + LEAST_SECONDS:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def unowned(start: float, end: float, owned: Spans) -> Spans:
    """What of [start, end) lies outside the spans."""
    out: Spans = []
    for a, b in owned:
        if b <= start or a >= end:
            continue
        if a > start:
            out.append((start, a))
        start = max(start, b)
    if end > start:
        out.append((start, end))
    return out


def unowned_devices(frame: Frame, owned: Mapping[Device, Spans]) -> list[Device]:
    """The devices that worked or held memory at a moment when nobody held them. A GPU that is cut into instances is not
    one: what it does, they do."""
    if frame.gpu.empty:
        return []
    cut = set(frame.parents.values())
    found: list[Device] = []
    use, mem = engine_use(frame.gpu), column(frame.gpu, "mem_used_bytes_mean")
    power = column(frame.gpu, "power_watts_mean")
    ts, length = column(frame.gpu, "ts"), column(frame.gpu, "interval_seconds")
    for key, rows in frame.gpu.groupby(["node", "gpu_uuid"], sort=True).indices.items():
        device = (str(key[0]), str(key[1]))  # type: ignore[index]
        if device in cut:
            continue
        own = owned.get(device, [])
        free = ~touching(ts[rows] - length[rows], ts[rows], own)
        with np.errstate(invalid="ignore"):
            told = (use[rows] >= USE_MEAN) | (mem[rows] >= MEMORY_BYTES)
            told |= np.isnan(use[rows]) & np.isnan(mem[rows]) & (power[rows] > 0)
        left = sum(b - a for a, b in unowned(frame.window.start, frame.window.end, own))
        if left >= LEAST_SECONDS and bool((free & told).any()):
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
