"""GPUs and instances with hours that no workload accounts for, and how they stood."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.column_rows import ColumnRows
from ...core.frame import Frame
from ...core.verdict_types import INFERRED
from ..doubts import Doubt
from ..features.soundness import CONTRADICTIONS
from ..types import BareGpu
from ..workloads.attribution import Attribution
from ..workloads.sku_lookup import GpuIndex

# Share of a GPU's memory that the driver and a display may take without any work on it.
HELD_MEM_RATIO = 0.01
FAULT_SHARE_MIN = 0.05  # of the time: less is a blip (as in rules/waste/telemetry-fault.yaml)
_MEASURES = ("fault", "idle", "g", "g_max", "m", "power", "idle_power", "mem")
Floats = npt.NDArray[np.float64]
Key = tuple[str, str]


def bare_gpus(  # noqa: PLR0917
    frame: Frame, index: GpuIndex, attribution: Attribution, rows: pd.DataFrame, parts: Floats, doubts: Sequence[Doubt]
) -> tuple[BareGpu, ...]:
    """Every GPU and instance with hours that no workload accounts for while its node was in service, by node and index.

    A divided GPU itself is left out for the time of its instances. `parts`: the part of a GPU that each row of the
    frame's `gpu` stands for. `doubts`: what of its telemetry was not believed; those that contradict one another name
    its fault.
    """
    places = attribution.places
    at = places["row"].to_numpy(int)
    # What is left of a GPU beside its instances has no counters: nothing is said of it.
    alone = frame.gpu_keys.among(frame.parents)[at] | (parts[at] >= 1.0)
    owned = places["workload_id"].notna() | places["shared"].astype(bool) | places["drained"].astype(bool)
    nobody = ~owned.to_numpy(bool) & (places["seconds"].to_numpy(float) > 0) & alone
    at, seconds = at[nobody], places["seconds"].to_numpy(float)[nobody]
    gpu = frame.gpu[["node", "gpu_uuid", "ts", "interval_seconds", "observed_seconds"]].iloc[at].reset_index(drop=True)
    # What a row tells that somebody held for a part of it may be theirs.
    whole = seconds >= 0.98 * gpu["observed_seconds"].to_numpy(float)
    columns = {name: rows[name].to_numpy()[at] for name in _MEASURES} | {
        "weight": seconds * parts[at], "part": parts[at], "unnamed": np.where(whole, seconds, 0.0),
        "ts": gpu["ts"].to_numpy(float),
    }  # fmt: skip
    inferred = _inferred_busy_hours(frame, attribution, rows)
    out = []
    for (node, uuid), places_of in gpu.groupby(["node", "gpu_uuid"], sort=True).indices.items():
        key = str(node), str(uuid)
        own = ColumnRows(columns, places_of)
        w, unnamed, idle = own["weight"], own["unnamed"], own.flags("idle")
        if w.sum() <= 0:
            continue
        above, sku, highest = frame.parents.get(key), index.sku(*key), own["g_max"]
        out.append(BareGpu(
            node=key[0], gpu_uuid=key[1], gpu_sku=sku.name if sku else None, last_ts=float(own["ts"].max()),
            hours=float(w.sum() / 3600), idle_hours=float(w[idle].sum() / 3600),
            engine_mean=_average(own["g"], w),
            engine_max=float(np.nanmax(highest)) if not np.isnan(highest).all() else None,
            dram_mean=_average(own["m"], w), power_mean_watts=_average(own["power"], w),
            idle_power_watts=_average(own["idle_power"], w),
            busy_hours=float(unnamed[~idle].sum()) / 3600 + inferred.get(key, 0.0),
            held_hours=float(unnamed[own["mem"] >= HELD_MEM_RATIO].sum()) / 3600,
            telemetry_fault=_fault_words(key, float(np.average(own["fault"], weights=w)), doubts),
            part=float(np.average(own["part"], weights=w)) if above is not None else 1.0,
            parent_uuid=above[1] if above is not None else None, profile=index.profiles.get(key),
        ))  # fmt: skip
    return tuple(out)


def _inferred_busy_hours(frame: Frame, attribution: Attribution, rows: pd.DataFrame) -> dict[Key, float]:
    """(node, GPU) -> hours in which it worked for a workload that was inferred from its activity, and so for somebody
    whom nothing names: what is left of such a GPU is at rest by construction, and may be held all the same."""
    ids = {one.workload_id for one in attribution.sessions if one.basis == INFERRED}
    held = attribution.places[attribution.places["workload_id"].isin(ids)]
    at, keys = held["row"].to_numpy(int), frame.gpu_keys
    seconds = np.where(rows["idle"].to_numpy(bool)[at], 0.0, held["seconds"].to_numpy(float))
    return dict(zip(keys.keys, np.bincount(keys.number[at], seconds, len(keys.keys)) / 3600, strict=True))


def _fault_words(key: Key, share: float, doubts: Sequence[Doubt]) -> str | None:
    """Why a GPU's signals contradict one another, if they do in more than a blip of its time (`share`)."""
    if share < FAULT_SHARE_MIN:
        return None
    named = [doubt.text for doubt in doubts if doubt.code in CONTRADICTIONS and (doubt.node, doubt.gpu_uuid) == key]
    return " ".join((*named, f"One of the two signals is wrong, in {100 * share:.0f} % of the GPU's free time."))


def _average(values: Floats, weights: Floats) -> float | None:
    ok = ~np.isnan(values)
    return float(np.average(values[ok], weights=weights[ok])) if weights[ok].sum() > 0 else None
