"""Facts of nodes: what their fabric carried, and which of their GPUs nobody used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....agent.model import BIN_EDGES
from ...core.advice_types import INFERRED
from ...core.coded_text import CodedText, coded
from ...core.frame import Frame, parents
from ...core.records import records, text
from ..features.soundness import CONTRADICTIONS, Doubt
from ..features.utilization import bins_quantile, stacked_bins
from ..types import BareGpu, FabricFacts, NodeFacts
from ..workloads.attribution import Attribution
from ..workloads.inventory import Inventory
from ..workloads.mig import profiles, whole_gpus
from ..workloads.sku_lookup import GpuIndex
from .gpu_hour_accounting import node_spans

# A port that was ACTIVE in less than this share of its observed time was down: its silence proves nothing.
ACTIVE_SHARE_MIN = 0.99
# Share of a GPU's memory that the driver and a display may take without any work on it.
HELD_MEM_RATIO = 0.01
FAULT_SHARE_MIN = 0.05  # of the time: less is a blip (as in rules/waste/telemetry-fault.yaml)
_EDGES = np.array(BIN_EDGES)


def node_facts(frame: Frame, inventory: Inventory, index: GpuIndex, attribution: Attribution) -> tuple[NodeFacts, ...]:
    """One `NodeFacts` a node, by name."""
    spans = node_spans(frame, inventory)
    counts, hours = spans["gpu_count"].to_dict(), spans["span_hours"].to_dict()
    seen = _observed_hours(frame, attribution)
    whole = set(whole_gpus(frame).itertuples(index=False, name=None))
    gpus_of: dict[str, list[tuple[str, str]]] = {}
    for key in index.skus:
        if key in whole:
            gpus_of.setdefault(key[0], []).append(key)
    fabric = _by_node(frame.fabric.assign(port_name=_port_names(frame.fabric)))
    history, nvlink = _by_node(frame.fabric_history), _nvlink_peaks(frame)
    nothing = frame.fabric.iloc[:0]
    facts = []
    for row in records(frame.nodes.sort_values("node")):
        node = str(row["node"])
        keys = gpus_of.get(node, [])
        skus = {sku.name for key in keys if (sku := index.skus[key]) is not None}
        names = {str(index.table.loc[key, "name"]) for key in keys}
        count = int(counts.get(node, len(keys)))
        facts.append(
            NodeFacts(
                node=node,
                cluster=text(row["cluster"]) or "",
                provider=text(row["provider"]),
                region=text(row["region"]),
                node_sku=text(row["node_sku"]),
                node_sku_source=text(row["node_sku_source"]),
                gpu_sku=next(iter(skus)) if len(skus) == 1 and len(names) == 1 else None,
                gpu_count=count,
                first_seen=float(row["first_seen"]),
                last_seen=float(row["last_seen"]),
                hours_observed=seen.get(node, 0.0) / max(count, 1),
                fabric=_fabric(frame, node, fabric.get(node, nothing), history.get(node)),
                span_hours=float(hours.get(node, 0.0)),
                gpu_name=next(iter(names)) if len(names) == 1 else None,
                nvlink_util_p995=nvlink.get(node),
            )
        )
    return tuple(facts)


def bare_gpus(
    frame: Frame,
    index: GpuIndex,
    attribution: Attribution,
    measures: pd.DataFrame,
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
    parent_of, named = parents(frame), profiles(frame)
    cut = ~_of_whole_gpus(frame, nobody)
    # What is left of a GPU beside its instances has no counters: nothing is said of it.
    nobody = nobody[cut | (parts[nobody["row"].to_numpy(int)] >= 1.0)]
    if nobody.empty:
        return ()
    at = nobody["row"].to_numpy(int)
    rows = measures.iloc[at].reset_index(drop=True)
    gpu = frame.gpu.iloc[at]
    seconds = nobody["seconds"].to_numpy(float)
    rows["weight"] = seconds * parts[at]
    rows["part"] = parts[at]
    # What a row tells that somebody held for a part of it may be theirs.
    whole = seconds >= 0.98 * gpu["observed_seconds"].to_numpy(float)
    rows["unnamed"] = np.where(whole, seconds, 0.0)
    rows["node"], rows["gpu_uuid"] = gpu["node"].to_numpy(), gpu["gpu_uuid"].to_numpy()
    rows["ts"], rows["begin"] = gpu["ts"].to_numpy(), (gpu["ts"] - gpu["interval_seconds"]).to_numpy()
    contradicted = _contradictions(doubts)
    inferred = _inferred_busy_hours(frame, attribution, measures)
    out = []
    for (node, uuid), own in rows.groupby(["node", "gpu_uuid"], sort=True):
        w = own["weight"].to_numpy(float)
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
                idle_hours=float(w[own["idle"].to_numpy(bool)].sum() / 3600),
                engine_mean=_average(own["g"], w),
                engine_max=_or_none(own["g_max"].max()),
                dram_mean=_average(own["m"], w),
                power_mean_watts=_average(own["power"], w),
                idle_power_watts=_average(own["idle_power"], w),
                mem_used_ratio=_average(own["mem"], w),
                busy_hours=_hours_of(own["unnamed"], ~own["idle"]) + inferred.get((str(node), str(uuid)), 0.0),
                held_hours=_hours_of(own["unnamed"], own["mem"] >= HELD_MEM_RATIO),
                first_ts=float(own["begin"].min()),
                last_ts=float(own["ts"].max()),
                telemetry_fault=_fault_words(fault, contradicted.get((str(node), str(uuid)), ())),
                part=float(np.average(own["part"], weights=w)) if above is not None else 1.0,
                parent_uuid=above[1] if above is not None else None,
                profile=named.get((str(node), str(uuid))),
            )
        )
    return tuple(out)


def _inferred_busy_hours(
    frame: Frame, attribution: Attribution, measures: pd.DataFrame
) -> dict[tuple[str, str], float]:
    """(node, GPU) -> hours in which it worked for a workload that was inferred from its activity, and so for somebody
    whom nothing names: what is left of such a GPU is at rest by construction, and may be held all the same."""
    ids = {one.workload_id for one in attribution.sessions if one.basis == INFERRED}
    if not ids:
        return {}
    rows = attribution.places[attribution.places["workload_id"].isin(ids)]
    at = rows["row"].to_numpy(int)
    busy = ~measures["idle"].to_numpy(bool)[at]
    gpu = frame.gpu.iloc[at]
    seconds = pd.Series(np.where(busy, rows["seconds"].to_numpy(float), 0.0))
    totals = seconds.groupby([gpu["node"].to_numpy(), gpu["gpu_uuid"].to_numpy()]).sum() / 3600
    return {(str(node), str(uuid)): float(hours) for (node, uuid), hours in totals.items()}  # type: ignore[misc]


def _hours_of(seconds: pd.Series, chosen: pd.Series) -> float:
    return float(seconds[chosen.to_numpy(bool)].sum()) / 3600


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
    return " ".join((*named, f"One of the two is wrong, in {share:.0%} of its free time."))


def _observed_hours(frame: Frame, attribution: Attribution) -> dict[str, float]:
    places = attribution.places
    if places.empty:
        return {}
    places = places[_of_whole_gpus(frame, places)]
    node = frame.gpu["node"].to_numpy()[places["row"].to_numpy(int)]
    return {str(k): float(v) / 3600 for k, v in places["seconds"].astype(float).groupby(node).sum().items()}


def _of_whole_gpus(frame: Frame, places: pd.DataFrame) -> np.ndarray:
    """Which places are rows of whole GPUs: an instance's time is its GPU's already."""
    rows = frame.gpu.iloc[places["row"].to_numpy(int)]
    keys = pd.MultiIndex.from_arrays([rows["node"], rows["gpu_uuid"]])
    return keys.isin(pd.MultiIndex.from_frame(whole_gpus(frame)))


def _by_node(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {str(node): rows for node, rows in table.groupby("node", sort=False)} if not table.empty else {}


def _port_names(fabric: pd.DataFrame) -> pd.Series:
    """``device/port`` of every row."""
    if fabric.empty:
        return pd.Series(dtype=object)
    code = fabric.groupby(["device", "port"], sort=False).ngroup().to_numpy()
    first = fabric.iloc[np.unique(code, return_index=True)[1]]
    names = [f"{device}/{int(port)}" for device, port in zip(first["device"], first["port"], strict=True)]
    return pd.Series(np.array(names, dtype=object)[code], index=fabric.index)


def _fabric(frame: Frame, node: str, rows: pd.DataFrame, history: pd.DataFrame | None) -> FabricFacts | None:
    """`rows`, `history`: those of the node."""
    if rows.empty:
        absent = _absence(frame, node)
        if absent is None:
            return None
        return FabricFacts((), (), False, absent.text, None, None, 0.0, None, None, code=absent.code)
    port = rows["port_name"]
    compute = rows["role"] == "compute"
    ports = tuple(sorted(set(port[compute])))
    others = tuple(sorted(set(port[~compute])))
    if not ports:
        reason = (
            "Its only port is not known to be of a compute fabric; set fabric_roles if it is."
            if len(others) == 1
            else f"None of its {len(others)} ports is known to be of a compute fabric; set fabric_roles if one is."
        )
        layer = "Ethernet" if (rows["link_layer"] == "Ethernet").all() else None
        return FabricFacts(
            (), others, False, reason, None, None, 0.0, None, None, link_layer=layer, code="no-compute-port"
        )  # fmt: skip
    own, key = rows[compute], port[compute]
    last, known = _history(own, frame.fabric_history.empty, history)
    by_port = own.groupby(key)
    seconds = own["observed_seconds"].where(own["util_mean"].notna()).groupby(key).sum()
    rates = by_port["line_rate_bytes_per_second"].last()
    active = by_port["active_fraction"].mean()
    peaks = _port_p995(own, key)
    reason = None
    down = active[active < ACTIVE_SHARE_MIN]
    unread = seconds[seconds <= 0]
    if len(down):
        port_name, share = str(down.index[0]), float(down.iloc[0])
        reason = coded(
            "port-down", "Port {port} was ACTIVE in only {share:.0%} of the time: down is not silent.",
            port=port_name, share=share,
        )  # fmt: skip
    elif len(unread):
        reason = _absence(frame, node) or coded(
            "port-counters-unread", "The counters of port {port} could not be read.", port=str(unread.index[0])
        )
    elif rates.isna().any():
        unrated = str(rates.index[rates.isna()][0])
        reason = coded("line-rate-unknown", "The line rate of port {port} is not known.", port=unrated)
    peak = None if any(p is None for p in peaks) else max(p for p in peaks if p is not None)
    return FabricFacts(
        ports_compute=ports,
        ports_other=others,
        readable=reason is None,
        reason=reason.text if reason is not None else None,
        code=reason.code if reason is not None else None,
        util_p995=peak if reason is None else None,
        util_max=_or_none(own["util_max"].max()),
        hours=float(seconds.min() / 3600),
        last_active_ts=last,
        line_rate_bytes_per_second=None if rates.isna().any() else float(rates.sum()),
        link_layer=text(own["link_layer"].iloc[-1]),
        hours_known=known,
        still_share=_still_share(own, key),
    )


def _still_share(own: pd.DataFrame, port: pd.Series) -> float:
    seconds = own["observed_seconds"].where(own["util_mean"].notna(), 0.0)
    still = seconds.where((own["util_max"].fillna(own["util_mean"]) == 0), 0.0)
    shares = still.groupby(port).sum() / seconds.groupby(port).sum().where(lambda total: total > 0)
    return 0.0 if shares.isna().all() else float(shares.max())


def _port_p995(rows: pd.DataFrame, port: pd.Series) -> list[float | None]:
    """The 99.5th percentile of each port's seconds: merged bins; rows without bins count with their highest value."""
    code, names = pd.factorize(port)
    bins = rows["util_bins"]
    have = ~bins.isna().to_numpy()
    total = np.zeros((len(names), len(_EDGES)))
    if have.any():
        np.add.at(total, code[have], stacked_bins(bins[have])[0])
    most = rows["util_max"].to_numpy(float)
    bare = ~have & ~np.isnan(most)
    if bare.any():
        weight, whose, from_max = rows["observed_seconds"].to_numpy(float)[bare], code[bare], most[bare]
        # A row whose highest second lies in this bin, and whose 95th percentile lies where it lies: 95 % of its seconds
        # are no higher than the latter.
        p95 = rows["util_p95"].to_numpy(float)[bare]
        for values, share in ((from_max, 0.05), (np.where(np.isnan(p95), from_max, p95), 0.95)):
            slots = np.clip(np.searchsorted(_EDGES, values, side="right") - 1, 0, len(_EDGES) - 1)
            np.add.at(total, (whose, slots), share * weight)
    return [bins_quantile(own, 0.995) for own in total]


def _nvlink_peaks(frame: Frame) -> dict[str, float]:
    """The 99.5th percentile of NVLink use of each node's busiest GPU; nodes without bins have none."""
    if frame.gpu.empty:
        return {}
    peaks: dict[str, float] = {}
    column = frame.gpu["nvlink_bins"]
    for key, at in frame.gpu.groupby(["node", "gpu_uuid"], sort=False).indices.items():
        node, _ = cast("tuple[str, str]", key)
        matrix, _ = stacked_bins(column.iloc[at])
        peak = bins_quantile(matrix.sum(axis=0), 0.995)
        if peak is not None:
            peaks[str(node)] = max(peak, peaks.get(str(node), 0.0))
    return peaks


def _history(own: pd.DataFrame, blind: bool, history: pd.DataFrame | None) -> tuple[float | None, float]:
    """When the compute fabric last carried anything, and hours of records of it.

    `own`: its rows of the compute ports; `history`: what the road knows beyond the window, unless it is `blind` to it.
    """
    active = own.loc[own["util_max"] >= 0.01, "ts"].max()
    if blind:
        return _or_none(active), float(own.groupby(["device", "port"])["observed_seconds"].sum().min() / 3600)
    known = history[history["role"] == "compute"] if history is not None else None
    if known is None or known.empty:
        return None, 0.0
    last = [v for v in (known["last_active_ts"].max(), active) if not np.isnan(v)]
    return (float(max(last)) if last else None), float(known["hours"].min())


def _absence(frame: Frame, node: str) -> CodedText | None:
    """Why the fabric of this node cannot be read, in the words the agent left and with its code."""
    absences = frame.absences
    if absences.empty:
        return None
    own = absences[(absences["node"] == node) & (absences["scope"] == "fabric")]
    for row in records(own):
        if row["reason"] in ("no-fabric",):
            continue
        reason = str(row["reason"])
        return CodedText(reason, text(row["detail"]) or f"The fabric cannot be read ({reason}).")
    return None


def _average(values: pd.Series, weights: np.ndarray) -> float | None:
    v = values.to_numpy(float)
    ok = ~np.isnan(v)
    return float(np.average(v[ok], weights=weights[ok])) if weights[ok].sum() > 0 else None


def _or_none(value: float) -> float | None:
    return None if value is None or np.isnan(value) else float(value)
