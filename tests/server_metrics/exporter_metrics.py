"""What dcgm-exporter and node_exporter would have reported of a simulated fleet.

They are sampled once a minute: their gauges are the minute's mean.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from ...advisor.core.frame import Window
from ...advisor.telemetry import queries
from ...advisor.telemetry.queries import Query
from ...advisor.telemetry.tables import to_table
from ...agent.store.reader import open_reader
from .prometheus_series import Floats, Series, known_only

MIB = 1024.0**2


def exporter_series(paths: Sequence[Path], window: Window) -> Iterator[Series]:
    """dcgm-exporter in Kubernetes and node_exporter with InfiniBand, from the minutes of simulated databases.

    By name, so that a text format may hold them.
    """
    parts = [_Node(path, window) for path in paths]
    for name, answer in _DCGM.items():
        for part in parts:
            yield from part.gpu(name, answer)
    for name in _NODE_NAMES:
        for part in parts:
            yield from part.host(name)


def _scaled(column: str, scale: float = 1.0) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda part: part[column] * scale


def _counted(part: pd.DataFrame) -> pd.Series:
    """Millijoules since the driver was loaded, which was an hour before the window."""
    return 2.5e8 + np.floor(1000 * (part["energy_joules_mean"] * part["energy_joules_n"]).fillna(0.0).cumsum())


# Free memory of an exporter shows the size.
_DCGM = {
    "DCGM_FI_DEV_GPU_UTIL": _scaled("gpu_util_mean", 100.0),
    "DCGM_FI_DEV_FB_USED": _scaled("mem_used_bytes_mean", 1 / MIB),
    "DCGM_FI_DEV_POWER_USAGE": _scaled("power_watts_mean"),
    "DCGM_FI_DEV_SM_CLOCK": _scaled("sm_clock_hertz_mean", 1e-6),
    "DCGM_FI_DEV_MEM_CLOCK": _scaled("mem_clock_hertz_mean", 1e-6),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _scaled("gpu_util_mean"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _scaled("tensor_active_mean"),
    "DCGM_FI_PROF_DRAM_ACTIVE": _scaled("dram_active_mean"),
    "DCGM_FI_PROF_PCIE_TX_BYTES": _scaled("pcie_tx_bytes_per_second_mean"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": _scaled("pcie_rx_bytes_per_second_mean"),
    "DCGM_FI_DEV_FB_FREE": lambda part: (part["mem_total_bytes"] - part["mem_used_bytes_mean"]) / MIB,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _counted,
}

# What a port that carries nothing else sends and receives: answers to its subnet manager, and its counters read.
_MANAGEMENT_BYTES_PER_SECOND = 40.0

_NODE_NAMES = (
    "node_infiniband_port_data_transmitted_bytes_total", "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_rate_bytes_per_second", "node_infiniband_state_id", "node_uname_info", "node_dmi_info",
    "node_disk_read_bytes_total", "node_disk_written_bytes_total", "node_cpu_seconds_total",
)  # fmt: skip


class _Node:
    """The minutes of one database."""

    def __init__(self, path: Path, window: Window) -> None:
        with open_reader(path) as reader:
            reader.text_factory = bytes

            def rows(query: Query) -> pd.DataFrame:
                return to_table(reader.fetch(query.sql, {"start": window.start, "end": window.end}), query)

            minutes = rows(queries.GPU_MINUTES)
            self._minutes = {str(uuid): part for uuid, part in minutes.groupby("gpu_uuid")}
            self._nodes = rows(queries.NODES)
            self._fabric = rows(queries.FABRIC_MINUTES)
            self._host = rows(queries.HOST_MINUTES)
            self._gpus = rows(queries.GPUS)
            uses = rows(queries.USES)
            self._uses = uses.merge(rows(queries.WORKLOADS), on="workload_id")

    def gpu(self, name: str, answer: Callable[[pd.DataFrame], pd.Series]) -> Iterator[Series]:
        for _, gpu in self._gpus.iterrows():
            minute = self._minutes.get(str(gpu["gpu_uuid"]))
            if minute is not None:
                yield from self._by_pod(name, gpu, minute["ts"].to_numpy(float), answer(minute).to_numpy(float))

    def host(self, name: str) -> Iterator[Series]:
        if name in ("node_uname_info", "node_dmi_info"):
            for _, entry in self._nodes.iterrows():
                node = entry["node"]
                ts = self._host.loc[self._host["node"] == node, "ts"].to_numpy(float)
                about = {"nodename": node} if name == "node_uname_info" else _firmware(entry)
                if about and len(ts):
                    yield Series(name, {"instance": f"{node}:9100", **about}, ts, np.ones(len(ts)))
        elif name.startswith("node_infiniband"):
            yield from self._ports(name)
        elif name == "node_cpu_seconds_total":
            yield from self._processors(name)
        else:
            column = "disk_read_bytes_per_second_mean" if "read" in name else "disk_write_bytes_per_second_mean"
            for node, part in self._host.groupby("node"):
                labels = {"instance": f"{node}:9100", "device": "nvme0n1"}
                yield known_only(Series(name, labels, part["ts"].to_numpy(float), _summed(part, column)))

    def _processors(self, name: str) -> Iterator[Series]:
        """One core that is as busy as all of them are."""
        for node, part in self._host.groupby("node"):
            ts = part["ts"].to_numpy(float)
            waiting, busy = _summed(part, "io_wait_mean"), _summed(part, "cpu_util_mean")
            for mode, values in (("idle", (ts - ts[0]) - waiting - busy), ("iowait", waiting)):
                yield known_only(Series(name, {"instance": f"{node}:9100", "cpu": "0", "mode": mode}, ts, values))

    def _ports(self, name: str) -> Iterator[Series]:
        columns = {
            "node_infiniband_port_data_transmitted_bytes_total": "tx_bytes_per_second_mean",
            "node_infiniband_port_data_received_bytes_total": "rx_bytes_per_second_mean",
        }
        for key, part in self._fabric.groupby(["node", "device", "port"]):
            if str(part["link_layer"].iloc[0]) != "InfiniBand":
                continue
            node, device, port = cast("tuple[str, str, float]", key)
            labels = {"instance": f"{node}:9100", "device": device, "port": int(port)}
            ts = part["ts"].to_numpy(float)
            if name in columns:
                values = _summed(part, columns[name]) + _MANAGEMENT_BYTES_PER_SECOND * (ts - ts[0])
            elif name == "node_infiniband_state_id":
                values = np.where(part["active_fraction"].to_numpy(float) > 0.5, 4.0, 1.0)
            else:
                values = part["line_rate_bytes_per_second"].to_numpy(float)
            yield known_only(Series(name, labels, ts, values))

    def _by_pod(self, name: str, gpu: pd.Series, ts: Floats, values: Floats) -> Iterator[Series]:
        labels = {
            "gpu": int(gpu["gpu_index"]), "UUID": gpu["gpu_uuid"], "device": f"nvidia{int(gpu['gpu_index'])}",
            "modelName": gpu["name"], "Hostname": gpu["node"], "instance": f"{gpu['node']}:9400", "job": "dcgm",
        }  # fmt: skip
        free = np.ones(len(ts), dtype=bool)
        uses = self._uses[self._uses["gpu_uuid"] == gpu["gpu_uuid"]]
        for key, part in uses.groupby("workload_id"):
            held = np.zeros(len(ts), dtype=bool)
            for start, end in zip(part["ts_start"], part["ts_end"], strict=True):
                held |= (ts > start) & (ts <= end)
            free &= ~held
            first = part.iloc[0]
            about = (
                {"hpc_job": first["job_id"]}
                if first["scheduler"] == "slurm"
                else {
                    "exported_pod": _pod_name(str(first["name"]), str(first["series_id"]), str(key)),
                    "exported_namespace": first["namespace"] or "default", "exported_container": "main",
                }
            )  # fmt: skip
            yield known_only(Series(name, {**labels, **about}, ts[held], values[held]))
        yield known_only(Series(name, labels, ts[free], values[free]))


def _pod_name(name: str, series_id: str, workload_id: str) -> str:
    """A pod of a Deployment as Kubernetes calls it: the Deployment's name, a hash of its template, and five letters."""
    letters = "bcdfghjklmnpqrstvwxz2456789"

    def spelled(text: str, count: int) -> str:
        return "".join(letters[byte % len(letters)] for byte in hashlib.sha256(text.encode()).digest()[:count])

    return f"{name}-{spelled(series_id, 9)}-{spelled(workload_id, 5)}"


def _firmware(node: pd.Series) -> dict[str, str]:
    """The dmi collector's labels of a machine of this provider; empty where nothing marks it."""
    marks = {
        "azure": {"system_vendor": "Microsoft Corporation", "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"},
        "aws": {"system_vendor": "Amazon EC2", "product_name": str(node["instance_type"])},
        "gcp": {"system_vendor": "Google", "product_name": "Google Compute Engine"},
        "oci": {"system_vendor": "QEMU", "chassis_asset_tag": "OracleCloud.com"},
    }
    return marks.get(str(node["provider"]), {})


def _summed(rows: pd.DataFrame, column: str) -> Floats:
    """A counter of a rate, from 0 on."""
    ts = rows["ts"].to_numpy(float)
    return np.cumsum(np.nan_to_num(rows[column].to_numpy(float)) * np.diff(ts, prepend=ts[0] - 60.0))
