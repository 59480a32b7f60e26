"""Processes as procfs shows them, and which of them is the work: the leader of what runs on a GPU.

The leader is found by climbing from parent to parent until the next one is not part of the work, that is

* init, a session or service manager, a login, a terminal multiplexer, a container shim, a batch daemon, a notebook
  server (each kernel is work of its own), or an interactive shell. A shell that runs a script or a command is part;
* another user's process, or one in another container;
* younger than its child: the PID was used again.

Any of it may vanish between two reads.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..base.safe_text import clean_text
from .cgroups import PLAIN, Origin, origin_of, read_bytes
from .command_line import parse_command, plain_name

_MAX_CLIMB = 64
_COMMAND_LIMIT = 65536
# The only variables that are looked at: environments hold secrets.
ALLOWED_VARIABLES = frozenset({
    "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_ACCOUNT", "SLURM_JOB_USER", "SLURM_JOB_START_TIME",
    "SLURM_JOB_PARTITION", "SLURM_JOB_QOS", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT",
    "SLURM_JOB_RESTART_COUNT",
})  # fmt: skip
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "tcsh", "csh", "ash"})
# The kernel cuts names to 15 characters.
_NOT_WORK = frozenset(
    name[:15]
    for name in (
        "init", "systemd", "(sd-pam)", "launchd", "runit", "runsv", "supervisord", "s6-supervise", "cron", "crond",
        "atd", "sshd", "sshd-session", "login", "su", "sudo", "dropbear", "tmux: server", "tmux", "screen", "SCREEN",
        "zellij", "containerd-shim", "containerd-shim-runc-v2", "conmon", "dockerd", "containerd", "tini",
        "dumb-init", "docker-init", "catatonit", "kubelet", "crio", "slurmd", "slurmstepd", "srun", "pbs_mom",
        "condor_starter", "sge_shepherd", "jupyter-lab", "jupyter-notebook", "jupyter-server", "jupyterhub-singleuser",
        "jupyterhub", "code-server",
    )
)  # fmt: skip
_MPS = "nvidia-cuda-mps"  # nvidia-cuda-mps-control and nvidia-cuda-mps-server, cut
_DRIVER_HELPERS = frozenset({_MPS, "nv-hostengine", "nvidia-persiste"})


@dataclass(frozen=True, slots=True)
class Stat:
    """``/proc/PID/stat``. `start_ticks` (field 22: clock ticks since boot) tells a reused PID from the old one; `tty`
    (field 7): its terminal, 0 for none."""

    pid: int
    ppid: int
    comm: str
    start_ticks: int
    tty: int = 0


@dataclass(frozen=True, slots=True)
class Process:
    """A process with its owner, its cgroup paths and its arguments (empty: not readable, or a kernel thread)."""

    stat: Stat
    uid: int | None
    cgroup: str
    argv: tuple[str, ...]


def parse_stat(raw: bytes) -> Stat | None:
    """`raw` as a `Stat`; None if it is cut. The name may hold spaces and parentheses: the last one ends it."""
    head, closing, rest = raw.rpartition(b")")
    pid, opening, comm = head.partition(b" (")
    fields = rest.split()
    if not (closing and opening) or len(fields) < 20:
        return None
    try:
        return Stat(int(pid), int(fields[1]), clean_text(comm, 64), int(fields[19]), int(fields[4]))
    except ValueError:
        return None


def read_stat(procfs: Path, pid: int) -> Stat | None:
    """None: there is no such process (any more), or it is not visible to this user."""
    return parse_stat(read_bytes(f"{procfs}/{pid}/stat"))


def read_start_ticks(procfs: Path, pid: int) -> int | None:
    """`Stat.start_ticks` alone."""
    found = read_stat(procfs, pid)
    return found.start_ticks if found is not None else None


def read_process(procfs: Path, pid: int) -> Process | None:
    """Everything about one process, as much as can be read; None if it is gone."""
    seen = read_stat(procfs, pid)
    if seen is None:
        return None
    raw = read_bytes(f"{procfs}/{pid}/cmdline", _COMMAND_LIMIT)
    words = raw.rstrip(b"\0").split(b"\0") if raw else []
    if len(raw) == _COMMAND_LIMIT:
        words = words[:-1]  # cut in the middle: half a secret is not recognised as one
    owner = read_bytes(f"{procfs}/{pid}/status").partition(b"\nUid:")[2].split()[:1]
    return Process(
        seen,
        int(owner[0]) if owner and owner[0].isdigit() else None,
        read_cgroup(procfs, pid),
        tuple(word.decode("utf-8", "replace") for word in words),
    )


def start_seconds(procfs: Path, start_ticks: int, wall_seconds: float) -> float | None:
    """When a process began (Unix seconds, to some hundredths); None: procfs does not tell the time since boot."""
    words = read_bytes(f"{procfs}/uptime").split()
    try:
        return wall_seconds - float(words[0]) + start_ticks / os.sysconf("SC_CLK_TCK")
    except (IndexError, ValueError):
        return None


def read_cgroup(procfs: Path, pid: int) -> str:
    """The process's cgroup paths; empty where they cannot be read."""
    return read_bytes(f"{procfs}/{pid}/cgroup", 16384).decode("utf-8", "replace")


def read_variables(procfs: Path, pid: int) -> dict[str, str]:
    """The allowed variables of a process's environment; empty where it may not be read."""
    found: dict[str, str] = {}
    for item in read_bytes(f"{procfs}/{pid}/environ", 262144).split(b"\0"):
        name, equals, value = item.decode("utf-8", "replace").partition("=")
        if equals and name in ALLOWED_VARIABLES:
            found[name] = clean_text(value)
    return found


@dataclass(frozen=True, slots=True)
class Lineage:
    """A process, and its parent, its parent's parent and so on."""

    process: Process
    ancestors: tuple[Process, ...]

    @property
    def origin(self) -> Origin:
        """By its cgroup."""
        return origin_of(self.process.cgroup)

    @property
    def leader(self) -> Process:
        """The process that stands for the work that this one is part of."""
        leader, origin = self.process, self.origin
        for parent in self.ancestors:
            comm, words = parent.stat.comm, [word for word in parent.argv[1:] if word[:1] != "-" or word == "-c"]
            is_interactive_shell = comm.lstrip("-") in _SHELLS and not words
            if parent.stat.pid == 1 or comm in _NOT_WORK or is_interactive_shell:
                break
            if parent.uid != leader.uid or origin_of(parent.cgroup) != origin:
                break
            leader = parent
        return leader

    @property
    def name(self) -> str:
        """What is run, as a person names it."""
        both = (self.leader, self.process)
        names = (*(parse_command(one.argv).program for one in both), *(one.stat.comm for one in both))
        return next((plain for name in names if name and (plain := plain_name(name))), "unnamed")

    @property
    def is_mps(self) -> bool:
        """Whether it calls itself MPS, outside all jobs and containers."""
        return self.process.stat.comm == _MPS and self.origin == PLAIN

    @property
    def is_drivers_own(self) -> bool:
        """Whether it is the driver's own helper, which it lists beside those it serves (dcgm-exporter#478, #734,
        nvidia-docker#419), and not work.

        A name alone proves nothing: it must be root's, outside all jobs and containers (in these anybody may be root),
        or the MPS server of root's control daemon, which runs as the user whom it serves. A daemon has no terminal;
        sudo under its name, waiting for a password, has one.
        """
        one = self.ancestors[0] if self.is_mps and self.process.uid != 0 and self.ancestors else self.process
        names = {one.stat.comm, self.process.stat.comm}
        return self.origin == PLAIN and one.uid == 0 and names <= _DRIVER_HELPERS and not one.stat.tty


def read_lineage(procfs: Path, pid: int) -> Lineage | None:
    """None: the process is gone, or not visible to this user."""
    found: list[Process] = []
    while pid > 0 and len(found) <= _MAX_CLIMB and (process := read_process(procfs, pid)) is not None:
        if found and process.stat.start_ticks > found[-1].stat.start_ticks:
            break  # its PID was used again
        found.append(process)
        pid = process.stat.ppid
    return Lineage(found[0], tuple(found[1:])) if found else None
