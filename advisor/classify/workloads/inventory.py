"""Every GPU that exists in a window, and what was observed of each: made before anything is judged.

A GPU exists where any series or table names it, where its node declares it, where its node's SKU has it, or where a pod
requested it. What exists and was not observed stays in every count, with a reason. An instance's rows count for the GPU
that it is a part of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.advice_types import Unobserved
from ...core.frame import Frame
from ...core.intervals import most_at_once, peak
from ...core.records import records, text
from ...core.unobservable import Blind
from .node_spans import LEFT_SECONDS, node_spans

Floats = npt.NDArray[np.float64]
# Measure -> the columns of the frame's `gpu` of which one is enough to tell it; those of `WHOLLY` need all.
MEASURED: Mapping[str, tuple[str, ...]] = {
    "activity": ("gpu_util_mean", "sm_active_mean"),
    # Not SM activity: it is less than the time in which the engine runs.
    "engine_active": ("gpu_util_mean",),
    "sm_active": ("sm_active_mean",),
    "tensor_active": ("tensor_active_mean",),
    "dram_active": ("dram_active_mean",),
    "mem_used": ("mem_used_bytes_mean", "mem_total_bytes"),
    "power": ("power_watts_mean",),
    "clocks": ("sm_clock_hertz_mean",),
    "nvlink": ("nvlink_tx_bytes_per_second_mean", "nvlink_rx_bytes_per_second_mean"),
    "pcie": ("pcie_tx_bytes_per_second_mean", "pcie_rx_bytes_per_second_mean"),
}
# Both directions of a link; and of memory without its size nobody knows whether it is held.
WHOLLY = frozenset({"nvlink", "pcie", "mem_used"})
_WHEN = ["node", "gpu_uuid", "ts", "interval_seconds", "observed_seconds"]
HOUR_SECONDS = 3600.0
_DAY_SECONDS = 86400.0
# Share of a row from which on it counts as wholly observed.
WHOLE_ROW_MIN = 0.95


@dataclass(frozen=True, slots=True)
class GpuCoverage:
    """What was observed of one physical GPU. `hours`: observed hours of the window; `known`: measure (`MEASURED`) ->
    hours in which it was measured, on all of its instances where it is sliced. `first_ts`, `last_ts`: begin and end of
    what was observed (Unix seconds), NaN where nothing was. `sliced`: whether any of its instances was seen."""

    node: str
    gpu_uuid: str
    hours: float
    first_ts: float
    last_ts: float
    known: Mapping[str, float]
    sliced: bool = False


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """One node. `gpu_count`: physical GPUs known to exist, by `source` (node SKU, declared, named, requested).

    `gpus`: those that something names, observed or not. `unobserved`: those of which nothing was observed in the
    window. `surplus`: how many more GPUs were seen at once than the node's SKU has. `unaccounted_pods`: those that
    requested GPUs of it in the last day of the window (``namespace/pod``) and that no metric names as holders.
    `host_hours`: hours in which the use of its host's cores was observed.
    `moved_to`: the node under whose name all of its GPUs were seen afterwards (it was renamed): from `end` on they
    count there. `end`: when it was renamed or left, Unix seconds; None: it is there until the window's end.
    `span_hours`: hours it is accounted for, from when it was first seen until then: hours in which a node did not exist
    are no money spent.
    """

    node: str
    gpu_count: int
    source: str
    gpus: tuple[GpuCoverage, ...]
    unobserved: tuple[Unobserved, ...]
    surplus: int = 0
    unaccounted_pods: tuple[str, ...] = ()
    host_hours: float = 0.0
    moved_to: str | None = None
    end: float | None = None
    span_hours: float = 0.0

    @property
    def observed(self) -> tuple[GpuCoverage, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.hours > 0)

    @property
    def unobserved_count(self) -> int:
        return sum(len(one.gpus) for one in self.unobserved)


@dataclass(frozen=True, slots=True)
class Edges:
    """The window from the first telemetry to its end. `seconds`: its length; `begin`, `end`: how much of its first and
    last row was not observed by the GPU that observed most of it, seconds; None: no GPU has such a row."""

    seconds: float
    begin: float | None
    end: float | None

    @property
    def hours(self) -> float:
        return max(self.seconds - (self.begin or 0.0) - (self.end or 0.0), 0.0) / HOUR_SECONDS


@dataclass(frozen=True)
class Inventory:
    """All nodes by name. `hours`: from the fleet's first telemetry in the window to the window's end: the window that
    was asked for is no proof of data. `end`: the window's end, Unix seconds. `observed_hours`: hours of the window in
    which anything of any GPU was observed. `parents`: each MIG instance and the GPU it is a part of, by (node, id).
    `edges`, `seconds_by_hour`: what `hours` and `observed_hours` are made of, so that those of groups can be merged.
    """

    nodes: Mapping[str, NodeInventory] = field(default_factory=dict)
    hours: float = 0.0
    end: float = 0.0
    observed_hours: float = 0.0
    parents: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    edges: Edges = field(default_factory=lambda: Edges(0.0, None, None))
    seconds_by_hour: Mapping[float, float] = field(default_factory=dict)

    @cached_property
    def gpu_count(self) -> int:
        """The most GPUs that existed at once: nodes that replaced one another do not add up."""
        spans = [
            (end - node.span_hours * HOUR_SECONDS, end, node.gpu_count) for node in self.nodes.values()
            if node.moved_to is None for end in (self.end if node.end is None else node.end,)
        ]  # fmt: skip
        moments = {end for _, end, _ in spans}
        return max(
            (sum(n for start, end, n in spans if end == at or start + LEFT_SECONDS < at < end) for at in moments),
            default=0,
        )

    @cached_property
    def unobserved(self) -> tuple[Unobserved, ...]:
        return tuple(one for name in sorted(self.nodes) for one in self.nodes[name].unobserved)

    @cached_property
    def observed_gpu_hours(self) -> float:
        return float(sum(gpu.hours for node in self.nodes.values() for gpu in node.gpus))


def inventory_of(frame: Frame, gpus_of_sku: Callable[[str], int | None], blind: Mapping[str, Blind]) -> Inventory:
    """Count before judging. `gpus_of_sku`: GPUs of a node SKU; None where the catalog lacks it. `blind`: nodes whose
    agent reads no GPU, and why."""
    seen = _coverage(frame)
    named: dict[str, dict[str, None]] = {}
    parent_of = frame.parents
    for node, uuid in zip(frame.gpus["node"], frame.gpus["gpu_uuid"], strict=True):
        key = (str(node), str(uuid))
        named.setdefault(key[0], {})[parent_of.get(key, key)[1]] = None
    requested, waiting, hosts = _requested(frame), _unaccounted(frame), _host_hours(frame)
    nodes: dict[str, NodeInventory] = {}
    for row in records(frame.nodes):
        name = str(row["node"])
        own = [
            seen.get((name, uuid)) or GpuCoverage(name, uuid, 0.0, np.nan, np.nan, {}) for uuid in named.get(name, {})
        ]
        sku = text(row["node_sku"])
        of_sku = gpus_of_sku(sku) if sku is not None else None
        declared = row["gpu_count"]
        nodes[name] = _node(
            name, own, of_sku, int(declared) if declared == declared and declared is not None else None,  # noqa: PLR0124
            requested.get(name, 0), frame, blind.get(name),
        )  # fmt: skip
        nodes[name] = replace(
            nodes[name], unaccounted_pods=waiting.get(name, ()), host_hours=hosts.get(name, 0.0)
        )  # fmt: skip
    nodes = _without_renamed(nodes)
    spans = node_spans(frame, _seen(frame), {name: one.end for name, one in nodes.items() if one.end is not None})
    nodes = {
        name: replace(node, end=spans[name][0], span_hours=spans[name][1]) for name, node in nodes.items()
    }  # fmt: skip
    edges, by_hour = _window_edges(frame), _seconds_by_hour(frame)
    return Inventory(nodes, edges.hours, frame.window.end, _hours_in(by_hour), parent_of, edges, by_hour)


def merged_inventory(groups: Sequence[Inventory]) -> Inventory:
    """The inventory of a fleet from those of groups of its nodes."""
    edges = Edges(
        groups[0].edges.seconds,
        min((one.edges.begin for one in groups if one.edges.begin is not None), default=None),
        min((one.edges.end for one in groups if one.edges.end is not None), default=None),
    )
    by_hour: dict[float, float] = {}
    for one in groups:
        for hour, seconds in one.seconds_by_hour.items():
            by_hour[hour] = max(seconds, by_hour.get(hour, 0.0))
    return Inventory(
        {name: one.nodes[name] for one in groups for name in one.nodes}, edges.hours, groups[0].end,
        _hours_in(by_hour), {key: parent for one in groups for key, parent in one.parents.items()}, edges, by_hour,
    )  # fmt: skip


def _window_edges(frame: Frame) -> Edges:
    """Hours that a GPU can have been observed in: from the first that any node was seen to the window's end.

    The first and the last row may begin and end within an hour; of them as much counts as the fullest GPU tells.
    """
    firsts = frame.nodes["first_seen"].to_numpy(dtype=float) if len(frame.nodes) else np.empty(0)
    known = firsts[np.isfinite(firsts)] if frame.telemetry_span is None else np.array(frame.telemetry_span[:1])
    begin = max(frame.window.start, float(known.min())) if len(known) else frame.window.start
    seen = _seen(frame)
    stop, length = seen["ts"].to_numpy(dtype=float), seen["interval_seconds"].to_numpy(dtype=float)
    observed = np.minimum(seen["observed_seconds"].to_numpy(dtype=float), length)

    def lacking(inside: npt.NDArray[np.bool_]) -> float | None:
        # What of the row lies after `begin` is all that can be missing in it.
        room = np.minimum(length[inside], stop[inside] - begin)
        return float(np.clip(room - observed[inside], 0.0, None).min()) if inside.any() else None

    first = (stop - length <= begin + 1.0) & (stop > begin + 1.0)
    return Edges(max(frame.window.end - begin, 0.0), lacking(first), lacking(stop >= frame.window.end - 1.0))


def _seen(frame: Frame) -> pd.DataFrame:
    """When each GPU was observed. Of the frame's many columns these alone are copied."""
    return frame.gpu.loc[frame.gpu["observed_seconds"] > 0, _WHEN]


def _rounded(seconds: Floats, length: Floats) -> Floats:
    """Observed seconds of rows. Scrapes and ticks are not exact to the second: a sample or two that came late leave a
    row whole."""
    return np.where(seconds >= WHOLE_ROW_MIN * length, length, seconds)


def _without_renamed(nodes: dict[str, NodeInventory]) -> dict[str, NodeInventory]:
    """Nodes whose GPUs were all seen on another node from when they were last seen on this one end there."""
    stays: dict[str, list[GpuCoverage]] = {}
    for node in nodes.values():
        for gpu in node.observed:
            stays.setdefault(gpu.gpu_uuid, []).append(gpu)
    out = {}
    for name, node in nodes.items():
        own, later = node.observed, []
        for gpu in own:
            after = [
                one for one in stays[gpu.gpu_uuid]
                if one.node != name and one.first_ts >= gpu.last_ts - HOUR_SECONDS and one.last_ts > gpu.last_ts
            ]  # fmt: skip
            later += [min(after, key=lambda one: one.first_ts)] if after else []
        if own and len(later) == len(own):
            first = min(later, key=lambda one: one.first_ts)
            end = max(first.first_ts, *(gpu.last_ts for gpu in own))
            out[name] = replace(node, moved_to=first.node, end=end)
        else:
            out[name] = node
    return out


def _seconds_by_hour(frame: Frame) -> dict[float, float]:
    """Of each hour as much as its fullest GPU observed, seconds."""
    seen = _seen(frame)
    if seen.empty:
        return {}
    hour = np.ceil(seen["ts"].to_numpy(dtype=float) / HOUR_SECONDS)
    most = seen.groupby([hour, "node", "gpu_uuid"])["observed_seconds"].sum().groupby(level=0).max()
    return {float(at): float(seconds) for at, seconds in most.clip(upper=HOUR_SECONDS).items()}  # type: ignore[arg-type]


def _hours_in(by_hour: Mapping[float, float]) -> float:
    return sum(by_hour.values()) / HOUR_SECONDS


def _node(  # noqa: PLR0917
    name: str,
    own: list[GpuCoverage],
    of_sku: int | None,
    declared: int | None,
    requested: int,
    frame: Frame,
    blind: Blind | None,
) -> NodeInventory:
    at_once = _at_once(own)
    # Pods may request one GPU several times over (time slicing), or instances under the name of GPUs: devices that
    # a series names are the truth.
    known = bool(of_sku or declared or own)
    counts = {"node SKU": of_sku or 0, "declared": declared or 0, "requested": 0 if known else requested}
    # GPUs that were replaced leave their ids behind: without another count, those that were seen at once exist, and
    # those that nothing was seen of.
    counts["named"] = at_once + sum(gpu.hours <= 0 for gpu in own)
    if of_sku or declared:
        counts["named"] = at_once
    count = max(counts.values())
    source = next(one for one, value in counts.items() if value == count)
    silent = [gpu.gpu_uuid for gpu in own if gpu.hours <= 0]
    missing = max(count - at_once, 0)
    # What was replaced or renamed is no GPU beyond the count.
    silent = silent[:missing]
    unnamed = [f"unnamed-{n + 1}" for n in range(missing - len(silent))]
    told: list[Unobserved] = []
    if silent:
        told.append(Unobserved(name, tuple(silent), *_why_silent(frame, name, any(g.hours > 0 for g in own), blind)))
    if unnamed:
        told.append(Unobserved(name, tuple(unnamed), *_why_unnamed(source, count, at_once + len(silent))))
    return NodeInventory(name, count, source, tuple(own), tuple(told), max(at_once - of_sku, 0) if of_sku else 0)


def _at_once(own: Iterable[GpuCoverage]) -> int:
    """The most GPUs whose observed spans overlap: a GPU that took another's place does not add to the count."""
    # Rows are up to an hour long: what was replaced within one is told by rows that overlap.
    return most_at_once(((gpu.first_ts, gpu.last_ts) for gpu in own if gpu.hours > 0), HOUR_SECONDS)


def _why_silent(frame: Frame, node: str, others: bool, blind: Blind | None) -> tuple[str, str]:
    """Reason in words, and its code, for GPUs that are named and of which nothing was observed."""
    if blind is not None and not others:
        return blind.words, blind.reason
    absences = frame.absences
    if not absences.empty:
        # What another source of the node lacks (an inference server, a fabric) says nothing of its GPUs.
        own = absences[
            (absences["node"] == node)
            & ((absences["scope"] == "gpu") & absences["metric"].isin(["*", "gpu"]) | (absences["reason"] == "drained"))
        ]
        for row in records(own):
            detail, remedy = text(row["detail"]), text(row["remedy"])
            if detail:
                return f"{detail} {remedy or ''}".strip(), str(row["reason"])
    if others:
        return "A time series names this GPU, but no metric of it was reported in the window.", "no-samples"
    return "No exporter or agent reported metrics of this node's GPUs in the window.", "no-exporter"


def _why_unnamed(source: str, count: int, named: int) -> tuple[str, str]:
    has = {
        "node SKU": f"The node's SKU has {count} GPUs",
        "declared": f"The node declares {count} GPUs",
        "requested": f"Pods requested {count} GPUs on the node",
        "named": f"Time series name {count} GPUs",
    }[source]
    said = "no time series names any of them" if named == 0 else f"only {named} appear in any time series"
    return f"{has}, and {said}.", "not-named"


def _requested(frame: Frame) -> dict[str, int]:
    """Node -> whole GPUs that pods requested at once, at most."""
    requests = frame.requests
    if requests.empty:
        return {}
    whole = requests[requests["resource"].isin(["nvidia_com_gpu", "amd_com_gpu"])]
    return {
        str(node): round(peak(zip(rows["ts_start"], rows["ts_end"], rows["count"], strict=True)))
        for node, rows in whole.groupby("node")
    }


def _host_hours(frame: Frame) -> dict[str, float]:
    host = frame.host
    known = host[host["cpu_util_mean"].notna()] if not host.empty else host
    if known.empty:
        return {}
    length, seconds = known["interval_seconds"].to_numpy(dtype=float), known["observed_seconds"].to_numpy(dtype=float)
    full = _rounded(np.where(np.isnan(seconds), length, seconds), length)
    by_node = pd.Series(full, index=known.index).groupby(known["node"]).sum() / HOUR_SECONDS
    return {str(node): float(hours) for node, hours in by_node.items()}


def _unaccounted(frame: Frame) -> dict[str, tuple[str, ...]]:
    """Node -> pods that requested its GPUs (whole or instances) in the last day and that no use of a GPU names."""
    requests = frame.requests
    if requests.empty:
        return {}
    late = requests[requests["ts_end"] >= frame.window.end - _DAY_SECONDS]
    named: set[tuple[str, str]] = set()
    if not frame.workloads.empty:
        about = frame.workloads
        named = {
            (str(space), str(pod)) for space, pod in zip(about["namespace"], about["pod"], strict=True)
            if isinstance(pod, str)
        }  # fmt: skip
    out: dict[str, dict[str, None]] = {}
    for node, space, pod in zip(late["node"], late["namespace"], late["pod"], strict=True):
        if (str(space), str(pod)) not in named:
            out.setdefault(str(node), {})[f"{space}/{pod}"] = None
    return {node: tuple(sorted(pods)) for node, pods in out.items()}


def _coverage(frame: Frame) -> dict[tuple[str, str], GpuCoverage]:
    """What was observed of each physical GPU."""
    gpu = frame.gpu
    if gpu.empty:
        return {}
    parent_of = frame.parents
    observed = gpu["observed_seconds"].to_numpy(dtype=float)
    seconds = _rounded(np.where(np.isfinite(observed), observed, 0.0), gpu["interval_seconds"].to_numpy(dtype=float))
    table = pd.DataFrame(
        {
            "node": gpu["node"], "whole": gpu["gpu_uuid"], "ts": gpu["ts"],
            "interval_seconds": gpu["interval_seconds"], "instance": False, "seconds": seconds,
        }
    )  # fmt: skip
    if parent_of:
        keys = list(zip(gpu["node"].astype(str), gpu["gpu_uuid"].astype(str), strict=True))
        table["whole"] = [parent_of.get(key, key)[1] for key in keys]
        table["instance"] = [key in parent_of for key in keys]
    for measure, columns in MEASURED.items():
        told = gpu.reindex(columns=columns).notna()
        known = (told.all(axis=1) if measure in WHOLLY else told.any(axis=1)).to_numpy()
        table[measure] = np.where(known, seconds, 0.0)
    at = ["node", "whole", "ts", "interval_seconds"]
    if table["instance"].any():
        # Where instances tell of a moment, the parent's own row tells nothing that they do not.
        sliced = table.groupby(at)["instance"].transform("any")
        # But power is the whole GPU's: an instance has none of its own.
        table["power"] = table.groupby(at)["power"].transform("max")
        told = table[table["instance"] | ~sliced]
        rows = told.groupby(at, sort=False).agg(
            instance=("instance", "any"), seconds=("seconds", "max"), **{m: (m, "min") for m in MEASURED}
        ).reset_index()  # fmt: skip
    else:
        rows = table
    rows = rows[rows["seconds"] > 0]
    rows = rows.assign(begin=rows["ts"] - rows["interval_seconds"])
    summed = rows.groupby(["node", "whole"], sort=False).agg(
        seconds=("seconds", "sum"), begin=("begin", "min"), ts=("ts", "max"), instance=("instance", "any"),
        **{m: (m, "sum") for m in MEASURED},
    )  # fmt: skip
    out = {}
    for row in records(summed.reset_index()):
        key = (str(row["node"]), str(row["whole"]))
        out[key] = GpuCoverage(
            *key, float(row["seconds"]) / HOUR_SECONDS, float(row["begin"]), float(row["ts"]),
            {m: float(row[m]) / HOUR_SECONDS for m in MEASURED}, bool(row["instance"]),
        )  # fmt: skip
    return out
