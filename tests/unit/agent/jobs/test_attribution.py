"""From PIDs in a procfs tree to workloads."""

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from skuwise.agent.jobs.attribution import Allocations, NodeAttribution
from skuwise.agent.jobs.kubernetes_files import KubernetesFiles
from skuwise.agent.jobs.podresources import PodResources
from skuwise.agent.jobs.processes import read_variables
from skuwise.agent.jobs.slurm import SlurmAllocations
from skuwise.agent.jobs.slurm_conf import SlurmConfReader
from skuwise.agent.model import GpuProcess, Workload
from skuwise.tests.support.sysfs_trees import BOOT_ID, Procfs, put

TRUSTED = frozenset({0, os.getuid()})
USERS = {0: "root", 1000: "ada", 1001: "grace"}
POD_UID = "8f3a2c11-0d6e-4b6a-9f0a-1c2d3e4f5a6b"
CONTAINER = "c0ffee" * 10 + "abcd"
POD_SLICE = f"kubepods-besteffort-pod{POD_UID.replace('-', '_')}.slice"
SLUID = "s8FXKTA79XAR00"
STEPD = "0::/system.slice/slurmstepd.scope"


@pytest.fixture
def proc(tmp_path: Path) -> Procfs:
    tree = Procfs(tmp_path)
    tree.process(500, comm="sshd", ppid=1, uid=0, start=2)
    tree.process(600, comm="bash", ppid=500, argv=["-bash"], start=3)
    return tree


def attribution(
    proc: Procfs, cluster: str = "hal", boot: str = BOOT_ID, *, folder: Path = Path("/nothing"), **slurms: Any
) -> NodeAttribution:
    """The agent's view: what prolog.sh wrote into `folder`, and beside the procfs cgroups, marker and socket."""
    root, settings = proc.root.parent, dict[str, Any](settings=SlurmConfReader(folder)) | slurms
    slurm = SlurmAllocations(folder, proc.root, root / "cgroup", TRUSTED, **settings)
    kubelet, files = PodResources(root / "kubelet.sock"), KubernetesFiles(cluster, "n1", None, None)
    allocations = Allocations(slurm, kubelet, root / "cgroup", root / "drained", files)
    variables = partial(read_variables, proc.root)
    return NodeAttribution(proc.root, boot, cluster, USERS.get, allocations=allocations, variables=variables)


def reasons(agent: NodeAttribution) -> set[str]:
    """Of what is not known, but that no scheduler is here."""
    return {absence.reason for absence in agent.absences} - {"allocation-unknown"}


def on(gpu: int, pid: int, mem: int | None = 1024) -> GpuProcess:
    return GpuProcess(f"GPU-{gpu}", pid, mem)


def only(proc: Procfs, *processes: GpuProcess) -> Workload:
    (workload,), _ = attribution(proc).attribute(processes)
    return workload


# Plain processes: where the work begins.


def test_eight_workers_of_one_launcher_are_one_workload(proc: Procfs) -> None:
    proc.process(700, ppid=600, argv=["/usr/bin/python3", "/opt/bin/torchrun", "--nproc_per_node=8", "train.py"])
    for rank in range(8):
        proc.process(701 + rank, ppid=700, argv=["/usr/bin/python3", "-u", "train.py"], start=1001)
    (workload,), uses = attribution(proc).attribute([on(rank, 701 + rank, rank * 1024) for rank in range(8)])
    about = workload.name, workload.framework, workload.user, workload.scheduler
    assert about == ("train.py", "torchrun", "ada", "process")
    expected = [(f"GPU-{i}", i * 1024, False, "process") for i in range(8)]
    assert [(u.gpu_uuid, u.mem_used_bytes, u.shared, u.basis) for u in uses] == expected


@pytest.mark.parametrize(
    ("parent", "workloads"),
    [
        ({"comm": "bash", "argv": ["bash", "run_all.sh"]}, 1),  # a script is part of the work
        ({"comm": "bash", "argv": ["-bash"]}, 2),  # a login shell is not
        ({"argv": ["batchd"], "uid": 0}, 2),  # neither is another user's process
        ({"argv": ["younger"], "start": 9000}, 2),  # neither is one that got the PID of the parent
        *(({"comm": comm}, 2) for comm in ("jupyter-lab", "tmux: server", "containerd-shim", "slurmstepd")),
    ],
)
def test_where_the_work_begins(proc: Procfs, parent: dict[str, Any], workloads: int) -> None:
    proc.process(700, ppid=1, **parent)
    for i in range(2):
        proc.process(701 + i, ppid=700, argv=["python", f"job{i}.py"])
    works, _ = attribution(proc).attribute([on(0, 701), on(1, 702)])
    assert len(works) == workloads
    assert workloads == 2 or works[0].name == "run_all.sh"


def test_identity_differs_by_boot_cluster_and_start_and_outlives_the_launcher(proc: Procfs) -> None:
    proc.process(700, ppid=600, argv=["bash", "launch.sh"], comm="bash", start=77)
    proc.process(701, ppid=700, argv=["python", "w.py"])
    agents = (attribution(proc), attribution(proc, boot="another"), attribution(proc, cluster="deep-thought"))
    first, other, elsewhere = (agent.attribute([on(0, 701)])[0][0] for agent in agents)
    assert only(proc, on(3, 701)) == first
    shutil.rmtree(proc.root / "700")
    proc.process(701, ppid=1, argv=["python", "w.py"])
    assert agents[0].attribute([on(0, 701)])[0] == (first,)
    proc.process(700, ppid=600, argv=["bash", "launch.sh"], comm="bash", start=78)
    proc.process(701, ppid=700, argv=["python", "w.py"])
    later = only(proc, on(0, 701))
    assert len({w.workload_id for w in (first, other, elsewhere, later)}) == 4
    assert first.series_id == other.series_id == later.series_id != elsewhere.series_id


# Jobs, pods and containers by their cgroups.


@pytest.mark.parametrize(
    ("cgroup", "scheduler", "key"),
    [
        (f"{STEPD}/job_3385/step_0/user/task_0", "slurm", "3385"),
        ("0::/system.slice/node7_slurmstepd.scope/job_3385/step_extern/user", "slurm", "3385"),
        ("5:devices:/slurm/uid_1000/job_3385/step_batch/task_0\n0::/", "slurm", "3385"),
        ("9:memory:/slurm_node7/uid_1000/job_3385/step_0", "slurm", "3385"),
        (f"{STEPD}/{SLUID}/step_batch", "slurm", SLUID),
        (f"0::/kubepods.slice/{POD_SLICE}/cri-containerd-{CONTAINER}.scope", "kubernetes", POD_UID),
        (f"0::/kubepods/besteffort/pod{POD_UID}/{CONTAINER}", "kubernetes", POD_UID),
        (f"0::/../../pod{POD_UID}/{CONTAINER}", "kubernetes", POD_UID),
        (f"0::/kubepods.slice/{POD_SLICE}/crio-{CONTAINER}.scope/container", "kubernetes", POD_UID),
        (f"0::/system.slice/containerd.service/{POD_SLICE}:cri-containerd:{CONTAINER}", "kubernetes", POD_UID),
        (f"0::/kubelet/kubepods/burstable/pod{POD_UID}/{CONTAINER}", "kubernetes", POD_UID),
        (f"11:cpu:/kubepods/pod{POD_UID}/{CONTAINER}\n0::/", "kubernetes", POD_UID),
        (f"0::/system.slice/docker-{CONTAINER}.scope", "docker", CONTAINER),
        (f"4:cpu:/docker/{CONTAINER}", "docker", CONTAINER),
        (f"0::/mygroup/{CONTAINER}", "docker", CONTAINER),  # --cgroup-parent (case 10)
        (f"9:cpu:/mygroup/below/{CONTAINER}\n0::/", "docker", CONTAINER),
        (f"0::/machine.slice/libpod-{CONTAINER}.scope/container", "docker", CONTAINER),
        (f"0::/user.slice/user@1000.service/user.slice/libpod-{CONTAINER}.scope", "docker", CONTAINER),
        (f"7:memory:/libpod_parent/libpod-{CONTAINER}", "docker", CONTAINER),
        (f"0::/system.slice/nerdctl-{CONTAINER}.scope", "docker", CONTAINER),
        (f"0::/default/{CONTAINER}", "docker", CONTAINER),
        (f"0::/system.slice/cri-containerd-{CONTAINER}.scope", "docker", CONTAINER),
        (f"0::/system.slice/crio-{CONTAINER}.scope", "docker", CONTAINER),
        # A user cannot name himself into another's job, below his task or in his slice.
        (f"{STEPD}/job_24/step_batch/user/task_0/slurmstepd.scope/job_99", "slurm", "24"),
        (f"{STEPD}/{SLUID}/step_0/user/task_0/slurmstepd.scope/job_99", "slurm", SLUID),
        ("0::/user.slice/user@1000.service/app.slice/slurmstepd.scope/job_99/step_0", "process", ""),
        (f"0::/user.slice/user-1000.slice/user@1000.service/pod{POD_UID}", "process", ""),
        (f"0::/mygroup/{CONTAINER[:63]}", "process", ""),
    ],
)
def test_whose_a_cgroup_is(proc: Procfs, cgroup: str, scheduler: str, key: str) -> None:
    proc.process(699, comm="tini", ppid=1, uid=0, argv=["tini", "--"], cgroup=cgroup)
    for i in range(2):
        proc.process(700 + i, ppid=699, uid=0, argv=["vllm", "serve", "org/m"], cgroup=cgroup, start=1000 + i)
    workloads, _ = attribution(proc).attribute([on(0, 700), on(1, 701)])
    is_slurms, is_plain = scheduler == "slurm", scheduler == "process"
    shown = (key, f"job {key}") if is_slurms else (None, "vllm org/m")
    user = "root" if is_slurms or is_plain else None
    assert len(workloads) == 1 + is_plain
    about = {(work.scheduler, work.user, work.job_id, work.name, work.framework) for work in workloads}
    assert about == {(scheduler, user, *shown, "vllm")}


def test_slurm_variables_name_the_job_and_nothing_else_is_read_of_them(proc: Procfs) -> None:
    variables = {
        "SLURM_JOB_ID": "42", "SLURM_JOB_NAME": "llama-7b\x1b[31m", "SLURM_JOB_ACCOUNT": "nlp", "HF_TOKEN": "hf_secret",
    }  # fmt: skip
    proc.process(700, argv=["python", "t.py"], cgroup=f"{STEPD}/{SLUID}/step_batch", environ=variables)
    workload = only(proc, on(0, 700))
    assert (workload.job_id, workload.name, workload.account) == ("42", "llama-7b[31m", "nlp")
    assert "hf_secret" not in repr(workload)
    proc.process(701, argv=["python", "t.py"], cgroup=f"{STEPD}/{SLUID}/step_batch")
    bare = only(proc, on(0, 701))
    assert (bare.job_id, bare.workload_id) == (SLUID, workload.workload_id)


# Who shares a GPU, and with how much memory.


def test_three_jobs_on_one_gpu_are_three_workloads_and_each_shares_it_with_its_memory(proc: Procfs) -> None:
    for job in range(3):
        proc.process(700 + job, argv=["python", "t.py"], cgroup=f"{STEPD}/job_{job + 1}/step_0")
    proc.process(703, ppid=702, argv=["python", "t.py"], cgroup=f"{STEPD}/job_3/step_0")
    on_0 = [on(0, 700, 100), on(0, 700, 100), on(0, 701, None), on(0, 702, 100), on(0, 703, 30)]
    workloads, uses = attribution(proc).attribute([*on_0, on(1, 702, 1), on(1, 703, None)])
    job_of = {workload.workload_id: workload.job_id for workload in workloads}
    # A process counts once, and the sum is unknown where a part is.
    assert {(job_of[use.workload_id], use.gpu_uuid, use.shared, use.mem_used_bytes) for use in uses} == {
        ("1", "GPU-0", True, 100), ("2", "GPU-0", True, None), ("3", "GPU-0", True, 130), ("3", "GPU-1", False, None),
    }  # fmt: skip


JOB = f"{STEPD}/job_7/step_0"
POD = f"0::/kubepods/pod{POD_UID}/{CONTAINER}"
CONTROL = {"comm": "nvidia-cuda-mps", "argv": ["nvidia-cuda-mps-control", "-d"]}
SERVER = {"comm": "nvidia-cuda-mps", "argv": ["nvidia-cuda-mps-server"]}


@pytest.mark.parametrize(
    ("parent", "helper", "client", "workloads", "bytes_of_client"),
    [
        # Root's own; the server of root's daemon runs as the user whom it serves.
        ({**CONTROL, "uid": 0}, {**SERVER, "uid": 0}, JOB, 1, 20),
        ({**CONTROL, "uid": 0}, SERVER, JOB, 1, 20),
        ({}, {"comm": "nv-hostengine", "uid": 0}, JOB, 1, 20),
        ({}, {"comm": "nvidia-persiste", "uid": 0}, JOB, 1, 20),
        # A user's own is part of his job, or of his other work on the GPU.
        ({**CONTROL, "cgroup": JOB}, {**SERVER, "cgroup": JOB}, JOB, 1, 21),
        (CONTROL, SERVER, "0::/user.slice", 1, 21),
        # Work cannot be hidden by a name: not from others, not in a container, not below sudo that waits for a
        # password.
        ({}, {**SERVER, "uid": 1001}, JOB, 2, 20),
        ({}, {"comm": "nv-hostengine"}, "0::/user.slice", 2, 20),
        ({}, {**SERVER, "uid": 0, "cgroup": POD}, JOB, 2, 20),
        ({**CONTROL, "uid": 0, "tty": 34816}, {**SERVER, "uid": 1001}, JOB, 2, 20),
    ],
)
def test_the_drivers_own_helpers_are_no_tenants(
    proc: Procfs, parent: dict[str, Any], helper: dict[str, Any], client: str, workloads: int, bytes_of_client: int
) -> None:
    proc.process(800, ppid=1, **parent)
    proc.process(801, ppid=800, **helper)
    proc.process(700, ppid=600, argv=["python", "t.py"], cgroup=client)
    proc.process(701, ppid=700, argv=["python", "t.py"], cgroup=client)
    works, uses = attribution(proc).attribute([on(0, 801, 1), on(0, 700, 10), on(0, 701, 10)])
    assert len(works) == len(uses) == workloads
    assert {use.shared for use in uses} == {workloads > 1}
    assert max(use.mem_used_bytes or 0 for use in uses) == bytes_of_client


def test_the_drivers_own_helper_alone_is_nobody_and_a_users_is_his(proc: Procfs) -> None:
    proc.process(801, ppid=1, uid=0, **SERVER)
    agent = attribution(proc)
    assert [agent.attribute([on(0, 801)]) for _ in range(2)] == [((), ())] * 2 and reasons(agent) == set()
    proc.process(802, ppid=1, **SERVER)
    assert only(proc, on(0, 802)).user == "ada"


# What cannot be read.


def test_a_process_that_is_gone_and_one_that_is_hidden(proc: Procfs) -> None:
    proc.process(700, ppid=600, argv=["python", "a.py"])
    agent = attribution(proc)
    workloads, (use,) = agent.attribute([on(0, 700), on(0, 4242)])
    assert len(workloads) == 1
    assert (use.shared, reasons(agent)) == (False, set())
    _, (use,) = agent.attribute([on(0, 700), on(0, 4242)])
    assert (use.shared, reasons(agent)) == (True, {"process-not-visible"})
    _, (use,) = agent.attribute([on(0, 700)])
    assert (use.shared, reasons(agent)) == (False, set())


def test_hostile_names_and_a_stat_that_was_cut(proc: Procfs) -> None:
    proc.process(700, comm=b"a) S 1 (\xff\x1b[2J", ppid=600, argv=[b"\x1b]0;x\x07\xfe" + b"n" * 999])
    workload = only(proc, on(0, 700))
    assert (workload.name, workload.command) == ("a) S 1 (\ufffd[2J", None)
    for raw in (b"", b"700", b"700 (x", b"700 (x) S", b"x (y) S 1 1 1", b"\xff" * 99):
        put(proc.root / "700/stat", raw)
        assert attribution(proc).attribute([on(0, 700)]) == ((), ())


def test_a_servers_front_end_belongs_to_the_work_on_the_gpus(proc: Procfs) -> None:
    proc.process(700, ppid=600, argv=["vllm", "serve", "m", "--port", "8000"])
    proc.process(701, ppid=700, argv=["VLLM::EngineCore"], start=2900)
    proc.process(800, ppid=600, argv=["python", "other.py"], start=2901)
    proc.process(900, ppid=600, argv=["docker-proxy"], start=2902)
    agent = attribution(proc)
    assert agent.holder_of([700]) is None
    workloads, _ = agent.attribute([on(0, 701), on(1, 800)])
    served = next(w.workload_id for w in workloads if "vllm" in (w.command or ""))
    assert [agent.holder_of(pids) for pids in ([700], [701], [700, 900, 12345])] == [served] * 3
    # Of two at one port the owner is unknown.
    assert agent.holder_of([900]) is agent.holder_of([700, 800]) is None
    proc.process(700, ppid=600, argv=["python", "-m", "http.server"], start=3000)  # its number was given again
    assert agent.holder_of([700]) is None
