"""The Prometheus of the tutorial: a small cluster behind exporters alone, with two whole weeks of series up to now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from skuwise.tests.server_metrics.exposition import BUSY, gpu, host, kube, moments
from skuwise.tests.server_metrics.prometheus_series import Series, merged
from skuwise.tests.support.prometheus_engines import prometheus

DAYS, INTERVAL_S = 15.0, 300.0
SERVES: Mapping[str, float] = {
    **BUSY, "DCGM_FI_DEV_GPU_UTIL": 55, "DCGM_FI_DEV_POWER_USAGE": 280, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.55,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.32, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.04, "DCGM_FI_PROF_SM_ACTIVE": 0.4,
}  # fmt: skip
RESTS: Mapping[str, float] = {
    **dict.fromkeys(BUSY, 0.0), "DCGM_FI_DEV_FB_FREE": 80000, "DCGM_FI_DEV_POWER_USAGE": 70, "DCGM_FI_DEV_GPU_TEMP": 30,
}  # fmt: skip
# Two that serve on InfiniBand nodes, one that trains, and one that nobody uses.
NODES = {"serve-01": SERVES, "serve-02": SERVES, "train-01": BUSY, "spare-01": RESTS}


def fleet(end: float, seed: int) -> Iterator[Series]:
    """Nodes of eight GPUs whose work follows the day. `end`: Unix seconds."""
    rng = np.random.default_rng(seed)
    ts = moments(end - DAYS * 86400, end, INTERVAL_S)
    day = 1 + 0.3 * np.sin(2 * np.pi * ts / 86400)
    sort = {"label_node_kubernetes_io_instance_type": "Standard_ND96isr_H100_v5",
            "label_topology_kubernetes_io_region": "eastus"}  # fmt: skip
    for node, values in NODES.items():
        yield from host(node, ts, ports=8)
        yield kube("kube_node_labels", 1, ts, node=node, **sort)
        yield kube("kube_node_status_capacity", 8, ts, node=node, resource="nvidia_com_gpu", unit="integer")
        pod = f"{node.partition('-')[0]}-7d9f8b6c5-{node[-2:]}x4z"
        held = (
            {} if values is RESTS else {"exported_pod": pod, "exported_namespace": "ml", "exported_container": "main"}
        )
        for index in range(8):
            for one in gpu(node, f"GPU-{node}-{index}", ts, values, gpu=str(index), **held):
                wave = day if values is SERVES and "FB_" not in one.name else 1.0
                noise = 1 + 0.02 * rng.standard_normal(len(ts))
                yield Series(one.name, one.labels, one.ts, np.round(one.values * wave * noise, 4))


@contextmanager
def tutorial_server(folder: Path, seed: int = 11) -> Iterator[str]:
    """The address of a Prometheus whose newest sample is a few minutes old, as in a cluster that runs."""
    end = time.time() // INTERVAL_S * INTERVAL_S
    with prometheus(folder, merged(fleet(end, seed))) as url:
        yield url
