"""A node of a real Slurm: controller, accounting and node daemon from Debian, in a booted container.

GPUs are device files (major 195) that no driver stands behind: the kernel's device cgroup decides who may open them, as
on a real node. The agent sees them through the stub driver, which hears from the jobs' processes what they hold.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from skuwise.tests.system.machine import DATABASE, PYTHON, Cgroups, Machine, minimal_debian, must, put_agent, until

USERS: Mapping[str, str] = {"alice": "vision", "bob": "nlp"}  # and their accounts
GPUS = 8
TRUTH = "/opt/truth"
PAYLOAD = "/opt/payload.py"
# Another run of this test on the same host has others.
CGROUP = f"gpunode-{os.getpid()}"
_PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge", "slurmdbd", "mariadb-server", "iproute2")
_SERVICES = ("munge", "mariadb", "slurmdbd", "slurmctld", "slurmd")
_HERE = Path(__file__).parent
_SLURM_CONF = """
ClusterName=lab
SlurmctldHost=gpunode(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
MpiDefault=none
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
GresTypes=gpu
PrologFlags=Alloc,Contain
Prolog=/etc/skuwise/slurm/prolog.sh
Epilog=/etc/skuwise/slurm/epilog.sh
ReturnToService=2
KillWait=2
MinJobAge=3600
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,qos
NodeName=gpunode NodeAddr=127.0.0.1 CPUs=64 RealMemory=1000 Gres={gres}
PartitionName=main Nodes=gpunode Default=YES DefaultTime=3 State=UP
PartitionName=debug Nodes=gpunode DefaultTime=3 State=UP
"""
_SLURMDBD_CONF = """
AuthType=auth/munge
DbdHost=gpunode
DbdAddr=127.0.0.1
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd.pid
"""
_MARIADB_CONF = """
[mariadbd]
skip-networking
innodb_flush_log_at_trx_commit=0
"""
_AGENT_DROP_IN = """
[Service]
Environment=LD_LIBRARY_PATH=/opt/nvml SKUWISE_NVML_SCENARIO=/opt/nvml/scenario
Environment=SKUWISE_NVML_PROCESSES=/opt/nvml/processes
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a node lists its GPUs. `minors`: those that it lists."""

    name: str
    gres_conf: str
    gres: str
    minors: range
    cgroup: str = "v1"  # or "v2"


def slurm_root(folder: Path, factory: pytest.TempPathFactory) -> Path:
    """A tree with Slurm, the agent and two users, of which nothing runs yet. Copies of it boot."""
    root = folder / "root"
    must("cp", "-a", minimal_debian(factory), root)
    _install_slurm(root)
    _install_agent(root, factory)
    return root


def _install_slurm(root: Path) -> None:
    refuse = _write(root, "usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")
    refuse.chmod(0o755)
    _write(root, "etc/dpkg/dpkg.cfg.d/unsafe-io", "force-unsafe-io\n")
    install = ("apt-get", "install", "-qq", "--no-install-recommends", *_PACKAGES)
    must("chroot", root, "env", "DEBIAN_FRONTEND=noninteractive", *install, skip="apt cannot install Slurm")
    refuse.unlink()
    must("systemctl", f"--root={root}", "disable", *_SERVICES)
    for user in USERS:
        must("chroot", root, "useradd", "-m", user)
    _write(root, "etc/hostname", "gpunode\n")
    _write(root, "etc/hosts", "127.0.0.1 localhost gpunode\n")
    _write(root, "etc/slurm/slurmdbd.conf", _SLURMDBD_CONF).chmod(0o600)
    must("chroot", root, "chown", "slurm", "/etc/slurm/slurmdbd.conf")
    _write(root, "etc/mysql/mariadb.conf.d/99-test.cnf", _MARIADB_CONF)
    for name in ("var/spool/slurmctld", "var/log/slurm"):
        (root / name).mkdir(exist_ok=True)
        must("chroot", root, "chown", "slurm", f"/{name}")


def _install_agent(root: Path, factory: pytest.TempPathFactory) -> None:
    """As an operator does it before the machine is booted; with the stub driver and the jobs' program."""
    put_agent(root, factory)
    said = must("chroot", root, PYTHON, "-m", "skuwise", "agent", "install", "--with-slurm")
    assert "wrote /etc/systemd/system/skuwise-agent.service" in said, said
    _write(root, "etc/systemd/system/skuwise-agent.service.d/stub.conf", _AGENT_DROP_IN)
    scenario = [f"[gpu {minor}]\nuuid = {uuid_of(minor)}\ngpu_util = 0.5\n" for minor in range(GPUS)]
    _write(root, "opt/nvml/scenario", "".join(scenario))
    program = (_HERE / "slurm_payload.py").read_text()
    _write(root, PAYLOAD.lstrip("/"), f"#!/usr/bin/python3\n{program}").chmod(0o755)
    must("chmod", "-R", "a+rX", root / "opt/nvml")
    for name in (TRUTH, "/opt/nvml/processes"):
        (root / name.lstrip("/")).mkdir(exist_ok=True)
        (root / name.lstrip("/")).chmod(0o1777)


def uuid_of(minor: int) -> str:
    return f"GPU-{minor:08d}-aaaa-bbbb-cccc-000000000000"


def minor_of(uuid: str) -> int:
    return int(uuid.removeprefix("GPU-").split("-", 1)[0])


def _write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@contextlib.contextmanager
def booted(root: Path, folder: Path, layout: Layout) -> Iterator[SlurmMachine]:
    """The tree of `root`, booted as a node of this layout. `root` stays as it is."""
    folder.mkdir()
    path = folder / "root"
    path.mkdir()
    for name in ("upper", "work"):
        (folder / name).mkdir()
    layers = f"lowerdir={root},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    laid = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, str(path)], check=False).returncode == 0
    if not laid:
        path.rmdir()
        must("cp", "-a", root, path)
    machine = None
    try:
        machine = SlurmMachine(path, folder, layout)
        machine.wait_for_login()
        machine.start_slurm()
        yield machine
    finally:
        if machine is not None:
            machine.stop()
        if laid:
            must("umount", path)
        shutil.rmtree(folder)


class SlurmMachine(Machine):
    """A booted node. `submit` and `background` run commands as one of `USERS`."""

    def __init__(self, root: Path, folder: Path, layout: Layout) -> None:
        self.layout = layout
        options = ["--private-network"]
        environment: dict[str, str] = {}
        v1 = [name for name in ("freezer", "devices", "pids") if Cgroups.has(name)]
        part = [name for name in ("systemd", "unified") if Cgroups.has(name)]
        if layout.cgroup == "v2" or not v1:
            # Slurm loads a BPF program for each job.
            options += ["--capability=all", "--system-call-filter=bpf"]
            environment["SYSTEMD_NSPAWN_UNIFIED_HIERARCHY"] = "1"
            if v1:
                _build_one_hierarchy(root)
            self.remounted: list[str] = []
        else:
            self.remounted = v1
        self.version = "v1" if self.remounted else "v2"
        groups = Cgroups(f"{CGROUP}-{folder.name}", [*self.remounted, *part])
        super().__init__(root, folder.with_name(f"{folder.name}.log"), groups, options, environment)

    def start_slurm(self) -> None:
        """From a machine that has booted to a node that takes jobs. The agent is not started."""
        for name in self.remounted:
            self.run("mount", "-o", "remount,bind,rw", f"/sys/fs/cgroup/{name}")
        for minor in (*range(GPUS), 255):
            name = "nvidiactl" if minor == 255 else f"nvidia{minor}"
            self.run("mknod", "-m", "666", f"/dev/{name}", "c", "195", str(minor))
        # Slurm looks up addresses with AI_ADDRCONFIG, which needs one that is not loopback's.
        self.run("ip", "address", "add", "192.0.2.1/32", "dev", "lo")
        self.configure()
        self.run("systemctl", "start", "munge", "mariadb")
        grant = "create user slurm@localhost identified via unix_socket; grant all on slurm_acct.* to slurm@localhost"
        self.run("mysql", "-e", grant)
        self.run("systemctl", "start", "slurmdbd")
        asked = ("sh", "-c", "sacctmgr -n show cluster && echo answers")
        until(lambda: self.run(*asked, check=False).endswith("answers"), what="the accounting")
        self._account("add", "cluster", "lab")
        self._account("add", "qos", "high")
        for user, account in USERS.items():
            self._account("add", "account", account, "Cluster=lab")
            self._account("add", "user", user, f"Account={account}", f"DefaultAccount={account}", "qos=normal,high")
        self.run("systemctl", "start", "slurmctld", "slurmd")
        self.wait_for_node()

    def configure(self) -> None:
        """Write Slurm's files; the daemons read them at their start."""
        _write(self.root, "etc/slurm/slurm.conf", _SLURM_CONF.format(gres=self.layout.gres))
        _write(self.root, "etc/slurm/gres.conf", self.layout.gres_conf)
        cgroup = f"CgroupPlugin=cgroup/{self.version}\nConstrainDevices=yes\n"
        _write(self.root, "etc/slurm/cgroup.conf", cgroup)
        _write(self.root, f"{TRUTH}/gpus.json".lstrip("/"), json.dumps(list(self.layout.minors)))

    def _account(self, *command: str) -> None:
        self.run("sacctmgr", "-Q", "-i", *command)

    def wait_for_node(self, state: str = "idle") -> None:
        until(lambda: self.node_state().startswith(state), 60, f"a node that is {state} ({self.node_state()})")

    def node_state(self) -> str:
        return self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%T", check=False)

    def submit(self, user: str, *command: str) -> str:
        """Run as the user in a shell of his own, from his home."""
        clean = ("env", "-i", "PATH=/usr/bin:/bin", f"HOME=/home/{user}", f"USER={user}", f"LOGNAME={user}")
        return self.run("runuser", "-u", user, "--", *clean, "sh", "-c", 'cd && exec "$@"', "sh", *command)

    def background(self, user: str, *command: str) -> None:
        """Like `submit`, not waited for: srun and salloc stay until their job is over."""
        self.submit(user, "sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "sh", *command)

    def batch(self, user: str, name: str, gpus: int, script: str, *options: str) -> str:
        """Submit a script of shell; the job's id."""
        asked = ("--parsable", "-J", name, f"--gres=gpu:{gpus}", "-o", "/dev/null", *options)
        return self.submit(user, "sbatch", *asked, "--wrap", script)

    def wait_running(self, job: str) -> None:
        until(lambda: self.job_state(job) == "RUNNING", 90, f"job {job} running")

    def job_state(self, job: str) -> str:
        return self.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T", check=False)

    def wait_empty(self, seconds: float = 420) -> None:
        """Until no job is queued, running or completing. A node that does not answer while the controller reads its
        settings again takes jobs again after the next ping: 300 s at most."""
        until(lambda: self.run("squeue", "-h", "-t", "PD,R,CG,S") == "", seconds, "an empty queue")

    def accounting(self) -> list[AccountedJob]:
        """What Slurm itself has written down, every run of each job. Times are Unix seconds."""
        fields = "JobIDRaw,User,Account,Partition,QOS,State,Start,End,JobID,JobName"
        command = ("env", "SLURM_TIME_FORMAT=%s", "sacct", "-a", "-D", "-X", "-n", "-S", "2000-01-01", "--parsable2")
        result = []
        for line in self.run(*command, f"--format={fields}").splitlines():
            raw, user, account, partition, qos, state, start, end, job, name = line.split("|", 9)
            if start.isdigit():
                ended = float(end) if end.isdigit() else None
                result.append(AccountedJob(raw, job, name, user, account, partition, qos, state, float(start), ended))
        return result

    def import_jobs(self, copy: Path) -> None:
        """Slurm's job table into the agent's database, as its timer does it; and a copy of that."""
        self.run("systemctl", "start", "skuwise-slurm.service")
        with (
            contextlib.closing(sqlite3.connect(f"file:{self.inside(DATABASE)}?mode=ro", uri=True)) as connection,
            contextlib.closing(sqlite3.connect(copy)) as other,
        ):
            connection.backup(other)

    def truth(self) -> dict[str, list[Mapping[str, object]]]:
        """What the jobs' processes wrote down, by raw job id, in the order they started."""
        result: dict[str, list[Mapping[str, object]]] = {}
        for path in self.inside(TRUTH).glob("*.*.json"):
            record = json.loads(path.read_text())
            result.setdefault(str(record["JOB_ID"]), []).append(record)
        return {job: sorted(records, key=lambda entry: str(entry["started"])) for job, records in result.items()}

    def logs(self) -> str:
        """The ends of Slurm's logs, for a failure's message."""
        return self.run("sh", "-c", 'for f in /var/log/slurm/*.log; do echo "$f"; tail -n 15 $f; done', check=False)


@dataclass(frozen=True, slots=True)
class AccountedJob:
    """One run of a job, as sacct has it. `job_id` is raw; `job` is ``ARRAY_TASK`` for a task of an array."""

    job_id: str
    job: str
    name: str
    user: str
    account: str
    partition: str
    qos: str
    state: str
    start: float
    end: float | None


def _build_one_hierarchy(root: Path) -> None:
    library = root / "opt/one_hierarchy.so"
    command = ("cc", "-shared", "-fPIC", "-O1", "-o", library, _HERE / "one_hierarchy.c", "-ldl")
    must(*command, skip="no C compiler")
    _write(
        root,
        "etc/systemd/system/slurmd.service.d/one.conf",
        f"[Service]\nEnvironment=LD_PRELOAD=/{library.relative_to(root)}\n",
    )
