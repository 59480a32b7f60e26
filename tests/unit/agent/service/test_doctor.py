"""Doctor's lines: what the settings do not ask for, and what Slurm lacks."""

import fcntl
import os
import pwd
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.agent.config import AgentConfig
from skuwise.agent.jobs.slurm_conf import SlurmConfReader
from skuwise.agent.model import Absence, Capability, Gpu, Probe, Tick
from skuwise.agent.service import doctor
from skuwise.agent.service.instance_lock import InstanceLock
from skuwise.agent.sources.nvml_table import NO_GPM, NO_PERMISSION, fault_of
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.sysfs_trees import put

GPU = Gpu("GPU-a", 0, "NVIDIA H100")
WHY = fault_of(NO_PERMISSION).of("gpu", GPU.uuid, "sm_active")
REFUSED = Capability("gpm", "gpu", GPU.uuid, "sm_active", "GPM", WHY)
SURVEY = Probe((GPU,), (), (REFUSED,))


def test_a_refusal_is_shown_with_its_remedy() -> None:
    first = Absence("gpu", GPU.uuid, "dram_active", "first-reading")
    assert doctor.source_lines(SURVEY, Tick(1.0, 1.0, absences=frozenset({WHY, first}))) == [REFUSED]
    assert "CAP_PERFMON" in WHY.remedy


def test_pages_that_would_tell_something_but_are_not_asked_for_are_named() -> None:
    blind = replace(SURVEY, capabilities=(replace(REFUSED, absence=NO_GPM.of("gpu", GPU.uuid, "sm_active")),))
    lines = doctor.not_configured(AgentConfig(dcgm_url=""), blind)
    assert [line.source for line in lines] == ["dcgm", "serving"]
    assert {line.absence and line.absence.reason for line in lines} == {"not-configured"}
    assert [capability.source for capability in doctor.not_configured(AgentConfig(), blind)] == ["serving"]
    assert doctor.not_configured(AgentConfig(serving_endpoints=("http://127.0.0.1:8000/metrics",)), SURVEY) == ()
    capabilities = doctor.not_configured(AgentConfig(serving_discover=True), SURVEY)
    assert capabilities[0].absence is not None and "was found" in capabilities[0].absence.detail
    assert doctor.not_configured(AgentConfig(dcgm_url=""), Probe((), (), ())) == ()


def test_the_units_interpreter_user_and_devices_are_looked_at(tmp_path: Path) -> None:
    assert doctor.service_lines(tmp_path) == ()
    unit = f"[Service]\nExecStart={tmp_path}/python -m skuwise agent run"
    put(tmp_path / "etc/systemd/system/skuwise-agent.service", unit)
    put(tmp_path / "python", "")
    put(tmp_path / "dev/nvidia0", "")
    me = pwd.getpwuid(os.getuid()).pw_name

    def reasons(user: str = me) -> list[str]:
        return [line.absence.reason for line in doctor.service_lines(tmp_path, user) if line.absence is not None]

    (tmp_path / "python").chmod(0o755)
    for mode, expected in ((0o606, []), (0o660, []), (0o600, ["device-closed"])):
        (tmp_path / "dev/nvidia0").chmod(mode)
        assert reasons() == expected
    assert reasons("nobody-of-this-name") == ["no-user"]
    (tmp_path / "python").unlink()
    assert reasons() == ["no-interpreter", "device-closed"]


GPUS = tuple(Gpu(f"GPU-{i}", i, "H100", minor=i) for i in range(8))
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


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A node with Slurm as it should be, in one folder."""
    for name, calls, mode in (
        ("prolog.sh", "/etc/skuwise/slurm/prolog.sh", 0o755),
        ("epilog.sh", "/etc/skuwise/slurm/epilog.sh", 0o755),
        ("other.sh", "/opt/site/health", 0o755),
        ("closed.sh", "/etc/skuwise/slurm/prolog.sh", 0o644),
    ):
        put(tmp_path / name, f"#!/bin/sh\n{calls}")
        (tmp_path / name).chmod(mode)
    put(tmp_path / "gres.conf", "Name=gpu File=/dev/nvidia[4-7]")
    put(tmp_path / "slurm.conf", "NodeName=n1 Gres=gpu:4")
    (tmp_path / "allocations").mkdir(mode=0o755)
    return tmp_path


def slurm_lines(site: Path, said: str = SCONTROL) -> dict[str, Capability]:
    """By their metric, and those that say what is absent by their reason."""
    lines = [*doctor.config_lines(doctor.read_config(said.format(root=site)))]
    lines += [doctor.folder_line(site / "allocations", frozenset({os.getuid()}))]
    lines += doctor.devices_lines(SlurmConfReader(site, host="n1"), GPUS, site / "proc")
    return {line.absence.reason if line.absence else line.metric: line for line in lines}


def absences(site: Path, said: str = SCONTROL) -> dict[str, Absence]:
    return {reason: line.absence for reason, line in slurm_lines(site, said).items() if line.absence is not None}


def test_a_site_that_is_as_it_should_be_misses_nothing_and_shows_its_order(site: Path) -> None:
    assert absences(site) == {}
    assert slurm_lines(site)["devices"].origin.endswith("gres.conf: 0 is GPU 4, 1 is GPU 5, 2 is GPU 6, 3 is GPU 7")


@pytest.mark.parametrize(
    ("before", "after", "reason", "says"),
    [
        ("Prolog                  = {root}/prolog.sh", "Prolog = (null)", "prolog-not-configured", "slurm/prolog.sh"),
        ("Epilog                  = {root}/epilog.sh", "Epilog = (null)", "epilog-not-configured", "epilog.sh"),
        ("{root}/prolog.sh", "{root}/other.sh", "prolog-not-ours", "Call /etc/skuwise/slurm/prolog.sh"),
        ("{root}/prolog.sh", "/etc/nothing/prolog.sh", "prolog-missing", "agent install"),
        ("{root}/prolog.sh", "{root}/closed.sh", "prolog-missing", "agent install"),
        ("Alloc,Contain", "(null)", "prolog-flags", "PrologFlags=Alloc,Contain"),
        ("proctrack/cgroup", "proctrack/linuxproc", "no-job-cgroup", "proctrack/cgroup"),
        ("ConstrainDevices        = yes", "ConstrainDevices = no", "devices-not-constrained", "cgroup.conf"),
        ("task/affinity,task/cgroup", "task/affinity", "devices-not-constrained", "TaskPlugin"),
    ],
)
def test_each_cause_has_its_remedy(site: Path, before: str, after: str, reason: str, says: str) -> None:
    assert before in SCONTROL
    missing = absences(site, SCONTROL.replace(before, after))
    assert set(missing) == {reason}
    assert says in missing[reason].remedy


def test_the_folder_must_be_roots_and_there(site: Path) -> None:
    folder = site / "allocations"
    folder.chmod(0o777)
    assert set(absences(site)) == {"folder-not-roots"}
    folder.rmdir()
    assert set(absences(site)) == {"folder-missing"}
    folder.symlink_to(site)
    assert set(absences(site)) == {"folder-not-roots"}


def test_a_node_without_slurm_has_no_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skuwise.agent.service.doctor.ask_scontrol", lambda: "")
    assert doctor.look_at_slurm(AgentConfig(slurm_conf=tmp_path / "slurm.conf"), GPUS) == []


def test_a_wedged_agent_keeps_its_file_and_a_new_one_is_begun(tmp_path: Path) -> None:
    database = tmp_path / "node.db"
    old = Writer.open(database)
    for number, state in enumerate("SD"):  # the main thread was killed, another hangs in the driver
        status = f"Name:\tskuwise\nState:\t{state} (x)\nSigPnd:\t{0x100:016x}\nShdPnd:\t{0x100:016x}\n"
        put(tmp_path / f"proc/40/task/{40 + number}/status", status)
    descriptor = os.open(tmp_path / "node.db.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, b'{"pid": 40, "started": 777, "restarted_at": 5.0}')
    lock, second = (InstanceLock(database, procfs=tmp_path / "proc", now=lambda: 1.8e9) for _ in range(2))
    aside = lock.take()
    assert aside is not None
    assert aside.kept_as.name == "node.db.wedged-20270115T080000Z"
    assert lock.memory.restarted_at == 5.0  # what the lock remembered is not lost
    with Writer.open(database):
        pass
    with pytest.raises(StoreError, match="Another agent"):
        second.take()
    os.close(descriptor)
    with pytest.raises(StoreError, match="replaced"):
        old.close()  # should it ever wake up, it writes nothing
    with sqlite3.connect(aside.kept_as) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_living_agent_is_never_passed_over_and_its_memory_goes_on(tmp_path: Path) -> None:
    database = tmp_path / "node.db"
    first, second = InstanceLock(database), InstanceLock(database)
    first.take()
    first.remember(restarted_at=123.0, paused_until=456.0)
    with pytest.raises(StoreError, match=f"PID {os.getpid()}"):
        second.take()
    first.close()
    second.take()
    assert not list(tmp_path.glob("*wedged*"))
    assert (second.memory.restarted_at, second.memory.paused_until) == (123.0, 456.0)
