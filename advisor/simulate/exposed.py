"""What exporters and the agent's page would have told of a simulated fleet, as series for a server of Prometheus' kind.

dcgm-exporter and node_exporter are sampled once a minute: their gauges are the minute's mean. The agent's page holds
integrals: each row's total is spread evenly over it, so that any server gives the row's own figures back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...agent.model import BIN_EDGES
from ...agent.openmetrics import label_text, number
from ...agent.service.families import FABRIC_INTEGRALS, GPU_INTEGRALS, HOST_INTEGRALS, Integral
from ...agent.store import queries
from ...agent.store.queries import Query
from ...agent.store.reader import open_reader
from ..frame import Frame, Window
from ..telemetry.tables import to_table
from ..verdicts.measures import stacked_bins

Floats = npt.NDArray[np.float64]
HOUR = 3600.0
MIB = 1024.0**2
_GPU_BINS = ("gpu_util", "sm_active", "tensor_active", "dram_active", "nvlink")
# Of the moments behind a correlation only the correlation is known; the spreads may be any.
_SPREAD = 0.1


@dataclass(frozen=True)
class Series:
    """One series. `ts`: Unix seconds, rising."""

    name: str
    labels: Mapping[str, object]
    ts: Floats
    values: Floats


def exporter_series(paths: Sequence[Path], window: Window, every_seconds: float = 60.0) -> Iterator[Series]:
    """dcgm-exporter in Kubernetes and node_exporter with InfiniBand, from the minutes of simulated databases.

    By name, so that a text format may hold them.
    """
    every = round(every_seconds / 60)
    parts = [_Node(path, window, every) for path in paths]
    for name, column, scale in _DCGM:
        for part in parts:
            yield from part.gpu(name, column, scale)
    for part in parts:
        yield from part.free()
    for name in _NODE_NAMES:
        for part in parts:
            yield from part.host(name)


_DCGM = (
    ("DCGM_FI_DEV_GPU_UTIL", "gpu_util_mean", 100.0),
    ("DCGM_FI_DEV_FB_USED", "mem_used_bytes_mean", 1 / MIB),
    ("DCGM_FI_DEV_POWER_USAGE", "power_watts_mean", 1.0),
    ("DCGM_FI_DEV_SM_CLOCK", "sm_clock_hertz_mean", 1e-6),
    ("DCGM_FI_DEV_MEM_CLOCK", "mem_clock_hertz_mean", 1e-6),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gpu_util_mean", 1.0),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "tensor_active_mean", 1.0),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "dram_active_mean", 1.0),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", "pcie_tx_bytes_per_second_mean", 1.0),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", "pcie_rx_bytes_per_second_mean", 1.0),
)
_NODE_NAMES = (
    "node_infiniband_port_data_transmitted_bytes_total", "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_rate_bytes_per_second", "node_infiniband_state_id", "node_uname_info", "node_dmi_info",
    "node_disk_read_bytes_total", "node_disk_written_bytes_total", "node_cpu_seconds_total",
)  # fmt: skip


class _Node:
    """The minutes of one database."""

    def __init__(self, path: Path, window: Window, every: int) -> None:
        with open_reader(path) as reader:
            reader.text_factory = bytes

            def rows(query: Query) -> pd.DataFrame:
                return to_table(reader.fetch(query.sql, {"start": window.start, "end": window.end}), query)

            minutes = _thinned(rows(queries.GPU_MINUTES), every)
            self._minutes = {str(uuid): own for uuid, own in minutes.groupby("gpu_uuid")}
            self._nodes = rows(queries.NODES)
            self._fabric = _thinned(rows(queries.FABRIC_MINUTES), every)
            self._host = _thinned(rows(queries.HOST_MINUTES), every)
            self._gpus = rows(queries.GPUS)
            uses = rows(queries.USES)
            self._uses = uses.merge(rows(queries.WORKLOADS), on="workload_id")

    def gpu(self, name: str, column: str, scale: float) -> Iterator[Series]:
        for _, gpu in self._gpus.iterrows():
            own = self._minutes.get(str(gpu["gpu_uuid"]))
            if own is None:
                continue
            yield from self._by_pod(name, gpu, own["ts"].to_numpy(float), own[column].to_numpy(float) * scale)

    def free(self) -> Iterator[Series]:
        """Memory that is free: by it an exporter tells how much there is."""
        for _, gpu in self._gpus.iterrows():
            own = self._minutes.get(str(gpu["gpu_uuid"]))
            if own is None:
                continue
            rest = (own["mem_total_bytes"] - own["mem_used_bytes_mean"]).to_numpy(float) / MIB
            yield from self._by_pod("DCGM_FI_DEV_FB_FREE", gpu, own["ts"].to_numpy(float), rest)

    def host(self, name: str) -> Iterator[Series]:
        if name in ("node_uname_info", "node_dmi_info"):
            for _, one in self._nodes.iterrows():
                node = one["node"]
                ts = self._host.loc[self._host["node"] == node, "ts"].to_numpy(float)
                about = {"nodename": node} if name == "node_uname_info" else _firmware(one)
                if about and len(ts):
                    yield Series(name, {"instance": f"{node}:9100", **about}, ts, np.ones(len(ts)))
        elif name.startswith("node_infiniband"):
            yield from self._ports(name)
        elif name == "node_cpu_seconds_total":
            yield from self._processors(name)
        else:
            column = "disk_read_bytes_per_second_mean" if "read" in name else "disk_write_bytes_per_second_mean"
            for node, own in self._host.groupby("node"):
                labels = {"instance": f"{node}:9100", "device": "nvme0n1"}
                yield _kept(Series(name, labels, own["ts"].to_numpy(float), _summed(own, column)))

    def _processors(self, name: str) -> Iterator[Series]:
        """One core that is as busy as all of them are."""
        for node, own in self._host.groupby("node"):
            ts = own["ts"].to_numpy(float)
            waiting, busy = _summed(own, "io_wait_mean"), _summed(own, "cpu_util_mean")
            for mode, values in (("idle", (ts - ts[0]) - waiting - busy), ("iowait", waiting)):
                yield _kept(Series(name, {"instance": f"{node}:9100", "cpu": "0", "mode": mode}, ts, values))

    def _ports(self, name: str) -> Iterator[Series]:
        columns = {
            "node_infiniband_port_data_transmitted_bytes_total": "tx_bytes_per_second_mean",
            "node_infiniband_port_data_received_bytes_total": "rx_bytes_per_second_mean",
        }
        for key, own in self._fabric.groupby(["node", "device", "port"]):
            if str(own["link_layer"].iloc[0]) != "InfiniBand":
                continue
            node, device, port = cast("tuple[str, str, float]", key)
            labels = {"instance": f"{node}:9100", "device": device, "port": int(port)}
            ts = own["ts"].to_numpy(float)
            if name in columns:
                values = _summed(own, columns[name])
            elif name == "node_infiniband_state_id":
                values = np.where(own["active_fraction"].to_numpy(float) > 0.5, 4.0, 1.0)
            else:
                values = own["line_rate_bytes_per_second"].to_numpy(float)
            yield _kept(Series(name, labels, ts, values))

    def _by_pod(self, name: str, gpu: pd.Series, ts: Floats, values: Floats) -> Iterator[Series]:
        labels = {
            "gpu": int(gpu["gpu_index"]), "UUID": gpu["gpu_uuid"], "device": f"nvidia{int(gpu['gpu_index'])}",
            "modelName": gpu["name"], "Hostname": gpu["node"], "instance": f"{gpu['node']}:9400", "job": "dcgm",
        }  # fmt: skip
        free = np.ones(len(ts), dtype=bool)
        uses = self._uses[self._uses["gpu_uuid"] == gpu["gpu_uuid"]]
        for key, own in uses.groupby("workload_id"):
            held = np.zeros(len(ts), dtype=bool)
            for start, end in zip(own["ts_start"], own["ts_end"], strict=True):
                held |= (ts > start) & (ts <= end)
            free &= ~held
            first = own.iloc[0]
            about = (
                {"hpc_job": first["job_id"]}
                if first["scheduler"] == "slurm"
                else {
                    "exported_pod": _pod_name(str(first["name"]), str(first["series_id"]), str(key)),
                    "exported_namespace": first["namespace"] or "default", "exported_container": "main",
                }
            )  # fmt: skip
            yield _kept(Series(name, {**labels, **about}, ts[held], values[held]))
        yield _kept(Series(name, labels, ts[free], values[free]))


def agent_series(frame: Frame, every_seconds: float = 300.0) -> Iterator[Series]:
    """The agent's page over the rows of a frame, scraped every `every_seconds`; by name."""
    gpu = frame.gpu
    about = {(g["node"], g["gpu_uuid"]): g for _, g in frame.gpus.iterrows()}
    ticks = _ticks(frame.window, every_seconds)

    def gpu_labels(key: tuple[str, str]) -> dict[str, object]:
        one = about[key]
        return {"node": key[0], "gpu_uuid": key[1], "gpu_index": int(one["gpu_index"]), "sku": one["sku"],
                "kind": one["kind"]}  # fmt: skip

    devices = [(gpu_labels(key), own) for key, own in gpu.groupby(["node", "gpu_uuid"])]  # type: ignore[arg-type]
    yield from _integrals(GPU_INTEGRALS, devices, ticks)
    yield from _gpu_counters(devices, ticks)
    for name, value in _GPU_GAUGES.items():
        for labels, own in devices:
            yield _gauge(name, labels, own, value, ticks)
    for name in _GPU_BINS:
        yield from _histogram(f"skuwise_gpu_{name}_distribution_ratio", name, devices, ticks)
    for labels, own in devices:
        yield _counter("skuwise_gpu_gpu_util_distribution_ratio_count", labels, own, own["gpu_util_n"], ticks)
    yield from _infos(frame, devices, ticks)
    yield from _fabric(frame, ticks)
    hosts = [({"node": node}, own) for node, own in frame.host.groupby("node")]
    yield from _integrals(HOST_INTEGRALS, hosts, ticks)
    for labels, own in hosts:
        yield _counter("skuwise_host_observed_seconds_total", labels, own, own["observed_seconds"], ticks)
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


def openmetrics(series: Iterable[Series]) -> Iterator[str]:
    """Lines of OpenMetrics text, for promtool; `series` must come by name."""
    for one in series:
        labels = label_text(one.labels)
        for at, value in zip(one.ts.tolist(), one.values.tolist(), strict=True):
            yield f"{one.name}{{{labels}}} {number(value)} {at:.3f}\n"
    yield "# EOF\n"


def import_lines(series: Iterable[Series]) -> Iterator[str]:
    """Lines of JSON for VictoriaMetrics' import API."""
    for one in series:
        if len(one.ts):
            metric = {"__name__": one.name, **{k: str(v) for k, v in one.labels.items() if v not in (None, "")}}
            stamps = np.rint(one.ts * 1000).astype(int).tolist()
            yield json.dumps({"metric": metric, "values": one.values.tolist(), "timestamps": stamps}) + "\n"


def _pod_name(name: str, series_id: str, workload_id: str) -> str:
    """A pod of a Deployment as Kubernetes calls it: the Deployment's name, a hash of its template, and five letters."""
    letters = "bcdfghjklmnpqrstvwxz2456789"

    def spelled(text: str, count: int) -> str:
        return "".join(letters[byte % len(letters)] for byte in hashlib.sha256(text.encode()).digest()[:count])

    return f"{name}-{spelled(series_id, 9)}-{spelled(workload_id, 5)}"


def _firmware(node: pd.Series) -> dict[str, str]:
    """What the dmi collector tells of a machine of this provider; empty where nothing marks it."""
    marks = {
        "azure": {"system_vendor": "Microsoft Corporation", "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"},
        "aws": {"system_vendor": "Amazon EC2", "product_name": str(node["instance_type"])},
        "gcp": {"system_vendor": "Google", "product_name": "Google Compute Engine"},
        "oci": {"system_vendor": "QEMU", "chassis_asset_tag": "OracleCloud.com"},
    }
    return marks.get(str(node["provider"]), {})


def _thinned(rows: pd.DataFrame, every: int) -> pd.DataFrame:
    return rows if every <= 1 else rows[(rows["ts"] // 60 % every) == 0]


def _ticks(window: Window, every: float) -> Floats:
    return np.arange(window.start, window.end + every / 2, every)


def _summed(rows: pd.DataFrame, column: str) -> Floats:
    """A counter of a rate, from 0 on."""
    ts = rows["ts"].to_numpy(float)
    return np.cumsum(np.nan_to_num(rows[column].to_numpy(float)) * np.diff(ts, prepend=ts[0] - 60.0))


def _kept(series: Series) -> Series:
    known = ~np.isnan(series.values)
    return Series(series.name, series.labels, series.ts[known], series.values[known])


def _counter(
    name: str, labels: Mapping[str, object], rows: pd.DataFrame, amounts: pd.Series | Floats, ticks: Floats
) -> Series:
    """A counter that grows by `amounts` within the interval of each of `rows`, evenly."""
    ends = rows["ts"].to_numpy(float)
    starts = ends - rows["interval_seconds"].to_numpy(float)
    total = np.cumsum(np.nan_to_num(np.asarray(amounts, dtype=float)))
    marks, heights = (
        np.column_stack([starts, ends]).ravel(),
        np.column_stack([np.append(0.0, total[:-1]), total]).ravel(),
    )
    inside = ticks[(ticks >= starts[0]) & (ticks <= ends[-1])]
    return Series(name, labels, inside, np.interp(inside, marks, heights))


def _gauge(name: str, labels: Mapping[str, object], rows: pd.DataFrame, column: str, ticks: Floats) -> Series:
    ends, values = rows["ts"].to_numpy(float), rows[column].to_numpy(float)
    inside = ticks[(ticks > ends[0] - rows["interval_seconds"].iloc[0]) & (ticks <= ends[-1])]
    return _kept(Series(name, labels, inside, values[np.searchsorted(ends, inside)]))


Devices = Sequence[tuple[Mapping[str, object], pd.DataFrame]]


def _integrals(integrals: Iterable[Integral], devices: Devices, ticks: Floats) -> Iterator[Series]:
    for one in integrals:
        for family, of in ((one.total, True), (one.observed, False)):
            for labels, own in devices:
                column = f"{one.metric}_mean"
                if column in own and own[column].notna().any():
                    seconds = own["observed_seconds"].where(own[column].notna(), 0.0)
                    yield _counter(family.series, labels, own, seconds * own[column] if of else seconds, ticks)


def _gpu_counters(devices: Devices, ticks: Floats) -> Iterator[Series]:
    def amounts(name: str, own: pd.DataFrame) -> pd.Series:
        seconds, mean = own["observed_seconds"], own["sm_active_mean"]
        return {
            "skuwise_gpu_observed_seconds_total": seconds,
            "skuwise_gpu_busy_seconds_total": own["duty"] * seconds,
            "skuwise_gpu_sm_active_squared_seconds_total": mean**2
            * (1 + own["sm_active_cv"].fillna(0.0) ** 2)
            * seconds,
            "skuwise_gpu_throttled_seconds_total": own["throttled_fraction"] * seconds,
            "skuwise_gpu_throttle_reasons_observed_seconds_total": seconds.where(
                own["throttled_fraction"].notna(), 0.0
            ),
        }[name]

    for name in (
        "skuwise_gpu_observed_seconds_total", "skuwise_gpu_busy_seconds_total",
        "skuwise_gpu_sm_active_squared_seconds_total", "skuwise_gpu_throttled_seconds_total",
        "skuwise_gpu_throttle_reasons_observed_seconds_total",
    ):  # fmt: skip
        for labels, own in devices:
            yield _counter(name, labels, own, amounts(name, own), ticks)
    for pair in ("nvlink", "fabric"):
        for part in (
            "seconds", "tensor_seconds", "traffic_bytes", "tensor_squared_seconds", "traffic_squared_seconds",
            "product_bytes",
        ):  # fmt: skip
            for labels, own in devices:
                known = own["observed_seconds"].where(own[f"tensor_{pair}_correlation"].notna(), 0.0)
                moments = _moments(own["tensor_active_mean"], own[f"tensor_{pair}_correlation"])
                yield _counter(f"skuwise_gpu_tensor_{pair}_{part}_total", labels, own, known * moments[part], ticks)


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
    bounds = [*(number(float(edge)) for edge in BIN_EDGES[1:]), "+Inf"]
    for labels, own in devices:
        matrix = _seconds_in_bins(own, measure)
        if not matrix.any():
            continue
        counts = np.cumsum(matrix, axis=1)
        # Buckets below the smallest value would stay 0 all along: for an engine's sake they are left out.
        for place, bound in [*enumerate(bounds)][int(counts.any(axis=0).argmax()) :]:
            yield _counter(f"{name}_bucket", {**labels, "le": bound}, own, counts[:, place], ticks)


def _seconds_in_bins(rows: pd.DataFrame, measure: str) -> Floats:
    """A row's bins; where it has none, all its seconds in the bin of its mean."""
    bins = (
        stacked_bins(rows[f"{measure}_bins"])[0] if f"{measure}_bins" in rows else np.zeros((len(rows), len(BIN_EDGES)))
    )
    mean = rows[f"{measure}_mean"].to_numpy(float) if f"{measure}_mean" in rows else np.full(len(rows), np.nan)
    bare = np.nonzero((bins.sum(axis=1) == 0) & ~np.isnan(mean))[0]
    place = np.clip(np.searchsorted(np.array(BIN_EDGES), mean[bare], side="right") - 1, 0, len(BIN_EDGES) - 1)
    bins[bare, place] = rows["observed_seconds"].to_numpy(float)[bare]
    return bins


def _infos(frame: Frame, devices: Devices, ticks: Floats) -> Iterator[Series]:
    about = {(g["node"], g["gpu_uuid"]): g for _, g in frame.gpus.iterrows()}
    for labels, own in devices:
        one = about[str(labels["node"]), str(labels["gpu_uuid"])]
        full = {**labels, **{name: one[name] for name in ("name", "parent_uuid", "mig_profile")}}
        yield _present("skuwise_gpu_info", full, own, 1.0, ticks)
    for name, column in (
        ("skuwise_gpu_mem_total_bytes", "mem_total_bytes"),
        ("skuwise_gpu_power_limit_watts", "power_limit_watts"),
        ("skuwise_gpu_nvlink_bytes_per_second", "nvlink_bytes_per_second"),
    ):
        for labels, own in devices:
            value = about[str(labels["node"]), str(labels["gpu_uuid"])][column]
            if value is not None and not np.isnan(value):
                yield _present(name, labels, own, float(value), ticks)
    names = ("node", "cluster", "node_sku", "node_sku_source", "provider", "region", "instance_type")
    for _, node in frame.nodes.iterrows():
        own = frame.host[frame.host["node"] == node["node"]]
        yield _present("skuwise_node_info", {name: node[name] for name in names}, own, 1.0, ticks)
    for _, node in frame.nodes.iterrows():
        own = frame.host[frame.host["node"] == node["node"]]
        yield _present("skuwise_node_gpus", {"node": node["node"]}, own, float(node["gpu_count"]), ticks)


def _present(name: str, labels: Mapping[str, object], rows: pd.DataFrame, value: float, ticks: Floats) -> Series:
    ends = rows["ts"].to_numpy(float)
    inside = ticks[(ticks > ends[0] - rows["interval_seconds"].iloc[0]) & (ticks <= ends[-1])]
    return Series(name, labels, inside, np.full(len(inside), value))


def _fabric(frame: Frame, ticks: Floats) -> Iterator[Series]:
    rows = frame.fabric
    ports = []
    for key, own in rows.groupby(["node", "device", "port"]):
        node, device, port = cast("tuple[str, str, float]", key)
        ports.append(({"node": node, "device": device, "port": int(port)}, own))
    yield from _integrals(FABRIC_INTEGRALS, ports, ticks)
    for name in ("skuwise_fabric_state_observed_seconds_total", "skuwise_fabric_active_seconds_total"):
        for labels, own in ports:
            share = own["active_fraction"] if "active" in name else 1.0
            yield _counter(name, labels, own, own["observed_seconds"] * share, ticks)
    family = "skuwise_fabric_util_distribution_ratio"
    yield from _histogram(family, "util", ports, ticks)
    for labels, own in ports:
        yield _counter(f"{family}_count", labels, own, own["util_n"], ticks)
    for labels, own in ports:
        yield _counter(f"{family}_sum", labels, own, own["util_n"] * own["util_mean"], ticks)
    for labels, own in ports:
        full = {**labels, "role": own["role"].iloc[0], "link_layer": own["link_layer"].iloc[0]}
        yield _present("skuwise_fabric_port_info", full, own, 1.0, ticks)
    for labels, own in ports:
        rate = float(own["line_rate_bytes_per_second"].iloc[0])
        if not np.isnan(rate):
            yield _present("skuwise_fabric_line_rate_bytes_per_second", labels, own, rate, ticks)


def _work(frame: Frame, ticks: Floats) -> Iterator[Series]:
    table = frame.uses.merge(frame.workloads, on="workload_id")
    names = ("node", "gpu_uuid", "workload_id", "series_id", "scheduler", "job_id", "namespace", "pod", "framework",
             "basis")  # fmt: skip
    for _, own in table.groupby(["node", "gpu_uuid", "workload_id"]):
        held = np.zeros(len(ticks))
        seen = np.zeros(len(ticks), dtype=bool)
        for start, end in zip(own["ts_start"], own["ts_end"], strict=True):
            held += np.clip(np.minimum(ticks, end) - start, 0.0, None)
            # The page forgets what ended an hour ago.
            seen |= (ticks > start) & (ticks < end + HOUR)
        first = own.iloc[0]
        labels = {name: first[name] for name in names} | {"shared": int(own["shared"].max())}
        yield Series("skuwise_workload_gpu_seconds_total", labels, ticks[seen], held[seen])
