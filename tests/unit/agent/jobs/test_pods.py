"""Whose work a pod is, by its chain of owners; devices by the names of dynamic resource allocation."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from skuwise.agent.jobs.ids import gang_id, series_id, workload_id
from skuwise.agent.jobs.kubernetes_files import SIZE_LIMIT, main
from skuwise.agent.jobs.pods import Objects, Pod, PodOwner, PodWork, spelled, team_of_pod, works_of
from skuwise.agent.jobs.scheduler_claims import Devices, SliceDevice
from skuwise.agent.model import Gpu

CREATED = 1_790_000_000.0
GROUP = {"kueue_x_k8s_io_pod_group_name": "g"}


def pod(name: str, kind: str | None = None, owner: str = "", **about: object) -> Pod:
    made = {"uid": f"u-{name}", "created_seconds": CREATED, **about}
    return Pod("ml", name, owner=PodOwner(kind, owner) if kind else None, **made)  # type: ignore[arg-type]


def work(first: Pod, *others: Pod, objects: Objects | None = None) -> PodWork:
    return works_of("c", [first, *others], objects or Objects())[0]


def owners(*links: tuple[str, str, str | None, str]) -> Objects:
    return Objects(
        {(kind, "ml", name): PodOwner(above, by) if above is not None else None for kind, name, above, by in links}
    )


@pytest.mark.parametrize(
    ("pod_", "objects", "kind", "name", "gang"),
    [
        (pod("a", "ReplicaSet", "web-1"), owners(("ReplicaSet", "web-1", "Deployment", "web")), "Deployment", "web", 0),
        (pod("a", "ReplicaSet", "web-1"), owners(("ReplicaSet", "web-1", None, "")), "ReplicaSet", "web-1", 0),
        (pod("a", "ReplicaSet", "web-7d4b9c6f5d"), Objects(), "Deployment", "web", 0),
        (pod("a", "ReplicaSet", "r"), owners(("ReplicaSet", "r", "Rollout", "web")), "Rollout", "web", 0),
        (pod("a", "Job", "night-29800000"), owners(("Job", "night-29800000", "CronJob", "n")), "CronJob", "n", 0),
        (pod("a", "Job", "night-29800000"), Objects(), "CronJob", "night", 0),
        (pod("a", "Job", "train-20260101"), Objects(), "Job", "train-20260101", 0),
        (pod("a", "Job", "set-w-0"), owners(("Job", "set-w-0", "JobSet", "set")), "JobSet", "set", 1),
        (pod("a", "Job", "m-launcher"), owners(("Job", "m-launcher", "MPIJob", "m")), "MPIJob", "m", 1),
        (pod("a", "PyTorchJob", "llm"), Objects(), "PyTorchJob", "llm", 1),
        (pod("a", "RayCluster", "tune-raycluster-x4k2b"), Objects(), "RayCluster", "tune", 1),
        (pod("db-0", "StatefulSet", "db"), Objects(), "StatefulSet", "db", 0),
        (pod("n-0", "StatefulSet", "n", labels={"notebook_name": "n"}), Objects(), "Notebook", "n", 0),
        (pod("n-0", "StatefulSet", "n"), owners(("StatefulSet", "n", "Notebook", "n")), "Notebook", "n", 0),
        # A pod group of Kueue; StatefulSets have one as well, whose pods are replicas.
        (pod("a", labels=GROUP), Objects(), "PodGroup", "g", 1),
        (pod("a", "Workflow", "w", labels=GROUP), Objects(), "Workflow", "w", 1),
        (pod("db-0", "StatefulSet", "db", labels=GROUP), Objects(), "StatefulSet", "db", 0),
        (pod("a", "Workflow", "w"), Objects(), "Workflow", "w", 0),
        (pod("static-node-1", "Node", "node-1"), Objects(), "Pod", "static-node-1", 0),
        (pod("vllm-70b-7d4b9c6f5d-x2k4m", is_told=False), Objects(), None, "vllm-70b", 0),
        (pod("trainer-0", is_told=False), Objects(), None, "trainer", 0),
        (pod("job-3-x2x9q", is_told=False), Objects(), None, "job", 0),
        (pod("a-b-c", is_told=False), Objects(), None, "a-b-c", 0),
        # What owns several Deployments does not make them one.
        (
            pod("a", "ReplicaSet", "d-1"),
            owners(("ReplicaSet", "d-1", "Deployment", "d"), ("Deployment", "d", "DynamoGraphDeployment", "all")),
            "Deployment", "d", 0,
        ),
    ],
)  # fmt: skip
def test_a_chain_is_followed_as_far_as_it_stands_for_one_piece_of_work(
    pod_: Pod, objects: Objects, kind: str | None, name: str, gang: int
) -> None:
    pod_work = work(pod_, objects=objects)
    assert (pod_work.kind, pod_work.name) == (kind, name)
    assert pod_work.series_id == series_id("c", "ml", None, name)
    assert (pod_work.workload_id == workload_id("c", "kubernetes", f"u-{pod_.name}")) == (not gang)


def test_a_gangs_run_is_named_by_its_oldest_pod_that_asks_for_gpus() -> None:
    launcher = pod("m-launcher", "MPIJob", "m", created_seconds=CREATED - 60, has_gpus=False)
    workers = [pod(f"m-worker-{n}", "MPIJob", "m", created_seconds=CREATED + n) for n in range(4)]
    key = gang_id("c", "ml", "MPIJob", "m", "u-m-worker-0")
    for order in itertools.permutations([launcher, *workers]):
        assert {pod_work.workload_id for pod_work in works_of("c", order, Objects())} == {key}
    without = [replace(worker, uid=None) for worker in workers]
    assert work(without[3], *without[:3]).workload_id == gang_id("c", "ml", "MPIJob", "m", f"{CREATED:.0f}")


def test_a_worker_that_is_replaced_stays_in_the_run_and_a_gang_that_begins_anew_does_not() -> None:
    first = [pod(f"w-{n}", "PyTorchJob", "j", ended_seconds=CREATED + 7200) for n in range(4)]
    first[3] = pod("w-3", "PyTorchJob", "j", ended_seconds=CREATED + 3600)
    again = pod("w-3", "PyTorchJob", "j", uid="u-new", created_seconds=CREATED + 3605, ended_seconds=CREATED + 7200)
    # Pods of one name overlap by seconds where all of them are made again at once.
    anew = [pod(f"w-{n}", "PyTorchJob", "j", uid=f"v-{n}", created_seconds=CREATED + 7195 + n) for n in range(4)]
    pod_works = works_of("c", [*anew, again, *first], Objects())
    runs = [gang_id("c", "ml", "PyTorchJob", "j", uid) for uid in ("v-0", "u-w-0")]
    assert [pod_work.workload_id for pod_work in pod_works] == [runs[0]] * 4 + [runs[1]] * 5
    assert len({pod_work.series_id for pod_work in pod_works}) == 1


def test_a_job_is_a_gang_where_its_pods_run_at_a_time() -> None:
    together = [pod(f"j-{n}", "Job", "j") for n in range(3)]
    begins = [CREATED + 3600 * n for n in range(3)]
    in_turn = [pod("j", "Job", "j", created_seconds=at, ended_seconds=at + 3500) for at in begins]
    part = [workload_id("c", "kubernetes", f"u-{pod.name}") for pod in together]
    for pods, number, is_gang in (
        (together, None, True),
        (together, 1, False),
        (in_turn, None, False),
        (in_turn, 2, True),
    ):
        objects = Objects(parallelism={("ml", "j"): number} if number else {})
        works = {pod_work.workload_id for pod_work in works_of("c", pods, objects)}
        assert works.isdisjoint([*part, workload_id("c", "kubernetes", "u-j")]) == is_gang


@pytest.mark.parametrize("has_owners", [False, True])
def test_a_group_of_a_leader_worker_set_is_one_gang_with_and_without_its_owners(has_owners: bool) -> None:
    pods = [pod(f"big-{group}", "StatefulSet", "big") for group in range(2)]
    pods += [
        pod(f"big-{group}-{n}", "StatefulSet", f"big-{group}", created_seconds=CREATED + n)
        for group in range(2) for n in (1, 2)
    ]  # fmt: skip
    links = [("StatefulSet", "big", "LeaderWorkerSet", "big")]
    links += [("StatefulSet", f"big-{group}", "Pod", f"big-{group}") for group in range(2)]
    pod_works = works_of("c", pods, owners(*links) if has_owners else Objects())
    keys = [gang_id("c", "ml", "LeaderWorkerSet", f"big-{group}", f"u-big-{group}") for group in range(2)]
    assert [pod_work.workload_id for pod_work in pod_works] == [*keys, keys[0], keys[0], keys[1], keys[1]]
    assert {(pod_work.name, pod_work.kind) for pod_work in pod_works} == {("big", "LeaderWorkerSet")}


def test_a_team_is_the_pods_label_else_its_namespaces_spelled_as_kube_state_metrics_does() -> None:
    objects = Objects(labels={"ml": {"team": "ml-team", "example_com_cost_center": "42"}})
    doubtful = pod("a", labels={"owner_conflict1": "x", "owner_conflict2": "y"})
    assert team_of_pod(pod("a", labels={"team": "search"}), objects, ["team"]) == "search"
    assert team_of_pod(pod("a"), objects, ["owner", "team"]) == "ml-team"
    assert team_of_pod(pod("a"), objects, ["example.com/costCenter"]) == "42"
    assert team_of_pod(pod("a"), objects, []) is team_of_pod(doubtful, Objects(), ["owner"]) is None
    labels = {"app.kubernetes.io/part-of": "app_kubernetes_io_part_of", "Team": "team", "a__b": "a__b", "x2Y": "x2_y"}
    assert {label: spelled(label) for label in labels} == labels


GPUS = [Gpu(f"GPU-{n}", n, "H100", minor=(0, 1, 3, 2)[n], pci_bus_id=f"00000000:{n}A:00.0") for n in range(4)]
MIGS = [
    Gpu("MIG-a", 4, "H100 MIG", kind="mig", parent_uuid="GPU-0", mig_profile="1g.10gb"),
    Gpu("MIG-b", 5, "H100 MIG", kind="mig", parent_uuid="GPU-0", mig_profile="1g.10gb"),
    Gpu("MIG-c", 6, "H100 MIG", kind="mig", parent_uuid="GPU-0", mig_profile="1g.10gb+me"),
    Gpu("MIG-d", 7, "H100 MIG", kind="mig", parent_uuid="GPU-1", mig_profile="3g.40gb"),
]


@pytest.mark.parametrize(
    ("name", "device", "uuid"),
    [
        ("gpu-0", None, None), ("gpu-1-mig-9-0-4", None, None), ("gpu-0'", None, None), ("", None, None),
        ("gpu-2", SliceDevice("GPU-2"), "GPU-2"),
        ("gpu-0", SliceDevice("GPU-elsewhere"), None),
        ("gpu-0-mig-19-0-1", SliceDevice("MIG-b"), "MIG-b"),
        ("gpu-2", SliceDevice(pci_bus_id="0000:3a:00.0"), "GPU-3"),
        ("gpu-3-mig-3g40gb-9-0", SliceDevice(parent_uuid="GPU-1", profile="3g.40gb"), "MIG-d"),
        ("gpu-0-mig-1g10gb-19-0", SliceDevice(parent_uuid="GPU-0", profile="1g.10gb"), None),
        ("gpu-0", SliceDevice(), None),
    ],
)  # fmt: skip
def test_devices_of_dra_claims(name: str, device: SliceDevice | None, uuid: str | None) -> None:
    devices = Devices([*GPUS, *MIGS], {f"node/{name}": device} if device else {})
    assert devices.resolve([f"dra:node/{name}"]) == (((uuid,), ()) if uuid else ((), (f"dra:node/{name}",)))


UID = "8f3a2c11-0d6e-4b6a-9f0a-1c2d3e4f5a6b"
CREATED_FILES = "2026-09-21T08:00:00Z"


def item(kind: str, name: str, owner: tuple[str, str] | None = None, **about: Any) -> dict[str, Any]:
    """An object as the API server shows it."""
    owners = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    labels = about.pop("labels", {})
    meta = {"name": name, "namespace": "ml", "uid": about.pop("uid", f"u-{name}"), "labels": labels}
    return {
        "apiVersion": "v1", "kind": kind, **about,
        "metadata": {**meta, "creationTimestamp": about.pop("created", CREATED_FILES), "ownerReferences": owners},
    }  # fmt: skip


def pod_files(name: str, owner: tuple[str, str] | None, image: str = "acme/train:1", **about: Any) -> dict[str, Any]:
    containers = [
        {"name": "main", "image": image, "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        {"name": "istio-proxy", "image": "istio/proxyv2:1.22", "resources": {}},
    ]
    spec = {"nodeName": "n1", "containers": containers}
    return item("Pod", name, owner, spec=spec, status={"phase": "Running", "startTime": CREATED_FILES}, **about)


def written(path: Path, *items: Any) -> Path:
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))
    new.rename(path)
    return path


def test_files_of_another_shape_give_nothing_and_never_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(what: str) -> dict[str, Any]:
        main(what, str(path), "n1", "c", "team")
        return json.loads(capsys.readouterr().out)

    path = tmp_path / "odd.json"
    pods = {"kind": "Pod", "metadata": {"name": "x", "ownerReferences": [7, {"kind": 7}], "labels": [1]}, "spec": 7}
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 1e400}}
    for text in ("", "[]", "7", '{"items": 7}', "[" * 100_000, json.dumps({"items": [7, None, pods, job]})):
        path.write_text(text)
        for answer in (said("pods"), said("slices")):
            assert answer["error"] or not (answer["slices"] or answer["by_uid"])
    with path.open("wb") as file:
        file.truncate(SIZE_LIMIT + 1)
    assert "larger than 64 MiB" in said("pods")["error"]
    # A pod of another shape does not end the reading of others; a NIC's resource has NVIDIA's prefix too.
    odd = [{**pod_files(f"odd{n}", None), "status": {"phase": phase}} for n, phase in enumerate(([], {}, None, 1))]
    nic = {"name": "main", "resources": {"limits": {"nvidia.com/hostdev": 1}}}
    elsewhere = item("Pod", "nic", spec={"nodeName": "n2", "containers": [nic]})
    written(path, *odd, elsewhere, pod_files("well", ("Job", "\x1bj"), image="a\u202e:1"))
    by_pod = {work["pod"]: work for work in said("pods")["by_uid"].values()}
    assert set(by_pod) == {"odd0", "odd1", "odd2", "odd3", "well"}
    assert (by_pod["well"]["name"], by_pod["well"]["image"]) == ("j", "a:1")
