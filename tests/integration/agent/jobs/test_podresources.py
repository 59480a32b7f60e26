"""Pods and their GPUs, from a real gRPC server on a Unix socket, through the child process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import pytest
from skuwise.agent.jobs.allocation import Allocations
from skuwise.agent.jobs.attribution import NodeAttribution
from skuwise.agent.jobs.podresources import METHOD, PodResources
from skuwise.agent.jobs.scheduler_claims import Devices, SchedulerState
from skuwise.agent.jobs.slurm import SlurmAllocations
from skuwise.agent.model import Gpu, GpuProcess
from skuwise.tests.support.sysfs_trees import BOOT_ID, Procfs
from skuwise.tests.unit.agent.jobs.test_allocation import message
from skuwise.tests.unit.agent.jobs.test_pods import UID

grpc = pytest.importorskip("grpc")

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
        def container(devices: tuple[str, ...]) -> bytes:
            return message((1, "main"), (2, message((1, "nvidia.com/gpu"), *((2, d) for d in devices))))

        raw = message(*((1, message((1, name), (2, "ml"), (3, container(gpus)))) for name, gpus in pods))
        self.answer = lambda: raw

    def stop(self) -> None:
        self._server.stop(None).wait()


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[KubeletServer]:
    server = KubeletServer(tmp_path / "kubelet.sock")
    yield server
    server.stop()


@pytest.fixture
def resources(tmp_path: Path) -> Iterator[PodResources]:
    made = PodResources(tmp_path / "kubelet.sock")
    yield made
    made.close()


def until(resources: PodResources, wanted: Callable[[SchedulerState], bool]) -> SchedulerState:
    """Scan until the child has answered so; the agent itself never waits."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = resources.read(Devices(GPUS))
        if wanted(found):
            return found
        time.sleep(0.02)
    raise AssertionError("the kubelet's answer did not come")


def test_pods_and_their_devices_come_through_the_child(kubelet: KubeletServer, resources: PodResources) -> None:
    kubelet.pods(("llama-7d4b9c6f5-x2x9q", ("GPU-0", "GPU-1::2")), ("mig", ("nvidia2",)), ("odd", ("nvidia9",)))
    assert resources.read(Devices(GPUS)) == SchedulerState(True)
    found = until(resources, lambda k: bool(k.claims))
    assert [(c.namespace, c.pod, c.gpu_uuids, c.unresolved) for c in found.claims] == [
        ("ml", "llama-7d4b9c6f5-x2x9q", ("GPU-0", "GPU-1"), ()), ("ml", "mig", ("GPU-2",), ()),
        ("ml", "odd", (), ("nvidia9",)),
    ]  # fmt: skip
    (absence,) = found.absences
    assert (absence.reason, "ml/odd: nvidia9" in absence.detail) == ("allocation-unresolved", True)
    kubelet.pods(("mig", ("nvidia2",)))
    assert len(until(resources, lambda k: len(k.claims) == 1).claims) == 1


def test_no_socket_is_no_kubelet_and_a_plain_file_is_a_reason(tmp_path: Path, resources: PodResources) -> None:
    assert resources.read(Devices()) == SchedulerState(present=False)
    (tmp_path / "kubelet.sock").write_text("")
    (absence,) = resources.read(Devices()).absences
    assert "is not a socket" in absence.detail


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ('import sys; sys.stdin.readline(); print(\'{"error": "no-grpcio"}\', flush=True); sys.stdin.read()', "grpcio"),
        ("import sys; sys.stdin.readline(); print('[1', flush=True); sys.stdin.read()", "answer that is none"),
        ("import sys; sys.stdin.readline(); print('{\"pods\": [{}]}', flush=True); sys.stdin.read()", "that is none"),
        ("import sys; sys.stdin.readline(); sys.exit(3)", "ended"),
        ("import sys; sys.stdin.readline(); sys.stdout.write('x' * 5000000); sys.stdin.read()", "too long"),
    ],
)
def test_a_child_that_fails_is_a_reason_and_not_a_fault_of_the_agent(
    kubelet: KubeletServer, program: str, says: str
) -> None:
    resources = PodResources(kubelet.path, (sys.executable, "-c", program))
    try:
        (absence,) = until(resources, lambda k: bool(k.absences)).absences
    finally:
        resources.close()
    assert says in absence.detail


def scan(agent: NodeAttribution, done: Callable[[], bool], *processes: GpuProcess) -> tuple[list[object], list[object]]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        workloads, uses = agent.attribute(processes)
        if any(use.basis == "allocation" for use in uses) and done():
            return list(workloads), list(uses)
        time.sleep(0.02)
    raise AssertionError("no allocation came")


def test_a_pods_name_is_tied_to_its_uid_and_stays_so_while_it_idles(kubelet: KubeletServer, tmp_path: Path) -> None:
    kubelet.pods(("llama-7d4b9c6f5-x2x9q", ("GPU-0", "GPU-1")))
    proc, cgroups = Procfs(tmp_path / "proc"), tmp_path / "cgroup"
    slice_ = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
    (cgroups / slice_).mkdir(parents=True)
    proc.process(700, uid=0, argv=["vllm", "serve", "org/m"], cgroup=f"0::/{slice_}/cri-containerd-{'ab' * 32}.scope")
    slurm = SlurmAllocations(tmp_path / "none", proc.root, cgroups, frozenset({0}))
    allocations = Allocations(slurm, PodResources(kubelet.path), cgroups, tmp_path / "drained")
    agent = NodeAttribution(proc.root, BOOT_ID, "hal", lambda uid: None, allocations=allocations)
    agent.set_gpus(GPUS)
    on = GpuProcess("GPU-0", 700, 5)
    try:
        unnamed = agent.attribute([on])[0][0]
        (running,), uses = scan(agent, lambda: True, on)
        (idle,), idle_uses = scan(agent, lambda: True)
        (cgroups / slice_).rmdir()
        (gone,), _ = scan(agent, lambda: True)
        kubelet.pods(("llama-7d4b9c6f5-x2x9q", ("GPU-0",)), ("other", ("GPU-0",)))
        scan(agent, lambda: len(agent.attribute([on])[0]) == 3, on)
        _, contested = agent.attribute([on])
    finally:
        agent.close()
    assert (running.namespace, running.pod, running.name) == ("ml", "llama-7d4b9c6f5-x2x9q", "llama")  # type: ignore[attr-defined]
    assert running.workload_id == unnamed.workload_id == idle.workload_id != gone.workload_id  # type: ignore[attr-defined]
    assert idle == running
    assert [(u.gpu_uuid, u.basis, u.shared) for u in uses] == [  # type: ignore[attr-defined]
        ("GPU-0", "allocation", False), ("GPU-0", "process", False), ("GPU-1", "allocation", False),
    ]  # fmt: skip
    assert [u.basis for u in idle_uses] == ["allocation", "allocation"]  # type: ignore[attr-defined]
    assert len(contested) == 3 and all(use.shared for use in contested)
