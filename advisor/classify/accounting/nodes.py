"""Facts of nodes: what they are, hours observed, links, fabrics, free GPUs, instances, and power at rest."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....agent.metrics import BIN_EDGES
from ...core.coded_text import CodedText, coded
from ...core.column_rows import BinsArray, ColumnRows, Matrix, bins_quantiles
from ...core.frame import Frame, Key
from ...core.scalars import Record, records, text
from ...core.segments import Floats, Ints
from ...core.verdict_types import INFERRED
from ..features.soundness import CONTRADICTIONS
from ..features.utilization import FAILED
from ..types import BareGpu, Doubt, FabricFacts, MigInstance, NodeFacts, RestingGpu, RestLevel
from ..workloads.attribution import Attribution, drained_spans
from ..workloads.inventory import HOUR_SECONDS, Inventory
from ..workloads.sku_lookup import GpuIndex, whole_gpus

# A port that was ACTIVE in less than this share of its observed time was down: its silence proves nothing.
ACTIVE_SHARE_MIN = 0.99
_EDGES = np.array(BIN_EDGES)
# A port that exceeds this share of its line rate is in use.
_ACTIVE_MIN = 0.01
_READ = [
    "ts", "observed_seconds", "util_mean", "util_max", "util_p95", "active_fraction", "line_rate_bytes_per_second",
    "link_layer",
]  # fmt: skip


def fabric_facts(frame: Frame) -> Mapping[str, FabricFacts]:
    """Of each node that shows a port, or whose absence has the reason why it shows none."""
    absences, ports = dict[str, CodedText](), _ports(frame.fabric)
    absent_ports = (frame.absences["reason"] == FAILED) & (frame.absences["device"] == "infiniband")
    unread = (frame.absences["scope"] == "fabric") | absent_ports
    for row in records(frame.absences[unread & (frame.absences["reason"] != "no-fabric")]):  # the first has the reason
        reason = str(row["reason"])
        said = CodedText(reason, text(row["detail"]) or f"Fabric counters not available ({reason}).")
        absences.setdefault(str(row["node"]), said)
    history = frame.fabric_history
    beyond = history[history["role"] == "compute"] if not history.empty else history
    by_node = {str(node): rows for node, rows in beyond.groupby("node")} if not beyond.empty else {}
    out: dict[str, FabricFacts] = {}
    for node in {**dict.fromkeys(absences), **dict.fromkeys(ports)}:
        absent, every = absences.get(node), ports.get(node, [])
        compute_ports = [port for port in every if port["compute"]]
        if not compute_ports:
            layer = None
            if absent is None:  # then there are ports
                reason = "Unknown whether any port belongs to a compute fabric. Set fabric_roles if one does."
                absent = CodedText("no-compute-port", reason)
                layer = "Ethernet" if all(port["ethernet"] for port in every) else None
            out[node] = FabricFacts((), False, absent.text, None, None, 0.0, None, None, layer, code=absent.code)
            continue
        ever = [port["last_active_ts"] for port in compute_ports]
        hours = min(port["observed"] for port in compute_ports) / 3600
        if not history.empty:  # the history goes back beyond the window
            node_history = by_node.get(node, history.iloc[:0])
            ever = [*ever, float(node_history["last_active_ts"].max())] if len(node_history) else []
            hours = float(node_history["hours"].min()) if len(node_history) else 0.0
        reason, peaks = _unreadable(compute_ports, absent), [port["util_p995"] for port in compute_ports]
        rates = [port["line_rate"] for port in compute_ports]
        out[node] = FabricFacts(
            ports_compute=tuple(port["name"] for port in compute_ports), readable=reason is None,
            reason=reason.text if reason is not None else None, code=reason.code if reason is not None else None,
            util_p995=_highest(peaks) if reason is None and not np.isnan(peaks).any() else None,
            util_max=_highest([port["util_max"] for port in compute_ports]), last_active_ts=_highest(ever),
            hours=min(port["seconds"] for port in compute_ports) / 3600,
            line_rate_bytes_per_second=None if np.isnan(rates).any() else sum(rates),
            link_layer=text(compute_ports[-1]["link_layer"]), hours_known=hours,
            still_share=max((p["still"] / p["seconds"] for p in compute_ports if p["seconds"] > 0), default=0.0),
        )  # fmt: skip
    return out


def _unreadable(ports: Sequence[Record], absent: CodedText | None) -> CodedText | None:
    for port in ports:
        if port["active"] < ACTIVE_SHARE_MIN:
            return coded(
                "port-down", "Port {port} was ACTIVE only {share:.0%} of the time. A port that is down does not count "
                "as an idle fabric.", port=port["name"], share=port["active"],
            )  # fmt: skip
    for port in ports:
        if port["seconds"] <= 0:
            return absent or coded("port-counters-unread", "No counters available for port {port}.", port=port["name"])
    unrated = [port["name"] for port in ports if np.isnan(port["line_rate"])]
    return coded("line-rate-unknown", "Unknown line rate of port {port}.", port=unrated[0]) if unrated else None


def _ports(fabric: pd.DataFrame) -> dict[str, list[Record]]:
    """Node -> its ports by ``name``: ``compute`` (of a compute fabric in some row), ``ethernet`` (in all rows),
    ``seconds`` in which traffic was counted (``observed``: in all), ``still`` without a byte, share of time ``active``
    (0..1), ``line_rate`` (bytes a second), ``util_max`` and ``util_p995`` (an upper bound) over line rate,
    ``last_active_ts``: end of the last row above 1 % of it. NaN: not known."""
    if fabric.empty:
        return {}
    of_port = fabric.groupby(["node", "device", "port"], sort=False)
    first = fabric[["node", "device", "port"]].drop_duplicates()
    names = [f"{device}/{int(port)}" for device, port in zip(first["device"], first["port"], strict=True)]
    code = of_port.ngroup().to_numpy().astype(np.intp)
    is_compute, layer = (fabric["role"] == "compute").to_numpy(), fabric["link_layer"]
    ports = pd.DataFrame({"node": first["node"].astype(str).to_numpy(), "name": names})
    ports["ethernet"] = (layer == "Ethernet").groupby(code).all()
    ports["compute"] = pd.Series(is_compute).groupby(code).any()
    rows, port = fabric.loc[is_compute, _READ], code[is_compute]
    observed = rows["observed_seconds"].fillna(0.0)
    read = observed.where(rows["util_mean"].notna(), 0.0)
    highest = rows["util_max"].fillna(rows["util_mean"])
    totals = pd.DataFrame(
        {
            "seconds": read, "observed": observed, "still": read.where(highest == 0, 0.0),
            "active": rows["active_fraction"].astype(float), "line_rate": rows["line_rate_bytes_per_second"],
            "util_max": rows["util_max"], "last_active_ts": rows["ts"].where(rows["util_max"] >= _ACTIVE_MIN),
            "link_layer": rows["link_layer"],
        }
    )  # fmt: skip
    how = {"seconds": "sum", "observed": "sum", "still": "sum", "active": "mean", "line_rate": "last"}
    how |= {"util_max": "max", "last_active_ts": "max", "link_layer": "last"}
    ports = ports.join(totals.groupby(port).agg(how))
    bins = cast("BinsArray", fabric["util_bins"].array).matrix
    seconds = _seconds_in_bins(rows, bins, np.flatnonzero(is_compute), port, len(ports))
    ports["util_p995"] = bins_quantiles(seconds, 0.995)
    out: dict[str, list[Record]] = {}
    for row in records(ports.sort_values("name", kind="stable")):
        out.setdefault(row["node"], []).append(row)
    return out


def _seconds_in_bins(rows: pd.DataFrame, bins: Matrix, at: Ints, port: Ints, count: int) -> npt.NDArray[np.float64]:
    """Each port's seconds by line rate: `bins` `at` its rows; a row without bins counts with its maximum."""
    most, p95, seconds = (rows[name].to_numpy(float) for name in ("util_max", "util_p95", "observed_seconds"))
    have = ~np.isnan(bins[at, 0])
    total = np.zeros((count, len(_EDGES)))
    for n in range(len(_EDGES)):
        total[:, n] = np.bincount(port[have], bins[at[have], n], count)
    bare = ~have & ~np.isnan(most)
    # A row whose highest second lies in this bin, and whose 95th percentile lies where it lies: 95 % of its seconds are
    # no higher than the latter.
    for values, share in ((most[bare], 0.05), (np.where(np.isnan(p95), most, p95)[bare], 0.95)):
        slots = np.clip(np.searchsorted(_EDGES, values, side="right") - 1, 0, len(_EDGES) - 1)
        np.add.at(total, (port[bare], slots), share * seconds[bare])
    return total


def _highest(values: Sequence[float]) -> float | None:
    return max((value for value in values if not math.isnan(value)), default=None)


# A link that was read for less of its time is not known: what it carried in the rest may be all that it carries.
KNOWN_MIN = 0.95
# An instance that has no row in the last hours of the window is gone: its GPU was divided again.
PRESENT_SECONDS = 2 * 3600.0
# Share of a GPU's memory that the driver and a display may take without any work on it.
HELD_MEM_RATIO = 0.01
FAULT_SHARE_MIN = 0.05  # of the time: less is a blip (as in rules/waste/telemetry-fault.yaml)
_MEASURES = ("fault", "idle", "g", "m", "power", "idle_power", "mem")


def node_facts(
    frame: Frame, inventory: Inventory, index: GpuIndex, attribution: Attribution, rows: pd.DataFrame
) -> tuple[NodeFacts, ...]:
    """One `NodeFacts` a node, by name. `rows`: the measures of the frame's `gpu`, in its order."""
    whole, (codes, names) = whole_gpus(frame), frame.gpu_keys.nodes()
    # An instance's time is its GPU's already.
    at, seconds = (attribution.places[name].to_numpy() for name in ("row", "seconds"))
    node_gpus = frame.gpu_keys.among(whole)[at]
    seen = dict(zip(names, np.bincount(codes[at[node_gpus]], seconds[node_gpus], len(names)) / 3600, strict=True))
    gpus_of: dict[str, list[tuple[str, str]]] = {}
    for key in whole:
        gpus_of.setdefault(key[0], []).append(key)
    fabric, nvlink = fabric_facts(frame), _nvlink_peaks(frame, rows, whole)
    linkless = index.table["nvlink"].isna().to_dict()
    name_of = index.table["name"].astype(str).to_dict()
    versions = frame.gpus.reindex(columns=["node", "driver_version"]).replace("", None).dropna()
    driver_of = {str(node): _only(rows_of_node) for node, rows_of_node in versions.groupby("node")["driver_version"]}
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
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _with_pools(facts: Sequence[NodeFacts], frame: Frame, inventory: Inventory) -> tuple[NodeFacts, ...]:
    """The nodes with `pool_hours`: of each hour as much as the pool's best observed GPUs have together."""
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
    """The 99.5th percentile of NVLink use of each node's busiest GPU; rows without bins count with their 95th
    percentile. None where one GPU's NVLink was not measured throughout, or where a server's counters never moved:
    DCGM's may stand at 0 although NVLink works (DCGM#149)."""
    matrix = cast("BinsArray", frame.gpu["nvlink_bins"].array).matrix
    have = ~np.isnan(matrix[:, 0])
    seconds, p95 = np.nan_to_num(frame.gpu["observed_seconds"].to_numpy(float)), rows["n_p95"].to_numpy(float)
    measured = have | np.isfinite(p95)
    moved = np.zeros(len(measured), dtype=np.bool_)
    for direction in ("tx", "rx"):
        moved |= frame.gpu[f"nvlink_{direction}_bytes_per_second_mean"].to_numpy(float) > 0
    peaks, blind, moves = dict[str, float](), set[str](), set[str]()
    for (node, uuid), ints in frame.gpu_keys.rows():
        moves |= {node} if moved[ints].any() else set()
        if (node, uuid) not in whole or seconds[ints].sum() <= 0:
            continue
        if seconds[ints][measured[ints]].sum() < KNOWN_MIN * seconds[ints].sum():
            blind.add(node)
            continue
        bare = ints[~have[ints] & measured[ints]]
        percentiles = [*bins_quantiles(np.nansum(matrix[ints], axis=0, dtype=float)[None], 0.995), *p95[bare]]
        peaks[node] = max([peaks.get(node, 0.0), *(float(peak) for peak in percentiles if not np.isnan(peak))])
    if frame.source.get("kind") != "sqlite":
        blind |= set(peaks) - moves
    return {node: peak for node, peak in peaks.items() if node not in blind}


def bare_gpus(  # noqa: PLR0917
    frame: Frame, index: GpuIndex, attribution: Attribution, rows: pd.DataFrame, parts: Floats, doubts: Sequence[Doubt]
) -> tuple[BareGpu, ...]:
    """Every GPU and instance with hours that no workload accounts for while its node was in service, by node and index;
    a divided GPU is left out for the time of its instances. `parts`: the part of a GPU that each row of the frame's
    `gpu` stands for. `doubts`: contradictions among them name a GPU's fault."""
    places = attribution.places
    at = places["row"].to_numpy(int)
    # What is left of a GPU beside its instances has no counters: nothing is said of it.
    alone = frame.gpu_keys.among(frame.parents)[at] | (parts[at] >= 1.0)
    owned = places["workload_id"].notna() | places["shared"].astype(bool) | places["drained"].astype(bool)
    nobody = ~owned.to_numpy(bool) & (places["seconds"].to_numpy(float) > 0) & alone
    at, seconds = at[nobody], places["seconds"].to_numpy(float)[nobody]
    gpu = frame.gpu[["node", "gpu_uuid", "ts", "interval_seconds", "observed_seconds"]].iloc[at].reset_index(drop=True)
    # A row that a workload held for a part of it may be the workload's.
    whole = seconds >= 0.98 * gpu["observed_seconds"].to_numpy(float)
    columns = {name: rows[name].to_numpy()[at] for name in _MEASURES} | {
        "weight": seconds * parts[at], "part": parts[at], "unnamed": np.where(whole, seconds, 0.0),
        "ts": gpu["ts"].to_numpy(float),
    }  # fmt: skip
    # A GPU works for somebody whom nothing names where it works for a workload that was inferred from its activity:
    # what is left of it is at rest by construction, and may be held all the same.
    unowned = {session.workload_id for session in attribution.sessions if session.basis == INFERRED}
    held = places[places["workload_id"].isin(unowned)]
    of_held, keys = held["row"].to_numpy(int), frame.gpu_keys
    worked = np.where(rows["idle"].to_numpy(bool)[of_held], 0.0, held["seconds"].to_numpy(float))
    inferred = dict(zip(keys.keys, np.bincount(keys.number[of_held], worked, len(keys.keys)) / 3600, strict=True))
    out = []
    for (node, uuid), places_of in gpu.groupby(["node", "gpu_uuid"], sort=True).indices.items():
        key = str(node), str(uuid)
        column_rows = ColumnRows(columns, places_of)
        w, unnamed, idle = column_rows["weight"], column_rows["unnamed"], column_rows.flags("idle")
        if w.sum() <= 0:
            continue
        above, sku = frame.parents.get(key), index.sku(*key)
        fault, share = None, float(np.average(column_rows["fault"], weights=w))
        if share >= FAULT_SHARE_MIN:
            named = [d.text for d in doubts if d.code in CONTRADICTIONS and (d.node, d.gpu_uuid) == key]
            fault = f"One of the two signals is wrong, in {100 * share:.0f} % of the GPU's free time."
            fault = " ".join((*named, fault))
        out.append(BareGpu(
            node=key[0], gpu_uuid=key[1], gpu_sku=sku.name if sku else None, last_ts=float(column_rows["ts"].max()),
            hours=float(w.sum() / 3600), idle_hours=float(w[idle].sum() / 3600),
            engine_mean=_average(column_rows["g"], w),
            dram_mean=_average(column_rows["m"], w), power_mean_watts=_average(column_rows["power"], w),
            idle_power_watts=_average(column_rows["idle_power"], w),
            busy_hours=float(unnamed[~idle].sum()) / 3600 + inferred.get(key, 0.0),
            held_hours=float(unnamed[column_rows["mem"] >= HELD_MEM_RATIO].sum()) / 3600,
            telemetry_fault=fault,
            part=float(np.average(column_rows["part"], weights=w)) if above is not None else 1.0,
            parent_uuid=above[1] if above is not None else None, profile=index.profiles.get(key),
        ))  # fmt: skip
    return tuple(out)


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
    instances = []
    for key, (_, parent) in sorted(frame.parents.items(), key=lambda entry: (entry[0][0], entry[1][1], entry[0][1])):
        if key in there:
            slices, profile = index.slices[key], index.profiles.get(key, "unknown profile")
            compute, memory = (slices.compute, slices.memory) if slices else (None, None)
            held = tuple(session.workload_id for session in late if key in session.gpus)
            instances.append(MigInstance(*key, parent, profile, compute, memory, held))
    return tuple(instances)


def resting_gpus(
    frame: Frame, index: GpuIndex, attribution: Attribution, rows: pd.DataFrame, parts: Floats
) -> tuple[RestingGpu, ...]:
    """Every GPU and instance that rested in the newest hour, by node and id, of nodes in service; a divided GPU is
    left out. `rows`, `parts`: as of `bare_gpus`."""
    begin = frame.window.end - HOUR_SECONDS
    drained = {node for node, spans in drained_spans(frame).items() if max(end for _, end in spans) > begin}
    places, ts = attribution.places, frame.gpu["ts"].to_numpy(float)
    at = places["row"].to_numpy(int)
    newest = (ts[at] > begin) & (places["seconds"].to_numpy(float) > 0)
    newest &= frame.gpu_keys.among(frame.parents)[at] | (parts[at] >= 1.0)
    owned, at = (places["workload_id"].notna() | places["shared"]).to_numpy(bool)[newest], at[newest]
    rests = rows["idle"].to_numpy(bool) & ~rows["fault"].to_numpy(bool)
    table = pd.DataFrame({"rests": rests[at], "part": parts[at], "owned": owned, "ts": ts[at]})
    number = frame.gpu_keys.number[at]
    table["owned"] &= table["ts"] == table["ts"].groupby(number).transform("max")
    each = table.groupby(number).agg({"rests": "all", "part": "mean", "owned": "any"})
    out = []
    for n, gpu in zip(each.index, records(each), strict=True):
        key = frame.gpu_keys.keys[n]
        if gpu["rests"] and key[0] not in drained:
            parent = frame.parents.get(key)
            about = float(gpu["part"]), bool(gpu["owned"]), parent[1] if parent else None, index.profiles.get(key)
            out.append(RestingGpu(str(key[0]), str(key[1]), *about))
    return tuple(sorted(out, key=lambda gpu: (gpu.node, gpu.gpu_uuid)))


def rest_levels(frame: Frame, index: GpuIndex, rows: pd.DataFrame) -> tuple[RestLevel, ...]:
    """Every whole, undivided GPU that was seen at rest, by node and id. `rows`: the measures of the frame's `gpu`, in
    its order. Watts are low quantiles of its rows at rest (`features/rest.py`), clocks medians of the same rows."""

    def median(values: Floats) -> float | None:
        value = values[np.isfinite(values)]
        return float(np.median(value)) if len(value) else None

    idle, memory_held = rows["idle"].to_numpy(bool), rows["held"].to_numpy(bool)
    clock, held, free = (rows[name].to_numpy(float) for name in ("clock_ratio", "rest_power", "rest_free_power"))
    whole = whole_gpus(frame).keys() - set(frame.parents.values())
    bare_gpus = []
    for key, at in sorted(frame.gpu_keys.rows(), key=lambda entry: entry[0]):
        resting = at[idle[at]]
        if key in whole and len(resting):
            sku, with_memory = index.sku(*key), memory_held[resting]
            levels = held[at], free[at], clock[resting[with_memory]], clock[resting[~with_memory]]
            bare_gpus.append(RestLevel(*key, sku.name if sku else None, *map(median, levels)))
    return tuple(bare_gpus)
