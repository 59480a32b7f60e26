"""Facts of nodes: what they are, how long they were observed, their links, whose GPUs and instances are, and what the
GPUs draw at rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.column_rows import ColumnRows
from ...core.frame import Frame, Key
from ...core.histogram_array import BinsArray, bins_quantile
from ...core.scalars import records, text
from ...core.verdict_types import INFERRED
from ..doubts import Doubt
from ..features.soundness import CONTRADICTIONS
from ..types import BareGpu, MigInstance, NodeFacts, RestLevel
from ..workloads.attribution import Attribution
from ..workloads.inventory import Inventory
from ..workloads.sku_lookup import GpuIndex, whole_gpus
from .fabric import fabric_facts

# A link that was read for less of its time is not known: what it carried in the rest may be all that it carries.
KNOWN_MIN = 0.95
# An instance that has no row in the last hours of the window is gone: its GPU was divided anew.
PRESENT_SECONDS = 2 * 3600.0
# Share of a GPU's memory that the driver and a display may take without any work on it.
HELD_MEM_RATIO = 0.01
FAULT_SHARE_MIN = 0.05  # of the time: less is a blip (as in rules/waste/telemetry-fault.yaml)
_MEASURES = ("fault", "idle", "g", "g_max", "m", "power", "idle_power", "mem")
Floats = npt.NDArray[np.float64]


def node_facts(
    frame: Frame, inventory: Inventory, index: GpuIndex, attribution: Attribution, rows: pd.DataFrame
) -> tuple[NodeFacts, ...]:
    """One `NodeFacts` a node, by name. `rows`: the measures of the frame's `gpu`, in its order."""
    whole, (codes, names) = whole_gpus(frame), frame.gpu_keys.nodes()
    # An instance's time is its GPU's already.
    at, seconds = (attribution.places[name].to_numpy() for name in ("row", "seconds"))
    own = frame.gpu_keys.among(whole)[at]
    seen = dict(zip(names, np.bincount(codes[at[own]], seconds[own], len(names)) / 3600, strict=True))
    gpus_of: dict[str, list[tuple[str, str]]] = {}
    for key in whole:
        gpus_of.setdefault(key[0], []).append(key)
    fabric, nvlink = fabric_facts(frame), _nvlink_peaks(frame, rows, whole)
    linkless = index.table["nvlink"].isna().to_dict()
    name_of = index.table["name"].astype(str).to_dict()
    versions = frame.gpus.reindex(columns=["node", "driver_version"]).replace("", None).dropna()
    driver_of = {str(node): _only(own) for node, own in versions.groupby("node")["driver_version"]}
    facts = []
    for row in records(frame.nodes.sort_values("node")):
        node = str(row["node"])
        keys = gpus_of.get(node, [])
        skus = [sku for key in keys if (sku := index.skus[key]) is not None]
        name, counted = _only(name_of[key] for key in keys), inventory.nodes[node]
        facts.append(NodeFacts(
            node=node, cluster=text(row["cluster"]) or "", provider=text(row["provider"]), region=text(row["region"]),
            node_sku=text(row["node_sku"]), node_sku_source=text(row["node_sku_source"]),
            gpu_sku=_only(sku.name for sku in skus) if name is not None else None, gpu_count=counted.gpu_count,
            first_seen=float(row["first_seen"]), last_seen=float(row["last_seen"]),
            hours_observed=seen.get(node, 0.0) / max(counted.gpu_count, 1), fabric=fabric.get(node),
            span_hours=counted.span_hours, gpu_name=name, nvlink_util_p995=nvlink.get(node),
            driver_version=driver_of.get(node),
            # The catalog knows each of its GPUs, and of no link beside PCIe.
            without_nvlink=bool(keys) and len(skus) == len(keys)
            and all(sku.link_bytes_per_second is None for sku in skus)
            and all(linkless.get(key, True) for key in keys),
        ))  # fmt: skip
    return _with_pools(facts, frame, inventory)


def _only(values: Iterable[str]) -> str | None:
    """The one value that all are; None: they differ, or there is none."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _with_pools(facts: Sequence[NodeFacts], frame: Frame, inventory: Inventory) -> tuple[NodeFacts, ...]:
    """The nodes with `pool_hours`: of each hour as much as the fullest GPUs of the pool's nodes tell together."""
    pool_of = {f.node: (f.cluster, f.node_sku, f.gpu_name, f.gpu_count) for f in facts}
    replaced = {pool_of[name] for name, node in inventory.nodes.items() if node.end is not None and name in pool_of}
    names = {name: str(pool) for name, pool in pool_of.items() if pool in replaced}
    seen = frame.gpu[frame.gpu["node"].isin(list(names)) & (frame.gpu["observed_seconds"] > 0)]
    hour = np.ceil(seen["ts"] / 3600)
    by_gpu = seen.groupby([seen["node"].map(names), hour, "node", "gpu_uuid"])["observed_seconds"].sum()
    by_hour = by_gpu.groupby(level=[0, 1, 2]).max().groupby(level=[0, 1]).sum().clip(upper=3600.0)
    hours = by_hour.groupby(level=0).sum() / 3600
    return tuple(replace(f, pool_hours=float(hours.get(names.get(f.node), 0.0))) for f in facts)


def _nvlink_peaks(frame: Frame, rows: pd.DataFrame, whole: Iterable[Key]) -> dict[str, float]:
    """The 99.5th percentile of NVLink use of each node's busiest GPU.

    Rows without bins count with their 95th percentile, of which the highest stands: of the seconds above it nothing is
    known but that a mean so low leaves no room for many. None of a node of which one GPU's NVLink was not measured
    throughout: what that one exchanged nobody knows. Nor of one whose counters on a server never moved: on some nodes
    DCGM's stand at 0 although NVLink works (DCGM#149); the agent reads NVML's.
    """
    matrix = cast("BinsArray", frame.gpu["nvlink_bins"].array).matrix
    have = ~np.isnan(matrix[:, 0])
    seconds, p95 = np.nan_to_num(frame.gpu["observed_seconds"].to_numpy(float)), rows["n_p95"].to_numpy(float)
    known = have | np.isfinite(p95)
    moved = np.zeros(len(known), dtype=np.bool_)
    for way in ("tx", "rx"):
        moved |= frame.gpu[f"nvlink_{way}_bytes_per_second_mean"].to_numpy(float) > 0
    peaks, blind, moves = dict[str, float](), set[str](), set[str]()
    for (node, uuid), own in frame.gpu_keys.rows():
        moves |= {node} if moved[own].any() else set()
        if (node, uuid) not in whole or seconds[own].sum() <= 0:
            continue
        if seconds[own][known[own]].sum() < KNOWN_MIN * seconds[own].sum():
            blind.add(node)
            continue
        bare = own[~have[own] & known[own]]
        found = [bins_quantile(np.nansum(matrix[own], axis=0, dtype=float), 0.995), *p95[bare]]
        peaks[node] = max(*(float(peak) for peak in found if peak is not None), peaks.get(node, 0.0))
    if frame.source.get("kind") != "sqlite":
        blind |= set(peaks) - moves
    return {node: peak for node, peak in peaks.items() if node not in blind}


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
    # A GPU works for somebody whom nothing names where it works for a workload that was inferred from its activity:
    # what is left of it is at rest by construction, and may be held all the same.
    unowned = {one.workload_id for one in attribution.sessions if one.basis == INFERRED}
    held = places[places["workload_id"].isin(unowned)]
    of_held, keys = held["row"].to_numpy(int), frame.gpu_keys
    worked = np.where(rows["idle"].to_numpy(bool)[of_held], 0.0, held["seconds"].to_numpy(float))
    inferred = dict(zip(keys.keys, np.bincount(keys.number[of_held], worked, len(keys.keys)) / 3600, strict=True))
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


def _fault_words(key: Key, share: float, doubts: Sequence[Doubt]) -> str | None:
    """Why a GPU's signals contradict one another, if they do in more than a blip of its time (`share`)."""
    if share < FAULT_SHARE_MIN:
        return None
    named = [doubt.text for doubt in doubts if doubt.code in CONTRADICTIONS and (doubt.node, doubt.gpu_uuid) == key]
    return " ".join((*named, f"One of the two signals is wrong, in {100 * share:.0f} % of the GPU's free time."))


def _average(values: Floats, weights: Floats) -> float | None:
    ok = ~np.isnan(values)
    total = weights[ok].sum()
    return float((values[ok] * weights[ok]).sum() / total) if total > 0 else None


def instances(frame: Frame, attribution: Attribution, index: GpuIndex) -> tuple[MigInstance, ...]:
    """The MIG instances at the end of the window and who held them, by node, GPU and id."""
    end = frame.window.end - PRESENT_SECONDS
    seen = frame.gpu[(frame.gpu["observed_seconds"] > 0) & (frame.gpu["ts"] > end)]
    there = set(zip(seen["node"].astype(str), seen["gpu_uuid"].astype(str), strict=True))
    late = [session for session in attribution.sessions if session.last_seen > end]
    found = []
    for key, (_, parent) in sorted(frame.parents.items(), key=lambda one: (one[0][0], one[1][1], one[0][1])):
        if key in there:
            slices, profile = index.slices[key], index.profiles.get(key, "unknown profile")
            compute, memory = (slices.compute, slices.memory) if slices else (None, None)
            held = tuple(session.workload_id for session in late if key in session.gpus)
            found.append(MigInstance(*key, parent, profile, compute, memory, held))
    return tuple(found)


def rest_levels(frame: Frame, index: GpuIndex, rows: pd.DataFrame) -> tuple[RestLevel, ...]:
    """Every whole GPU that was seen at rest, by node and id. `rows`: the measures of the frame's `gpu`, in its order.

    The watts are the GPU's own levels, low quantiles of its rows at rest (`features/rest.py`); the clocks are
    medians of the same rows. GPUs that are cut into instances are left out: their instances share one clock.
    """

    def median(values: Floats) -> float | None:
        known = values[np.isfinite(values)]
        return float(np.median(known)) if len(known) else None

    idle, memory_held = rows["idle"].to_numpy(bool), rows["held"].to_numpy(bool)
    clock, held, free = (rows[name].to_numpy(float) for name in ("clock_ratio", "rest_power", "rest_free_power"))
    whole = whole_gpus(frame).keys() - set(frame.parents.values())
    found = []
    for key, at in sorted(frame.gpu_keys.rows(), key=lambda one: one[0]):
        resting = at[idle[at]]
        if key in whole and len(resting):
            sku, with_memory = index.sku(*key), memory_held[resting]
            levels = held[at], free[at], clock[resting[with_memory]], clock[resting[~with_memory]]
            found.append(RestLevel(*key, sku.name if sku else None, *map(median, levels)))
    return tuple(found)
