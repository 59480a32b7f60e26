"""Every GPU that exists in a window, and what was observed of each: where any series or table names it, its node
declares it, its node's SKU has it, or a pod requested it. What was not observed stays in every count, with a reason. An
instance's rows count for its GPU."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from ...core.advice_types import Unobserved
from ...core.frame import Blind, Frame
from ...core.scalars import most_at_once, peak, records, text
from ...core.segments import Floats

# Measure -> the columns of the frame's `gpu` of which one is enough; those of `WHOLLY` need all.
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
# Both directions of a link; memory without its size does not show whether it is held.
WHOLLY = frozenset({"nvlink", "pcie", "mem_used"})
_WHEN = ["node", "gpu_uuid", "ts", "interval_seconds", "observed_seconds"]
HOUR_SECONDS = 3600.0
# A node that sends nothing for this long while others do has left: rows are up to an hour long.
LEFT_SECONDS = HOUR_SECONDS
# Share of a row from which on it counts as wholly observed.
WHOLE_ROW_MIN = 0.95


@dataclass(frozen=True, slots=True)
class GpuCoverage:
    """What was observed of one physical GPU. `hours`: observed hours of the window; `measured`: measure (`MEASURED`) ->
    hours in which it was measured, on all of its instances where it is sliced. `first_ts`, `last_ts`: begin and end of
    what was observed (Unix seconds), NaN where nothing was. `sliced`: whether any of its instances was seen."""

    node: str
    gpu_uuid: str
    hours: float = 0.0
    first_ts: float = np.nan
    last_ts: float = np.nan
    measured: Mapping[str, float] = field(default_factory=dict)
    sliced: bool = False


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """One node. `gpu_count`: physical GPUs known to exist, by `source` (node SKU, declared, named, requested). `gpus`:
    those that something names; `unobserved`: those of which nothing was observed. `surplus`: GPUs seen at once beyond
    the node's SKU. `unaccounted_pods`: requested its GPUs in the last day (``namespace/pod``) and no metric names them
    as holders. `host_hours`: hours in which its cores were observed. `moved_to`: the node under whose name all its GPUs
    were seen afterwards. `end`: when it was renamed or left, Unix seconds; None: there until the window's end.
    `span_hours`: hours it is accounted for."""

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
        return sum(len(unobserved.gpus) for unobserved in self.unobserved)


@dataclass(frozen=True)
class Inventory:
    """All nodes by name. `end`: the window's end, Unix seconds. `parents`: each MIG instance -> its GPU, by (node, id).
    `span_seconds`: from the fleet's first telemetry to the window's end; `lacking`: how much of its first and last row
    the best observed GPU lacks, seconds (inf: no such row); `seconds_by_hour`: of each hour's fullest GPU."""

    nodes: Mapping[str, NodeInventory] = field(default_factory=dict)
    end: float = 0.0
    parents: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    span_seconds: float = 0.0
    lacking: tuple[float, float] = (np.inf, np.inf)
    seconds_by_hour: Mapping[float, float] = field(default_factory=dict)

    @property
    def hours(self) -> float:
        """Hours in which a GPU can have been observed: the window that was asked for is no proof of data."""
        return max(self.span_seconds - sum(seconds for seconds in self.lacking if seconds < np.inf), 0.0) / HOUR_SECONDS

    @property
    def observed_hours(self) -> float:
        """Hours of the window in which anything of any GPU was observed."""
        return sum(self.seconds_by_hour.values()) / HOUR_SECONDS

    @cached_property
    def gpu_count(self) -> int:
        """The most GPUs that existed at once: nodes that replaced one another do not add up."""
        spans = [
            (end - node.span_hours * HOUR_SECONDS, end, node.gpu_count) for node in self.nodes.values()
            if node.moved_to is None for end in (self.end if node.end is None else node.end,)
        ]  # fmt: skip
        moments = {end for _, end, _ in spans}
        at_once = (sum(n for start, end, n in spans if end == at or start + LEFT_SECONDS < at < end) for at in moments)
        return max(at_once, default=0)

    @cached_property
    def unobserved(self) -> tuple[Unobserved, ...]:
        return tuple(unobserved for name in sorted(self.nodes) for unobserved in self.nodes[name].unobserved)

    @cached_property
    def observed_gpu_hours(self) -> float:
        return float(sum(gpu.hours for node in self.nodes.values() for gpu in node.gpus))


def inventory_of(frame: Frame, gpus_of_sku: Callable[[str], int | None], blind: Mapping[str, Blind]) -> Inventory:
    """Count before judging. `gpus_of_sku`: of a node SKU (None: not in the catalog). `blind`: nodes without GPU
    access."""
    covered = _coverage(frame)
    named: dict[str, dict[str, None]] = {}
    for key in zip(frame.gpus["node"].astype(str), frame.gpus["gpu_uuid"].astype(str), strict=True):
        named.setdefault(key[0], {})[frame.parents.get(key, key)[1]] = None
    requested, waiting = _pods(frame)
    hosts: dict[str, float] = {}
    if not frame.host.empty:
        host = frame.host[frame.host["cpu_util_mean"].notna()]
        length = host["interval_seconds"].to_numpy(float)
        spent = host["observed_seconds"].fillna(host["interval_seconds"]).to_numpy(float)
        full = pd.Series(_rounded(spent, length), index=host.index).groupby(host["node"]).sum() / HOUR_SECONDS
        hosts = {str(node): float(hours) for node, hours in full.items()}
    nodes: dict[str, NodeInventory] = {}
    for row in records(frame.nodes):
        name, sku, declared = str(row["node"]), text(row["node_sku"]), row["gpu_count"]
        gpus = [covered.get((name, uuid)) or GpuCoverage(name, uuid) for uuid in named.get(name, {})]
        counts = {
            "node SKU": (gpus_of_sku(sku) if sku is not None else None) or 0,
            "declared": 0 if pd.isna(declared) else int(declared),
            "requested": requested.get(name, 0),
        }
        nodes[name] = replace(
            _node(name, gpus, counts, frame, blind.get(name)),
            unaccounted_pods=waiting.get(name, ()), host_hours=hosts.get(name, 0.0),
        )  # fmt: skip
    nodes = _without_renamed(nodes)
    seen = frame.gpu.loc[frame.gpu["observed_seconds"] > 0, _WHEN]
    nodes = _with_spans(nodes, frame, seen)
    first = frame.nodes["first_seen"].astype(float).min() if frame.telemetry_span is None else frame.telemetry_span[0]
    begin = max(frame.window.start, first) if np.isfinite(first) else frame.window.start
    span = max(frame.window.end - begin, 0.0)
    hour = np.ceil(seen["ts"].to_numpy(float) / HOUR_SECONDS)
    gpu = frame.gpu_keys.number[(frame.gpu["observed_seconds"] > 0).to_numpy()]
    most = seen["observed_seconds"].groupby([hour, gpu]).sum().groupby(level=0).max()
    by_hour = dict(zip(most.index.astype(float), most.clip(upper=HOUR_SECONDS).astype(float), strict=True))
    # Seconds of the first and the last row that the best observed GPU lacks, of what of a row lies after `begin`.
    stop, length = seen["ts"].to_numpy(float), seen["interval_seconds"].to_numpy(float)
    observed = np.minimum(seen["observed_seconds"].to_numpy(float), length)
    missing = np.clip(np.minimum(length, stop - begin) - observed, 0.0, None)
    edges = (stop - length <= begin + 1.0) & (stop > begin + 1.0), stop >= frame.window.end - 1.0
    lacking = (float(missing[edges[0]].min(initial=np.inf)), float(missing[edges[1]].min(initial=np.inf)))
    return Inventory(nodes, frame.window.end, frame.parents, span, lacking, by_hour)


def merged_inventory(groups: Sequence[Inventory]) -> Inventory:
    begin, end = (min(edge) for edge in zip(*(group.lacking for group in groups), strict=True))
    hours = {hour for inventory in groups for hour in inventory.seconds_by_hour}
    by_hour = {hour: max(inventory.seconds_by_hour.get(hour, 0.0) for inventory in groups) for hour in hours}
    return replace(
        groups[0], nodes={name: group.nodes[name] for group in groups for name in group.nodes}, lacking=(begin, end),
        parents={key: parent for group in groups for key, parent in group.parents.items()}, seconds_by_hour=by_hour,
    )  # fmt: skip


def _with_spans(nodes: dict[str, NodeInventory], frame: Frame, seen: pd.DataFrame) -> dict[str, NodeInventory]:
    """The nodes with when they left and the hours they are accounted for: from first to last telemetry. Within its
    first and last row the observed moments count. `seen`: when each GPU was observed."""
    seconds, begin = seen["observed_seconds"], seen["ts"] - seen["interval_seconds"]
    rows = seen.assign(begin=begin, since=seen["ts"] - seconds, until=begin + seconds)
    by_node = rows.groupby("node")["ts"]
    first = rows[rows["ts"] == by_node.transform("min")].groupby("node")[["begin", "since"]].min()
    last = rows[rows["ts"] == by_node.transform("max")].groupby("node")[["ts", "until"]].max()
    edges = first.join(last).to_dict("index")
    lives = [(str(row["node"]), float(row["first_seen"]), float(row["last_seen"])) for row in records(frame.nodes)]
    ends: dict[str, float] = {}
    for name, _, seen_last in lives:
        if np.isfinite(seen_last):
            stop, until = (edges[name]["ts"], edges[name]["until"]) if name in edges else (seen_last, seen_last)
            inside = stop - HOUR_SECONDS <= seen_last <= stop
            ends[name] = min(seen_last, until) if inside else max(seen_last, stop)
    # Where the whole source ends, no node left.
    whole = [frame.telemetry_span[1]] if frame.telemetry_span is not None else []
    newest = min(max([*ends.values(), *whole], default=frame.window.end), frame.window.end)
    out = {}
    for name, first_seen, _ in lives:
        left, renamed = ends.get(name, newest), nodes[name].end
        gone = [at for at in (left if left < newest - LEFT_SECONDS else None, renamed) if at is not None]
        end, start = min([*gone, frame.window.end]), max(frame.window.start, first_seen)
        if name in edges and start > frame.window.start and edges[name]["begin"] <= start:
            start = max(start, edges[name]["since"])
        hours = max(end - start, 0.0) / HOUR_SECONDS
        out[name] = replace(nodes[name], end=end if gone else None, span_hours=hours)
    return out


def _rounded(seconds: Floats, length: Floats) -> Floats:
    return np.where(seconds >= WHOLE_ROW_MIN * length, length, seconds)


def _without_renamed(nodes: dict[str, NodeInventory]) -> dict[str, NodeInventory]:
    """Nodes whose GPUs were all seen on another node from when they were last seen on this one end there."""
    stays: dict[str, list[GpuCoverage]] = {}
    for gpu in sorted((gpu for node in nodes.values() for gpu in node.observed), key=lambda gpu: gpu.first_ts):
        stays.setdefault(gpu.gpu_uuid, []).append(gpu)
    out = dict(nodes)
    for name, node in nodes.items():
        later: list[GpuCoverage] = []
        for gpu in node.observed:
            later += [
                stay for stay in stays[gpu.gpu_uuid]
                if stay.node != name and stay.first_ts >= gpu.last_ts - HOUR_SECONDS and stay.last_ts > gpu.last_ts
            ][:1]  # fmt: skip
        if later and len(later) == len(node.observed):
            first = min(later, key=lambda gpu_coverage: gpu_coverage.first_ts)
            end = max(first.first_ts, *(gpu.last_ts for gpu in node.observed))
            out[name] = replace(node, moved_to=first.node, end=end)
    return out


def _node(
    name: str, gpus: list[GpuCoverage], counts: dict[str, int], frame: Frame, blind: Blind | None
) -> NodeInventory:
    """`counts`: how many GPUs its SKU has, it declares and pods requested; 0: not known."""
    # The most whose observed spans overlap: a GPU that took another's place does not add to the count. Rows are up to
    # an hour long: rows that overlap show what was replaced within one.
    at_once = most_at_once(((gpu.first_ts, gpu.last_ts) for gpu in gpus if gpu.hours > 0), HOUR_SECONDS)
    silent = [gpu.gpu_uuid for gpu in gpus if gpu.hours <= 0]
    of_sku, stated = counts["node SKU"], bool(counts["node SKU"] or counts["declared"])
    # Pods may request one GPU several times over (time slicing), or instances under the name of GPUs: devices that
    # a series names are the truth.
    counts["requested"] = 0 if stated or gpus else counts["requested"]
    # GPUs that were replaced leave their ids behind: without another count, those that were seen at once exist, and
    # those that nothing was seen of.
    counts["named"] = at_once if stated else at_once + len(silent)
    count = max(counts.values())
    source = next(candidate for candidate, value in counts.items() if value == count)
    missing = max(count - at_once, 0)
    silent = silent[:missing]  # what was replaced or renamed is no GPU beyond the count
    unnamed = tuple(f"unnamed-{n + 1}" for n in range(missing - len(silent)))
    unobserved: list[Unobserved] = []
    if silent:
        others = any(gpu.hours > 0 for gpu in gpus)
        unobserved.append(Unobserved(name, tuple(silent), *_why_silent(frame, name, others, blind)))
    if unnamed:
        who = {"node SKU": "The node's SKU has", "declared": "The node declares", "named": "Time series name"}
        has = f"Pods requested {count} GPUs on the node" if source == "requested" else f"{who[source]} {count} GPUs"
        seen = at_once + len(silent)
        said = f"only {seen} appear in any time series" if seen else "no time series names any of them"
        unobserved.append(Unobserved(name, unnamed, f"{has}, and {said}.", "not-named"))
    return NodeInventory(name, count, source, tuple(gpus), tuple(unobserved), max(at_once - of_sku, 0) if of_sku else 0)


def _why_silent(frame: Frame, node: str, others: bool, blind: Blind | None) -> tuple[str, str]:
    if blind is not None and not others:
        return blind.words, blind.reason
    for row in records(frame.absences[frame.absences["node"] == node]):
        # What another source of the node lacks (an inference server, a fabric) says nothing of its GPUs.
        of_gpus = row["scope"] == "gpu" and row["metric"] in {"*", "gpu"}
        detail = text(row["detail"])
        if (of_gpus or row["reason"] == "drained") and detail:
            return f"{detail} {text(row['remedy']) or ''}".strip(), str(row["reason"])
    if others:
        return "A time series names this GPU, but no metric of it was reported in the window.", "no-samples"
    return "No exporter or agent reported metrics of this node's GPUs in the window.", "no-exporter"


def _pods(frame: Frame) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
    """Node -> whole GPUs that pods requested at once, at most; and node -> pods that requested its GPUs (whole or
    instances) in the last day and that no use of a GPU names."""
    requests, about = frame.requests, frame.workloads
    if requests.empty:
        return {}, {}
    whole = requests[requests["resource"].isin(["nvidia_com_gpu", "amd_com_gpu"])]
    requested: dict[str, int] = {}
    for node, rows in whole.groupby("node"):
        requested[str(node)] = round(peak(zip(rows["ts_start"], rows["ts_end"], rows["count"], strict=True)))
    late = requests[requests["ts_end"] >= frame.window.end - 24 * HOUR_SECONDS]
    named = {(str(space), pod) for space, pod in zip(about["namespace"], about["pod"], strict=True)}
    out: dict[str, set[str]] = {}
    for node, space, pod in zip(late["node"], late["namespace"], late["pod"], strict=True):
        if (str(space), str(pod)) not in named:
            out.setdefault(str(node), set()).add(f"{space}/{pod}")
    return requested, {node: tuple(sorted(pods)) for node, pods in out.items()}


def _coverage(frame: Frame) -> dict[tuple[str, str], GpuCoverage]:
    gpu = frame.gpu
    observed, length = gpu["observed_seconds"].to_numpy(float), gpu["interval_seconds"].to_numpy(float)
    seconds = _rounded(np.where(np.isfinite(observed), observed, 0.0), length)
    keys = frame.gpu_keys
    under = [frame.parents.get(key, key) for key in keys.keys]
    whole, names = pd.factorize(np.array([*under, None], dtype=object)[:-1])  # None: or they were a matrix
    table = pd.DataFrame(
        {
            "whole": whole[keys.number], "ts": gpu["ts"], "begin": gpu["ts"] - length,
            "instance": keys.among(frame.parents), "seconds": seconds,
        }
    )  # fmt: skip
    for measure, columns in MEASURED.items():
        has_value = gpu.reindex(columns=columns).notna()
        measured = (has_value.all(axis=1) if measure in WHOLLY else has_value.any(axis=1)).to_numpy()
        table[measure] = np.where(measured, seconds, 0.0)
    if table["instance"].any():
        at = ["whole", "ts", "begin"]
        # Where instances have data of a moment, the parent's row adds nothing.
        by_moment = table.groupby(at, sort=False)
        sliced = by_moment["instance"].transform("any")
        # But power is the whole GPU's: an instance has none.
        table["power"] = by_moment["power"].transform("max")
        of_moment = {"instance": "any", "seconds": "max", **dict.fromkeys(MEASURED, "min")}
        table = table[table["instance"] | ~sliced].groupby(at, sort=False).agg(of_moment).reset_index()
    of_gpu = {"seconds": "sum", "begin": "min", "ts": "max", "instance": "any", **dict.fromkeys(MEASURED, "sum")}
    summed = table[table["seconds"] > 0].groupby("whole", sort=False).agg(of_gpu)
    summed[["seconds", *MEASURED]] /= HOUR_SECONDS
    keys_of: list[tuple[str, str]] = names[summed.index].tolist()
    return {
        key: GpuCoverage(*key, hours, begin, end, dict(zip(MEASURED, measured, strict=True)), sliced)
        for key, (_, hours, begin, end, sliced, *measured) in zip(keys_of, summed.itertuples(name=None), strict=True)
    }
