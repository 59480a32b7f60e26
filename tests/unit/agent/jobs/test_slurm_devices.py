"""Which GPU a Slurm job holds by the order of gres.conf, and what becomes of settings that do not decide it."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from skuwise.agent.jobs.scheduler_claims import Devices
from skuwise.agent.jobs.slurm_conf import Gres, Resolution, SlurmConfReader, read_gres, resolve, without_contradiction
from skuwise.agent.model import Gpu
from skuwise.tests.support.sysfs_trees import put

NOWHERE = Path("/nothing")
GPUS = tuple(Gpu(f"GPU-{i}", i, "H100", minor=i) for i in range(8))
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
    found = resolve(tuple(given), settings, Devices(gpus), NOWHERE)
    if not uuids or uuids.isdecimal():
        assert found == Resolution(tuple(f"GPU-{index}" for index in uuids))
    else:
        assert found.gpu_uuids == () and found.unknown and any(one in found.why for one in uuids.split("|"))


def test_a_job_that_works_on_what_it_was_not_given_is_a_contradiction() -> None:
    devices = Devices(GPUS)
    found = resolve(("0", "1"), gres(4, 5, 6, 7), devices, NOWHERE)
    assert without_contradiction(found, devices, {"GPU-5"}) == found
    against = without_contradiction(found, devices, {"GPU-0", "GPU-4"})
    assert against == Resolution(contradiction="GPU 4, 5 by Slurm's settings, but it works on GPU 0")
    whole = Resolution(("GPU-0",))
    assert without_contradiction(whole, Devices(MIG), {"MIG-a"}) == whole


def test_instances_are_named_by_their_capabilities(tmp_path: Path) -> None:
    put(tmp_path / "driver/nvidia-caps/mig-minors", "config 1\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n"
        "gpu0/gi2/access 21\ngpu0/gi2/ci0/access 22")  # fmt: skip
    caps = "/dev/nvidia-caps/nvidia-cap"
    lines = [f"Name=gpu MultipleFiles=/dev/nvidia0,{caps}{one},{caps}{one + 1}" for one in (21, 12)]
    found = read_gres(settings(tmp_path, "\n".join([*lines, "Name=gpu File=/dev/nvidia1"])), "n1")
    given = [resolve((index,), found, Devices(MIG), tmp_path).gpu_uuids for index in "012"]
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
    found = read_gres(settings(tmp_path, gres, slurm), "n1")
    if minors.isdecimal():
        assert (found.why, found.is_sorted) == ("", False)
        assert found.units == tuple((f"/dev/nvidia{minor}",) for minor in minors)
    else:
        assert found.units is None and minors in found.why


def test_the_folder_is_the_one_that_slurmd_names_else_the_first_and_it_is_read_again(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    settings(two, "NodeName=n2 Name=gpu File=/dev/nvidia[4-5]\nNodeName=n3 Name=gpu File=/dev/nvidia6")
    reader = SlurmConfReader(folders=(one, two), host="n1.example.org")
    assert reader.gres().units is None
    settings(one, "Name=gpu File=/dev/nvidia[0-1")
    assert reader.gres().units is None and reader.is_present
    settings(one, "Name=gpu File=/dev/nvidia[0-1]")
    assert reader.gres().units == (("/dev/nvidia0",), ("/dev/nvidia1",))
    # Several slurmd on a machine, each with a name and settings of its own.
    assert reader.gres(f"{two}/slurm.conf", "n2").units == (("/dev/nvidia4",), ("/dev/nvidia5",))
    assert reader.gres(f"{two}/slurm.conf", "n3").units == (("/dev/nvidia6",),)
    assert SlurmConfReader(two / "slurm.conf", (one,), "n1").gres(f"{one}/slurm.conf").folder == two
    nowhere = SlurmConfReader(folders=(tmp_path / "nothing",), host="n1")
    assert not nowhere.is_present and nowhere.gres().units is None
