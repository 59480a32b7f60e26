"""Series as exporters give them, of GPUs in constant use: a node, its GPUs, its ports and who holds them."""

from collections.abc import Iterator, Mapping

import numpy as np

from .prometheus_series import Floats, Series

BUSY: dict[str, float] = {
    "DCGM_FI_DEV_GPU_UTIL": 90, "DCGM_FI_DEV_FB_USED": 60000, "DCGM_FI_DEV_FB_FREE": 20000,
    "DCGM_FI_DEV_POWER_USAGE": 500, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.9, "DCGM_FI_PROF_DRAM_ACTIVE": 0.5,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.3, "DCGM_FI_PROF_SM_ACTIVE": 0.8, "DCGM_FI_DEV_GPU_TEMP": 60,
}  # fmt: skip


def moments(start: float, end: float, every: float = 60.0) -> Floats:
    """When a target is scraped, Unix seconds."""
    return np.arange(start + every, end + 1, every)


def gpu(node: str, uuid: str, ts: Floats, values: Mapping[str, float] = BUSY, **labels: str) -> Iterator[Series]:
    """dcgm-exporter's series of one GPU. `labels`: beside or in place of the usual ones."""
    part = {
        "UUID": uuid, "gpu": "0", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": node, "job": "dcgm",
        "instance": f"{node}:9400", **labels,
    }  # fmt: skip
    for name, value in values.items():
        yield Series(name, part, ts, np.full(len(ts), float(value)))


def host(node: str, ts: Floats, ports: int = 0) -> Iterator[Series]:
    """node_exporter's name of a node, and InfiniBand ports that carry nothing."""
    yield Series("node_uname_info", {"instance": f"{node}:9100", "nodename": node}, ts, np.ones(len(ts)))
    about = {
        "node_infiniband_port_data_transmitted_bytes_total": 0.0, "node_infiniband_port_data_received_bytes_total": 0.0,
        "node_infiniband_rate_bytes_per_second": 5e10, "node_infiniband_state_id": 4.0,
    }  # fmt: skip
    for port in range(ports):
        labels = {"instance": f"{node}:9100", "device": f"mlx5_{port}", "port": "1"}
        for name, value in about.items():
            yield Series(name, labels, ts, np.full(len(ts), value))


def kube(name: str, value: float, ts: Floats, replica: str = "10.0.0.1:8080", **labels: str) -> Series:
    """A series of kube-state-metrics."""
    return Series(name, {"job": "ksm", "instance": replica, **labels}, ts, np.full(len(ts), value))
