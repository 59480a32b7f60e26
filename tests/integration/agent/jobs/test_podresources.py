"""Pods and their GPUs through the child processes: from a real gRPC server on a Unix socket, and kubectl's files."""

import sys
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from skuwise.agent.jobs.attribution import NodeAttribution
from skuwise.agent.jobs.ids import series_id, workload_id
from skuwise.agent.jobs.kubernetes_files import KubernetesFiles
from skuwise.agent.jobs.podresources import METHOD, PodResources
from skuwise.agent.jobs.scheduler_claims import Devices, SchedulerState
from skuwise.agent.model import Gpu, GpuProcess
from skuwise.tests.support.sysfs_trees import Procfs
from skuwise.tests.unit.agent.jobs.test_allocation import message
from skuwise.tests.unit.agent.jobs.test_attribution import attribution
from skuwise.tests.unit.agent.jobs.test_pods import UID, item, written
from skuwise.tests.unit.agent.jobs.test_pods import pod_files as pod

grpc = pytest.importorskip("grpc")

Found = TypeVar("Found")
GPUS = [Gpu(f"GPU-{i}", i, "H100", minor=i) for i in range(4)]


class KubeletServer:
    """Answers List with `answer`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answer: Callable[[], bytes] = bytes
        self._server = grpc.server(futures.ThreadPoolExecutor(1))
        handler = grpc.unary_unary_rpc_method_handler(lambda request, context: self.answer())
        service, method = METHOD.strip("/").split("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        self._server.add_insecure_port(f"unix:{path}")
        self._server.start()

    def pods(self, *pods: tuple[str, tuple[str, ...]]) -> None:
        """Pods of namespace ml and their devices, of nvidia.com/gpu where they are not ``RESOURCE DEVICE``."""

        def container(devices: tuple[str, ...]) -> bytes:
            parts = [device.rpartition(" ") for device in devices]
            return message((1, "main"), *((2, message((1, r or "nvidia.com/gpu"), (2, d))) for r, _, d in parts))

        raw = message(*((1, message((1, name), (2, "ml"), (3, container(gpus)))) for name, gpus in pods))
        self.answer = lambda: raw

    def stop(self) -> None:
        self._server.stop(None).wait()


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[KubeletServer]:
    server = KubeletServer(tmp_path / "kubelet.sock")
    yield server
    server.stop()


@contextmanager
def node(tmp_path: Path, kubernetes: KubernetesFiles | None = None) -> Iterator[NodeAttribution]:
    """A node with the kubelet's socket, a procfs and cgroups in the folder, and perhaps files of kubectl's."""
    agent = attribution(Procfs(tmp_path / "proc"), "c")
    agent.allocations.kubernetes = kubernetes or agent.allocations.kubernetes
    agent.allocations.gpus = GPUS
    yield agent
    agent.allocations.close()


def until(read: Callable[[], Found], wanted: Callable[[Found], object]) -> Found:
    """Scan until the child has answered so; the agent itself never waits."""
    deadline = time.monotonic() + 60
    while not wanted(result := read()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return result


def test_pods_and_their_devices_come_through_the_child(kubelet: KubeletServer) -> None:
    resources = PodResources(kubelet.path)
    assert resources.read(Devices(GPUS)) == SchedulerState(True)
    kubelet.pods(("llama", ("GPU-0", "GPU-1::2")), ("mig", ("nvidia2",)), ("odd", ("nvidia9",)))
    scheduler_state = until(lambda: resources.read(Devices(GPUS)), lambda state: state.claims)
    assert [(c.namespace, c.pod, c.gpu_uuids, c.unresolved) for c in scheduler_state.claims] == [
        ("ml", "llama", ("GPU-0", "GPU-1"), ()), ("ml", "mig", ("GPU-2",), ()), ("ml", "odd", (), ("nvidia9",)),
    ]  # fmt: skip
    (absence,) = scheduler_state.absences
    assert (absence.reason, "ml/odd: nvidia9" in absence.detail) == ("allocation-unresolved", True)
    kubelet.path.unlink()
    kubelet.path.write_text("")
    assert resources.read(Devices()) == SchedulerState(present=False)


@pytest.mark.parametrize("answer", ['{"error": "grpcio is not installed"}', "[1", "[" * 9999, '{"pods": [{}]}', ""])
def test_a_child_that_fails_is_a_reason_and_not_a_fault_of_the_agent(kubelet: KubeletServer, answer: str) -> None:
    program = f"input(); print({answer!r}, flush=True) if {bool(answer)} else exit(3); input()"
    resources = PodResources(kubelet.path, (sys.executable, "-c", program))
    (absence,) = until(lambda: resources.read(Devices()), lambda state: state.absences).absences
    resources.close()
    assert absence.reason == "allocation-unknown" and ("grpcio" in absence.detail) == ("grpcio" in answer)


def test_a_pods_name_is_tied_to_its_uid_and_stays_so_while_it_idles(kubelet: KubeletServer, tmp_path: Path) -> None:
    # A NIC has the prefix of NVIDIA's resources as well: it makes no GPU, by address or by number.
    nics = ("nvidia.com/hostdev 0000:18:00.0", "nvidia.com/hostdev 3", "rdma/hca 2")
    kubelet.pods(("llama-7d4b9c6f5-x2x9q", ("GPU-0", "GPU-1", *nics)), ("nic", nics))
    slice_ = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
    (tmp_path / "cgroup" / slice_).mkdir(parents=True)
    path = f"0::/{slice_}/cri-containerd-{'ab' * 32}.scope"
    Procfs(tmp_path / "proc").process(700, uid=0, argv=["vllm", "serve", "org/m"], cgroup=path)
    on = GpuProcess("GPU-0", 700, 5)
    with node(tmp_path) as agent:
        unnamed = agent.attribute([on])[0][0]
        (running,), uses = until(lambda: agent.attribute([on]), lambda result: len(result[1]) > 1)
        assert "allocation-unresolved" not in {absence.reason for absence in agent.absences}
        (idle,), idle_uses = agent.attribute([])
        (tmp_path / "cgroup" / slice_).rmdir()
        (gone,), _ = agent.attribute([])
        kubelet.pods(("llama-7d4b9c6f5-x2x9q", ("GPU-0",)), ("other", ("GPU-0",)))
        _, contested = until(lambda: agent.attribute([on]), lambda result: len(result[0]) == 3)
    assert (running.namespace, running.pod, running.name) == ("ml", "llama-7d4b9c6f5-x2x9q", "llama")
    assert running.workload_id == unnamed.workload_id == idle.workload_id != gone.workload_id
    assert idle == running
    assert [(u.gpu_uuid, u.basis, u.shared) for u in uses] == [
        ("GPU-0", "allocation", False), ("GPU-0", "process", False), ("GPU-1", "allocation", False),
    ]  # fmt: skip
    assert [u.basis for u in idle_uses] == ["allocation", "allocation"]
    assert len(contested) == 3 and all(use.shared for use in contested)


def test_a_pod_is_named_by_its_uid_as_kube_state_metrics_would_name_it(tmp_path: Path) -> None:
    name, image = "chat-7d4b9c6f5d-x2k4m", "vllm/vllm-openai:v0.6"
    written(
        tmp_path / "pods.json", pod(name, ("ReplicaSet", "chat-7d4b9c6f5d"), image, uid=UID),
        item("ReplicaSet", "chat-7d4b9c6f5d", ("Deployment", "chat")),
        item("Namespace", "ml", labels={"team": "search"}),
    )  # fmt: skip
    path = f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/x"
    Procfs(tmp_path / "proc").process(700, argv=["python", "train.py"], cgroup=path)
    files = KubernetesFiles("c", "n1", tmp_path / "pods.json", None, ["team"])
    with node(tmp_path, kubernetes=files) as agent:
        (workload,), _ = until(lambda: agent.attribute([GpuProcess("GPU-0", 700)]), lambda workload: workload[0][0].pod)
    assert workload.workload_id == workload_id("c", "kubernetes", UID)
    assert workload.series_id == series_id("c", "ml", None, "chat")
    about = workload.name, workload.controller_kind, workload.namespace, workload.pod
    assert about == ("chat", "Deployment", "ml", name)
    assert (workload.image, workload.team) == (image, "search")


def test_a_file_that_changes_is_read_anew_and_a_broken_one_leaves_what_was_known(tmp_path: Path) -> None:
    files = KubernetesFiles("c", "n1", tmp_path / "pods.json", tmp_path / "slices.json")
    assert {absence.reason for absence in files.read().absences} == {"kubernetes-file"}
    for name in ("a", "b"):
        written(tmp_path / "pods.json", pod(name, None))
        assert until(files.read, lambda facts, name=name: f"u-{name}" in facts.by_uid).absences
    (tmp_path / "pods.json").write_text('{"items": [')
    facts = until(files.read, lambda facts: any("not JSON" in absence.detail for absence in facts.absences))
    assert set(facts.by_uid) == {"u-b"}
    files.close()
