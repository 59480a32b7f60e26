"""Processes as procfs shows them, and which of them is the work: the leader of what runs on a GPU.

From parent to parent, up to one that is not part of the work (`_NOT_WORK`, an interactive shell), is another user's or
in another container, or is younger than its child: its PID was used again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from ..base.safe_text import clean_text
from .cgroups import PLAIN, origin_of, read_ascii, read_bytes

_MAX_CLIMB = 64
_COMMAND_LIMIT = 65536
_LISTEN = "0A"  # include/net/tcp_states.h
_PORT_FLAGS = ("--port", "--http-port", "--metrics-port", "-p")
_AGAIN_SECONDS = 60.0
# The only variables that are read: environments hold secrets.
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
MPS = "nvidia-cuda-mps"  # nvidia-cuda-mps-control and nvidia-cuda-mps-server, cut
_DRIVER_HELPERS = frozenset({MPS, "nv-hostengine", "nvidia-persiste"})


@dataclass(frozen=True, slots=True)
class Process:
    """A process by ``/proc/PID/stat``, and its owner, cgroup paths and arguments (empty: not readable, or a kernel
    thread). `start_ticks` (clock ticks since boot) distinguishes a reused PID; `tty`: 0 for no terminal."""

    pid: int
    ppid: int
    comm: str
    start_ticks: int
    tty: int = 0
    uid: int | None = None
    cgroup: str = ""
    argv: tuple[str, ...] = ()


def parse_stat(raw: bytes) -> Process | None:
    """None if it is cut. The name may hold spaces and parentheses: the last one ends it."""
    head, _, rest = raw.rpartition(b")")
    pid, _, comm = head.partition(b" (")
    fields = rest.split()
    try:
        return Process(int(pid), int(fields[1]), clean_text(comm, 64), int(fields[19]), int(fields[4]))
    except (IndexError, ValueError):
        return None


def read_start_ticks(procfs: Path, pid: int) -> int | None:
    """None: there is no such process (any more), or it is not visible to this user."""
    stat = parse_stat(read_bytes(f"{procfs}/{pid}/stat"))
    return stat.start_ticks if stat is not None else None


def read_process(procfs: Path, pid: int) -> Process | None:
    """As much as can be read; None if it is gone."""
    seen = parse_stat(read_bytes(f"{procfs}/{pid}/stat"))
    if seen is None:
        return None
    raw = read_bytes(f"{procfs}/{pid}/cmdline", _COMMAND_LIMIT)
    words = raw.rstrip(b"\0").split(b"\0") if raw else []
    if len(raw) == _COMMAND_LIMIT:
        words = words[:-1]  # cut in the middle: half a secret is not recognised as one
    owner = read_bytes(f"{procfs}/{pid}/status").partition(b"\nUid:")[2].split()[:1]
    uid = int(owner[0]) if owner and owner[0].isdigit() else None
    argv = tuple(word.decode("utf-8", "replace") for word in words)
    return replace(seen, uid=uid, cgroup=read_cgroup(procfs, pid), argv=argv)


def start_seconds(procfs: Path, start_ticks: int, wall_seconds: float) -> float | None:
    """When a process began (Unix seconds, to some hundredths); None: procfs does not show the time since boot."""
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
    items = read_bytes(f"{procfs}/{pid}/environ", 262144).decode("utf-8", "replace").split("\0")
    pairs = (item.partition("=") for item in items)
    return {name: clean_text(value) for name, equals, value in pairs if equals and name in ALLOWED_VARIABLES}


def read_lineage(procfs: Path, pid: int) -> tuple[Process, ...]:
    """The process, its parent, its parent's parent and so on; empty: it is gone, or not visible to this user."""
    processes: list[Process] = []
    while pid > 0 and len(processes) <= _MAX_CLIMB and (process := read_process(procfs, pid)) is not None:
        if processes and process.start_ticks > processes[-1].start_ticks:
            break  # its PID was used again
        processes.append(process)
        pid = process.ppid
    return tuple(processes)


def leader_of(lineage: Sequence[Process]) -> Process:
    """The process that stands for the work that the first one is part of."""
    leader, origin = lineage[0], origin_of(lineage[0].cgroup)
    for parent in lineage[1:]:
        words = [word for word in parent.argv[1:] if word[:1] != "-" or word == "-c"]
        is_interactive_shell = parent.comm.lstrip("-") in _SHELLS and not words
        if parent.pid == 1 or parent.comm in _NOT_WORK or is_interactive_shell:
            break
        if parent.uid != leader.uid or origin_of(parent.cgroup) != origin:
            break
        leader = parent
    return leader


def is_drivers_own(lineage: Sequence[Process]) -> bool:
    """Whether the first is the driver's own helper, which it lists beside those it serves (dcgm-exporter#478, #734,
    nvidia-docker#419). A name alone proves nothing: it must be root's, outside all jobs and containers, or the MPS
    server of root's control daemon. A daemon has no terminal; sudo under its name, waiting for a password, has one."""
    first = lineage[0]
    process = lineage[1] if first.comm == MPS and first.uid != 0 and len(lineage) > 1 else first
    is_roots = origin_of(first.cgroup) == PLAIN and process.uid == 0 and not process.tty
    return is_roots and {process.comm, first.comm} <= _DRIVER_HELPERS


class Listeners:
    """Which processes listen on a TCP port: those that hold its socket, else (another user's are hidden) those of the
    socket's user whose arguments say ``--port N``. Remembered for a minute, as long as they live. Not for threads."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        # Port -> PIDs with their starts, and when they were searched for (monotonic seconds).
        self._known: dict[int, tuple[dict[int, int | None], float]] = {}

    def pids(self, port: int, monotonic_seconds: float) -> frozenset[int]:
        """Who listens on `port`; empty where none is visible. A new search takes a while: not for a tick."""
        pids, searched_at = self._known.get(port, ({}, float("-inf")))
        alive = all(read_start_ticks(self._procfs, pid) == start for pid, start in pids.items())
        if not alive or monotonic_seconds - searched_at >= _AGAIN_SECONDS:
            pids = {pid: read_start_ticks(self._procfs, pid) for pid in self._search(port)}
            self._known[port] = (pids, monotonic_seconds)
        return frozenset(pids)

    def _search(self, port: int) -> list[int]:
        owners: dict[str, int] = {}  # by the link to the socket
        for table in ("net/tcp", "net/tcp6"):
            for line in read_ascii(self._procfs / table, 1 << 24).splitlines()[1:]:
                fields = line.split()
                if len(fields) >= 10 and fields[3] == _LISTEN and fields[1].endswith(f":{port:04X}"):
                    owners[f"socket:[{fields[9]}]"] = int(fields[7])
        holders: list[int] = []
        named: list[int] = []
        for home in self._procfs.glob("[0-9]*") if owners else ():
            try:
                if home.stat().st_uid not in owners.values():
                    continue
                words = read_ascii(home / "cmdline", 65536).split("\0")
                said = {word for word in words if "=" in word} | {"=".join(two) for two in pairwise(words)}
                if not said.isdisjoint(f"{flag}={port}" for flag in _PORT_FLAGS):
                    named.append(int(home.name))
                if any(_link(path) in owners for path in (home / "fd").iterdir()):
                    holders.append(int(home.name))
            except (OSError, ValueError):
                continue
        return holders or named


def _link(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)  # noqa: PTH115 - thousands of these
    except OSError:
        return ""
