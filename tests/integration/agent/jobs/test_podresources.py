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
from skuwise.agent.model import Gpu, GpuProcess, Workload, WorkloadUse
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
    assert resources.read(Devices(GPUS)) == SchedulerState(True)
    kubelet.pods(("llama", ("GPU-0", "GPU-1::2")), ("mig", ("nvidia2",)), ("odd", ("nvidia9",)))
    found = until(resources, lambda k: bool(k.claims))
    assert [(c.namespace, c.pod, c.gpu_uuids, c.unresolved) for c in found.claims] == [
        ("ml", "llama", ("GPU-0", "GPU-1"), ()), ("ml", "mig", ("GPU-2",), ()), ("ml", "odd", (), ("nvidia9",)),
    ]  # fmt: skip
    (absence,) = found.absences
    assert (absence.reason, "ml/odd: nvidia9" in absence.detail) == ("allocation-unresolved", True)
    kubelet.path.unlink()
    kubelet.path.write_text("")
    assert resources.read(Devices()) == SchedulerState(present=False)


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ('print(\'{"error": "grpcio is not installed"}\', flush=True)', "grpcio"),
        ("print('[1', flush=True)", "that is none"),
        ("print('[' * 9999, flush=True)", "that is none"),
        ("print('{\"pods\": [{}]}', flush=True)", "that is none"),
        ("sys.exit(3)", "ended"),
    ],
)
def test_a_child_that_fails_is_a_reason_and_not_a_fault_of_the_agent(
    kubelet: KubeletServer, program: str, says: str
) -> None:
    command = (sys.executable, "-c", f"import sys; sys.stdin.readline(); {program}; sys.stdin.read()")
    resources = PodResources(kubelet.path, command)
    try:
        (absence,) = until(resources, lambda k: bool(k.absences)).absences
    finally:
        resources.close()
    assert absence.reason == "allocation-unknown" and says in absence.detail


def scan(
    agent: NodeAttribution, done: Callable[[], bool], *processes: GpuProcess
) -> tuple[tuple[Workload, ...], tuple[WorkloadUse, ...]]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        workloads, uses = agent.attribute(processes)
        if any(use.basis == "allocation" for use in uses) and done():
            return workloads, uses
        time.sleep(0.02)
    raise AssertionError("no allocation came")


def test_a_pods_name_is_tied_to_its_uid_and_stays_so_while_it_idles(kubelet: KubeletServer, tmp_path: Path) -> None:
    # A NIC has the prefix of NVIDIA's resources as well: it makes no GPU, by address or by number.
    nics = ("nvidia.com/hostdev 0000:18:00.0", "nvidia.com/hostdev 3", "rdma/hca 2")
    kubelet.pods(("llama-7d4b9c6f5-x2x9q", ("GPU-0", "GPU-1", *nics)), ("nic", nics))
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
        unresolved = [one for one in agent.absences if one.reason == "allocation-unresolved"]
        (idle,), idle_uses = scan(agent, lambda: True)
        (cgroups / slice_).rmdir()
        (gone,), _ = scan(agent, lambda: True)
        kubelet.pods(("llama-7d4b9c6f5-x2x9q", ("GPU-0",)), ("other", ("GPU-0",)))
        scan(agent, lambda: len(agent.attribute([on])[0]) == 3, on)
        _, contested = agent.attribute([on])
    finally:
        agent.close()
    assert (running.namespace, running.pod, running.name) == ("ml", "llama-7d4b9c6f5-x2x9q", "llama")
    assert running.workload_id == unnamed.workload_id == idle.workload_id != gone.workload_id
    assert idle == running and unresolved == []
    assert [(u.gpu_uuid, u.basis, u.shared) for u in uses] == [
        ("GPU-0", "allocation", False), ("GPU-0", "process", False), ("GPU-1", "allocation", False),
    ]  # fmt: skip
    assert [u.basis for u in idle_uses] == ["allocation", "allocation"]
    assert len(contested) == 3 and all(use.shared for use in contested)
