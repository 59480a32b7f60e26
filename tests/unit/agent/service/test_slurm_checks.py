"""Doctor's look at Slurm: it names the cause, and blames nothing that it could not look at."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from skuwise.agent.inventory.slurm.slurm_conf import SlurmConfReader
from skuwise.agent.model import Absence, Capability, Gpu
from skuwise.agent.service.diagnostics.slurm_checks import Recorded, config_folders, read_config, slurm_lines
from skuwise.tests.support.sysfs_trees import put

GPUS = tuple(Gpu(f"GPU-{i}", i, "H100", minor=i) for i in range(8))
ME = frozenset({os.getuid()})
# As a real 22.05 prints it.
SCONTROL = """Configuration data as of 2026-11-22T18:54:55
Epilog                  = {root}/epilog.sh
ProctrackType           = proctrack/cgroup
Prolog                  = {root}/prolog.sh
PrologFlags             = Alloc,Contain
PrologSlurmctld         = (null)
TaskPlugin              = task/affinity,task/cgroup

Cgroup Support Configuration:
CgroupPlugin            = cgroup/v1
ConstrainDevices        = yes

Slurmctld(primary) at gpunode is UP
"""


class Site:
    """A node with Slurm as it should be, in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("prolog.sh", "epilog.sh"):
            put(root / name, f"#!/bin/sh\n/etc/skuwise/slurm/{name}")
            (root / name).chmod(0o755)
        put(root / "gres.conf", "Name=gpu File=/dev/nvidia[4-7]")
        put(root / "slurm.conf", "NodeName=n1 Gres=gpu:4")
        (root / "allocations").mkdir(mode=0o755)
        self.said: str | None = SCONTROL.format(root=root)
        self.asked: list[Sequence[str]] = []

    def lines(self, gpus: Sequence[Gpu] = GPUS, recorded: Recorded | None = None) -> tuple[Capability, ...]:
        def ask(command: Sequence[str]) -> str | None:
            self.asked.append(command)
            return self.said

        return slurm_lines(
            read_config(ask, (self.root,)), SlurmConfReader(self.root, host="n1"), self.root / "allocations", gpus,
            recorded, procfs=self.root / "proc", cgroups=self.root / "cgroup", root_uids=ME,
        )  # fmt: skip

    def absences(self, gpus: Sequence[Gpu] = GPUS, recorded: Recorded | None = None) -> Mapping[str, Absence]:
        return {one.absence.reason: one.absence for one in self.lines(gpus, recorded) if one.absence is not None}

    def change(self, before: str, after: str) -> None:
        assert self.said is not None and before in self.said
        self.said = self.said.replace(before, after)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_site_that_is_as_it_should_be_misses_nothing_and_shows_its_order(site: Site) -> None:
    assert site.absences() == {}
    assert site.asked == [("scontrol", "show", "config")]
    (devices,) = (line for line in site.lines() if line.metric == "devices")
    assert devices.origin.endswith("gres.conf: 0 is GPU 4, 1 is GPU 5, 2 is GPU 6, 3 is GPU 7")


@pytest.mark.parametrize(
    ("before", "after", "reason", "says"),
    [
        ("Prolog                  = {root}/prolog.sh", "Prolog = (null)", "prolog-not-configured", "slurm/prolog.sh"),
        ("Epilog                  = {root}/epilog.sh", "Epilog = (null)", "epilog-not-configured", "epilog.sh"),
        ("{root}/prolog.sh", "{root}/other.sh", "prolog-not-ours", "Call /etc/skuwise/slurm/prolog.sh"),
        ("{root}/prolog.sh", "/etc/nothing/prolog.sh", "prolog-missing", "agent install"),
        ("{root}/prolog.sh", "{root}/closed.sh", "prolog-not-executable", "chmod"),
        ("Alloc,Contain", "(null)", "prolog-flags", "PrologFlags=Alloc,Contain"),
        ("proctrack/cgroup", "proctrack/linuxproc", "no-job-cgroup", "proctrack/cgroup"),
        ("ConstrainDevices        = yes", "ConstrainDevices = no", "devices-not-constrained", "cgroup.conf"),
        ("task/affinity,task/cgroup", "task/affinity", "devices-not-constrained", "TaskPlugin"),
    ],
)
def test_each_cause_has_its_remedy(site: Site, before: str, after: str, reason: str, says: str) -> None:
    put(site.root / "other.sh", "#!/bin/sh\n/opt/site/health")
    put(site.root / "closed.sh", "#!/bin/sh\n/etc/skuwise/slurm/prolog.sh")
    (site.root / "other.sh").chmod(0o755)
    (site.root / "closed.sh").chmod(0o644)
    site.change(before.format(root=site.root), after.format(root=site.root))
    absences = site.absences()
    assert set(absences) == {reason}
    assert says in absences[reason].remedy


def test_without_scontrol_the_files_are_read(site: Site) -> None:
    site.said = None
    put(
        site.root / "slurm.conf",
        "NodeName=n1 Gres=gpu:4\nTaskPlugin=task/cgroup\nPrologFlags=contain\nProctrackType=proctrack/cgroup",
    )
    put(site.root / "cgroup.conf", "ConstrainDevices=yes")
    absences = site.absences()
    assert set(absences) == {"prolog-not-configured", "epilog-not-configured"}
    assert str(site.root / "slurm.conf") in absences["prolog-not-configured"].detail


def test_the_folder_must_be_roots_and_there(site: Site) -> None:
    folder = site.root / "allocations"
    folder.chmod(0o777)
    assert "only root can write" in site.absences()["folder-not-roots"].detail
    folder.rmdir()
    assert "systemd-tmpfiles --create" in site.absences()["folder-missing"].remedy
    folder.symlink_to(site.root)
    assert set(site.absences()) == {"folder-not-roots"}


def test_a_node_without_slurm_has_no_lines(tmp_path: Path) -> None:
    settings = SlurmConfReader(folders=(tmp_path,), host="n1")
    assert read_config(lambda _: None, (tmp_path,)) is None
    assert slurm_lines(None, settings, tmp_path, GPUS, None, procfs=tmp_path, cgroups=tmp_path) == ()
    assert config_folders(tmp_path / "slurm.conf") == (tmp_path,)
