"""Who was given which GPU: Slurm's files and extern steps, and what becomes of them as workloads."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from skuwise.agent.inventory.attribution.allocation import Allocations
from skuwise.agent.inventory.attribution.attribution import NodeAttribution
from skuwise.agent.inventory.kubernetes.podresources import PodResources
from skuwise.agent.inventory.processes.procfs import read_variables
from skuwise.agent.inventory.slurm.allocations import SlurmAllocations
from skuwise.agent.inventory.slurm.job_files import JobFile, parse_devices, parse_job_file, read_job_files
from skuwise.agent.inventory.slurm.slurm_conf import SlurmConfReader
from skuwise.agent.model import Gpu, GpuProcess, Workload, WorkloadUse
from skuwise.tests.support.sysfs_trees import BOOT_ID, Procfs, put

SCRIPTS = Path(__file__).parents[4] / "systemd/slurm"
STEPD = "system.slice/slurmstepd.scope"
TRUSTED = frozenset({0, os.getuid()})
# Minor numbers run the other way than NVML's indices, as they may. Gres indices are minors here.
GPUS = tuple(Gpu(f"GPU-{i}", i, "H100", minor=7 - i) for i in range(8))


class Node:
    """A node's procfs, cgroups and prolog folder, and the agent's view of them."""

    def __init__(self, root: Path, cluster: str = "hal") -> None:
        self.root = root
        self.proc = Procfs(root / "proc")
        self.folder = root / "run/allocations"
        self.cgroups = root / "cgroup"
        self.marker = root / "run/drained"
        self.open: dict[int, frozenset[int]] = {}
        self.settings("Name=gpu File=/dev/nvidia[0-7]")
        self.attribution = self.agent(cluster)

    def settings(self, gres: str | None, slurm: str = "NodeName=n1 Gres=gpu:8", constrain: str = "no") -> None:
        """What /etc/slurm says; `gres` None: no gres.conf."""
        put(self.root / "etc/slurm.conf", f"TaskPlugin=task/cgroup\n{slurm}")
        put(self.root / "etc/cgroup.conf", f"ConstrainDevices={constrain}")
        (self.root / "etc/gres.conf").unlink(missing_ok=True)
        if gres is not None:
            put(self.root / "etc/gres.conf", gres)

    def agent(self, cluster: str = "hal") -> NodeAttribution:
        procfs = self.proc.root

        def variables(pid: int) -> Mapping[str, str]:
            return read_variables(procfs, pid)

        slurm = SlurmAllocations(
            self.folder,
            procfs,
            self.cgroups,
            variables,
            TRUSTED,
            settings=SlurmConfReader(self.root / "etc", host="n1"),
            open_minors=lambda pid: self.open.get(pid, frozenset()),
            number_of=lambda _: None,
        )
        kubelet = PodResources(self.root / "no-kubelet.sock")
        made = NodeAttribution(
            procfs,
            BOOT_ID,
            cluster,
            {1000: "ada"}.get,
            allocations=Allocations(slurm, kubelet, self.cgroups, self.marker),
            trusted_uids=TRUSTED,
        )
        made.set_gpus(GPUS)
        return made

    def job(
        self, name: str, *, extern: bool = True, batch: int | None = None, variables: Mapping[str, str] | None = None
    ) -> None:
        """A living job with a cgroup of v2, its extern step, and its batch script where `batch` is a PID.

        As on a real 22.05 the extern step's process carries slurmd's environment alone, the batch script's the job's.
        """
        home = self.cgroups / STEPD / name
        (home / "step_0/user").mkdir(parents=True, exist_ok=True)
        if extern:
            put(home / "step_extern/user/task_special/cgroup.procs", "9")
            path = f"0::/{STEPD}/{name}/step_extern/user/task_special"
            slurmds = {"SLURM_CONF": "/etc/slurm/slurm.conf", "SLURMD_NODENAME": "n1"}
            self.proc.process(9, comm="sleep", argv=["sleep", "100000000"], cgroup=path, environ=slurmds, start=10)
        if batch is not None:
            put(home / "step_batch/user/task_0/cgroup.procs", f"{batch}")
            path = f"0::/{STEPD}/{name}/step_batch/user/task_0"
            self.proc.process(batch, comm="slurm_script", cgroup=path, environ=variables, start=10)

    def prolog(self, job_id: str, gpus: str, **more: str) -> None:
        script(self.folder, "prolog.sh", SLURM_JOB_ID=job_id, SLURM_JOB_GPUS=gpus, **more)

    def process(self, pid: int, name: str, step: str = "step_0/user/task_0", **more: object) -> None:
        path = f"0::/{STEPD}/{name}/{step}"
        self.proc.process(pid, argv=["python", "train.py"], cgroup=path, **more)  # type: ignore[arg-type]

    def see(self, *processes: tuple[int, int]) -> tuple[tuple[Workload, ...], tuple[WorkloadUse, ...]]:
        """One scan: pairs of (GPU number, PID)."""
        return self.attribution.attribute([GpuProcess(f"GPU-{gpu}", pid, 1024) for gpu, pid in processes])

    def reasons(self) -> set[str]:
        return {absence.reason for absence in self.attribution.absences}


def script(folder: Path, name: str, **environ: str) -> None:
    subprocess.run(
        ["/bin/sh", str(SCRIPTS / name)], env={"SKUWISE_ALLOCATIONS": str(folder), **environ}, check=True, timeout=60
    )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_job_that_runs_nothing_holds_what_it_was_given(node: Node) -> None:
    node.prolog("42", "0-1,4", SLURM_JOB_ACCOUNT="nlp", SLURM_JOB_USER="ada", SLURM_JOB_PARTITION="gpu")
    (workload,), uses = node.see()
    assert (workload.job_id, workload.name, workload.account, workload.user) == ("42", "job 42", "nlp", "ada")
    assert workload.partition == "gpu"
    assert [(u.gpu_uuid, u.basis, u.shared) for u in uses] == [
        ("GPU-3", "allocation", False), ("GPU-6", "allocation", False), ("GPU-7", "allocation", False),
    ]  # fmt: skip
    assert node.reasons() == set()


def test_processes_and_allocation_of_a_job_are_one_workload_with_two_bases(node: Node) -> None:
    node.prolog("42", "7,6", SLURM_JOB_START_TIME="1788000000")
    node.process(700, "job_42")
    (workload,), uses = node.see((0, 700))
    assert [(u.gpu_uuid, u.basis) for u in uses] == [
        ("GPU-0", "allocation"), ("GPU-0", "process"), ("GPU-1", "allocation"),
    ]  # fmt: skip
    assert {u.workload_id for u in uses} == {workload.workload_id}
    assert not any(u.shared for u in uses)
    assert workload.command == "python train.py"
    (quiet,), _ = node.see()
    assert quiet == workload


def test_a_recycled_job_id_is_another_run_and_every_node_agrees(node: Node, tmp_path: Path) -> None:
    node.prolog("42", "0", SLURM_JOB_START_TIME="1788000000")
    (first,), _ = node.see()
    node.prolog("42", "0", SLURM_JOB_START_TIME="1799000000")
    (second,), _ = node.see()
    other = Node(tmp_path / "other")
    other.job("job_42", batch=50, variables={"SLURM_JOB_ID": "42", "SLURM_JOB_START_TIME": "1788000000"})
    other.process(700, "job_42", environ={"SLURM_JOB_ID": "42", "SLURM_JOB_START_TIME": "1788000000"})
    (elsewhere,), _ = other.see((0, 700))
    assert first.workload_id == elsewhere.workload_id != second.workload_id


def test_several_jobs_on_a_node_and_one_gpu_given_twice_is_shared(node: Node) -> None:
    for job, gpus in (("1", "7"), ("2", "6,5"), ("3", "5")):
        node.prolog(job, gpus)
        node.job(f"job_{job}")
    _, uses = node.see()
    assert {(u.gpu_uuid, u.shared) for u in uses} == {("GPU-0", False), ("GPU-1", False), ("GPU-2", True)}


def test_a_stranger_on_an_allocated_gpu_shares_it(node: Node) -> None:
    node.prolog("1", "7")
    node.proc.process(700, argv=["python", "x.py"])
    _, uses = node.see((0, 700))
    assert [(u.basis, u.shared) for u in sorted(uses, key=lambda u: u.basis)] == [
        ("allocation", True),
        ("process", True),
    ]


BATCH = {
    "SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "6,7", "SLURM_JOB_NAME": "llama", "SLURM_JOB_ACCOUNT": "nlp",
    "SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_QOS": "high", "SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "2",
    "SLURM_RESTART_COUNT": "1", "HF_TOKEN": "hf_secret",
}  # fmt: skip


def test_the_batch_script_tells_where_its_environment_may_be_read(node: Node) -> None:
    node.job("job_42", batch=50, variables=BATCH)
    (workload,), uses = node.see()
    assert (workload.job_id, workload.name, workload.account) == ("42", "llama", "nlp")
    assert (workload.partition, workload.qos, workload.restarts) == ("gpu", "high", 1)
    assert (workload.array_job_id, workload.array_task_id) == ("40", "2")
    assert [(u.gpu_uuid, u.basis) for u in uses] == [("GPU-0", "allocation"), ("GPU-1", "allocation")]
    assert node.reasons() == set()


def test_the_batch_script_names_a_job_whose_gpus_the_prolog_told(node: Node) -> None:
    node.prolog("42", "5", SLURM_JOB_ACCOUNT="vision", SLURM_JOB_RESTART_COUNT="0")
    node.job("job_42", batch=50, variables=BATCH)
    (workload,), uses = node.see()
    assert (workload.name, workload.account, workload.qos, workload.restarts) == ("llama", "vision", "high", 0)
    assert [u.gpu_uuid for u in uses] == ["GPU-2"]


def test_a_login_in_the_extern_step_is_not_believed(node: Node) -> None:
    node.job("job_42")
    procs = node.cgroups / STEPD / "job_42/step_extern/user/task_special/cgroup.procs"
    put(procs, "40\n50")
    adopted = f"0::/{STEPD}/job_42/step_extern/user/task_special"
    lie = {"SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "0-7"}
    node.proc.process(40, comm="bash", argv=["bash"], cgroup=adopted, environ=lie, start=999)
    _, uses = node.see()
    assert uses == () and node.reasons() == {"allocation-unknown"}


def test_a_job_does_not_lie_itself_onto_the_gpus_of_others(node: Node) -> None:
    node.prolog("41", "6,7")
    node.job("job_41")
    node.job("job_42", batch=50, variables=BATCH)
    workloads, uses = node.see()
    assert {w.job_id for w in workloads} == {"41"}
    assert not any(u.shared for u in uses) and node.reasons() == {"allocation-unknown"}


def test_a_task_of_srun_names_its_job_and_tells_no_allocation(node: Node) -> None:
    node.job("job_42")
    told = {"SLURM_JOB_ID": "42", "SLURM_JOB_NAME": "bench", "SLURM_STEP_GPUS": "7"}
    put(node.cgroups / STEPD / "job_42/step_0/user/task_0/cgroup.procs", "700")
    node.process(700, "job_42", environ=told)
    (workload,), uses = node.see((0, 700))
    assert workload.name == "bench" and [u.basis for u in uses] == ["process"]
    assert node.reasons() == {"allocation-unknown"}


def test_v1_cgroups_and_sluids(node: Node) -> None:
    (node.cgroups / "freezer/slurm_n1/uid_1000/job_7/step_batch").mkdir(parents=True)
    put(node.cgroups / "freezer/slurm_n1/uid_1000/job_7/step_batch/cgroup.procs", "69\n70")
    node.proc.process(69, comm="slurmstepd", argv=["slurmstepd: [7.batch]"], start=4)
    node.proc.process(70, comm="slurm_script", environ={"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "7"}, start=5)
    (workload,), (use,) = node.see()
    assert (workload.job_id, use.gpu_uuid) == ("7", "GPU-0")


def test_a_sluid_is_tied_to_its_job_by_the_prolog(node: Node) -> None:
    node.prolog("42", "7", SLURM_JOB_SLUID="s8FXKTA79XAR00")
    node.job("s8FXKTA79XAR00")
    node.process(700, "s8FXKTA79XAR00", "step_batch")
    (workload,), uses = node.see((0, 700))
    assert workload.job_id == "42"
    assert [u.basis for u in uses] == ["allocation", "process"]


def test_a_sluid_without_a_name_is_tied_only_where_nothing_else_fits(node: Node) -> None:
    node.prolog("42", "7")
    node.prolog("43", "6,5")
    for pid, sluid in ((700, "s8FXKTA79XAR00"), (701, "s8FXKTA79XAR01"), (702, "s8FXKTA79XAR02")):
        node.job(sluid)
        node.process(pid, sluid, "step_batch")
    workloads, _ = node.see((0, 700), (1, 701), (2, 702))
    assert {w.job_id for w in workloads} == {"42", "43", "s8FXKTA79XAR01", "s8FXKTA79XAR02"}


def test_a_running_job_that_nothing_tells_of_is_said(node: Node) -> None:
    node.job("job_42", batch=50, variables=None)
    workloads, uses = node.see()
    assert (workloads, uses) == ((), ())
    (absence,) = node.attribution.absences
    assert (absence.reason, absence.metric) == ("allocation-unknown", "slurm")
    assert "42" in absence.detail and "does not exist" in absence.detail


def test_without_a_scheduler_allocation_is_absent_with_its_reason(node: Node) -> None:
    shutil.rmtree(node.root / "etc")
    node.proc.process(700, argv=["python", "x.py"])
    _, uses = node.see((0, 700))
    assert {u.basis for u in uses} == {"process"}
    (absence,) = node.attribution.absences
    assert absence.reason == "allocation-unknown" and "No scheduler" in absence.detail


def test_a_file_that_outlived_its_job_is_left_out_where_extern_steps_tell(node: Node) -> None:
    node.prolog("41", "7")
    node.prolog("42", "6")
    for job in ("job_41", "job_42"):
        node.job(job)
    assert len(node.see()[1]) == 2
    (node.cgroups / STEPD / "job_41").rename(node.root / "gone")
    assert len(node.see()[1]) == 2
    _, uses = [node.see() for _ in range(5)][-1]
    assert [u.gpu_uuid for u in uses] == ["GPU-1"]
    assert node.reasons() == {"allocation-stale"}


def test_without_extern_steps_a_job_may_live_without_a_cgroup(node: Node) -> None:
    node.prolog("41", "7")
    (node.cgroups / STEPD).mkdir(parents=True)
    _, uses = [node.see() for _ in range(80)][-1]
    assert [u.gpu_uuid for u in uses] == ["GPU-0"]


def test_the_epilog_takes_the_allocation_away(node: Node) -> None:
    node.prolog("42", "0")
    (open_use,) = node.see()[1]
    script(node.folder, "epilog.sh", SLURM_JOB_ID="42")
    _, (use,) = node.see()
    began, ended = ((node.folder / name).stat().st_mtime for name in ("42-0.job", "42-0.end"))
    assert (open_use.since, open_use.until) == (began, None)
    assert (use.workload_id, use.since, use.until) == (open_use.workload_id, began, ended)
    assert node.see() == ((), ())


def test_names_chosen_by_users_do_not_reach_past_their_line(node: Node) -> None:
    node.prolog("42", "0,$(id)", SLURM_JOB_ACCOUNT="../../etc")
    found = read_job_files(node.folder, TRUSTED)
    assert found.refused == (("42-0.job", "an invalid list of GPUs"),)
    hostile = "\x1b[31m`id`$(id)%s%n\\n" + "x" * 5000 + "\ngpus=0-7\ncomplete=1"
    node.prolog("42", "0", SLURM_JOB_ACCOUNT=hostile, SLURM_JOB_PARTITION="\ngpus=0-7", SLURM_JOB_NAME="%d;id")
    (job,) = read_job_files(node.folder, TRUSTED).jobs
    assert (job.devices, job.name, job.partition) == (("0",), "%d;id", None)
    assert job.account is not None and job.account.startswith("[31m`id`$(id)%s%n\\nxxx") and len(job.account) <= 64


@pytest.mark.parametrize("job_id", ["", "../x", "1;id", "-1", "4 2"])
def test_a_prolog_without_a_job_id_writes_nothing(node: Node, job_id: str) -> None:
    node.prolog(job_id, "0")
    assert not node.folder.exists()


GOOD = b"version=2\njob_id=42\ngpus=0,1\nstart=1788000000\nname=x\n"
END = b"complete=1\n"


@pytest.mark.parametrize(
    "raw",
    [
        GOOD + b"extra=1\n", GOOD + b"gpus=3\n", GOOD.replace(b"=42", b"=43"),
        GOOD.replace(b"version=2", b"version=1"), GOOD.replace(b"0,1", b"0-9999"), GOOD.replace(b"0,1", b"0,,1"),
        GOOD.replace(b"0,1", b"-1"), GOOD.replace(b"1788000000", b"soon"), GOOD.replace(b"gpus=0,1\n", b""),
        GOOD.replace(b"0,1", "٣".encode()), GOOD + b"name=" + b"x" * 5000 + b"\n", b"\xff\xfe=\n", GOOD + b"\n",
        GOOD.replace(b"0,1", b",".join(b"0-255" for _ in range(9))),
    ],
)  # fmt: skip
def test_a_file_that_the_prolog_did_not_write_is_refused(raw: bytes) -> None:
    assert isinstance(parse_job_file(raw + END, "42"), str)


def test_a_file_without_its_last_line_is_none(node: Node) -> None:
    whole = GOOD + END
    assert [parse_job_file(whole[:end], "42") for end in range(len(whole))] == [None] * len(whole)
    node.prolog("42", "7")
    file = node.folder / "42-0.job"
    file.write_bytes(file.read_bytes()[:-3])
    node.job("job_42")
    assert node.see() == ((), ())
    assert node.reasons() == {"allocation-unknown"}  # the job is there, and nothing says what it was given


def test_a_good_file_and_lists_of_devices() -> None:
    assert parse_job_file(GOOD + END, "42") == JobFile("42", ("0", "1"), start_seconds=1788000000, name="x")
    assert parse_devices("0,2-4,2") == ("0", "2", "3", "4")
    assert parse_devices("GPU-0f3c2c11-aaaa,MIG-11112222") == ("GPU-0f3c2c11-aaaa", "MIG-11112222")
    assert parse_devices("4-2") is None


def test_only_what_nobody_else_can_write_is_believed(node: Node, tmp_path: Path) -> None:
    node.prolog("42", "0")
    good = node.folder / "42-0.job"
    (tmp_path / "elsewhere").write_bytes(GOOD + END)
    (node.folder / "43-0.job").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(node.folder / "44-0.job")
    (node.folder / "45-0.job").write_bytes(GOOD.replace(b"=42", b"=45") + END)
    (node.folder / "45-0.job").chmod(0o666)
    (node.folder / "notes.txt").write_text("x")
    found = read_job_files(node.folder, TRUSTED)
    assert [job.job_id for job in found.jobs] == ["42"]
    assert {name for name, _ in found.refused} == {"43-0.job", "44-0.job", "45-0.job"}
    assert read_job_files(node.folder, frozenset({65533})).missing is not None
    node.see()
    assert "allocation-refused" in node.reasons()
    node.folder.chmod(0o777)
    assert read_job_files(node.folder, TRUSTED).jobs == ()
    good.unlink()


def test_a_device_that_the_driver_does_not_name_is_said_and_not_guessed(node: Node) -> None:
    node.prolog("42", "7,9")
    _, uses = node.see()
    assert uses == ()  # half an allocation would be a wrong one
    (absence,) = node.attribution.absences
    assert absence.reason == "allocation-unresolved" and "(42: 9)" in absence.detail


def test_the_scripts_write_nowhere_that_a_link_leads_to(node: Node, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    node.folder.parent.mkdir()
    node.folder.symlink_to(elsewhere)
    node.marker.symlink_to(elsewhere)
    node.prolog("42", "0")
    environ = {"SKUWISE_DRAINED_MARKER": str(node.marker)}
    subprocess.run(["/bin/sh", str(SCRIPTS / "drained.sh"), "DIMM"], env=environ, check=True, timeout=60)
    assert list(elsewhere.iterdir()) == [] and elsewhere.stat().st_mode & 0o777 == 0o700
    assert not node.marker.is_symlink() and node.marker.read_text() == "DIMM\n"
    node.folder.unlink()
    node.folder.mkdir()
    if os.getuid() == 0:  # only root can give a folder away
        os.chown(node.folder, 65534, 65534)
        node.prolog("42", "0")
        assert list(node.folder.iterdir()) == []
        os.chown(node.folder, 0, 0)
    node.prolog("42", "0")
    assert [one.name for one in node.folder.iterdir()] == ["42-0.job"]


def test_a_drained_node_says_so_and_why(node: Node) -> None:
    environ = {"SKUWISE_DRAINED_MARKER": str(node.marker)}
    run = ["/bin/sh", str(SCRIPTS / "drained.sh")]
    subprocess.run([*run, "bad\nDIMM", "\x1b[31m", "x" * 900], env=environ, check=True, timeout=60)
    node.attribution.look_at_node()
    (absence,) = [a for a in node.attribution.absences if a.reason == "drained"]
    assert absence.detail.startswith("The node is out of service: badDIMM [31m xxx") and len(absence.detail) < 300
    subprocess.run([*run, "--clear"], env=environ, check=True, timeout=60)
    node.see()
    assert "drained" not in node.reasons()


def test_a_marker_that_anybody_could_have_left_is_none(node: Node) -> None:
    put(node.marker, "ha")
    node.marker.chmod(0o666)
    node.see()
    assert "drained" not in node.reasons()
    node.marker.unlink()
    os.mkfifo(node.marker)
    node.see()
    assert "drained" not in node.reasons()
