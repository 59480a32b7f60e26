"""What the agent makes of the files that kubectl wrote: through its child process, beside a procfs and a kubelet."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from skuwise.agent.jobs.allocation import Allocations
from skuwise.agent.jobs.attribution import NodeAttribution
from skuwise.agent.jobs.environ_helper import HelperVariables, listen, serve
from skuwise.agent.jobs.ids import series_id, workload_id
from skuwise.agent.jobs.kubernetes_files import KubernetesFacts, KubernetesFiles
from skuwise.agent.jobs.podresources import PodResources
from skuwise.agent.jobs.slurm import SlurmAllocations
from skuwise.agent.model import GpuProcess, Workload
from skuwise.tests.support.sysfs_trees import BOOT_ID, Procfs
from skuwise.tests.unit.agent.jobs.test_command_line import SLURM, proc
from skuwise.tests.unit.agent.jobs.test_pods import UID, item, written
from skuwise.tests.unit.agent.jobs.test_pods import pod_files as pod


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
    slurm = SlurmAllocations(nowhere, procfs, nowhere, frozenset({0, os.getuid()}))
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


@contextmanager
def served(where: Path, procfs: Path, uids: frozenset[int]) -> Iterator[None]:
    """A helper at `where` that answers processes of these users."""
    with listen(where) as listener:
        thread = threading.Thread(target=serve, args=(listener, procfs, uids))
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def path(tmp_path: Path, proc: Procfs) -> Iterator[Path]:
    with served(tmp_path / "environ.sock", proc.root, frozenset({os.getuid()})):
        yield tmp_path / "environ.sock"


def test_the_agent_asks_only_where_it_may_not_read_itself(path: Path, tmp_path: Path) -> None:
    blind = Procfs(tmp_path / "blind")
    blind.process(700, cgroup=SLURM)
    variables = HelperVariables(blind.root, path)
    assert variables(700) == {"SLURM_JOB_ID": "42", "SLURM_JOB_NAME": "a[31m b"}
    assert variables(701) == {}
    assert path.stat().st_mode & 0o777 == 0o600


def test_another_user_is_told_nothing(tmp_path: Path, proc: Procfs) -> None:
    with served(tmp_path / "closed.sock", proc.root, frozenset({65533})):
        assert HelperVariables(tmp_path / "blind", tmp_path / "closed.sock")(700) == {}


__all__ = ["proc"]
