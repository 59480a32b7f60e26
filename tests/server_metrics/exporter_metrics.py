"""What dcgm-exporter and node_exporter would have reported of a simulated fleet.

They are sampled once a minute: their gauges are the minute's mean.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from ...advisor.core.frame import Frame, Window
from ...advisor.telemetry.sqlite.reader import read_frame
from .prometheus_series import Floats, Series, known_only

MIB = 1024.0**2
# Metric -> the column of our minutes, and its factor.
_DCGM = {
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_util_mean", 100.0),
    "DCGM_FI_DEV_FB_USED": ("mem_used_bytes_mean", 1 / MIB),
    "DCGM_FI_DEV_POWER_USAGE": ("power_watts_mean", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_hertz_mean", 1e-6),
    "DCGM_FI_DEV_MEM_CLOCK": ("mem_clock_hertz_mean", 1e-6),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gpu_util_mean", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active_mean", 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active_mean", 1.0),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie_tx_bytes_per_second_mean", 1.0),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie_rx_bytes_per_second_mean", 1.0),
}
# What a port that carries nothing else sends and receives: answers to its subnet manager, and its counters read.
_MANAGEMENT_BYTES_PER_SECOND = 40.0


def exporter_series(paths: Sequence[Path], window: Window) -> list[Series]:
    """dcgm-exporter in Kubernetes and node_exporter with InfiniBand, from the minutes of simulated databases.

    By name, so that a text format may hold them.
    """
    frame = read_frame(paths, window, resolution=60.0)
    return sorted([*_gpus(frame), *_ports(frame), *_hosts(frame)], key=lambda series: series.name)


def _gpus(frame: Frame) -> Iterator[Series]:
    minutes = dict(list(frame.gpu.groupby("gpu_uuid")))
    for _, gpu in frame.gpus.iterrows():
        minute = minutes[gpu["gpu_uuid"]]
        labels = {
            "gpu": int(gpu["gpu_index"]), "UUID": gpu["gpu_uuid"], "device": f"nvidia{int(gpu['gpu_index'])}",
            "modelName": gpu["name"], "Hostname": gpu["node"], "instance": f"{gpu['node']}:9400", "job": "dcgm",
        }  # fmt: skip
        values = {name: minute[column] * scale for name, (column, scale) in _DCGM.items()}
        # Free memory of an exporter shows the size.
        values["DCGM_FI_DEV_FB_FREE"] = (minute["mem_total_bytes"] - minute["mem_used_bytes_mean"]) / MIB
        # Millijoules since the driver was loaded, which was an hour before the window.
        joules = (minute["energy_joules_mean"] * minute["energy_joules_n"]).fillna(0.0).cumsum()
        values["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] = 2.5e8 + np.floor(1000 * joules)
        ts = minute["ts"].to_numpy(float)
        for about, held in _holders(frame, gpu["gpu_uuid"], ts):
            for name, value in values.items():
                yield known_only(Series(name, {**labels, **about}, ts[held], value.to_numpy(float)[held]))


def _holders(frame: Frame, uuid: str, ts: Floats) -> Iterator[tuple[dict[str, object], np.ndarray]]:
    """The labels of each pod or job on a GPU, and when it was there; without labels when there was none."""
    free = np.ones(len(ts), dtype=bool)
    uses = frame.uses[frame.uses["gpu_uuid"] == uuid].merge(frame.workloads, on="workload_id")
    for key, part in uses.groupby("workload_id"):
        spans = zip(part["ts_start"], part["ts_end"], strict=True)
        held = np.any([(ts > start) & (ts <= end) for start, end in spans], axis=0)
        free &= ~held
        first = part.iloc[0]
        if first["scheduler"] == "slurm":
            yield {"hpc_job": first["job_id"]}, held
        else:
            pod = _pod_name(str(first["name"]), str(first["series_id"]), str(key))
            namespace = first["namespace"] or "default"
            yield {"exported_pod": pod, "exported_namespace": namespace, "exported_container": "main"}, held
    yield {}, free


def _pod_name(name: str, series_id: str, workload_id: str) -> str:
    """A pod of a Deployment as Kubernetes calls it: the Deployment's name, a hash of its template, and five letters."""
    letters = "bcdfghjklmnpqrstvwxz2456789"

    def spelled(text: str, count: int) -> str:
        return "".join(letters[byte % len(letters)] for byte in hashlib.sha256(text.encode()).digest()[:count])

    return f"{name}-{spelled(series_id, 9)}-{spelled(workload_id, 5)}"


def _ports(frame: Frame) -> Iterator[Series]:
    ports = frame.fabric[frame.fabric["link_layer"] == "InfiniBand"]
    for key, part in ports.groupby(["node", "device", "port"]):
        node, device, port = cast("tuple[str, str, float]", key)
        ts = part["ts"].to_numpy(float)
        management = _MANAGEMENT_BYTES_PER_SECOND * (ts - ts[0])
        values = {
            "port_data_transmitted_bytes_total": _summed(part, "tx_bytes_per_second_mean") + management,
            "port_data_received_bytes_total": _summed(part, "rx_bytes_per_second_mean") + management,
            "rate_bytes_per_second": part["line_rate_bytes_per_second"].to_numpy(float),
            "state_id": np.where(part["active_fraction"].to_numpy(float) > 0.5, 4.0, 1.0),
        }
        labels = {"instance": f"{node}:9100", "device": device, "port": int(port)}
        for name, value in values.items():
            yield known_only(Series(f"node_infiniband_{name}", labels, ts, value))


def _hosts(frame: Frame) -> Iterator[Series]:
    """Each node's name and firmware, a disk, and one core that is as busy as all of them are."""
    for _, entry in frame.nodes.iterrows():
        node, part = entry["node"], frame.host[frame.host["node"] == entry["node"]]
        ts = part["ts"].to_numpy(float)
        waiting, busy = _summed(part, "io_wait_mean"), _summed(part, "cpu_util_mean")
        disk, core = {"device": "nvme0n1"}, {"cpu": "0"}
        rows = [
            ("node_uname_info", {"nodename": node}, np.ones(len(ts))),
            ("node_disk_read_bytes_total", disk, _summed(part, "disk_read_bytes_per_second_mean")),
            ("node_disk_written_bytes_total", disk, _summed(part, "disk_write_bytes_per_second_mean")),
            ("node_cpu_seconds_total", {**core, "mode": "idle"}, (ts - ts[0]) - waiting - busy),
            ("node_cpu_seconds_total", {**core, "mode": "iowait"}, waiting),
        ]
        if firmware := _firmware(entry):
            rows.append(("node_dmi_info", firmware, np.ones(len(ts))))
        for name, labels, values in rows:
            yield known_only(Series(name, {"instance": f"{node}:9100", **labels}, ts, values))


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
