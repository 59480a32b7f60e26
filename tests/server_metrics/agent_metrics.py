"""What the agent's page would have reported of a simulated fleet.

It holds integrals: each row's total is spread evenly over it, so that any server gives the row's own figures back.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np
import pandas as pd

from ...advisor.core.column_rows import BinsArray
from ...advisor.core.frame import Frame
from ...agent.metrics import BIN_EDGES, FABRIC_INTEGRALS, GPU_INTEGRALS, HOST_INTEGRALS, Integral
from .prometheus_series import Floats, Series, known_only

HOUR = 3600.0
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
Labels = Mapping[str, object]


def agent_series(frame: Frame) -> list[Series]:
    """The agent's page over the rows of a frame, scraped every five minutes; by name."""
    ticks = np.arange(frame.window.start, frame.window.end + 150.0, 300.0)
    series = [*_gpus(frame, ticks), *_fabric(frame, ticks), *_hosts(frame, ticks), *_work(frame, ticks)]
    return sorted(series, key=lambda entry: entry.name)


def _counter(name: str, labels: Labels, rows: pd.DataFrame, amounts: pd.Series | Floats, ticks: Floats) -> Series:
    """A counter that grows by `amounts` within the interval of each of `rows`, evenly."""
    ends = rows["ts"].to_numpy(float)
    starts = ends - rows["interval_seconds"].to_numpy(float)
    total = np.cumsum(np.nan_to_num(np.asarray(amounts, dtype=float)))
    heights = np.column_stack([np.append(0.0, total[:-1]), total]).ravel()
    inside = ticks[(ticks >= starts[0]) & (ticks <= ends[-1])]
    return Series(name, labels, inside, np.interp(inside, np.column_stack([starts, ends]).ravel(), heights))


def _gauge(name: str, labels: Labels, rows: pd.DataFrame, value: str | float, ticks: Floats) -> Series:
    """A gauge of a column of the rows, or of one value all along."""
    ends = rows["ts"].to_numpy(float)
    inside = ticks[(ticks > ends[0] - rows["interval_seconds"].iloc[0]) & (ticks <= ends[-1])]
    if isinstance(value, float):
        return Series(name, labels, inside, np.full(len(inside), value))
    return known_only(Series(name, labels, inside, rows[value].to_numpy(float)[np.searchsorted(ends, inside)]))


def _integrals(integrals: Sequence[Integral], labels: Labels, rows: pd.DataFrame, ticks: Floats) -> Iterator[Series]:
    for integral in integrals:
        column = f"{integral.metric}_mean"
        if column in rows and rows[column].notna().any():
            seconds = rows["observed_seconds"].where(rows[column].notna(), 0.0)
            yield _counter(integral.total, labels, rows, seconds * rows[column], ticks)
            yield _counter(integral.observed, labels, rows, seconds, ticks)


def _gpus(frame: Frame, ticks: Floats) -> Iterator[Series]:
    about = {(entry["node"], entry["gpu_uuid"]): entry for _, entry in frame.gpus.iterrows()}
    for key, rows in frame.gpu.groupby(["node", "gpu_uuid"]):
        node, uuid = cast("tuple[str, str]", key)
        entry = about[node, uuid]
        labels = {"node": node, "gpu_uuid": uuid, "gpu_index": int(entry["gpu_index"]), "sku": entry["sku"],
                  "kind": entry["kind"]}  # fmt: skip
        yield from _integrals(GPU_INTEGRALS, labels, rows, ticks)
        for name, amounts in _gpu_amounts(rows).items():
            yield _counter(f"skuwise_gpu_{name}_total", labels, rows, amounts, ticks)
        for name, value in _GPU_GAUGES.items():
            yield _gauge(name, labels, rows, value, ticks)
        for name in ("gpu_util", "sm_active", "tensor_active", "dram_active", "nvlink"):
            yield from _histogram(f"skuwise_gpu_{name}_distribution_ratio", name, labels, rows, ticks)
        yield _counter("skuwise_gpu_gpu_util_distribution_ratio_count", labels, rows, rows["gpu_util_n"], ticks)
        info = {**labels, **{name: entry[name] for name in ("name", "parent_uuid", "mig_profile")}}
        yield _gauge("skuwise_gpu_info", info, rows, 1.0, ticks)
        for column in ("mem_total_bytes", "power_limit_watts", "nvlink_bytes_per_second"):
            if entry[column] is not None and not np.isnan(entry[column]):
                yield _gauge(f"skuwise_gpu_{column}", labels, rows, float(entry[column]), ticks)


def _gpu_amounts(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """What grows within each row, by the counter's name."""
    seconds, varies = rows["observed_seconds"], 1 + rows["sm_active_cv"].fillna(0.0) ** 2
    amounts = {
        "observed_seconds": seconds,
        "busy_seconds": rows["duty"] * seconds,
        "energy_joules": rows["energy_joules_mean"] * rows["energy_joules_n"],
        "energy_observed_seconds": seconds.where(rows["energy_joules_n"] > 0, 0.0),
        "sm_active_squared_seconds": rows["sm_active_mean"] ** 2 * varies * seconds,
        "throttled_seconds": rows["throttled_fraction"] * seconds,
        "throttle_reasons_observed_seconds": seconds.where(rows["throttled_fraction"].notna(), 0.0),
    }
    for pair in ("nvlink", "fabric"):
        tensor, correlation = rows["tensor_active_mean"], rows[f"tensor_{pair}_correlation"]
        # Means of two signals and their products whose correlation is that of the row; the spreads may be any.
        moments = {
            "seconds": 1.0,
            "tensor_seconds": tensor,
            "traffic_bytes": 1e9,
            "tensor_squared_seconds": tensor**2 + 0.1**2,
            "traffic_squared_seconds": 1e9**2 * (1 + 0.1**2),
            "product_bytes": tensor * 1e9 + correlation * 0.1 * 0.1 * 1e9,
        }
        observed = seconds.where(correlation.notna(), 0.0)
        amounts |= {f"tensor_{pair}_{part}": observed * value for part, value in moments.items()}
    return amounts


def _histogram(name: str, measure: str, labels: Labels, rows: pd.DataFrame, ticks: Floats) -> Iterator[Series]:
    matrix = _seconds_in_bins(rows, measure)
    if matrix.any():
        counts = np.cumsum(matrix, axis=1)
        bounds = [*(repr(edge) for edge in BIN_EDGES[1:]), "+Inf"]
        # Buckets below the smallest value would stay 0 all along: for an engine's sake they are left out.
        for place, bound in [*enumerate(bounds)][int(counts.any(axis=0).argmax()) :]:
            yield _counter(f"{name}_bucket", {**labels, "le": bound}, rows, counts[:, place], ticks)


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


def _fabric(frame: Frame, ticks: Floats) -> Iterator[Series]:
    for key, rows in frame.fabric.groupby(["node", "device", "port"]):
        node, device, port = cast("tuple[str, str, float]", key)
        labels = {"node": node, "device": device, "port": int(port)}
        yield from _integrals(FABRIC_INTEGRALS, labels, rows, ticks)
        seconds, family = rows["observed_seconds"], "fabric_util_distribution_ratio"
        for name, amounts in {
            "fabric_state_observed_seconds_total": seconds,
            "fabric_active_seconds_total": seconds * rows["active_fraction"],
            f"{family}_count": rows["util_n"],
            f"{family}_sum": rows["util_n"] * rows["util_mean"],
        }.items():
            yield _counter(f"skuwise_{name}", labels, rows, amounts, ticks)
        yield from _histogram(f"skuwise_{family}", "util", labels, rows, ticks)
        first = rows.iloc[0]
        info = {**labels, "role": first["role"], "link_layer": first["link_layer"]}
        yield _gauge("skuwise_fabric_port_info", info, rows, 1.0, ticks)
        if not np.isnan(rate := float(first["line_rate_bytes_per_second"])):
            yield _gauge("skuwise_fabric_line_rate_bytes_per_second", labels, rows, rate, ticks)


def _hosts(frame: Frame, ticks: Floats) -> Iterator[Series]:
    names = ("node", "cluster", "node_sku", "node_sku_source", "provider", "region", "instance_type")
    for _, node in frame.nodes.iterrows():
        labels, rows = {"node": node["node"]}, frame.host[frame.host["node"] == node["node"]]
        yield from _integrals(HOST_INTEGRALS, labels, rows, ticks)
        yield _counter("skuwise_host_observed_seconds_total", labels, rows, rows["observed_seconds"], ticks)
        yield _gauge("skuwise_node_info", {name: node[name] for name in names}, rows, 1.0, ticks)
        yield _gauge("skuwise_node_gpus", labels, rows, float(node["gpu_count"]), ticks)


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
