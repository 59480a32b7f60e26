"""Processes as procfs shows them, and which of them is the work: the leader of what runs on a GPU.

From parent to parent, up to one that is not part of the work (`_NOT_WORK`, an interactive shell), is another user's or
in another container, or is younger than its child: its PID was used again.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Literal

from ..base.safe_text import clean_text

# v2: .../slurmstepd.scope/job_3385/step_0/..., also <node>_slurmstepd.scope; Slurm 26.05 and newer name the job by its
# SLUID; v1: /slurm[_node]/uid_N/job_N/... Below a job's task the user may name as well: the first job counts.
_JOB = r"job_(\d{1,12})|(s[0-9A-Z]{11,19})"
_JOB_PATH = re.compile(
    rf"/(?:(?:[^/]*_)?slurmstepd\.scope/(?:{_JOB})|slurm(?:_[^/]+)?/uid_\d+/job_(\d{{1,12}}))(?=/|$)", re.ASCII
)
_JOB_FOLDER = re.compile(_JOB, re.ASCII)
# What lies below is a user's own to name.
_USERS_OWN = re.compile(r"/user\.slice(?=/|$)|/user@\d+\.service(?=/|$)")
# systemd driver: ...-pod<uid with underscores>.slice; cgroupfs driver: /pod<uid>. Static pods have a plain 32-hex uid.
# The part before is cut off where the agent's own cgroup namespace begins deeper.
_POD = re.compile(
    r"(?:^|[/-])pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?=\.slice|/|$)"
)
# systemd driver: <runtime>-<id>.scope. cgroupfs driver: the id below any folder (docker, default, --cgroup-parent).
_CONTAINER = re.compile(r"/(?:(?:docker|libpod|nerdctl|cri-containerd|crio)-)?([0-9a-f]{64})(?=\.scope|/|$)")
# Controllers under which Slurm keeps its v1 tree, depending on the site's plugins.
_V1_CONTROLLERS = ("freezer", "devices", "cpuset", "memory", "cpu,cpuacct")
_MAX_ENTRIES, _MAX_OF_JOB = 4096, 256


Scheduler = Literal["slurm", "kubernetes", "docker", "process"]


@dataclass(frozen=True, slots=True)
class Origin:
    """`key` names the job (its id or SLUID), pod or container; empty for a plain process."""

    scheduler: Scheduler
    key: str = ""


PLAIN = Origin("process")
_FORMS: Mapping[Scheduler, re.Pattern[str]] = {"slurm": _JOB_PATH, "kubernetes": _POD, "docker": _CONTAINER}


def origin_of(cgroup: str) -> Origin:
    """The scheduler and its key. A Slurm job inside a pod is the job; a container inside a pod is the pod."""
    paths = [line.split(":", 2)[-1] for line in cgroup.splitlines()]
    for scheduler, form in _FORMS.items():
        for path in paths:
            match = form.search(path)
            if match and (scheduler == "docker" or not _USERS_OWN.search(path, 0, match.start())):
                return Origin(scheduler, next(filter(None, match.groups())).replace("_", "-"))
    return PLAIN


def slurm_jobs(cgroups: Path) -> dict[str, Path] | None:
    """Job id (or SLUID) -> its cgroup; `cgroups` is ``/sys/fs/cgroup``. None: no tree of Slurm's is in sight."""
    scopes = [
        folder / name
        for folder in (cgroups / "system.slice", cgroups)
        for name in folders_in(folder)
        if name == "slurmstepd.scope" or name.endswith("_slurmstepd.scope")
    ]
    for base in () if scopes else map(cgroups.joinpath, _V1_CONTROLLERS):
        tops = [base / name for name in folders_in(base) if name == "slurm" or name.startswith("slurm_")]
        scopes += [top / user for top in tops for user in (".", *folders_in(top))]
    folders = [(scope / name, _JOB_FOLDER.fullmatch(name)) for scope in scopes for name in folders_in(scope)]
    return {match[1] or match[2]: path for path, match in folders if match} if scopes else None


def job_pids(job: Path) -> list[int]:
    """The processes of all steps of a job, the lowest first."""
    folders = [folder for folder, _, _ in islice(os.walk(job), _MAX_OF_JOB)]
    words = {word for folder in folders for word in read_ascii(f"{folder}/cgroup.procs", 65536).split()}
    return sorted(int(word) for word in words if word.isdigit())[:_MAX_OF_JOB]


def pod_uids(cgroups: Path) -> frozenset[str]:
    """The UIDs of the pods that have a cgroup here, as far as the kubelet's tree is in sight."""
    # v2 first; with v1 every controller has the same tree, so one is enough.
    for base in (cgroups, *(cgroups / name for name in ("cpuset", "memory", "cpu"))):
        tops = [
            folder / name
            for folder in (base, base / "kubelet", base / "kubelet.slice")
            for name in folders_in(folder)
            if name.endswith(("kubepods", "kubepods.slice"))
        ]
        qos = [top / name for top in tops for name in folders_in(top) if "besteffort" in name or "burstable" in name]
        if tops:
            names = (name for folder in (*tops, *qos) for name in folders_in(folder))
            return frozenset(match[1].replace("_", "-") for match in map(_POD.search, names) if match)
    return frozenset()


def folders_in(path: str | Path) -> list[str]:
    """The names of its folders, in order; empty where it cannot be read."""
    try:
        with os.scandir(path) as entries:
            return sorted(
                islice((entry.name for entry in entries if entry.is_dir(follow_symlinks=False)), _MAX_ENTRIES)
            )
    except OSError:
        return []


def read_ascii(path: str | Path, limit: int = 1 << 20) -> str:
    """A file of the kernel's, up to `limit` bytes; empty where it cannot be read."""
    return read_bytes(path, limit).decode("ascii", "replace")


def read_bytes(path: str | Path, limit: int = 4096) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - hundreds of these at a time
            return file.read(limit)
    except OSError:
        return b""


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
