"""Pods that share GPUs: requests for shares, groups of KAI Scheduler, and what the exporter gives each pod."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.telemetry.prometheus.client.response import Grid, SeriesAnswer
from skuwise.advisor.telemetry.prometheus.owners.kube import REQUESTS
from skuwise.advisor.telemetry.prometheus.rows.gpus import About
from skuwise.advisor.telemetry.prometheus.rows.workloads import GPU_GROUP, dcgm_uses, with_groups, with_requests

HOUR, nan = 3600.0, float("nan")
GRID = Grid(HOUR, 10 * HOUR, HOUR)
ABOUT = {f"GPU-{n}": About("n1", uuid=f"GPU-{n}") for n in range(2)}
RESERVATION = ("kai-resource-reservation", "gpu-reservation-n1-x2k4m")


def use(pod: str, gpu: str = "GPU-0", namespace: str = "ml") -> dict[str, object]:
    return {
        "workload_id": f"w-{pod}", "node": "n1", "gpu_uuid": gpu, "basis": "allocation", "ts_start": 0.0,
        "ts_end": 10 * HOUR, "shared": 0.0, "scheduler": "kubernetes", "namespace": namespace, "pod": pod,
        "cluster": "", "name": pod,
    }  # fmt: skip


def requests(*pods: str, resource: str = "nvidia_com_gpu", start: float = 0.0, end: float = 10.0) -> pd.DataFrame:
    rows = [("n1", "ml", pod, "main", resource, 1.0, start * HOUR, end * HOUR) for pod in pods]
    return pd.DataFrame(rows, columns=REQUESTS)


@pytest.mark.parametrize(
    ("named", "wanted", "gpus"),
    [
        # More replicas than GPUs: each unnamed pod is on the GPU with the fewest holders.
        ({"a": "GPU-0"}, requests("a", "b", "c", "d"), {"a": "GPU-0", "b": "GPU-1", "c": "GPU-0", "d": "GPU-1"}),
        # A resource for shares, without a pod in any series.
        ({}, requests("a", "b", "c", resource="nvidia_com_gpu_shared"), {"a": "GPU-0", "b": "GPU-1", "c": "GPU-0"}),
    ],
)
def test_pods_that_request_shares_hold_the_gpus(
    named: dict[str, str], wanted: pd.DataFrame, gpus: dict[str, str]
) -> None:
    uses = pd.DataFrame([use(pod, gpu) for pod, gpu in named.items()])
    found = with_requests(uses, wanted, ABOUT, HOUR, offered={})
    assert dict(zip(found["pod"], found["gpu_uuid"], strict=True)) == gpus
    assert set(found["shared"]) == {1.0}


@pytest.mark.parametrize(
    "wanted",
    [
        requests("a", "b"),
        # A GPU of which no series is left.
        requests("a", "b", "c"),
        # One pod follows another within a row.
        pd.concat([requests("a", "b", end=5), requests("c", "d", start=4)]),
    ],
)
def test_whole_gpus_are_left_to_those_whom_series_name(wanted: pd.DataFrame) -> None:
    uses = pd.DataFrame([use("a")])
    assert with_requests(uses, wanted, ABOUT, HOUR, offered={"n1": 2}) is uses


def test_the_pods_of_a_gpu_group_hold_the_gpu_reserved_for_them() -> None:
    uses = pd.DataFrame([use(RESERVATION[1], namespace=RESERVATION[0]), use("b", "GPU-1")])
    told = [(*RESERVATION, "g1", 10), ("ml", "half-0", "g1", 10), ("ml", "half-1", "g1", 4), ("ml", "c", "g2", 10)]
    labels = tuple({"namespace": space, "pod": pod, GPU_GROUP: group} for space, pod, group, _ in told)
    values = np.array([[1.0] * hours + [np.nan] * (10 - hours) for *_, hours in told])
    found = with_groups(
        uses, lambda asks, _: {asks[0].name: SeriesAnswer(labels, values)}, {"kube_pod_labels"}, (), GRID
    )
    columns = found["gpu_uuid"], found["ts_end"] / HOUR, found["shared"]
    spans = dict(zip(found["pod"], zip(*columns, strict=True), strict=True))
    assert spans == {"half-0": ("GPU-0", 10, 1), "half-1": ("GPU-0", 4, 1), "b": ("GPU-1", 10, 0)}
    assert with_groups(uses, lambda *_: {}, (), (), GRID) is uses


@pytest.mark.parametrize(
    ("used", "shares"),
    [
        ({"a": 0.6, "b": 0.2}, {"a": 0.75, "b": 0.25}),
        ({"a": 0.0, "b": 0.0}, {"a": 0.5, "b": 0.5}),
        ({"a": 0.6, "b": nan}, {"a": 1.0, "b": nan}),
    ],
)
def test_a_pods_own_use_of_a_device_is_its_share(used: dict[str, float], shares: dict[str, float]) -> None:
    labels = tuple({"UUID": "GPU-0", "pod": pod, "namespace": "ml"} for pod in used)
    pods = SeriesAnswer(labels, np.array([[value] * GRID.count for value in used.values()]))
    device = {"UUID": "GPU-0"}
    counts = SeriesAnswer((device, *labels), np.full((len(labels) + 1, GRID.count), 60.0))
    found = dcgm_uses(
        counts, GRID, ABOUT, intervals={"GPU-0": 60.0}, taken=set(), key_of=lambda one: one["UUID"], pods=pods
    )
    assert dict(zip(found["pod"], found["share"], strict=True)) == pytest.approx(shares, nan_ok=True)
