"""The watch over real servers: exporters, kube-state-metrics and an engine's page in, sightings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from skuwise.advisor.core.incident_types import WatchPass
from skuwise.advisor.core.recent import Recent
from skuwise.advisor.telemetry.source import PrometheusServer
from skuwise.advisor.watch.evaluate import evaluate
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.prometheus_engines import prometheus, victoria
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tests.support.watch_readings import CRITERIA

pytestmark = pytest.mark.slow
ENGINES = {"prometheus": prometheus, "victoria-metrics": victoria}
END = 1_790_000_400.0
HOURS = 6.0
BUSY = {
    "DCGM_FI_DEV_GPU_UTIL": 97.0, "DCGM_FI_DEV_FB_USED": 60e3, "DCGM_FI_DEV_FB_FREE": 20e3,
    "DCGM_FI_DEV_POWER_USAGE": 610.0, "DCGM_FI_DEV_SM_CLOCK": 1755.0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.97,
    "DCGM_FI_PROF_SM_ACTIVE": 0.8, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.45, "DCGM_FI_PROF_DRAM_ACTIVE": 0.5,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 2e9, "DCGM_FI_PROF_PCIE_RX_BYTES": 2e9,
}  # fmt: skip
REST = {
    **BUSY, "DCGM_FI_DEV_GPU_UTIL": 0.0, "DCGM_FI_DEV_POWER_USAGE": 115.0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.0,
    "DCGM_FI_PROF_SM_ACTIVE": 0.0, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.0, "DCGM_FI_PROF_DRAM_ACTIVE": 0.0,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 1e4, "DCGM_FI_PROF_PCIE_RX_BYTES": 1e4,
}  # fmt: skip
SPIN = {**REST, "DCGM_FI_DEV_GPU_UTIL": 100.0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1.0, "DCGM_FI_PROF_SM_ACTIVE": 0.06,
        "DCGM_FI_DEV_POWER_USAGE": 180.0}  # fmt: skip


def gpu(
    node: str, index: int, pod: str, *, then: Mapping[str, float] = BUSY, minutes: float = 0.0, until: float = END,
    every: float = 30.0,
) -> Iterator[Series]:  # fmt: skip
    """One GPU of dcgm-exporter: busy, and `then` for the last minutes, up to `until`."""
    ts = np.arange(END - HOURS * 3600 + 7.0, until, every)
    labels = {
        "UUID": f"GPU-{node}-{index}", "gpu": str(index), "modelName": "NVIDIA H100 80GB HBM3", "Hostname": node,
        "instance": f"{node}:9400", "exported_pod": pod, "exported_namespace": "team", "exported_container": "main",
    }  # fmt: skip
    for name, value in BUSY.items():
        yield Series(name, labels, ts, np.where(ts > END - minutes * 60, then[name], value))


def host(node: str, *, network: float = 1e5, cpu: float = 0.05) -> Iterator[Series]:
    """node_exporter of a node: idle CPU time of two cores, and its network."""
    ts = np.arange(END - HOURS * 3600 + 3.0, END, 30.0)
    own = {"instance": f"{node}:9100"}
    yield Series("node_uname_info", {**own, "nodename": node}, ts, np.ones(len(ts)))
    for core in ("0", "1"):
        told = {**own, "cpu": core}
        yield Series("node_cpu_seconds_total", {**told, "mode": "idle"}, ts, (ts - ts[0]) * (1 - cpu))
        yield Series("node_cpu_seconds_total", {**told, "mode": "iowait"}, ts, (ts - ts[0]) * 0.0)
    for way in ("read", "written"):
        disk = {**own, "device": "nvme0n1"}
        yield Series(f"node_disk_{way}_bytes_total", disk, ts, (ts - ts[0]) * network)


def owned(pod: str, kind: str, node: str) -> Iterator[Series]:
    """kube-state-metrics of a pod."""
    ts = np.arange(END - HOURS * 3600 + 11.0, END, 30.0)
    one, own = np.ones(len(ts)), {"namespace": "team", "pod": pod, "uid": f"uid-{pod}"}
    yield Series(
        "kube_pod_info", {**own, "node": node, "created_by_kind": kind, "created_by_name": pod.rsplit("-", 1)[0]}, ts,
        one,
    )  # fmt: skip
    yield Series("kube_pod_owner", {**own, "owner_kind": kind, "owner_name": pod.rsplit("-", 1)[0]}, ts, one)
    yield Series("kube_pod_start_time", own, ts, one * (END - 30 * 3600))
    yield Series("kube_node_info", {"node": node}, ts, one)


def fleet() -> list[Series]:
    every: list[Series] = []
    jobs = {"busy": (BUSY, 0.0), "idle": (REST, 180.0), "hung": (SPIN, 14.0)}
    for name, (then, minutes) in jobs.items():
        for index in range(2):
            every += gpu(name, index, f"{name}-0", then=then, minutes=minutes)
        every += [*host(name), *owned(f"{name}-0", "PyTorchJob", name)]
    every += [*gpu("serve", 0, "llm-1", then=REST, minutes=300), *owned("llm-1", "Deployment", "serve"), *host("serve")]
    ts = np.arange(END - HOURS * 3600, END, 30.0)
    every.append(Series("vllm:num_requests_waiting", {"namespace": "team", "pod": "llm-1"}, ts, np.full(len(ts), 2.0)))
    every += [*gpu("dark", 0, "dark-0", until=END - 1800), *owned("dark-0", "PyTorchJob", "dark"), *host("dark")]
    every += [*gpu("half", 0, "half-0"), *gpu("half", 1, "half-0", until=END - 1800), *host("half")]
    every += owned("half-0", "PyTorchJob", "half")
    # A node that Kubernetes does not know any more was taken away on purpose.
    every += gpu("gone", 0, "gone-0", until=END - 3600)
    # One metric's lines stand together in a text that promtool reads.
    return sorted(every, key=lambda one: one.name)


@pytest.fixture(scope="module", params=ENGINES)
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Recent, WatchPass]]:
    with ENGINES[request.param](tmp_path_factory.mktemp(request.param), fleet()) as url:
        recent = PrometheusServer(url, environ={}).recent(
            rulebook(), lookback_seconds=5.5 * 3600, now=END + 20, until=None
        )
        yield recent, evaluate(recent, CRITERIA)


def test_sightings_are_those_of_the_fleet(told: tuple[Recent, WatchPass]) -> None:
    _, found = told
    assert sorted((one.kind, one.code, one.subject.nodes) for one in found.sightings) == [
        ("stopped", "collectives-spin", ("hung",)),
        ("stopped", "pattern-ended", ("idle",)),
        ("telemetry-dead", "gpu-missing", ("half",)),
        ("telemetry-dead", "node-silent", ("dark",)),
    ]


def test_rows_and_holders_are_what_was_written(told: tuple[Recent, WatchPass]) -> None:
    recent, found = told
    assert END - 90 <= recent.end <= END
    place = {(gpu.node, gpu.index): n for n, gpu in enumerate(recent.gpus)}
    busy = place["busy", 0]
    assert recent.gpus[busy].sku == "H100-SXM5"
    util, tensor = recent.gpu.fine.values["util"][busy], recent.gpu.fine.values["tensor"][busy]
    assert np.nanmin(util) == pytest.approx(0.97) and np.nanmax(tensor) == pytest.approx(0.45)
    assert recent.gpu.fine.values["links_bytes_per_second"][busy][-5] == pytest.approx(4e9)
    assert recent.gpu.fine.values["mem_used_ratio"][busy][-5] == pytest.approx(0.75)
    assert (recent.gpu.fine.values["observed"][busy] > 0.5).all()
    dark = recent.gpu.fine.values["observed"][place["dark", 0]]
    assert (dark[-25:] == 0).all() and (dark[:25] > 0.5).all()
    holders = {hold.pod: (hold.holder, len(hold.gpus)) for hold in recent.holds}
    assert holders["busy-0"] == ("job", 2) and holders["llm-1"] == ("service", 1)
    assert "gone-0" not in holders or "gone" not in found.live_nodes
    assert found.live_nodes == {"busy", "idle", "hung", "serve", "half"}


def test_the_idle_job_is_charged_since_its_last_work(told: tuple[Recent, WatchPass]) -> None:
    _, found = told
    (idle,) = [one for one in found.sightings if one.subject.nodes == ("idle",)]
    assert idle.last_work == pytest.approx(END - 180 * 60, abs=400)
    assert idle.gpu_hours == pytest.approx(6.0, rel=0.05)
    assert idle.subject.owner.namespace == "team"
