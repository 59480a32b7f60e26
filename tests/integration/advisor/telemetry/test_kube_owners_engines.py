"""Whose work it is on Kubernetes, by series in the forms that kube-state-metrics documents, behind real engines.

Forms: kube-state-metrics, docs/metrics/workload/{pod,replicaset,job}-metrics.md and cluster/namespace-metrics.md; an
object without an owner has empty labels (older releases: ``<none>``), two replicas tell everything twice.
"""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.telemetry.prometheus.client.client import Client, PrometheusSettings
from skuwise.advisor.telemetry.prometheus.client.range_planner import Cache
from skuwise.advisor.telemetry.prometheus.reader import ServerReading, read_frames
from skuwise.agent.jobs.ids import gang_id, series_id, workload_id
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.server_metrics.prometheus_series import Series, merged
from skuwise.tests.support.doctor_fleets import diagnosed_frame
from skuwise.tests.support.prometheus_engines import ENGINES
from skuwise.tests.support.rulebooks import rulebook

END = 1_790_000_000.0 // 86400 * 86400
HOURS, EVERY = 24, 60.0
REPLICAS = ("10.0.0.1:8080", "10.0.0.2:8080")
CATALOG = load_catalog()


def at(hour: float) -> float:
    return END - (HOURS - hour) * 3600


def span(start: float, end: float) -> np.ndarray:
    """Moments of scrapes after one hour of the day up to another."""
    ticks = np.arange(END - HOURS * 3600 + EVERY, END + 1, EVERY)
    return ticks[(ticks > at(start)) & (ticks <= at(end))]


@dataclass
class Cluster:
    """Pods on GPUs and what kube-state-metrics reports of them. `series`: of both replicas."""

    series: list[Series] = field(default_factory=list)
    gpus: int = 0

    def tell(self, name: str, value: float, when: np.ndarray, **labels: str) -> None:
        for replica in REPLICAS if len(when) else ():
            own = {"job": "kube-state-metrics", "instance": replica, **labels}
            self.series.append(Series(name, own, when, np.full(len(when), value)))

    def pod(
        self, name: str, uid: str, owner: tuple[str, str] | None, *, start: float = 0, end: float = HOURS,
        gpu: str | None = None, image: str = "", namespace: str = "ml", beside: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """A pod with one GPU (its own unless `gpu` names one) from an hour to an hour; it is made half a minute before
        it starts. `beside`: images of other containers."""
        when, base = span(start, end), {"namespace": namespace, "pod": name, "uid": uid}
        kind, by = owner or ("", "")
        self.tell("kube_pod_info", 1, when, **base, created_by_kind=kind, created_by_name=by, node=f"n-{uid}")
        controls = "true" if owner else ""
        self.tell("kube_pod_owner", 1, when, **base, owner_kind=kind, owner_name=by, owner_is_controller=controls)
        self.tell("kube_pod_created", at(start) - 30, when, **base)
        self.tell("kube_pod_start_time", at(start), when, **base)
        for container, one in {"main": image, **(beside or {})}.items():
            if one:
                reported = {"container": container, "image": f"docker.io/{one}", "image_spec": one, "container_id": uid}
                self.tell("kube_pod_container_info", 1, when, **base, **reported)
        asked = {"container": "main", "resource": "nvidia_com_gpu", "unit": "integer", "node": f"n-{uid}"}
        self.tell("kube_pod_container_resource_requests", 1, when, **base, **asked)
        if labels:
            self.tell("kube_pod_labels", 1, when, **base, **labels)
        self.gpus += 1
        exported = {
            "UUID": gpu or f"GPU-{self.gpus:04}", "gpu": "0", "Hostname": f"n-{gpu or self.gpus}",
            "modelName": "NVIDIA H100 80GB HBM3", "job": "dcgm", "instance": f"n-{gpu or self.gpus}:9400",
            "pod": name, "namespace": namespace, "container": "main",
        }  # fmt: skip
        for metric, value in (("DCGM_FI_DEV_GPU_UTIL", 90.0), ("DCGM_FI_DEV_FB_USED", 6e4)):
            self.series.append(Series(metric, exported, when, np.full(len(when), value)))

    def owner(self, kind: str, name: str, owner: tuple[str, str] | None, *, end: float = HOURS) -> None:
        series, label = {"ReplicaSet": ("kube_replicaset_owner", "replicaset"), "Job": ("kube_job_owner", "job_name")}[
            kind
        ]
        above, by = owner or ("", "")
        reported = {"owner_kind": above, "owner_name": by, "owner_is_controller": "true" if owner else ""}
        self.tell(series, 1, span(0, end), namespace="ml", **{label: name}, **reported)


def fleet() -> Cluster:
    cluster = Cluster()
    # A rolling update: two ReplicaSets of one Deployment, three pods each.
    for hash_, start, end in (("7d4b9c6f5d", 0.0, 12.0), ("5f6d8c9b7c", 12.0, HOURS)):
        cluster.owner("ReplicaSet", f"chat-{hash_}", ("Deployment", "chat"))
        for n, tail in enumerate(("x2k4m", "zz9fb", "q7wtl")):
            cluster.pod(
                f"chat-{hash_}-{tail}", f"u-chat-{hash_}-{n}", ("ReplicaSet", f"chat-{hash_}"), start=start, end=end,
                image="vllm/vllm-openai:v0.6.4", beside={"istio-proxy": "istio/proxyv2:1.22"},
            )  # fmt: skip
    # Gangs on four nodes.
    for n in range(4):
        cluster.pod(f"llama-worker-{n}", f"u-py-{n}", ("PyTorchJob", "llama"), start=2, end=9)
        cluster.pod(f"sim-{n}-{'bcdf'[n]}7klm", f"u-ix-{n}", ("Job", "sim"), start=3, end=5)
    cluster.owner("Job", "sim", None, end=6)
    # The same PyTorchJob again, on the same names.
    for n in range(4):
        cluster.pod(f"llama-worker-{n}", f"u-py2-{n}", ("PyTorchJob", "llama"), start=9 + (n + 1) / 60, end=12)
    # A StatefulSet's pod that was recreated on the same GPU.
    cluster.pod("store-0", "u-store-a", ("StatefulSet", "store"), end=13.25, gpu="GPU-store")
    cluster.pod("store-0", "u-store-b", ("StatefulSet", "store"), start=13.25, gpu="GPU-store")
    # A pod group of Kueue: bare pods.
    for n in range(2):
        cluster.pod(
            f"solo-{'bcdf'[n]}7klm", f"u-kueue-{n}", None, labels={"label_kueue_x_k8s_io_pod_group_name": "solve"}
        )
    # A bare pod that is named like a Deployment's, and a pod of which nothing is reported.
    cluster.pod("bare-7d4b9c6f5d-x2k4m", "u-bare", None)
    before = len(cluster.series)
    cluster.pod("untold-7d4b9c6f5d-x2k4m", "u-untold", None)
    cluster.series[before:] = [one for one in cluster.series[before:] if not one.name.startswith("kube_")]
    for replica in REPLICAS:
        labels = {"job": "kube-state-metrics", "instance": replica, "namespace": "ml", "label_team": "search"}
        cluster.series.append(Series("kube_namespace_labels", labels, span(0, HOURS), np.ones(len(span(0, HOURS)))))
        labels = labels | {"pod": "store-0", "uid": "u-store-b", "label_team": "storage", "label_x_conflict1": "z"}
        cluster.series.append(Series("kube_pod_labels", labels, span(13.25, HOURS), np.ones(len(span(13.25, HOURS)))))
    return cluster


@pytest.fixture(scope="module", params=ENGINES)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    place = tmp_path_factory.mktemp(request.param)
    series = merged(fleet().series)
    with (
        ENGINES[request.param](place, series) as url,
        contextlib.closing(Client(url, PrometheusSettings(), {})) as client,
    ):
        yield client
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def frame(client: Client) -> Frame:
    reading = ServerReading(client, Cache(None, ""), (), END + 600, team_labels=("team",))
    return next(read_frames(reading, CATALOG, since_seconds=HOURS * 3600))


def named(frame: Frame, name: str) -> pd.DataFrame:
    return frame.workloads[frame.workloads["name"] == name].sort_values("first_seen")


def test_a_rolling_update_is_one_series_of_replicas(frame: Frame) -> None:
    own = named(frame, "chat")
    assert set(own["series_id"]) == {series_id("", "ml", None, "chat")}
    assert set(own["workload_id"]) == {
        workload_id("", "kubernetes", f"u-chat-{one}-{n}") for one in ("7d4b9c6f5d", "5f6d8c9b7c") for n in range(3)
    }
    assert set(own["controller_kind"]) == {"Deployment"} and set(own["image"]) == {"vllm/vllm-openai:v0.6.4"}
    assert set(own["container"]) == {"main"}


@pytest.mark.parametrize(
    ("name", "kind", "gang", "oldest", "nodes"),
    [
        ("sim", "Job", "sim", "u-ix-0", 4),
        ("solve", None, "solve", "u-kueue-0", 2),  # a pod group of Kueue
    ],
)
def test_a_gang_is_one_workload_over_its_nodes(frame: Frame, name, kind, gang, oldest, nodes: int) -> None:
    own = named(frame, name)
    assert list(own["workload_id"]) == [gang_id("", "ml", kind or "PodGroup", gang, oldest)]
    assert kind is None or list(own["controller_kind"]) == [kind]
    uses = frame.uses[frame.uses["workload_id"] == own["workload_id"].iloc[0]]
    assert uses["node"].nunique() == uses["gpu_uuid"].nunique() == nodes


def test_a_gang_made_anew_under_its_name_is_another_run_of_the_series(frame: Frame) -> None:
    own = named(frame, "llama")
    assert list(own["workload_id"]) == [gang_id("", "ml", "PyTorchJob", "llama", f"u-{one}-0") for one in ("py", "py2")]
    assert own["series_id"].nunique() == 1
    for key, start in zip(own["workload_id"], (2, 9 + 1 / 60), strict=True):
        uses = frame.uses[frame.uses["workload_id"] == key]
        assert uses["gpu_uuid"].nunique() == 4 and uses["ts_start"].min() == at(start)


def test_a_pod_made_anew_under_one_name_is_another_workload_of_the_series(frame: Frame) -> None:
    own = named(frame, "store")
    assert list(own["workload_id"]) == [workload_id("", "kubernetes", f"u-store-{one}") for one in "ab"]
    first, second = (frame.uses[frame.uses["workload_id"] == key] for key in own["workload_id"])
    assert first["ts_end"].max() == pytest.approx(at(13.25), abs=60) and second["ts_start"].min() == at(13.25)
    assert list(own["team"]) == ["search", "storage"]


def test_a_name_is_read_only_where_nothing_tells_an_owner(frame: Frame) -> None:
    assert list(named(frame, "bare-7d4b9c6f5d-x2k4m")["controller_kind"]) == ["Pod"]
    own = named(frame, "untold")
    assert list(own["workload_id"]) == [workload_id("", "kubernetes", "pod", "ml", "untold-7d4b9c6f5d-x2k4m")]
    assert own["controller_kind"].isna().all()


def test_doctor_counts_the_workloads_whose_owner_is_known(frame: Frame) -> None:
    diagnosis = diagnosed_frame(frame, rulebook(CATALOG))
    assert diagnosis.kubernetes["observed"] - diagnosis.kubernetes["named"] == 1
    (gap,) = [gap for gap in diagnosis.gaps if gap.code == "pod-owners-unknown"]
    assert f"for 1 of {diagnosis.kubernetes['observed']} workloads" in gap.what and "kube_pod_(owner|info" in gap.add


def test_no_use_is_lost_and_none_counts_twice(frame: Frame) -> None:
    hours = (frame.uses["ts_end"] - frame.uses["ts_start"]).sum() / 3600
    assert hours == pytest.approx(6 * 12 + 4 * (7 + 2 + 3) - 10 / 60 + 5 * 24, rel=0.01)
