"""Runs of Slurm's jobs as workloads, and which GPU a job holds by the order of gres.conf."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from skuwise.agent.jobs.attribution import NodeAttribution
from skuwise.agent.jobs.scheduler_claims import Devices
from skuwise.agent.jobs.slurm_conf import Gres, Resolution, SlurmConfReader, read_gres, resolve
from skuwise.agent.model import Gpu, GpuProcess, Workload, WorkloadUse
from skuwise.tests.support.sysfs_trees import Procfs, put
from skuwise.tests.unit.agent.jobs.test_attribution import attribution

T0 = 1_790_000_000.0
GPUS = tuple(Gpu(f"GPU-{i}", i, "H100", minor=i) for i in range(8))
SLURMD = "0::/system.slice/slurmd.service"


class SlurmNode:
    """A node under cgroup v1 or with ``proctrack/linuxproc`` (no cgroup of a job's), and the agent's view of it."""

    def __init__(self, root: Path, gpus: Sequence[Gpu] = GPUS) -> None:
        self.root, self.gpus = root, gpus
        self.proc = Procfs(root / "proc")
        self.folder = root / "skuwise-slurm"
        self.folder.mkdir(parents=True)
        put(root / "etc/slurm.conf", "NodeName=n1 Gres=gpu:8")
        put(root / "etc/gres.conf", "Name=gpu File=/dev/nvidia[0-7]")
        # It booted at T0: a process with a start of 500 ticks began at T0 + 5, if the tick is 1/100 s.
        put(self.proc.root / "uptime", "100.00 50.00")
        self.attribution = self.agent()

    def agent(self) -> NodeAttribution:
        about = {"settings": SlurmConfReader(self.root / "etc", host="n1"), "wall": lambda: T0 + 100}
        made = attribution(self.proc, folder=self.folder, **about)
        made.allocations.gpus = self.gpus
        return made

    def prolog(self, job_id: int, gpus: str, at: float = T0, *, restarts: int = 0, **more: str) -> None:
        """What prolog.sh writes (its own tests run it)."""
        lines = {"version": "2", "job_id": job_id, "restarts": restarts, "gpus": gpus, "uid": 1000, "user": "ada"}
        path = self.folder / f"{job_id}-{restarts}.job"
        put(path, "\n".join(f"{key}={value}" for key, value in (lines | more).items()) + "\ncomplete=1")
        os.utime(path, (at, at))

    def epilog(self, job_id: int, at: float, *, restarts: int = 0) -> None:
        path = self.folder / f"{job_id}-{restarts}.end"
        path.write_bytes(b"")
        os.utime(path, (at, at))

    def job(self, job_id: int, *pids: int, extern: bool = True) -> None:
        """A living job with a v1 cgroup (freezer alone, as on a real 22.05 in hybrid mode)."""
        home = self.root / f"cgroup/freezer/slurm_n1/uid_1000/job_{job_id}"
        for step in ("step_batch", *(["step_extern"] if extern else [])):
            (home / step).mkdir(parents=True, exist_ok=True)
        path = f"9:freezer:/slurm_n1/uid_1000/job_{job_id}/step_batch\n0::/system.slice/slurmd.service"
        for pid in pids:
            self.proc.process(pid, argv=["python", "train.py"], cgroup=path)

    def over(self, job_id: int) -> None:
        home = self.root / f"cgroup/freezer/slurm_n1/uid_1000/job_{job_id}"
        home.rename(self.root / f"gone_{job_id}")

    def stepd(self, pid: int, title: str, **more: object) -> None:
        process = {"uid": 0, "start": 5} | more
        self.proc.process(pid, comm="slurmstepd", argv=[f"slurmstepd: [{title}]"], cgroup=SLURMD, **process)  # type: ignore[arg-type]

    def child(self, pid: int, parent: int) -> None:
        self.proc.process(pid, ppid=parent, argv=["python", "train.py"], cgroup=SLURMD)

    def see(self, *processes: tuple[int, int]) -> tuple[tuple[Workload, ...], tuple[WorkloadUse, ...]]:
        """One scan: pairs of (GPU number, PID)."""
        return self.attribution.attribute([GpuProcess(f"GPU-{gpu}", pid, 1024) for gpu, pid in processes])

    def reasons(self) -> set[str]:
        return {absence.reason for absence in self.attribution.absences}


@pytest.fixture
def node(tmp_path: Path) -> SlurmNode:
    return SlurmNode(tmp_path)


def test_a_job_on_another_gpu_than_its_settings_say_is_a_contradiction(node: SlurmNode) -> None:
    node.prolog(22, "0", T0)
    node.job(22, 700)
    _, uses = node.see((4, 700))
    assert [(use.basis, use.gpu_uuid) for use in uses] == [("process", "GPU-4")]
    (absence,) = node.attribution.absences
    assert absence.reason == "allocation-contradicted"
    assert "job 22 was given GPU 0 by Slurm's settings, but it works on GPU 4" in absence.detail
    # What was wrong once does not become right because the process or the job ended.
    assert node.see()[1] == ()
    node.epilog(22, T0 + 60)
    assert node.see()[1] == ()


def test_jobs_between_two_scans_have_their_starts_and_ends_and_do_not_share(node: SlurmNode) -> None:
    node.see()
    node.prolog(22, "3", T0 + 1)
    node.epilog(22, T0 + 5)
    node.prolog(23, "3", T0 + 6)
    workloads, uses = node.see()
    assert {workload.job_id for workload in workloads} == {"22", "23"}
    runs = sorted((use.since or 0.0, use.until, use.gpu_uuid, use.shared) for use in uses)
    assert runs == [(T0 + 1, T0 + 5, "GPU-3", False), (T0 + 6, None, "GPU-3", False)]
    node.epilog(23, T0 + 9)
    assert [use.until for use in node.see()[1]] == [T0 + 9] and node.see() == ((), ())


def test_a_requeued_job_is_two_runs_of_one_series(node: SlurmNode) -> None:
    node.prolog(22, "3", T0)
    node.job(22, 700)
    (first,), _ = node.see((3, 700))
    node.epilog(22, T0 + 50)
    node.prolog(22, "5", T0 + 60, restarts=1)
    node.job(22, 701)
    workloads, uses = node.see((5, 701))
    (second,) = (workload for workload in workloads if workload.workload_id != first.workload_id)
    assert (first.restarts, second.restarts) == (0, 1)
    assert first.series_id == second.series_id
    held = {(use.workload_id, use.gpu_uuid) for use in uses}
    assert held == {(first.workload_id, "GPU-3"), (second.workload_id, "GPU-5")}
    assert second.command is not None


def test_a_requeued_run_of_which_the_epilog_alone_wrote_has_its_gpu_start_and_end(node: SlurmNode) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    node.prolog(22, "2", T0 + 1, account="nlp", partition="gpu")
    node.job(22)
    ((first,), _) = node.see()
    node.epilog(22, T0 + 5)
    home = node.root / "cgroup/freezer/slurm_n1/uid_1000/job_22/step_batch"
    put(home / "cgroup.procs", "600\n701")
    path = "9:freezer:/slurm_n1/uid_1000/job_22/step_batch"
    node.proc.process(600, comm="slurmstepd", argv=["slurmstepd: [22.batch]"], uid=0, cgroup=path, start=8 * tick)
    node.proc.process(701, ppid=600, argv=["python", "t.py"], cgroup=path, start=9 * tick)
    node.attribution = node.agent()  # it was restarted meanwhile
    live = node.see((7, 701))[0]
    (second,) = (workload for workload in live if workload.restarts == 1)
    assert (second.account, second.partition, second.series_id) == ("nlp", "gpu", first.series_id)
    assert "allocation-unknown" in node.reasons()
    node.over(22)
    (node.root / "proc/701/stat").unlink()
    node.prolog(22, "7", T0 + 50, restarts=1, account="nlp", partition="gpu", without_prolog="1")
    node.epilog(22, T0 + 50, restarts=1)
    workloads, uses = node.see()
    assert [(use.workload_id, use.gpu_uuid, use.until) for use in uses] == [(second.workload_id, "GPU-7", T0 + 50)]
    assert uses[0].since == pytest.approx(T0 + 8, abs=0.05)
    assert node.see() == ((), ()) and {workload.workload_id for workload in workloads} == {second.workload_id}


def test_a_file_without_a_job_does_not_share_the_gpu_of_the_next(node: SlurmNode) -> None:
    node.prolog(22, "3", T0)
    node.job(22, extern=False)
    node.see()
    node.over(22)  # and no epilog ran
    node.prolog(23, "3", T0 + 100)
    node.job(23, 700, extern=False)
    workloads, uses = node.see((3, 700))
    assert {workload.job_id for workload in workloads} == {"23"}
    assert not any(use.shared for use in uses) and node.reasons() == {"allocation-stale"}
    node.over(23)
    assert node.see()[1] != ()  # no other job has its GPU: an allocation may well run nothing


def test_without_cgroups_a_job_is_one_workload_by_its_slurmstepd(node: SlurmNode) -> None:
    node.prolog(22, "0,1", T0)
    node.stepd(500, "22.batch")
    node.stepd(600, "22.0")
    node.child(501, 500)
    node.child(502, 501)
    node.child(601, 600)
    (workload,), uses = node.see((0, 502), (1, 601))
    assert (workload.scheduler, workload.job_id) == ("slurm", "22")
    expected = {(f"GPU-{gpu}", basis) for gpu in (0, 1) for basis in ("allocation", "process")}
    assert {(use.gpu_uuid, use.basis) for use in uses} == expected
    assert not any(use.shared for use in uses)
    # A user cannot name himself into another job by sudo under slurmstepd's title, which waits for a password.
    node = SlurmNode(node.root / "other")
    node.stepd(300, "42.batch", tty=34816)
    node.child(301, 300)
    assert {workload.job_id for workload in node.see((0, 301))[0]} == {None}
    node.stepd(200, "22.batch")
    node.stepd(201, "42.batch", ppid=200, start=6)
    node.child(202, 201)
    assert {workload.job_id for workload in node.see((0, 202))[0]} == {"22"}


TURNED = tuple(Gpu(f"GPU-{i}", i, "H100", minor=7 - i) for i in range(8))
UNKNOWN = Gres(why="the files do not say")
DETECTED = Gres(None, True, 8)
MIG = (
    Gpu("GPU-0", 0, "H100", minor=0),
    Gpu("MIG-a", 0, "H100", kind="mig", parent_uuid="GPU-0", gpu_instance=1),
    Gpu("MIG-b", 0, "H100", kind="mig", parent_uuid="GPU-0", gpu_instance=2),
    Gpu("GPU-1", 1, "H100", minor=1),
)


def gres(*minors: int, is_sorted: bool = False) -> Gres:
    return Gres(tuple((f"/dev/nvidia{i}",) for i in minors), is_sorted, len(minors))


@pytest.mark.parametrize(
    ("given", "settings", "gpus", "uuids"),
    [
        ("02", gres(4, 5, 6, 7), GPUS, "46"),  # an index is not a minor
        ("", UNKNOWN, GPUS, ""),
        (("GPU-3",), UNKNOWN, GPUS, "3"),
        ("3", DETECTED, GPUS, "3"),
        ("01234567", DETECTED, TURNED, "01234567"),  # all of them, whatever the order
        ("0", gres(6, 2, is_sorted=True), GPUS, "2"),
        ("0", UNKNOWN, GPUS, "the files do not say"),
        ("04", gres(4, 5, 6, 7), GPUS, "has no GPU|no GPU of that name"),
        ("1", gres(9, 1), GPUS, "nvidia9, which is no GPU of this node"),  # slurmd passes over it, and 1 moves up
        ("0", gres(0), (), "the driver does not list"),
        ("3", Gres(None, True, 4), GPUS, "leaves the order open"),
        ("3", Gres(None, True, None), GPUS, "leaves the order open"),
        ("3", DETECTED, TURNED, "order of the driver"),
        ("0", gres(0, 1), MIG, "which is no GPU of this node"),
        ("01", Gres(None, True, 2), MIG, "leaves the order open"),
    ],
)
def test_what_a_job_was_given(given: Sequence[str], settings: Gres, gpus: Sequence[Gpu], uuids: str) -> None:
    resolution = resolve(tuple(given), settings, Devices(gpus), Path("/nothing"))
    if not uuids or uuids.isdecimal():
        assert resolution == Resolution(tuple(f"GPU-{index}" for index in uuids))
    else:
        assert resolution.gpu_uuids == () and resolution.unknown
        assert any(part in resolution.why for part in uuids.split("|"))


def test_instances_are_named_by_their_capabilities(tmp_path: Path) -> None:
    put(tmp_path / "driver/nvidia-caps/mig-minors", "config 1\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n"
        "gpu0/gi2/access 21\ngpu0/gi2/ci0/access 22")  # fmt: skip
    caps = "/dev/nvidia-caps/nvidia-cap"
    lines = [f"Name=gpu MultipleFiles=/dev/nvidia0,{caps}{number},{caps}{number + 1}" for number in (21, 12)]
    gres = read_gres(settings(tmp_path, "\n".join([*lines, "Name=gpu File=/dev/nvidia1"])), "n1")
    given = [resolve((index,), gres, Devices(MIG), tmp_path).gpu_uuids for index in "012"]
    assert given == [("MIG-b",), ("MIG-a",), ("GPU-1",)]


TYPED = "Name=gpu Type=h100 File=/dev/nvidia[4-7]\nName=gpu Type=a100 File=/dev/nvidia[0-3]"
MIXED = "\n".join(f"Name=gpu Type=t{'ab'[i % 2]} File=/dev/nvidia{i}" for i in range(4))


def settings(root: Path, gres: str | None, slurm: str | None = "NodeName=n1 Gres=gpu:8") -> Path:
    for name, text in (("gres.conf", gres), ("slurm.conf", slurm)):
        if text is not None:
            put(root / name, text)
    return root


@pytest.mark.parametrize(
    ("gres", "slurm", "minors"),
    [
        ("Name=gpu File=/dev/nvidia[0-7]", "NodeName=n1 Gres=gpu:8", "01234567"),
        ("Name=gpu File=/dev/nvidia[4-7]", "NodeName=n1 Gres=gpu:4", "4567"),
        (TYPED, "NodeName=n1 Gres=gpu:h100:4,gpu:a100:4", "45670123"),
        (TYPED, "NodeName=n1 Gres=gpu:a100:4,gpu:h100:4", "01234567"),
        (TYPED, "NodeName=n[1-9] Gres=gpu:H100:4(S:0),shard:80,gpu:A100:4(S:1)", "45670123"),
        (TYPED, "NodeName=n1 Gres=gpu:8", "45670123"),
        (TYPED, "NodeName=n1 Gres=gpu:h100:2,gpu:a100:4", "450123"),
        (MIXED, "NodeName=n1 Gres=gpu:ta:2,gpu:tb:2", "0213"),
        ("\n".join(f"Name=gpu File=/dev/nvidia{i}" for i in (3, 1, 7, 0)), "NodeName=n1 Gres=gpu:4", "3170"),
        ("Name=gpu File=/dev/nvidia[6,2,0-1]", "NodeName=n1 Gres=gpu:4", "6201"),
        ("name=GPU file=/dev/nvidia1,/dev/nvidia0 Count=2", "NodeName=DEFAULT Gres=gpu:2\nNodeName=n1", "10"),
        ("NodeName=n[2-9] Name=gpu File=/dev/nvidia0\nNodeName=n1 Name=gpu File=/dev/nvidia7", None, "7"),
        ("AutoDetect=nvml\nNodeName=n1 AutoDetect=off\nName=gpu \\\n File=/dev/nvidia[0-1]", None, "01"),
        ("Name=gpu Type=a File=/dev/nvidia0\nName=gpu Type=A File=/dev/nvidia1", None, "01"),
        ("Name=nic File=/dev/mlx[0-1]\nName=gpu File=/dev/nvidia3", "NodeName=n1 Gres=nic:2,gpu:1", "3"),
        # What the files do not decide is not known.
        (None, "NodeName=n1 Gres=gpu:8", "cannot be read"),
        (TYPED, None, "several types"),
        ("Include gpus.conf\nName=gpu File=/dev/nvidia0", "NodeName=n1 Gres=gpu:1", "no setting (Include)"),
        ("NodeName=n2 Name=gpu File=/dev/nvidia0", "NodeName=n1 Gres=gpu:1", "no GPUs of this node"),
        ("Name=gpu Count=8", "NodeName=n1 Gres=gpu:8", "no device files"),
        ("Name=gpu File=/dev/nvidia[0-", "NodeName=n1 Gres=gpu:8", "no list of devices"),
        ("Name=gpu File=/dev/nvidia[0-3] Count=8", "NodeName=n1 Gres=gpu:8", "no list of devices"),
        ("Name=gpu File=/dev/nvidia0\nName=gpu File=/dev/nvidia0", "NodeName=n1 Gres=gpu:2", "twice"),
        ("NodeName=n[1 Name=gpu File=/dev/nvidia0", "NodeName=n1 Gres=gpu:1", "no list of names"),
        ("", "NodeName=n1 Gres=gpu:1", "no GPUs of this node"),
    ],
)
def test_the_order_is_slurmds(tmp_path: Path, gres: str | None, slurm: str | None, minors: str) -> None:
    node_gres = read_gres(settings(tmp_path, gres, slurm), "n1")
    if minors.isdecimal():
        assert (node_gres.why, node_gres.is_sorted) == ("", False)
        assert node_gres.units == tuple((f"/dev/nvidia{minor}",) for minor in minors)
    else:
        assert node_gres.units is None and minors in node_gres.why


def test_the_folder_is_the_one_that_slurmd_names_else_the_first_and_it_is_read_again(tmp_path: Path) -> None:
    path, two = tmp_path / "one", tmp_path / "two"
    settings(two, "NodeName=n2 Name=gpu File=/dev/nvidia[4-5]\nNodeName=n3 Name=gpu File=/dev/nvidia6")
    reader = SlurmConfReader(folders=(path, two), host="n1.example.org")
    assert reader.gres().units is None
    settings(path, "Name=gpu File=/dev/nvidia[0-1")
    assert reader.gres().units is None and reader.is_present
    settings(path, "Name=gpu File=/dev/nvidia[0-1]")
    assert reader.gres().units == (("/dev/nvidia0",), ("/dev/nvidia1",))
    # Several slurmd on a machine, each with a name and settings.
    assert reader.gres(f"{two}/slurm.conf", "n2").units == (("/dev/nvidia4",), ("/dev/nvidia5",))
    assert reader.gres(f"{two}/slurm.conf", "n3").units == (("/dev/nvidia6",),)
    assert SlurmConfReader(two / "slurm.conf", (path,), "n1").gres(f"{path}/slurm.conf").folder == two
    nowhere = SlurmConfReader(folders=(tmp_path / "nothing",), host="n1")
    assert not nowhere.is_present and nowhere.gres().units is None
