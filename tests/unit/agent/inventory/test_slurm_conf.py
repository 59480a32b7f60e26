"""Which device a gres index means: the cases measured on a real Slurm 22.05, by what a job could open."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.agent.inventory.identity.hostlist import expand
from skuwise.agent.inventory.slurm.slurm_conf import SlurmConfReader, read_gres
from skuwise.tests.support.sysfs_trees import put

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
