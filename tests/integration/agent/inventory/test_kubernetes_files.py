"""What the agent makes of the files that kubectl wrote: through its child process, beside a procfs and a kubelet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from skuwise.agent.inventory.attribution.allocation import Allocations
from skuwise.agent.inventory.attribution.attribution import NodeAttribution
from skuwise.agent.inventory.identity.ids import gang_id, series_id, workload_id
from skuwise.agent.inventory.kubernetes.files import KubernetesFacts, KubernetesFiles
from skuwise.agent.inventory.kubernetes.podresources import PodResources
from skuwise.agent.inventory.slurm.allocations import SlurmAllocations
from skuwise.agent.model import GpuProcess, Workload
from skuwise.tests.support.sysfs_trees import BOOT_ID, Procfs
from skuwise.tests.unit.agent.inventory.test_pods import UID, item, written
from skuwise.tests.unit.agent.inventory.test_pods import pod_files as pod


@pytest.fixture
def pods_file(tmp_path: Path) -> Path:
    return tmp_path / "pods.json"


@pytest.fixture
def files(tmp_path: Path, pods_file: Path) -> Iterator[KubernetesFiles]:
    made = KubernetesFiles("c", "n1", pods_file, tmp_path / "slices.json", ["team"])
    yield made
    made.close()


def until(files: KubernetesFiles, wanted: Callable[[KubernetesFacts], bool]) -> KubernetesFacts:
    """Look until the child has answered so; the agent itself never waits."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        facts = files.read()
        if wanted(facts):
            return facts
        time.sleep(0.02)
    raise AssertionError("the child's answer did not come")


def attribution(tmp_path: Path, files: KubernetesFiles) -> NodeAttribution:
    nowhere, procfs = tmp_path / "nowhere", Procfs(tmp_path / "proc").root
    slurm = SlurmAllocations(nowhere, procfs, nowhere, dict, frozenset({0, os.getuid()}))  # type: ignore[arg-type]
    allocations = Allocations(slurm, PodResources(nowhere), nowhere, nowhere, files)
    return NodeAttribution(procfs, BOOT_ID, "c", lambda uid: None, "n1", allocations=allocations)


def running(tmp_path: Path, uid: str, pid: int = 700) -> None:
    Procfs(tmp_path / "proc").process(
        pid, argv=["python", "train.py"], cgroup=f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/x"
    )


def only(workloads: tuple[Workload, ...]) -> Workload:
    (found,) = workloads
    return found


def test_a_pod_is_named_by_its_uid_as_kube_state_metrics_would_name_it(
    tmp_path: Path, pods_file: Path, files: KubernetesFiles
) -> None:
    written(
        pods_file, pod("chat-7d4b9c6f5d-x2k4m", ("ReplicaSet", "chat-7d4b9c6f5d"), "vllm/vllm-openai:v0.6", uid=UID),
        item("ReplicaSet", "chat-7d4b9c6f5d", ("Deployment", "chat")),
        item("Namespace", "ml", labels={"team": "search"}),
    )  # fmt: skip
    until(files, lambda facts: bool(facts.by_uid))
    running(tmp_path, UID)
    found = only(attribution(tmp_path, files).attribute([GpuProcess("GPU-0", 700)])[0])
    assert found.workload_id == workload_id("c", "kubernetes", UID)
    assert found.series_id == series_id("c", "ml", None, "chat")
    assert (found.name, found.controller_kind, found.pod) == ("chat", "Deployment", "chat-7d4b9c6f5d-x2k4m")
    assert (found.image, found.team, found.namespace) == ("vllm/vllm-openai:v0.6", "search", "ml")


def test_every_node_of_a_gang_gives_it_the_same_id(tmp_path: Path, pods_file: Path, files: KubernetesFiles) -> None:
    names = [f"llm-worker-{n}" for n in range(4)]
    uids = [f"{n}{UID[1:]}" for n in range(4)]
    pods = [pod(name, ("PyTorchJob", "llm"), uid=uid) for name, uid in zip(names, uids, strict=True)]
    written(pods_file, *pods)
    until(files, lambda facts: bool(facts.by_uid))
    ids = set()
    for n, uid in enumerate(uids):
        running(tmp_path, uid, 700 + n)
        ids.add(only(attribution(tmp_path, files).attribute([GpuProcess("GPU-0", 700 + n)])[0]).workload_id)
    assert ids == {gang_id("c", "ml", "PyTorchJob", "llm", uids[0])}


def test_a_file_that_changes_is_read_anew_and_a_broken_one_leaves_what_was_known(
    pods_file: Path, files: KubernetesFiles
) -> None:
    assert {one.reason for one in files.read().absences} == {"kubernetes-file"}
    written(pods_file, pod("a", None))
    assert set(until(files, lambda facts: bool(facts.by_uid)).by_uid) == {"u-a"}
    written(pods_file, pod("b", None))
    assert set(until(files, lambda facts: "u-b" in facts.by_uid).by_uid) == {"u-b"}
    pods_file.write_text('{"items": [')
    facts = until(files, lambda facts: any("not JSON" in one.detail for one in facts.absences))
    assert set(facts.by_uid) == {"u-b"}
