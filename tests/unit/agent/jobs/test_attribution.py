"""From PIDs in a procfs tree to workloads."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from skuwise.agent.jobs.attribution import NodeAttribution
from skuwise.agent.model import GpuProcess, Workload
from skuwise.tests.support.sysfs_trees import BOOT_ID, Procfs, put

USERS = {0: "root", 1000: "ada", 1001: "grace"}
POD_UID = "8f3a2c11-0d6e-4b6a-9f0a-1c2d3e4f5a6b"
CONTAINER = "c0ffee" * 10 + "abcd"
POD_SLICE = f"kubepods-besteffort-pod{POD_UID.replace('-', '_')}.slice"


@pytest.fixture
def proc(tmp_path: Path) -> Procfs:
    tree = Procfs(tmp_path)
    tree.process(500, comm="sshd", ppid=1, uid=0, start=2)
    tree.process(600, comm="bash", ppid=500, argv=["-bash"], start=3)
    return tree


def attribution(proc: Procfs, cluster: str = "hal", boot: str | None = BOOT_ID) -> NodeAttribution:
    return NodeAttribution(proc.root, boot, cluster, USERS.get)


def on(gpu: int, pid: int, mem: int | None = 1024) -> GpuProcess:
    return GpuProcess(f"GPU-{gpu}", pid, mem)


def only(proc: Procfs, *processes: GpuProcess) -> Workload:
    (workload,), _ = attribution(proc).attribute(processes)
    return workload


def test_eight_workers_of_one_launcher_are_one_workload(proc: Procfs) -> None:
    proc.process(700, ppid=600, argv=["/usr/bin/python3", "/opt/bin/torchrun", "--nproc_per_node=8", "train.py"])
    for rank in range(8):
        proc.process(701 + rank, ppid=700, argv=["/usr/bin/python3", "-u", "train.py"], start=1001)
    workloads, uses = attribution(proc).attribute([on(rank, 701 + rank, rank * 1024) for rank in range(8)])
    assert len(workloads) == 1
    (found,) = workloads
    assert (found.name, found.framework, found.user, found.scheduler) == ("train.py", "torchrun", "ada", "process")
    assert [(u.gpu_uuid, u.mem_used_bytes, u.shared, u.basis) for u in uses] == [
        (f"GPU-{i}", i * 1024, False, "process") for i in range(8)
    ]


def test_a_script_is_part_of_the_work_and_a_login_shell_is_not(proc: Procfs) -> None:
    proc.process(700, comm="bash", ppid=600, argv=["bash", "run_all.sh"])
    for i in range(2):
        proc.process(701 + i, ppid=700, argv=["python", f"job{i}.py"])
    assert only(proc, on(0, 701), on(1, 702)).name == "run_all.sh"


@pytest.mark.parametrize("comm", ["jupyter-lab", "tmux: server", "containerd-shim", "supervisord", "slurmstepd"])
def test_work_ends_at_what_only_holds_it(proc: Procfs, comm: str) -> None:
    proc.process(700, comm=comm, ppid=1, argv=[comm])
    for i in range(2):
        proc.process(701 + i, ppid=700, argv=["python", "-m", "ipykernel_launcher"])
    workloads, _ = attribution(proc).attribute([on(0, 701), on(1, 702)])
    assert len(workloads) == 2


def test_work_ends_at_another_user_and_at_a_reused_pid(proc: Procfs) -> None:
    proc.process(700, ppid=1, uid=0, argv=["batchd"])
    proc.process(701, ppid=700, argv=["python", "a.py"])
    assert only(proc, on(0, 701)).name == "a.py"
    proc.process(710, ppid=1, argv=["younger"], start=9000)
    proc.process(711, ppid=710, argv=["python", "b.py"], start=10)
    assert only(proc, on(0, 711)).name == "b.py"


def test_identity_is_the_same_for_another_agent_and_differs_by_boot_cluster_and_start(proc: Procfs) -> None:
    proc.process(700, ppid=600, argv=["python", "a.py"], start=77)
    first = only(proc, on(0, 700))
    assert only(proc, on(3, 700)) == first
    (other,), _ = attribution(proc, boot="another").attribute([on(0, 700)])
    (elsewhere,), _ = attribution(proc, cluster="deep-thought").attribute([on(0, 700)])
    proc.process(700, ppid=600, argv=["python", "a.py"], start=78)
    later = only(proc, on(0, 700))
    assert len({w.workload_id for w in (first, other, elsewhere, later)}) == 4
    assert first.series_id == other.series_id == later.series_id != elsewhere.series_id


def test_workers_stay_together_when_the_launcher_ends(proc: Procfs) -> None:
    found = attribution(proc)
    proc.process(700, ppid=600, argv=["bash", "launch.sh"], comm="bash")
    for i in range(2):
        proc.process(701 + i, ppid=700, argv=["python", "w.py"])
    before, _ = found.attribute([on(0, 701), on(1, 702)])
    shutil.rmtree(proc.root / "700")
    for i in range(2):
        proc.process(701 + i, ppid=1, argv=["python", "w.py"])
    after, _ = found.attribute([on(0, 701), on(1, 702)])
    assert after == before


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/system.slice/slurmstepd.scope/job_3385/step_0/user/task_0",
        "0::/system.slice/node7_slurmstepd.scope/job_3385/step_extern/user",
        "5:devices:/slurm/uid_1000/job_3385/step_batch/task_0\n0::/",
        "9:memory:/slurm_node7/uid_1000/job_3385/step_0",
    ],
)
def test_a_slurm_job_is_the_same_on_every_node_and_step(proc: Procfs, cgroup: str) -> None:
    proc.process(700, ppid=1, argv=["python", "train.py"], cgroup=cgroup, start=31337)
    found = only(proc, on(0, 700))
    proc.process(
        900, ppid=1, argv=["python", "train.py"], cgroup="0::/system.slice/slurmstepd.scope/job_3385/step_9/user"
    )
    assert (found.scheduler, found.job_id, found.name) == ("slurm", "3385", "job 3385")
    assert only(proc, on(0, 900)).workload_id == found.workload_id


def test_a_user_does_not_name_himself_into_another_job(proc: Procfs) -> None:
    task = "0::/system.slice/n1_slurmstepd.scope/job_24/step_batch/user/task_0"
    proc.process(700, argv=["python", "t.py"], cgroup=f"{task}/slurmstepd.scope/job_99")
    assert only(proc, on(0, 700)).job_id == "24"
    own = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/slurmstepd.scope"
    for pid, name in ((701, "job_99"), (702, "s8FXKTA79XAR00")):
        proc.process(pid, argv=["python", "t.py"], cgroup=f"{own}/{name}/step_0")
        assert only(proc, on(0, pid)).scheduler == "process"
    task = "0::/system.slice/slurmstepd.scope/s8FXKTA79XAR00/step_0/user/task_0"
    proc.process(703, argv=["python", "t.py"], cgroup=f"{task}/slurmstepd.scope/job_99")
    assert only(proc, on(0, 703)).job_id == "s8FXKTA79XAR00"
    pod = "0::/user.slice/user-1000.slice/user@1000.service/pod0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"
    proc.process(704, argv=["python", "t.py"], cgroup=pod)
    assert only(proc, on(0, 704)).scheduler == "process"


def test_slurm_variables_name_the_job_and_nothing_else_is_read_of_them(proc: Procfs) -> None:
    variables = {
        "SLURM_JOB_ID": "42", "SLURM_JOB_NAME": "llama-7b\x1b[31m", "SLURM_JOB_ACCOUNT": "nlp", "HF_TOKEN": "hf_secret",
    }  # fmt: skip
    cgroup = "0::/slurmstepd.scope/s8FXKTA79XAR00/step_batch"
    proc.process(700, argv=["python", "t.py"], cgroup=cgroup, environ=variables)
    found = only(proc, on(0, 700))
    assert (found.job_id, found.name, found.account) == ("42", "llama-7b[31m", "nlp")
    assert "hf_secret" not in repr(found)
    proc.process(701, argv=["python", "t.py"], cgroup=cgroup)
    bare = only(proc, on(0, 701))
    assert bare.job_id == "s8FXKTA79XAR00"
    assert bare.workload_id == found.workload_id


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/kubepods.slice/kubepods-besteffort.slice/{POD_SLICE}/cri-containerd-{CONTAINER}.scope",
        f"0::/kubepods/besteffort/pod{POD_UID}/{CONTAINER}",
        f"0::/../../pod{POD_UID}/{CONTAINER}",
        f"0::/kubepods.slice/{POD_SLICE}/crio-{CONTAINER}.scope/container",
        f"0::/system.slice/containerd.service/{POD_SLICE}:cri-containerd:{CONTAINER}",
        f"0::/kubepods.slice/kubepods-besteffort.slice/{POD_SLICE}/docker-{CONTAINER}.scope",
        f"0::/kubelet/kubepods/burstable/pod{POD_UID}/{CONTAINER}",
        f"11:cpu:/kubepods/pod{POD_UID}/{CONTAINER}\n0::/",
    ],
)
def test_a_pod_by_both_cgroup_drivers(proc: Procfs, cgroup: str) -> None:
    proc.process(700, uid=0, argv=["vllm", "serve", "org/m"], cgroup=cgroup)
    found = only(proc, on(0, 700))
    assert (found.scheduler, found.user, found.framework, found.name) == ("kubernetes", None, "vllm", "vllm org/m")
    plain = NodeAttribution(proc.root, BOOT_ID, "hal", USERS.get)
    proc.process(701, uid=0, argv=["x"], cgroup=f"0::/kubepods/pod{POD_UID}/other")
    (same,), _ = plain.attribute([on(0, 701)])
    assert same.workload_id == found.workload_id


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/system.slice/docker-{CONTAINER}.scope",
        f"4:cpu:/docker/{CONTAINER}",
        f"0::/machine.slice/libpod-{CONTAINER}.scope/container",
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{CONTAINER}.scope",
        f"7:memory:/libpod_parent/libpod-{CONTAINER}",
        f"0::/system.slice/nerdctl-{CONTAINER}.scope",
        f"0::/default/{CONTAINER}",
        f"0::/system.slice/cri-containerd-{CONTAINER}.scope",
        f"0::/system.slice/crio-{CONTAINER}.scope",
    ],
)
def test_a_container(proc: Procfs, cgroup: str) -> None:
    proc.process(699, comm="tini", ppid=1, uid=0, argv=["tini", "--"], cgroup=cgroup)
    for i in range(2):
        proc.process(700 + i, ppid=699, uid=0, argv=["tritonserver"], cgroup=cgroup)
    found = only(proc, on(0, 700), on(1, 701))
    assert (found.scheduler, found.user, found.framework) == ("docker", None, "triton")


def test_a_gpu_with_two_workloads_is_shared(proc: Procfs) -> None:
    proc.process(700, ppid=600, argv=["python", "a.py"])
    proc.process(701, ppid=600, argv=["python", "b.py"], uid=1001)
    _, uses = attribution(proc).attribute([on(0, 700), on(0, 701), on(1, 701)])
    assert {(u.gpu_uuid, u.shared) for u in uses} == {("GPU-0", True), ("GPU-1", False)}


def test_memory_counts_a_process_once_and_is_unknown_where_a_part_is(proc: Procfs) -> None:
    proc.process(700, ppid=600, argv=["python", "a.py"])
    proc.process(701, ppid=700, argv=["python", "a.py"])
    found = attribution(proc)
    _, (use,) = found.attribute([on(0, 700, 100), on(0, 700, 100), on(0, 701, 30)])
    assert use.mem_used_bytes == 130
    _, (use,) = found.attribute([on(0, 700, 100), on(0, 701, None)])
    assert use.mem_used_bytes is None


def test_a_process_that_is_gone_and_one_that_is_hidden(proc: Procfs) -> None:
    proc.process(700, ppid=600, argv=["python", "a.py"])
    found = attribution(proc)
    workloads, (use,) = found.attribute([on(0, 700), on(0, 4242)])
    assert len(workloads) == 1
    assert (use.shared, found.absences) == (False, frozenset())
    _, (use,) = found.attribute([on(0, 700), on(0, 4242)])
    (absence,) = found.absences
    assert (use.shared, absence.reason) == (True, "process-not-visible")
    _, (use,) = found.attribute([on(0, 700)])
    assert (use.shared, found.absences) == (False, frozenset())


@pytest.mark.parametrize("raw", [b"", b"700", b"700 (x", b"700 (x) S", b"x (y) S 1 1 1", b"\xff" * 99])
def test_a_cut_stat_is_a_process_that_is_gone(proc: Procfs, raw: bytes) -> None:
    proc.process(700, ppid=600)
    put(proc.root / "700/stat", raw)
    assert attribution(proc).attribute([on(0, 700)]) == ((), ())


def test_hostile_names(proc: Procfs) -> None:
    proc.process(700, comm=b"a) S 1 (\xff\x1b[2J", ppid=600, argv=[b"\x1b]0;x\x07\xfe" + b"n" * 999])
    found = only(proc, on(0, 700))
    assert (found.name, found.command) == ("a) S 1 (\ufffd[2J", None)


def test_a_servers_front_end_belongs_to_the_work_on_the_gpus(proc: Procfs) -> None:
    proc.process(700, ppid=600, argv=["vllm", "serve", "m", "--port", "8000"])
    proc.process(701, ppid=700, argv=["VLLM::EngineCore"], start=2900)
    proc.process(800, ppid=600, argv=["python", "other.py"], start=2901)
    proc.process(900, ppid=600, argv=["docker-proxy"], start=2902)
    found = attribution(proc)
    assert found.holder_of([700]) is None
    workloads, _ = found.attribute([on(0, 701), on(1, 800)])
    served = next(w.workload_id for w in workloads if "vllm" in (w.command or ""))
    assert found.holder_of([700]) == found.holder_of([701]) == found.holder_of([700, 900, 12345]) == served
    assert found.holder_of([900]) is None
    assert found.holder_of([]) is None
    assert found.holder_of([700, 800]) is None  # two at one port are nobody's for certain
    proc.process(700, ppid=600, argv=["python", "-m", "http.server"], start=3000)  # its number was given again
    assert found.holder_of([700]) is None
    shutil.rmtree(proc.root / "700")
    assert found.holder_of([700]) is None
