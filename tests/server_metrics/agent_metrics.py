"""What the agent's page would have reported of a simulated fleet.

It holds integrals: each row's total is spread evenly over it, so that any server gives the row's own figures back.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

import numpy as np
import pandas as pd

from ...advisor.core.column_rows import BinsArray
from ...advisor.core.frame import Frame
from ...agent.metrics import BIN_EDGES, FABRIC_INTEGRALS, GPU_INTEGRALS, HOST_INTEGRALS, Integral
from .prometheus_series import Floats, Series, known_only

HOUR = 3600.0
_GPU_BINS = ("gpu_util", "sm_active", "tensor_active", "dram_active", "nvlink")
# Of the moments behind a correlation only the correlation is known; the spreads may be any.
_SPREAD = 0.1


def agent_series(frame: Frame) -> Iterator[Series]:
    """The agent's page over the rows of a frame, scraped every five minutes; by name."""
    gpu = frame.gpu
    about = {(g["node"], g["gpu_uuid"]): g for _, g in frame.gpus.iterrows()}
    ticks = np.arange(frame.window.start, frame.window.end + 150.0, 300.0)

    def gpu_labels(key: tuple[str, str]) -> dict[str, object]:
        entry = about[key]
        return {"node": key[0], "gpu_uuid": key[1], "gpu_index": int(entry["gpu_index"]), "sku": entry["sku"],
                "kind": entry["kind"]}  # fmt: skip

    devices = [(gpu_labels(key), portion) for key, portion in gpu.groupby(["node", "gpu_uuid"])]  # type: ignore[arg-type]
    yield from _integrals(GPU_INTEGRALS, devices, ticks)
    yield from _gpu_counters(devices, ticks)
    for name, value in _GPU_GAUGES.items():
        for labels, part in devices:
            yield _gauge(name, labels, part, value, ticks)
    for name in _GPU_BINS:
        yield from _histogram(f"skuwise_gpu_{name}_distribution_ratio", name, devices, ticks)
    for labels, part in devices:
        yield _counter("skuwise_gpu_gpu_util_distribution_ratio_count", labels, part, part["gpu_util_n"], ticks)
    yield from _infos(frame, devices, ticks)
    yield from _fabric(frame, ticks)
    hosts = [({"node": node}, share) for node, share in frame.host.groupby("node")]
    yield from _integrals(HOST_INTEGRALS, hosts, ticks)
    for labels, part in hosts:
        yield _counter("skuwise_host_observed_seconds_total", labels, part, part["observed_seconds"], ticks)
    yield from _work(frame, ticks)


_GPU_GAUGES = {
    "skuwise_gpu_power_watts": "power_watts_p95",
    "skuwise_gpu_mem_used_bytes": "mem_used_bytes_max",
    "skuwise_gpu_util_ratio": "gpu_util_max",
    "skuwise_gpu_sm_active_ratio": "sm_active_max",
    "skuwise_gpu_tensor_active_ratio": "tensor_active_max",
    "skuwise_gpu_dram_active_ratio": "dram_active_max",
    "skuwise_gpu_idle_run_seconds": "idle_run_seconds",
    "skuwise_gpu_period_seconds": "period_seconds",
    "skuwise_gpu_period_strength_ratio": "period_strength",
}


def _counter(
    name: str, labels: Mapping[str, object], rows: pd.DataFrame, amounts: pd.Series | Floats, ticks: Floats
) -> Series:
    """A counter that grows by `amounts` within the interval of each of `rows`, evenly."""
    ends = rows["ts"].to_numpy(float)
    starts = ends - rows["interval_seconds"].to_numpy(float)
    total = np.cumsum(np.nan_to_num(np.asarray(amounts, dtype=float)))
    heights = np.column_stack([np.append(0.0, total[:-1]), total]).ravel()
    inside = ticks[(ticks >= starts[0]) & (ticks <= ends[-1])]
    return Series(name, labels, inside, np.interp(inside, np.column_stack([starts, ends]).ravel(), heights))


def _gauge(name: str, labels: Mapping[str, object], rows: pd.DataFrame, value: str | float, ticks: Floats) -> Series:
    """A gauge of a column of the rows, or of one value all along."""
    ends = rows["ts"].to_numpy(float)
    inside = ticks[(ticks > ends[0] - rows["interval_seconds"].iloc[0]) & (ticks <= ends[-1])]
    if isinstance(value, float):
        return Series(name, labels, inside, np.full(len(inside), value))
    return known_only(Series(name, labels, inside, rows[value].to_numpy(float)[np.searchsorted(ends, inside)]))


Devices = Sequence[tuple[Mapping[str, object], pd.DataFrame]]


def _integrals(integrals: Iterable[Integral], devices: Devices, ticks: Floats) -> Iterator[Series]:
    for integral in integrals:
        for name, of in ((integral.total, True), (integral.observed, False)):
            for labels, part in devices:
                column = f"{integral.metric}_mean"
                if column in part and part[column].notna().any():
                    seconds = part["observed_seconds"].where(part[column].notna(), 0.0)
                    yield _counter(name, labels, part, seconds * part[column] if of else seconds, ticks)


def _gpu_counters(devices: Devices, ticks: Floats) -> Iterator[Series]:
    def amounts(share: pd.DataFrame) -> dict[str, pd.Series]:
        seconds, varies = share["observed_seconds"], 1 + share["sm_active_cv"].fillna(0.0) ** 2
        output = {
            "observed_seconds": seconds,
            "busy_seconds": share["duty"] * seconds,
            "energy_joules": share["energy_joules_mean"] * share["energy_joules_n"],
            "energy_observed_seconds": seconds.where(share["energy_joules_n"] > 0, 0.0),
            "sm_active_squared_seconds": share["sm_active_mean"] ** 2 * varies * seconds,
            "throttled_seconds": share["throttled_fraction"] * seconds,
            "throttle_reasons_observed_seconds": seconds.where(share["throttled_fraction"].notna(), 0.0),
        }
        for pair in ("nvlink", "fabric"):
            values = seconds.where(share[f"tensor_{pair}_correlation"].notna(), 0.0)
            moments = _moments(share["tensor_active_mean"], share[f"tensor_{pair}_correlation"])
            output |= {f"tensor_{pair}_{part}": values * value for part, value in moments.items()}
        return output

    answer = [(labels, subset, amounts(subset)) for labels, subset in devices]
    for name in answer[0][2]:
        for labels, portion, counted in answer:
            yield _counter(f"skuwise_gpu_{name}_total", labels, portion, counted[name], ticks)


def _moments(tensor: pd.Series, correlation: pd.Series) -> dict[str, pd.Series]:
    """Means of two signals and their products whose correlation is the one given."""
    traffic = pd.Series(1e9, index=tensor.index)
    return {
        "seconds": pd.Series(1.0, index=tensor.index),
        "tensor_seconds": tensor,
        "traffic_bytes": traffic,
        "tensor_squared_seconds": tensor**2 + _SPREAD**2,
        "traffic_squared_seconds": traffic**2 * (1 + _SPREAD**2),
        "product_bytes": tensor * traffic + correlation * _SPREAD * _SPREAD * traffic,
    }


def _histogram(name: str, measure: str, devices: Devices, ticks: Floats) -> Iterator[Series]:
    bounds = [*(repr(edge) for edge in BIN_EDGES[1:]), "+Inf"]
    for labels, part in devices:
        matrix = _seconds_in_bins(part, measure)
        if not matrix.any():
            continue
        counts = np.cumsum(matrix, axis=1)
        # Buckets below the smallest value would stay 0 all along: for an engine's sake they are left out.
        for place, bound in [*enumerate(bounds)][int(counts.any(axis=0).argmax()) :]:
            yield _counter(f"{name}_bucket", {**labels, "le": bound}, part, counts[:, place], ticks)


def _seconds_in_bins(rows: pd.DataFrame, measure: str) -> Floats:
    """A row's bins; where it has none, all its seconds in the bin of its mean."""
    bins = (
        np.nan_to_num(cast("BinsArray", rows[f"{measure}_bins"].array).matrix.astype(float))
        if f"{measure}_bins" in rows
        else np.zeros((len(rows), len(BIN_EDGES)))
    )
    mean = rows[f"{measure}_mean"].to_numpy(float) if f"{measure}_mean" in rows else np.full(len(rows), np.nan)
    bare = np.nonzero((bins.sum(axis=1) == 0) & ~np.isnan(mean))[0]
    place = np.clip(np.searchsorted(np.array(BIN_EDGES), mean[bare], side="right") - 1, 0, len(BIN_EDGES) - 1)
    bins[bare, place] = rows["observed_seconds"].to_numpy(float)[bare]
    return bins


def _infos(frame: Frame, devices: Devices, ticks: Floats) -> Iterator[Series]:
    about = {(g["node"], g["gpu_uuid"]): g for _, g in frame.gpus.iterrows()}
    for labels, part in devices:
        entry = about[str(labels["node"]), str(labels["gpu_uuid"])]
        full = {**labels, **{name: entry[name] for name in ("name", "parent_uuid", "mig_profile")}}
        yield _gauge("skuwise_gpu_info", full, part, 1.0, ticks)
    for column in ("mem_total_bytes", "power_limit_watts", "nvlink_bytes_per_second"):
        for labels, part in devices:
            value = about[str(labels["node"]), str(labels["gpu_uuid"])][column]
            if value is not None and not np.isnan(value):
                yield _gauge(f"skuwise_gpu_{column}", labels, part, float(value), ticks)
    names = ("node", "cluster", "node_sku", "node_sku_source", "provider", "region", "instance_type")
    hosts = [(node, frame.host[frame.host["node"] == node["node"]]) for _, node in frame.nodes.iterrows()]
    for node, part in hosts:
        yield _gauge("skuwise_node_info", {name: node[name] for name in names}, part, 1.0, ticks)
    for node, part in hosts:
        yield _gauge("skuwise_node_gpus", {"node": node["node"]}, part, float(node["gpu_count"]), ticks)


def _fabric(frame: Frame, ticks: Floats) -> Iterator[Series]:
    rows = frame.fabric
    ports = []
    for key, part in rows.groupby(["node", "device", "port"]):
        node, device, port = cast("tuple[str, str, float]", key)
        ports.append(({"node": node, "device": device, "port": int(port)}, part))
    yield from _integrals(FABRIC_INTEGRALS, ports, ticks)
    for name in ("skuwise_fabric_state_observed_seconds_total", "skuwise_fabric_active_seconds_total"):
        for labels, part in ports:
            share = part["active_fraction"] if "active" in name else 1.0
            yield _counter(name, labels, part, part["observed_seconds"] * share, ticks)
    family = "skuwise_fabric_util_distribution_ratio"
    yield from _histogram(family, "util", ports, ticks)
    for labels, part in ports:
        yield _counter(f"{family}_count", labels, part, part["util_n"], ticks)
    for labels, part in ports:
        yield _counter(f"{family}_sum", labels, part, part["util_n"] * part["util_mean"], ticks)
    for labels, part in ports:
        full = {**labels, "role": part["role"].iloc[0], "link_layer": part["link_layer"].iloc[0]}
        yield _gauge("skuwise_fabric_port_info", full, part, 1.0, ticks)
    for labels, part in ports:
        rate = float(part["line_rate_bytes_per_second"].iloc[0])
        if not np.isnan(rate):
            yield _gauge("skuwise_fabric_line_rate_bytes_per_second", labels, part, rate, ticks)


def _work(frame: Frame, ticks: Floats) -> Iterator[Series]:
    table = frame.uses.merge(frame.workloads, on="workload_id")
    names = ("node", "gpu_uuid", "workload_id", "series_id", "scheduler", "job_id", "namespace", "pod", "framework",
             "basis")  # fmt: skip
    for _, part in table.groupby(["node", "gpu_uuid", "workload_id"]):
        held = np.zeros(len(ticks))
        seen = np.zeros(len(ticks), dtype=bool)
        for start, end in zip(part["ts_start"], part["ts_end"], strict=True):
            held += np.clip(np.minimum(ticks, end) - start, 0.0, None)
            # The page forgets what ended an hour ago.
            seen |= (ticks > start) & (ticks < end + HOUR)
        first = part.iloc[0]
        labels = {name: first[name] for name in names} | {"shared": int(part["shared"].max())}
        yield Series("skuwise_workload_gpu_seconds_total", labels, ticks[seen], held[seen])
