"""Whose work it is on Kubernetes, by series in the forms that kube-state-metrics documents, behind real engines.

Forms: kube-state-metrics, docs/metrics/workload/{pod,replicaset,job}-metrics.md and cluster/namespace-metrics.md; an
object without an owner has empty labels (older releases: ``<none>``), two replicas report everything twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.core.frame import Frame
from skuwise.agent.jobs.ids import gang_id, series_id, workload_id
from skuwise.tests.server_metrics.exposition import gpu, kube, moments
from skuwise.tests.server_metrics.prometheus_series import Series, merged
from skuwise.tests.support.prometheus_engines import ENGINES, read_series

END = 1_790_000_000.0 // 86400 * 86400
HOURS = 24
USED: dict[str, float] = {"DCGM_FI_DEV_GPU_UTIL": 90, "DCGM_FI_DEV_FB_USED": 6e4}
REPLICAS = ("10.0.0.1:8080", "10.0.0.2:8080")


def at(hour: float) -> float:
    return END - (HOURS - hour) * 3600


def span(start: float, end: float) -> np.ndarray:
    """Moments of scrapes after one hour of the day up to another."""
    ticks = moments(END - HOURS * 3600, END)
    return ticks[(ticks > at(start)) & (ticks <= at(end))]


DAY = span(0, HOURS)


@dataclass
class Cluster:
    """Pods on GPUs and what kube-state-metrics reports of them. `series`: of both replicas."""

    series: list[Series] = field(default_factory=list)
    gpus: int = 0

    def tell(self, name: str, value: float, when: np.ndarray, **labels: str) -> None:
        if len(when):
            self.series += [kube(name, value, when, replica, **labels) for replica in REPLICAS]

    def pod(
        self, name: str, uid: str, owner: tuple[str, str] | None, *, start: float = 0, end: float = HOURS,
        uuid: str | None = None, images: Mapping[str, str] | None = None, reported: bool = True, **labels: str,
    ) -> None:  # fmt: skip
        """A pod with one GPU (its own unless `uuid` names one) from an hour to an hour; it is made half a minute before
        it starts. `images`: of its containers; `reported`: whether kube-state-metrics has it; `labels`: its own."""
        self.gpus += 1
        when, base = span(start, end), {"namespace": "ml", "pod": name, "uid": uid}
        node, exported = f"n-{uuid or self.gpus}", {"namespace": "ml", "pod": name, "container": "main"}
        self.series += gpu(node, uuid or f"GPU-{self.gpus:04}", when, USED, **exported)
        if not reported:
            return
        kind, by = owner or ("", "")
        self.tell("kube_pod_info", 1, when, **base, created_by_kind=kind, created_by_name=by, node=f"n-{uid}")
        controls = "true" if owner else ""
        self.tell("kube_pod_owner", 1, when, **base, owner_kind=kind, owner_name=by, owner_is_controller=controls)
        self.tell("kube_pod_created", at(start) - 30, when, **base)
        self.tell("kube_pod_start_time", at(start), when, **base)
        for container, spec in (images or {}).items():
            about = {"container": container, "image": f"docker.io/{spec}", "image_spec": spec, "container_id": uid}
            self.tell("kube_pod_container_info", 1, when, **base, **about)
        asked = {"container": "main", "resource": "nvidia_com_gpu", "unit": "integer", "node": f"n-{uid}"}
        self.tell("kube_pod_container_resource_requests", 1, when, **base, **asked)
        if labels:
            self.tell("kube_pod_labels", 1, when, **base, **labels)


def fleet() -> Cluster:
    cluster = Cluster()
    images = {"main": "vllm/vllm-openai:v0.6.4", "istio-proxy": "istio/proxyv2:1.22"}
    # A rolling update: two ReplicaSets of one Deployment, three pods each.
    for hash_, start, end in (("7d4b9c6f5d", 0.0, 12.0), ("5f6d8c9b7c", 12.0, HOURS)):
        owner = {"owner_kind": "Deployment", "owner_name": "chat", "owner_is_controller": "true"}
        cluster.tell("kube_replicaset_owner", 1, DAY, namespace="ml", replicaset=f"chat-{hash_}", **owner)
        for n, tail in enumerate(("x2k4m", "zz9fb", "q7wtl")):
            name, of = f"chat-{hash_}-{tail}", ("ReplicaSet", f"chat-{hash_}")
            cluster.pod(name, f"u-chat-{hash_}-{n}", of, start=start, end=end, images=images)
    # Gangs on four nodes.
    for n in range(4):
        cluster.pod(f"llama-worker-{n}", f"u-py-{n}", ("PyTorchJob", "llama"), start=2, end=9)
        cluster.pod(f"sim-{n}-{'bcdf'[n]}7klm", f"u-ix-{n}", ("Job", "sim"), start=3, end=5)
    owner = {"owner_kind": "", "owner_name": "", "owner_is_controller": ""}
    cluster.tell("kube_job_owner", 1, span(0, 6), namespace="ml", job_name="sim", **owner)
    # The same PyTorchJob again, on the same names.
    for n in range(4):
        cluster.pod(f"llama-worker-{n}", f"u-py2-{n}", ("PyTorchJob", "llama"), start=9 + (n + 1) / 60, end=12)
    # A StatefulSet's pod that was recreated on the same GPU.
    cluster.pod("store-0", "u-store-a", ("StatefulSet", "store"), end=13.25, uuid="GPU-store")
    more: dict[str, Any] = {"label_team": "storage", "label_x_conflict1": "z"}
    cluster.pod("store-0", "u-store-b", ("StatefulSet", "store"), start=13.25, uuid="GPU-store", **more)
    # A pod group of Kueue: bare pods.
    for n in range(2):
        cluster.pod(f"solo-{'bcdf'[n]}7klm", f"u-kueue-{n}", None, label_kueue_x_k8s_io_pod_group_name="solve")
    # A bare pod that is named like a Deployment's, and a pod of which nothing is reported.
    cluster.pod("bare-7d4b9c6f5d-x2k4m", "u-bare", None)
    cluster.pod("untold-7d4b9c6f5d-x2k4m", "u-untold", None, reported=False)
    cluster.tell("kube_namespace_labels", 1, DAY, namespace="ml", label_team="search")
    return cluster


@pytest.fixture(scope="module", params=ENGINES)
def frame(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Frame:
    series, folder = merged(fleet().series), tmp_path_factory.mktemp(request.param)
    return read_series(request.param, folder, series, END + 600, HOURS * 3600, team_labels=("team",))


def named(frame: Frame, name: str) -> pd.DataFrame:
    return frame.workloads[frame.workloads["name"] == name].sort_values("first_seen")


def test_a_rolling_update_is_one_series_of_replicas(frame: Frame) -> None:
    workloads = named(frame, "chat")
    assert set(workloads["series_id"]) == {series_id("", "ml", None, "chat")}
    uids = [f"u-chat-{suffix}-{n}" for suffix in ("7d4b9c6f5d", "5f6d8c9b7c") for n in range(3)]
    assert set(workloads["workload_id"]) == {workload_id("", "kubernetes", uid) for uid in uids}
    for column, value in {
        "controller_kind": "Deployment",
        "image": "vllm/vllm-openai:v0.6.4",
        "container": "main",
    }.items():
        assert set(workloads[column]) == {value}


@pytest.mark.parametrize(
    ("name", "kind", "gang", "oldest", "nodes"),
    [
        ("sim", "Job", "sim", "u-ix-0", 4),
        ("solve", None, "solve", "u-kueue-0", 2),  # a pod group of Kueue
    ],
)
def test_a_gang_is_one_workload_over_its_nodes(frame: Frame, name, kind, gang, oldest, nodes: int) -> None:
    workloads = named(frame, name)
    assert list(workloads["workload_id"]) == [gang_id("", "ml", kind or "PodGroup", gang, oldest)]
    assert kind is None or list(workloads["controller_kind"]) == [kind]
    uses = frame.uses[frame.uses["workload_id"] == workloads["workload_id"].iloc[0]]
    assert uses["node"].nunique() == uses["gpu_uuid"].nunique() == nodes


def test_a_gang_made_anew_under_its_name_is_another_run_of_the_series(frame: Frame) -> None:
    workloads = named(frame, "llama")
    ids = [gang_id("", "ml", "PyTorchJob", "llama", f"u-{suffix}-0") for suffix in ("py", "py2")]
    assert list(workloads["workload_id"]) == ids
    assert workloads["series_id"].nunique() == 1
    for key, start in zip(workloads["workload_id"], (2, 9 + 1 / 60), strict=True):
        uses = frame.uses[frame.uses["workload_id"] == key]
        assert uses["gpu_uuid"].nunique() == 4 and uses["ts_start"].min() == at(start)


def test_a_pod_made_anew_under_one_name_is_another_workload_of_the_series(frame: Frame) -> None:
    workloads = named(frame, "store")
    assert list(workloads["workload_id"]) == [workload_id("", "kubernetes", f"u-store-{suffix}") for suffix in "ab"]
    first, second = (frame.uses[frame.uses["workload_id"] == key] for key in workloads["workload_id"])
    assert first["ts_end"].max() == pytest.approx(at(13.25), abs=60) and second["ts_start"].min() == at(13.25)
    assert list(workloads["team"]) == ["search", "storage"]


def test_a_name_is_read_only_where_nothing_tells_an_owner(frame: Frame) -> None:
    assert list(named(frame, "bare-7d4b9c6f5d-x2k4m")["controller_kind"]) == ["Pod"]
    workloads = named(frame, "untold")
    assert list(workloads["workload_id"]) == [workload_id("", "kubernetes", "pod", "ml", "untold-7d4b9c6f5d-x2k4m")]
    assert workloads["controller_kind"].isna().all()


def test_no_use_is_lost_and_none_counts_twice(frame: Frame) -> None:
    hours = (frame.uses["ts_end"] - frame.uses["ts_start"]).sum() / 3600
    assert hours == pytest.approx(6 * 12 + 4 * (7 + 2 + 3) - 10 / 60 + 5 * 24, rel=0.01)
