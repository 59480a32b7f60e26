"""Facts of nodes: what their fabric carried, and which of their GPUs nobody used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.coded_text import CodedText, coded
from ...core.frame import Frame
from ...core.histogram_array import BinsArray, bins_quantile
from ...core.records import records, text
from ..features.port_traffic import FAILED
from ..types import FabricFacts, NodeFacts
from ..workloads.attribution import Attribution
from ..workloads.inventory import Inventory
from ..workloads.mig import whole_gpus
from ..workloads.sku_lookup import GpuIndex
from .port_totals import NodePorts, PortTotals, port_totals

# A port that was ACTIVE in less than this share of its observed time was down: its silence proves nothing.
ACTIVE_SHARE_MIN = 0.99
# A link that was read for less of its time is not known: what it carried in the rest may be all that it carries.
KNOWN_MIN = 0.95

Floats = npt.NDArray[np.float64]


def node_facts(
    frame: Frame, inventory: Inventory, index: GpuIndex, attribution: Attribution, rows: pd.DataFrame
) -> tuple[NodeFacts, ...]:
    """One `NodeFacts` a node, by name. `rows`: the measures of the frame's `gpu`, in its order."""
    seen = _observed_hours(frame, attribution)
    whole = set(whole_gpus(frame).itertuples(index=False, name=None))
    gpus_of: dict[str, list[tuple[str, str]]] = {}
    for key in index.skus:
        if key in whole:
            gpus_of.setdefault(key[0], []).append(key)
    fabric = port_totals(frame.fabric)
    history, nvlink = _by_node(frame.fabric_history), _nvlink_peaks(frame, rows, whole)
    drivers, absences = _drivers(frame), _fabric_absences(frame)
    untold = index.table["nvlink"].isna().to_dict() if len(index.table) else {}
    name_of = dict(zip(index.table.index, index.table["name"].astype(str), strict=True))
    facts = []
    for row in records(frame.nodes.sort_values("node")):
        node = str(row["node"])
        keys = gpus_of.get(node, [])
        skus = {sku.name for key in keys if (sku := index.skus[key]) is not None}
        names = {name_of[key] for key in keys}
        counted = inventory.nodes[node]
        facts.append(
            NodeFacts(
                node=node,
                cluster=text(row["cluster"]) or "",
                provider=text(row["provider"]),
                region=text(row["region"]),
                node_sku=text(row["node_sku"]),
                node_sku_source=text(row["node_sku_source"]),
                gpu_sku=next(iter(skus)) if len(skus) == 1 and len(names) == 1 else None,
                gpu_count=counted.gpu_count,
                first_seen=float(row["first_seen"]),
                last_seen=float(row["last_seen"]),
                hours_observed=seen.get(node, 0.0) / max(counted.gpu_count, 1),
                fabric=_fabric(frame, absences.get(node), fabric.get(node), history.get(node)),
                span_hours=counted.span_hours,
                gpu_name=next(iter(names)) if len(names) == 1 else None,
                nvlink_util_p995=nvlink.get(node),
                driver_version=drivers.get(node),
                without_nvlink=bool(keys) and all(_no_link(index, key) and untold.get(key, True) for key in keys),
            )
        )
    return _with_pools(facts, frame, inventory)


def _with_pools(facts: Sequence[NodeFacts], frame: Frame, inventory: Inventory) -> tuple[NodeFacts, ...]:
    """The nodes with `pool_hours`: of each hour as much as the fullest GPUs of the pool's nodes tell together."""
    pool_of = {f.node: (f.cluster, f.node_sku, f.gpu_name, f.gpu_count) for f in facts}
    gone = {name for name, node in inventory.nodes.items() if node.end is not None}
    replaced = {pool_of[name] for name in gone if name in pool_of}
    names = {name: str(pool) for name, pool in pool_of.items() if pool in replaced}
    seen = frame.gpu[frame.gpu["node"].isin(list(names)) & (frame.gpu["observed_seconds"] > 0)]
    if seen.empty:
        return tuple(facts)
    hour = np.ceil(seen["ts"] / 3600)
    by_gpu = seen.groupby([seen["node"].map(names), hour, "node", "gpu_uuid"])["observed_seconds"].sum()
    by_hour = by_gpu.groupby(level=[0, 1, 2]).max().groupby(level=[0, 1]).sum().clip(upper=3600.0)
    hours = by_hour.groupby(level=0).sum() / 3600
    return tuple(replace(f, pool_hours=float(hours.get(names.get(f.node), 0.0))) for f in facts)


def _drivers(frame: Frame) -> dict[str, str]:
    """Node -> the driver's version, where its GPUs tell one and the same."""
    if "driver_version" not in frame.gpus:
        return {}
    told: dict[str, set[str]] = {}
    for node, version in zip(frame.gpus["node"], frame.gpus["driver_version"], strict=True):
        if isinstance(version, str) and version:
            told.setdefault(str(node), set()).add(version)
    return {node: next(iter(versions)) for node, versions in told.items() if len(versions) == 1}


def _observed_hours(frame: Frame, attribution: Attribution) -> dict[str, float]:
    places = attribution.places
    if places.empty:
        return {}
    at = places["row"].to_numpy(np.intp)
    # An instance's time is its GPU's already.
    own = frame.gpu_keys.among(whole_gpus(frame).itertuples(index=False, name=None))[at]
    codes, names = frame.gpu_keys.nodes()
    hours = np.bincount(codes[at[own]], weights=places["seconds"].to_numpy(float)[own], minlength=len(names)) / 3600
    return {str(name): float(told) for name, told in zip(names, hours, strict=True)}


def _by_node(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {str(node): rows for node, rows in table.groupby("node", sort=False)} if not table.empty else {}


def _fabric(
    frame: Frame, absent: CodedText | None, ports: NodePorts | None, history: pd.DataFrame | None
) -> FabricFacts | None:
    """`absent`, `ports`, `history`: those of the node."""
    if absent is not None and (ports is None or not ports.compute):
        return FabricFacts((), False, absent.text, None, None, 0.0, None, None, code=absent.code)
    if ports is None:
        return None
    own, others = ports.compute, ports.others
    if not own:
        which, one = ("its only port", "it") if len(others) == 1 else (f"any of its {len(others)} ports", "one")
        reason = f"Unknown whether {which} belongs to a compute fabric. Set fabric_roles if {one} does."
        layer = "Ethernet" if ports.ethernet else None
        return FabricFacts(
            (), False, reason, None, None, 0.0, None, None, link_layer=layer, code="no-compute-port"
        )  # fmt: skip
    last, known = _history(own, frame.fabric_history.empty, history)
    down = [port for port in own if port.active_share < ACTIVE_SHARE_MIN]
    unread = [port for port in own if port.seconds <= 0]
    unrated = [port for port in own if np.isnan(port.line_rate)]
    reason = None
    if down:
        reason = coded(
            "port-down", "Port {port} was ACTIVE only {share:.0%} of the time. A port that is down does not count as "
                    "an idle fabric.",
            port=down[0].name, share=down[0].active_share,
        )  # fmt: skip
    elif unread:
        reason = absent or coded("port-counters-unread", "No counters available for port {port}.", port=unread[0].name)
    elif unrated:
        reason = coded("line-rate-unknown", "Unknown line rate of port {port}.", port=unrated[0].name)
    peaks = [port.util_p995 for port in own]
    peak = None if any(p is None for p in peaks) else max(p for p in peaks if p is not None)
    return FabricFacts(
        ports_compute=tuple(port.name for port in own),
        readable=reason is None,
        reason=reason.text if reason is not None else None,
        code=reason.code if reason is not None else None,
        util_p995=peak if reason is None else None,
        util_max=_highest(port.util_max for port in own),
        hours=min(port.seconds for port in own) / 3600,
        last_active_ts=last,
        line_rate_bytes_per_second=None if unrated else sum(port.line_rate for port in own),
        link_layer=text(own[-1].link_layer),
        hours_known=known,
        still_share=max((port.still_seconds / port.seconds for port in own if port.seconds > 0), default=0.0),
    )


def _highest(values: Iterable[float]) -> float | None:
    return max((value for value in values if not np.isnan(value)), default=None)


def _no_link(index: GpuIndex, key: tuple[str, str]) -> bool:
    """Whether the catalog knows the GPU, and of no link beside PCIe."""
    sku = index.skus[key]
    return sku is not None and sku.link_bytes_per_second is None


def _nvlink_peaks(frame: Frame, rows: pd.DataFrame, whole: set[tuple[str, str]]) -> dict[str, float]:
    """The 99.5th percentile of NVLink use of each node's busiest GPU.

    Rows without bins count with their 95th percentile, of which the highest stands: of the seconds above it nothing is
    known but that a mean so low leaves no room for many. None of a node of which one GPU's NVLink was not measured
    throughout: what that one exchanged nobody knows. Nor of one whose counters on a server never moved: on some nodes
    DCGM's stand at 0 although NVLink works (DCGM#149); the agent reads NVML's.
    """
    if frame.gpu.empty:
        return {}
    matrix = cast("BinsArray", frame.gpu["nvlink_bins"].array).matrix
    have = ~np.isnan(matrix[:, 0])
    seconds, p95 = frame.gpu["observed_seconds"].to_numpy(float), rows["n_p95"].to_numpy(float)
    known = have | np.isfinite(p95)
    peaks: dict[str, float] = {}
    blind: set[str] = set()
    for (node, uuid), own in frame.gpu_keys.rows():
        if (str(node), str(uuid)) not in whole:
            continue
        observed = np.nansum(seconds[own])
        if observed <= 0:
            continue
        if np.nansum(seconds[own][known[own]]) < KNOWN_MIN * observed:
            blind.add(str(node))
            continue
        peak = _p995(np.nansum(matrix[own], axis=0, dtype=float))
        bare = own[~have[own] & known[own]]
        found = [p for p in (peak, float(p95[bare].max()) if len(bare) else None) if p is not None]
        peaks[str(node)] = max(*found, peaks.get(str(node), 0.0))
    codes, names = frame.gpu_keys.nodes()
    ways = (frame.gpu[f"nvlink_{way}_bytes_per_second_mean"].to_numpy(float) > 0 for way in ("tx", "rx"))
    moved = set(names[codes[np.logical_or(*ways)]].astype(str))
    if frame.source.get("kind") != "sqlite":
        blind |= set(peaks) - moved
    return {node: peak for node, peak in peaks.items() if node not in blind}


def _p995(seconds: Floats) -> float | None:
    """The 99.5th percentile of seconds in bins, an upper bound."""
    return bins_quantile(seconds, 0.995)


def _history(own: Sequence[PortTotals], blind: bool, history: pd.DataFrame | None) -> tuple[float | None, float]:
    """When the compute fabric last carried anything, and hours of records of it.

    `own`: its compute ports; `history`: what the road knows beyond the window, unless it is `blind` to it.
    """
    active = _highest(port.last_active_ts for port in own)
    if blind:
        return active, min(port.observed_seconds for port in own) / 3600
    known = history[history["role"] == "compute"] if history is not None else None
    if known is None or known.empty:
        return None, 0.0
    last = _highest((float(known["last_active_ts"].max()), math.nan if active is None else active))
    return last, float(known["hours"].min())


def _fabric_absences(frame: Frame) -> dict[str, CodedText]:
    """Why the fabric of a node cannot be read, in the words the agent left and with its code; the first that tells."""
    found: dict[str, CodedText] = {}
    absences = frame.absences
    unread = (absences["scope"] == "fabric") | (absences["reason"] == FAILED) & (absences["device"] == "infiniband")
    for row in records(absences[unread]):
        if row["reason"] != "no-fabric":
            reason = str(row["reason"])
            told = CodedText(reason, text(row["detail"]) or f"Fabric counters not available ({reason}).")
            found.setdefault(str(row["node"]), told)
    return found
