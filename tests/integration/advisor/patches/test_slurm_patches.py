"""Patches of Slurm files and nodes: by the real patch and a real slurmctld, undone byte by byte."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.core.advice_types import SavingsBaseline
from skuwise.advisor.patches.build import patch_for
from skuwise.advisor.patches.model import PatchPart
from skuwise.advisor.patches.subject import GivenFile
from skuwise.tests.support.patch_cases import (
    BATCH_SCRIPT,
    GRES_CONF,
    ID,
    ONE_GPU_SCRIPT,
    SLURM_CONF,
    accepted,
    patch_of,
    subject,
)
from skuwise.tests.support.prometheus_engines import needed
from skuwise.tests.support.slurm_engine import Slurm, slurm

pytestmark = pytest.mark.slow

MOVED = {"partition": "plain"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm"), SLURM_CONF) as engine:
        yield engine


def applied(text: bytes, change: str, folder: Path) -> bytes:
    """A file after the real ``patch``."""
    needed("patch")
    file, diff = folder / "file", folder / "change.diff"
    file.write_bytes(text)
    diff.write_bytes(b"# head, which patch skips\n" + change.encode())
    done = subprocess.run(["patch", file, diff], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "fuzz" not in done.stdout and "offset" not in done.stdout, done.stdout + done.stderr
    return file.read_bytes()


def both_ways(part: PatchPart, text: str, folder: Path) -> str:
    """The text with the patch; its undo gives every byte back."""
    after = applied(text.encode(), part.patch.text, folder)
    assert after != text.encode()
    assert applied(after, part.undo.text, folder) == text.encode()
    return after.decode()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("action", "asked", "script", "wanted"),
    [
        ("move-sku", MOVED, BATCH_SCRIPT, "#SBATCH -p plain --nodes=2"),
        ("move-sku", {"feature": "h100"}, BATCH_SCRIPT, "#SBATCH --constraint=h100"),
        ("swap-placement", MOVED, BATCH_SCRIPT, "#SBATCH -p plain --nodes=2"),
        ("reduce-gpus", {}, BATCH_SCRIPT, "#SBATCH -p train --nodes=1"),
        ("mig-slice", {}, ONE_GPU_SCRIPT, "#SBATCH --gres=gpu:1g.10gb:1"),
        ("lower-clock", {}, BATCH_SCRIPT, "#SBATCH --gpu-freq=1455"),
        ("rest-clocks", {}, BATCH_SCRIPT, "export CUDA_DISABLE_PERF_BOOST=1"),
    ],
)
def test_a_batch_script_is_changed_and_undone(
    action: str, asked: dict, script: str, wanted: str, newline: str, tmp_path: Path
) -> None:
    text = script.replace("\n", newline)
    (part,) = patch_of(action, "slurm", ("job.sh", text), **asked).parts
    after = both_ways(part, text, tmp_path)
    assert wanted in after.split(newline)
    changed = set(after.split(newline)) ^ set(text.split(newline))
    assert len(changed) <= 2, changed


@pytest.mark.parametrize(
    ("action", "asked"),
    [
        ("move-sku", {"partition": "train", "feature": "h100"}),
        ("reduce-gpus", {}),
        ("lower-clock", {}),
        ("rest-clocks", {}),
    ],
)
def test_sbatch_takes_the_script(action: str, asked: dict, cluster: Slurm, tmp_path: Path) -> None:
    script = (
        BATCH_SCRIPT.replace(" -p train", " -p plain").replace("h100:8", "8") if action == "move-sku" else BATCH_SCRIPT
    )
    assert cluster.accepts(script)[0]
    (part,) = patch_of(action, "slurm", ("job.sh", script), **asked).parts
    taken, said = cluster.accepts(applied(script.encode(), part.patch.text, tmp_path).decode())
    assert taken, said
    assert "in partition train" in said, said


def test_slurm_conf_with_mig_instances_is_read_and_used(cluster: Slurm, tmp_path: Path) -> None:
    conf, gres = SLURM_CONF, GRES_CONF
    made = patch_of("mig-slice", "slurm", ("slurm.conf", conf), ("gres.conf", gres), ("job.sh", ONE_GPU_SCRIPT))
    first, second, third = made.parts
    after = both_ways(first, conf, tmp_path)
    assert "Gres=gpu:h100:7,gpu:1g.10gb:7" in after
    assert "NodeName=n1 AutoDetect=nvml\n" in both_ways(second, gres, tmp_path)
    script = both_ways(third, ONE_GPU_SCRIPT, tmp_path)
    taken, _ = cluster.accepts(script)
    assert not taken  # no node has instances yet
    with slurm(tmp_path / "cut", after) as engine:
        taken, said = engine.accepts(script)
        assert taken and "on nodes n1" in said, said
        shown = engine.run("scontrol", "show", "node", "n1").stdout
        assert "Gres=gpu:h100:7,gpu:1g.10gb:7" in shown


def seen_by_slurmd(node: str, conf: str, gres: str, folder: Path) -> tuple[int, str]:
    """How a node's real slurmd reads its GRES. Its devices are files of the test: there are no GPUs here."""
    needed("slurmd")
    folder.mkdir()
    for number in range(8):
        (folder / f"nvidia{number}").touch()
        (folder / f"fpga{number}").touch()
    (folder / "gres.conf").write_text(gres.replace("/dev/", f"{folder}/"))
    head = f"ClusterName=test\nSlurmctldHost=localhost\nGresTypes=gpu,fpga,nvme\nSlurmdSpoolDir={folder}\n"
    (folder / "slurm.conf").write_text(head + conf)
    command = ["slurmd", "-G", "-N", node, "-f", str(folder / "slurm.conf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stderr


def test_slurmd_reads_gres_conf_with_detected_instances(tmp_path: Path) -> None:
    """NVML is asked for on the cut node alone. Without a GPU it finds none, so what it finds is not seen here."""
    made = patch_of("mig-slice", "slurm", ("slurm.conf", SLURM_CONF), ("gres.conf", GRES_CONF))
    conf, gres = (
        both_ways(part, text, tmp_path) for part, text in zip(made.parts, (SLURM_CONF, GRES_CONF), strict=True)
    )
    eight = "Gres Name=gpu Type=h100 Count=8"
    before = seen_by_slurmd("n1", SLURM_CONF, GRES_CONF, tmp_path / "before")
    assert before[0] == 0 and eight in before[1] and "nvml" not in before[1], before
    cut = seen_by_slurmd("n1", conf, gres, tmp_path / "cut")
    assert cut[0] == 0 and eight not in cut[1] and "nvml" in cut[1], cut
    beside = seen_by_slurmd("n2", conf, gres, tmp_path / "beside")
    assert beside[0] == 0 and eight in beside[1] and "nvml" not in beside[1], beside
    code, said = seen_by_slurmd("n1", conf, gres.replace("AutoDetect", "AutoDetected"), tmp_path / "misspelt")
    assert code and "unrecognized key" in said, said


def test_slurmd_reads_the_other_devices_of_a_cut_node(tmp_path: Path) -> None:
    conf = SLURM_CONF.replace("Gres=gpu:h100:8", "Gres=gpu:h100:8,fpga:2,nvme:4", 1)
    gres = f"NodeName=n1 Name=fpga File=/dev/fpga[0-1]\n{GRES_CONF}NodeName=n1 Name=nvme Count=4\n"
    made = patch_of("mig-slice", "slurm", ("slurm.conf", conf), ("gres.conf", gres))
    after = [both_ways(part, text, tmp_path) for part, text in zip(made.parts, (conf, gres), strict=True)]
    for name, texts in (("before", (conf, gres)), ("cut", after)):
        code, said = seen_by_slurmd("n1", texts[0], texts[1], tmp_path / name)
        assert code == 0 and "Name=fpga Type=(null) Count=2" in said and "Name=nvme Type=(null) Count=4" in said, said
        assert ("Name=gpu Type=h100 Count=8" in said) is (name == "before"), said


def test_nodes_keep_their_features_and_those_of_their_defaults(tmp_path: Path) -> None:
    conf = (
        "NodeName=DEFAULT CPUs=4 RealMemory=1000 Feature=ib State=CLOUD\n"
        "NodeName=n1 NodeAddr=127.0.0.1 Port=17001 features=h100,ib\n"
        "NodeName=n2 NodeAddr=127.0.0.1 Port=17002\nPartitionName=p Nodes=n1,n2 Default=YES\n"
    )
    (part,) = patch_of("move-sku", "slurm", ("slurm.conf", conf), nodes=("n1", "n2"), feature="l40s").parts
    with slurm(tmp_path / "more", both_ways(part, conf, tmp_path)) as engine:
        for node, features in (("n1", "h100,ib,l40s"), ("n2", "ib,l40s")):
            assert f"AvailableFeatures={features}\n" in engine.run("scontrol", "show", "node", node).stdout


def test_a_symlink_is_patched_where_it_points_to(tmp_path: Path) -> None:
    """GNU patch changes no file through a link."""
    needed("patch")
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real/slurm.conf", tmp_path / "slurm.conf"
    real.write_text(SLURM_CONF)
    link.symlink_to(real)
    subject_ = subject("mig-slice")
    asked = replace(subject_.asked, manifests=(GivenFile(link, real.read_bytes()),))
    (part,) = patch_for(replace(subject_, asked=asked), "slurm").parts
    (tmp_path / part.patch.name).write_text(part.patch.text)
    done = subprocess.run(part.apply[0], shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and link.is_symlink() and "1g.10gb:7" in real.read_text(), done.stdout + done.stderr


def test_slurm_conf_with_a_partition_and_a_feature_is_read_and_used(tmp_path: Path) -> None:
    asked = {"nodes": ("m1", "m2"), "partition": "cheap", "feature": "nofabric"}
    made = patch_of("move-sku", "slurm", ("slurm.conf", SLURM_CONF), ("job.sh", BATCH_SCRIPT), **asked)
    after = both_ways(made.parts[0], SLURM_CONF, tmp_path)
    script = both_ways(made.parts[1], BATCH_SCRIPT, tmp_path).replace("gpu:h100:8", "gpu:8")
    with slurm(tmp_path / "more", after) as engine:
        taken, said = engine.accepts(script)
        assert taken and "on nodes m[1-2] in partition cheap" in said, said
        assert "AvailableFeatures=nofabric" in engine.run("scontrol", "show", "node", "m2").stdout


@pytest.mark.parametrize("action", ["consolidate", "release"])
def test_nodes_are_drained_and_resumed(action: str, cluster: Slurm) -> None:
    (part,) = patch_of(action, "slurm", nodes=("n2", "n3")).parts

    def states() -> list[bool]:
        shown = [cluster.run("scontrol", "show", "node", name).stdout for name in ("n1", "n2", "n3")]
        return ["DRAIN" in one for one in shown]

    before = states()
    assert cluster.run("sh", "-c", part.patch.text).returncode == 0
    assert states() == [False, True, True]
    assert f"Reason=skuwise {ID}" in cluster.run("scontrol", "show", "node", "n2").stdout
    assert cluster.run("sh", "-c", part.undo.text).returncode == 0
    assert states() == before == [False, False, False]


def test_the_nodes_of_a_consolidation_come_from_the_ledger() -> None:
    (part,) = patch_of("consolidate", "slurm").parts
    assert part.about == "nodes n2"
    old = accepted("consolidate", yardstick=SavingsBaseline(nodes=("n1", "n2")))
    assert old.proposal.ground is not None and not old.proposal.ground.yardstick.freed
