"""What proves which GPU a Slurm job holds, and what becomes of proofs that disagree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from skuwise.agent.jobs.device_cgroup import EVERYTHING, parse_devices_list, read_majors
from skuwise.agent.jobs.hostlist import expand
from skuwise.agent.jobs.scheduler_claims import Devices
from skuwise.agent.jobs.slurm_conf import Gres, SlurmConfReader, read_gres
from skuwise.agent.jobs.slurm_devices import ProcessEvidence, Resolution, Resolver
from skuwise.agent.model import Gpu
from skuwise.tests.support.sysfs_trees import put

GPUS = tuple(Gpu(f"GPU-{i}", i, "H100", minor=i) for i in range(8))
NOTHING = ProcessEvidence()
ALL_8 = Gres(tuple((f"/dev/nvidia{i}",) for i in range(8)), frozenset(f"/dev/nvidia{i}" for i in range(8)), count=8)
LAST_4 = Gres(
    tuple((f"/dev/nvidia{i}",) for i in range(4, 8)), frozenset(f"/dev/nvidia{i}" for i in range(4, 8)), count=4
)
UNKNOWN = Gres(why="the files do not say")
CONSTRAINED = Gres(why="the files do not say", is_constrained=True)


def devices_list(minors: Sequence[int | str]) -> str:
    common = ["c *:* m", "b *:* m", "c 1:3 rwm", "c 136:* rwm", "c 195:255 rw"]
    return "\n".join([*common, *(f"c 195:{minor} rwm" for minor in minors)])


def resolve(
    root: Path,
    given: Sequence[str] | None,
    gres: Gres,
    evidence: ProcessEvidence = NOTHING,
    *,
    job: Sequence[int | str] | None = None,
    slurm: Sequence[int | str] = range(8),
    gpus: Sequence[Gpu] = GPUS,
) -> Resolution:
    """`job`: the GPUs of the job's devices.list; None: no such file. `slurm`: those of the list above it."""
    if job is not None:
        put(root / "cgroup/devices/slurm_n1/devices.list", devices_list(slurm))
        put(root / "cgroup/devices/slurm_n1/uid_1000/job_42/devices.list", devices_list(job))
    resolver = Resolver(Devices(gpus), root / "proc", root / "cgroup", lambda _: None)
    return resolver.resolve("42", given, gres, evidence)


def test_an_index_is_not_a_minor(tmp_path: Path) -> None:
    assert resolve(tmp_path, ("0", "2"), LAST_4) == Resolution(("GPU-4", "GPU-6"))
    assert resolve(tmp_path, (), LAST_4) == Resolution()
    assert resolve(tmp_path, ("GPU-3",), UNKNOWN) == Resolution(("GPU-3",))


def test_what_nothing_proves_is_unknown_and_says_why(tmp_path: Path) -> None:
    assert resolve(tmp_path, ("0",), UNKNOWN) == Resolution((), ("0",), "the files do not say")
    beyond = resolve(tmp_path, ("0", "4"), LAST_4)
    assert (beyond.gpu_uuids, beyond.unknown) == ((), ("4",))
    # slurmd passes over a file that is not there, and what follows moves up.
    odd = Gres((("/dev/nvidia9",), ("/dev/nvidia1",)), frozenset({"/dev/nvidia9", "/dev/nvidia1"}))
    assert "is no GPU of this node" in resolve(tmp_path, ("1",), odd).why
    blind = resolve(tmp_path, ("0",), ALL_8, gpus=())
    assert blind.gpu_uuids == () and "driver" in blind.why


def test_autodetect_decides_only_where_every_order_is_the_same(tmp_path: Path) -> None:
    detected = Gres(None, None, True, 8)
    assert resolve(tmp_path, ("3",), detected).gpu_uuids == ("GPU-3",)
    assert resolve(tmp_path, ("3",), Gres(None, None, True, 4)).gpu_uuids == ()
    assert resolve(tmp_path, ("3",), Gres(None, None, True, None)).gpu_uuids == ()
    turned = tuple(Gpu(f"GPU-{i}", i, "H100", minor=7 - i) for i in range(8))
    assert resolve(tmp_path, ("3",), detected, gpus=turned).gpu_uuids == ()
    shuffled = Gres((("/dev/nvidia6",), ("/dev/nvidia2",)), frozenset({"/dev/nvidia2", "/dev/nvidia6"}), True, 2)
    assert resolve(tmp_path, ("0",), shuffled).gpu_uuids == ("GPU-2",)


def test_the_device_cgroup_goes_over_the_settings_and_it_is_said(tmp_path: Path) -> None:
    found = resolve(tmp_path, ("0",), ALL_8, job=[4])
    assert found.gpu_uuids == ("GPU-4",)
    assert found.contradiction == "GPU 4 by its device cgroup, GPU 0 by Slurm's settings"
    assert resolve(tmp_path, ("4",), ALL_8, job=[4]) == Resolution(("GPU-4",))
    assert resolve(tmp_path, ("0", "1"), UNKNOWN, job=[2, 5]) == Resolution(("GPU-2", "GPU-5"))
    fewer = resolve(tmp_path, ("0", "1"), Gres(None, ALL_8.files, why="several types"), job=[2])
    assert fewer.gpu_uuids == ("GPU-2",) and "2 by the prolog" in fewer.contradiction


def test_gpus_that_gres_conf_does_not_list_are_open_to_every_job(tmp_path: Path) -> None:
    # Measured: with File=/dev/nvidia[4-7], a job of one GPU can open 0, 1, 2, 3 and its own.
    assert resolve(tmp_path, None, LAST_4, job=[0, 1, 2, 3, 6]).gpu_uuids == ("GPU-6",)
    assert resolve(tmp_path, ("2",), LAST_4, job=[0, 1, 2, 3, 6]) == Resolution(("GPU-6",))
    assert resolve(tmp_path, None, UNKNOWN, job=[0, 1, 2, 3, 6]).gpu_uuids == ()
    assert resolve(tmp_path, (), LAST_4, job=[0, 1, 2, 3]) == Resolution()


def test_a_job_that_works_on_what_it_was_not_given_is_a_contradiction(tmp_path: Path) -> None:
    found = resolve(tmp_path, ("0",), LAST_4, ProcessEvidence(frozenset({"GPU-0"})))
    assert found.gpu_uuids == ()
    assert found.contradiction == "GPU 4 by Slurm's settings, but it works on GPU 0"
    agreed = resolve(tmp_path, ("0", "1"), LAST_4, ProcessEvidence(frozenset({"GPU-5"})))
    assert agreed == Resolution(("GPU-4", "GPU-5"))


def test_processes_prove_a_whole_allocation_where_jobs_are_kept_apart(tmp_path: Path) -> None:
    on_two = ProcessEvidence(frozenset({"GPU-2", "GPU-5"}))
    assert resolve(tmp_path, ("0", "1"), CONSTRAINED, on_two) == Resolution(("GPU-2", "GPU-5"))
    assert resolve(tmp_path, ("0", "1"), UNKNOWN, on_two).gpu_uuids == ()
    assert resolve(tmp_path, ("0", "1", "2"), CONSTRAINED, on_two).gpu_uuids == ()
    opened = ProcessEvidence(frozenset({"GPU-2"}), frozenset({2, 5, 255}))
    assert resolve(tmp_path, ("0", "1"), CONSTRAINED, opened).gpu_uuids == ("GPU-2", "GPU-5")
    too_many = resolve(tmp_path, ("0",), CONSTRAINED, on_two)
    assert too_many.gpu_uuids == () and "it works on GPU 2, 5" in too_many.contradiction


MIG = (
    Gpu("GPU-0", 0, "H100", minor=0),
    Gpu("MIG-a", 0, "H100", kind="mig", parent_uuid="GPU-0", gpu_instance=1),
    Gpu("MIG-b", 0, "H100", kind="mig", parent_uuid="GPU-0", gpu_instance=2),
    Gpu("GPU-1", 1, "H100", minor=1),
)


def test_instances_are_named_by_their_capabilities(tmp_path: Path) -> None:
    put(tmp_path / "proc/driver/nvidia-caps/mig-minors", "config 1\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n"
        "gpu0/gi2/access 21\ngpu0/gi2/ci0/access 22")  # fmt: skip
    put(tmp_path / "proc/devices", "Character devices:\n195 nvidia\n236 nvidia-caps\n\nBlock devices:\n  8 sd")
    caps = "/dev/nvidia-caps/nvidia-cap"
    units = (("/dev/nvidia0", f"{caps}21", f"{caps}22"), ("/dev/nvidia0", f"{caps}12", f"{caps}13"), ("/dev/nvidia1",))
    gres = Gres(units, frozenset(file for unit in units for file in unit))
    assert resolve(tmp_path, ("0",), gres, gpus=MIG).gpu_uuids == ("MIG-b",)
    assert resolve(tmp_path, ("1", "2"), gres, gpus=MIG).gpu_uuids == ("MIG-a", "GPU-1")
    assert resolve(tmp_path, ("0",), gres, ProcessEvidence(frozenset({"MIG-a"})), gpus=MIG).contradiction
    whole = Gres((("/dev/nvidia0",), ("/dev/nvidia1",)), frozenset({"/dev/nvidia0", "/dev/nvidia1"}))
    assert resolve(tmp_path, ("0",), whole, gpus=MIG).unknown == ("0",)


def test_lists_and_majors_of_the_kernel(tmp_path: Path) -> None:
    assert parse_devices_list("a *:* rwm") == EVERYTHING
    allowed = parse_devices_list("c 1:3 rwm\nc 195:4 rw\nc 195:5 m\nb 8:0 rwm\nc *:7 rw")
    assert allowed is not None
    assert [allowed.has(195, minor) for minor in (3, 4, 5, 7)] == [False, True, False, True]
    assert [parse_devices_list(text) for text in ("x", "c 1 rw", "c a:b rw", "c 1:٣ rw")] == [None] * 4
    put(
        tmp_path / "devices",
        "Character devices:\n  1 mem\n510 nvidia-frontend\n236 nvidia-caps\n\nBlock devices:\n195 nvidia",
    )
    majors = read_majors(tmp_path)
    assert (majors.gpus, majors.caps) == (frozenset({510}), 236)
    assert read_majors(tmp_path / "nothing").gpus == frozenset({195})


TYPED = "Name=gpu Type=h100 File=/dev/nvidia[4-7]\nName=gpu Type=a100 File=/dev/nvidia[0-3]"
MIXED = "\n".join(f"Name=gpu Type=t{'ab'[i % 2]} File=/dev/nvidia{i}" for i in range(4))


def settings(root: Path, gres: str | None, slurm: str | None = "NodeName=n1 Gres=gpu:8") -> Path:
    if gres is not None:
        put(root / "gres.conf", gres)
    if slurm is not None:
        put(root / "slurm.conf", f"TaskPlugin=task/affinity,task/cgroup\n{slurm}")
    put(root / "cgroup.conf", "CgroupPlugin=cgroup/v1\nConstrainDevices=Yes # as it should be")
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
    ],
)
def test_the_order_is_slurmds(tmp_path: Path, gres: str, slurm: str | None, minors: str) -> None:
    found = read_gres(settings(tmp_path, gres, slurm), "n1")
    assert found.why == "" and not found.is_sorted
    assert found.units == tuple((f"/dev/nvidia{minor}",) for minor in minors)


@pytest.mark.parametrize(
    ("gres", "slurm", "why"),
    [
        (None, "NodeName=n1 Gres=gpu:8", "not there"),
        (TYPED, None, "several types"),
        (TYPED, "Include nodes.conf", "several types"),
        ("Include gpus.conf\nName=gpu File=/dev/nvidia0", "NodeName=n1 Gres=gpu:1", "includes another"),
        ("NodeName=n2 Name=gpu File=/dev/nvidia0", "NodeName=n1 Gres=gpu:1", "only other nodes"),
        ("Name=gpu Count=8", "NodeName=n1 Gres=gpu:8", "no device files"),
        ("Name=gpu File=/dev/nvidia[0-", "NodeName=n1 Gres=gpu:8", "no list of devices"),
        ("Name=gpu File=/dev/nvidia[0-999999999]", "NodeName=n1 Gres=gpu:8", "no list of devices"),
        ("Name=gpu File=/dev/nvidia[0-3] Count=8", "NodeName=n1 Gres=gpu:8", "no list of devices"),
        ("Name=gpu File=/dev/nvidia0\nName=gpu File=/dev/nvidia0", "NodeName=n1 Gres=gpu:2", "twice"),
        ("NodeName=n[1 Name=gpu File=/dev/nvidia0", "NodeName=n1 Gres=gpu:1", "no list of names"),
        ("", "NodeName=n1 Gres=gpu:1", "no GPUs"),
    ],
)
def test_what_the_files_do_not_decide_is_not_known(
    tmp_path: Path, gres: str | None, slurm: str | None, why: str
) -> None:
    found = read_gres(settings(tmp_path, gres, slurm), "n1")
    assert found.units is None and why in found.why


def test_whether_jobs_are_kept_from_other_gpus(tmp_path: Path) -> None:
    assert read_gres(settings(tmp_path, TYPED), "n1").is_constrained is True
    put(tmp_path / "cgroup.conf", "ConstrainCores=yes")
    assert read_gres(tmp_path, "n1").is_constrained is False
    (tmp_path / "cgroup.conf").unlink()
    assert read_gres(tmp_path, "n1").is_constrained is None


def test_the_folder_is_the_one_that_slurmd_names_or_the_only_one(tmp_path: Path) -> None:
    one = settings(tmp_path / "one", "Name=gpu File=/dev/nvidia[0-1]")
    two = settings(tmp_path / "two", "Name=gpu File=/dev/nvidia[4-5]")
    nothing = tmp_path / "nothing"
    alone = SlurmConfReader(folders=(nothing, one), host="n1.example.org")
    assert alone.is_present and alone.gres().units == (("/dev/nvidia0",), ("/dev/nvidia1",))
    both = SlurmConfReader(folders=(one, two), host="n1")
    assert both.gres().units is None and "differ" in both.gres().why
    assert both.gres(f"{two}/slurm.conf").units == (("/dev/nvidia4",), ("/dev/nvidia5",))
    assert both.gres("../slurm.conf").units is None
    assert SlurmConfReader(two / "slurm.conf", (one,), "n1").gres(f"{one}/slurm.conf").folder == two
    (tmp_path / "link").symlink_to(one)
    assert SlurmConfReader(folders=(one, tmp_path / "link"), host="n1").gres().units is not None
    assert not SlurmConfReader(folders=(nothing,), host="n1").is_present


def test_lists_of_names() -> None:
    assert expand("gpu[01-03,10],login1") == ("gpu01", "gpu02", "gpu03", "gpu10", "login1")
    assert expand("r[1-2]n[5,7]") == ("r1n5", "r1n7", "r2n5", "r2n7")
    assert [expand(text) for text in ("a[1-", "a]1[", "a[x]", "a[3-1]", "a[1-99999]", "a[[1]]")] == [None] * 6
    assert expand("") == ()
