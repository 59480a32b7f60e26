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
_MEASURES = ("fault", "idle", "g", "g_max", "m", "power", "idle_power", "mem")
Floats = npt.NDArray[np.float64]
FAULT_SHARE_MIN = 0.05  # of the time: less is a blip (as in rules/waste/telemetry-fault.yaml)


def bare_gpus(
    frame: Frame,
    index: GpuIndex,
    attribution: Attribution,
    rows: pd.DataFrame,
    parts: npt.NDArray[np.float64],
    *,
    doubts: Sequence[Doubt] = (),
) -> tuple[BareGpu, ...]:
    """Every GPU and instance with hours that no workload accounts for while its node was in service, by node and index.

    A divided GPU itself is left out for the time of its instances. `parts`: the part of a GPU that each row of the
    frame's `gpu` stands for. `doubts`: what of its telemetry was not believed; those that contradict one another name
    its fault.
    """
    places = attribution.places
    if places.empty:
        return ()
    nobody = places[places["workload_id"].isna() & (places["seconds"] > 0)]
    nobody = nobody[~nobody["shared"].astype(bool) & ~nobody["drained"].astype(bool)]
    if nobody.empty:
        return ()
    parent_of = frame.parents
    keys = zip(*(frame.gpu[name].iloc[nobody["row"]] for name in ("node", "gpu_uuid")), strict=True)
    cut = np.array([key in parent_of for key in keys], dtype=np.bool_)
    # What is left of a GPU beside its instances has no counters: nothing is said of it.
    nobody = nobody[cut | (parts[nobody["row"].to_numpy(int)] >= 1.0)]
    if nobody.empty:
        return ()
    at = nobody["row"].to_numpy(int)
    gpu = frame.gpu[["node", "gpu_uuid", "ts", "interval_seconds", "observed_seconds"]].iloc[at].reset_index(drop=True)
    seconds = nobody["seconds"].to_numpy(float)
    # What a row tells that somebody held for a part of it may be theirs.
    whole = seconds >= 0.98 * gpu["observed_seconds"].to_numpy(float)
    columns = {name: rows[name].to_numpy()[at] for name in _MEASURES} | {
        "weight": seconds * parts[at], "part": parts[at], "unnamed": np.where(whole, seconds, 0.0),
        "ts": gpu["ts"].to_numpy(float), "begin": (gpu["ts"] - gpu["interval_seconds"]).to_numpy(float),
    }  # fmt: skip
    contradicted = _contradictions(doubts)
    inferred = _inferred_busy_hours(frame, attribution, rows)
    out = []
    for (node, uuid), places_of in gpu.groupby(["node", "gpu_uuid"], sort=True).indices.items():
        own = ColumnRows(columns, places_of)
        w = own["weight"]
        if w.sum() <= 0:
            continue
        above = parent_of.get((str(node), str(uuid)))
        sku = index.sku(str(node), str(uuid))
        fault = float(np.average(own["fault"], weights=w))
        out.append(
            BareGpu(
                node=str(node),
                gpu_uuid=str(uuid),
                gpu_sku=sku.name if sku else None,
                hours=float(w.sum() / 3600),
                idle_hours=float(w[own.flags("idle")].sum() / 3600),
                engine_mean=_average(own["g"], w),
                engine_max=_highest(own["g_max"]),
                dram_mean=_average(own["m"], w),
                power_mean_watts=_average(own["power"], w),
                idle_power_watts=_average(own["idle_power"], w),
                busy_hours=_hours_of(own["unnamed"], ~own.flags("idle")) + inferred.get((str(node), str(uuid)), 0.0),
                held_hours=_hours_of(own["unnamed"], own["mem"] >= HELD_MEM_RATIO),
                first_ts=float(own["begin"].min()),
                last_ts=float(own["ts"].max()),
                telemetry_fault=_fault_words(fault, contradicted.get((str(node), str(uuid)), ())),
                part=float(np.average(own["part"], weights=w)) if above is not None else 1.0,
                parent_uuid=above[1] if above is not None else None,
                profile=index.profiles.get((str(node), str(uuid))),
            )
        )
    return tuple(out)


def _inferred_busy_hours(frame: Frame, attribution: Attribution, rows: pd.DataFrame) -> dict[tuple[str, str], float]:
    """(node, GPU) -> hours in which it worked for a workload that was inferred from its activity, and so for somebody
    whom nothing names: what is left of such a GPU is at rest by construction, and may be held all the same."""
    ids = {one.workload_id for one in attribution.sessions if one.basis == INFERRED}
    if not ids:
        return {}
    held = attribution.places[attribution.places["workload_id"].isin(ids)]
    at = held["row"].to_numpy(int)
    busy = ~rows["idle"].to_numpy(bool)[at]
    node, uuid = (frame.gpu[name].to_numpy()[at] for name in ("node", "gpu_uuid"))
    seconds = pd.Series(np.where(busy, held["seconds"].to_numpy(float), 0.0))
    totals = seconds.groupby([node, uuid]).sum() / 3600
    return {(str(node), str(uuid)): float(hours) for (node, uuid), hours in totals.items()}  # type: ignore[misc]


def _hours_of(seconds: Floats, chosen: npt.NDArray[np.bool_]) -> float:
    return float(seconds[chosen].sum()) / 3600


def _contradictions(doubts: Sequence[Doubt]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for doubt in doubts:
        if doubt.code in CONTRADICTIONS:
            found.setdefault((doubt.node, doubt.gpu_uuid), []).append(doubt.text)
    return found


def _fault_words(share: float, named: Sequence[str]) -> str | None:
    """Why a GPU's signals contradict one another, if they do in more than a blip of its time."""
    if share < FAULT_SHARE_MIN:
        return None
    return " ".join((*named, f"One of the two signals is wrong, in {100 * share:.0f} % of the GPU's free time."))


def _average(values: Floats, weights: Floats) -> float | None:
    ok = ~np.isnan(values)
    return float(np.average(values[ok], weights=weights[ok])) if weights[ok].sum() > 0 else None


def _highest(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None
