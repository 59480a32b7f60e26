"""From the processes that the driver reports to workloads: whose work it is, and which processes are one piece of it.

Where a scheduler or a container runtime left its mark in the process's cgroup, that is the workload: a Slurm job, a
pod, a container. All else is a plain process, and processes started by one launcher are one workload: the *leader* is
found by climbing from parent to parent until the next one is not part of the work, that is

* init, a session or service manager, a login, a terminal multiplexer, a container shim, a batch daemon, a notebook
  server (each kernel is work of its own), or an interactive shell. A shell that runs a script or a command is part;
* another user's process, or one in another container;
* younger than its child: the PID was used again.

A process keeps the workload it was first given, also when its launcher ends before it.

Identities (`ids.workload_id`): a Slurm job by its id alone, so that every node gives the same (a start time read from
processes would differ by node; that of the scheduler, and pod names, come with their own sources: `Origin` is where
they enter); a pod by its UID; a container by its id; a plain process by boot id, PID and start time of its leader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..model import Absence, GpuProcess, Workload, WorkloadUse
from .cgroups import Origin, origin_of
from .frameworks import framework_of, program_of
from .ids import series_id, workload_id
from .procfs import Process, read_process, read_stat, read_variables
from .redact import redact_command, redact_text
from .text import clean_text

_MAX_CLIMB = 64
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "tcsh", "csh", "ash"})
_NOT_WORK = frozenset(
    {
        "init", "systemd", "(sd-pam)", "launchd", "runit", "runsv", "supervisord", "s6-supervise", "cron", "crond",
        "atd", "sshd", "sshd-session", "login", "su", "sudo", "dropbear", "tmux: server", "tmux", "screen", "SCREEN",
        "zellij", "containerd-shim", "containerd-shim-runc-v2", "conmon", "dockerd", "containerd", "tini",
        "dumb-init", "docker-init", "catatonit", "kubelet", "crio", "slurmd", "slurmstepd", "srun", "pbs_mom",
        "condor_starter", "sge_shepherd", "jupyter-lab", "jupyter-noteboo", "jupyter-server", "jupyterhub-singl",
        "jupyterhub", "code-server",
    }
)  # fmt: skip
# The kernel cuts names to 15 characters.
_NOT_WORK_CUT = frozenset(name[:15] for name in _NOT_WORK)


@dataclass(frozen=True, slots=True)
class _Known:
    start_ticks: int
    workload: Workload


class Attribution:
    """Names the workloads on this node. Not thread-safe; keeps what it knows of the processes of the last call.

    `user_name` gives a uid's name, or None (`pwd.getpwuid` is the real one). `boot_id` None leaves the identities of
    plain processes unique within the node's uptime only as far as PIDs and start times are.
    """

    def __init__(
        self, procfs: Path, boot_id: str | None, cluster: str, user_name: Callable[[int], str | None], node: str = ""
    ) -> None:
        self._procfs = procfs
        self._boot = boot_id or node
        self._cluster = cluster
        self._user_name = user_name
        self._known: dict[int, _Known] = {}
        self._workloads: dict[str, Workload] = {}
        self._unseen: frozenset[int] = frozenset()
        self.absences: frozenset[Absence] = frozenset()

    def attribute(self, processes: Sequence[GpuProcess]) -> tuple[tuple[Workload, ...], tuple[WorkloadUse, ...]]:
        """The workloads behind `processes` and what each holds on which GPU, both in a fixed order.

        A process that is gone belongs to no workload. One that is missing in two calls running is hidden from this
        user: `absences` says so, and whoever is known on its GPU shares it. Memory is None where the driver did not
        tell it for every process of the workload on that GPU.
        """
        seen: dict[int, Workload | None] = {}
        context = _Context(self._procfs)
        for pid in sorted({process.pid for process in processes}):
            seen[pid] = self._workload_of(pid, context)
        self._known = {pid: known for pid, known in self._known.items() if seen.get(pid) is not None}
        current = {workload.workload_id: workload for workload in seen.values() if workload is not None}
        self._workloads = current
        unseen = frozenset(pid for pid, workload in seen.items() if workload is None)
        hidden = unseen & self._unseen
        self._unseen = unseen
        self.absences = frozenset({_HIDDEN}) if hidden else frozenset()
        uses = _uses(
            (process, seen[process.pid]) for process in processes if process.pid in hidden or process.pid not in unseen
        )
        return tuple(current[key] for key in sorted(current)), uses

    def _workload_of(self, pid: int, context: _Context) -> Workload | None:
        known = self._known.get(pid)
        if known is not None:
            stat = read_stat(self._procfs, pid)
            if stat is not None and stat.start_ticks == known.start_ticks:
                return known.workload
        process = context.process(pid)
        if process is None:
            return None
        workload = self._describe(process, context)
        # The first description of a workload stands: its leader may end before its workers do.
        workload = self._workloads.setdefault(workload.workload_id, workload)
        self._known[pid] = _Known(process.stat.start_ticks, workload)
        return workload

    def _describe(self, process: Process, context: _Context) -> Workload:
        origin = origin_of(process.cgroup)
        leader = context.leader(process, origin)
        user = self._user(leader, origin)
        name = _name(leader, process)
        job_id, account, namespace = origin.job_id, None, None
        key: tuple[str, ...] = (origin.key,)
        if origin.scheduler == "slurm":
            # Only a process that Slurm itself put into its cgroup is believed about its job.
            variables = read_variables(self._procfs, process.stat.pid)
            job_id = job_id or variables.get("SLURM_JOB_ID")
            account = variables.get("SLURM_JOB_ACCOUNT")
            name = variables.get("SLURM_JOB_NAME") or name
        elif origin.scheduler == "process":
            key = (self._boot, str(leader.stat.pid), str(leader.stat.start_ticks))
        return Workload(
            workload_id=workload_id(self._cluster, origin.scheduler, *key),
            series_id=series_id(self._cluster, namespace or account, user, name),
            name=name,
            scheduler=origin.scheduler,
            job_id=job_id or (origin.key if origin.scheduler == "slurm" else None),
            namespace=namespace,
            user=user,
            account=account,
            framework=framework_of(leader.argv, process.argv, (process.stat.comm,)),
            command=redact_command(leader.argv) or None,
        )

    def _user(self, leader: Process, origin: Origin) -> str | None:
        """None inside pods, and for root inside containers: there a uid says nothing about who it is."""
        if leader.uid is None or origin.scheduler == "kubernetes":
            return None
        if origin.scheduler == "docker" and leader.uid == 0:
            return None
        return clean_text(self._user_name(leader.uid) or str(leader.uid))


class _Context:
    """The processes looked at during one call, so that a common ancestor is read once."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._read: dict[int, Process | None] = {}

    def process(self, pid: int) -> Process | None:
        if pid not in self._read:
            self._read[pid] = read_process(self._procfs, pid) if pid > 0 else None
        return self._read[pid]

    def leader(self, process: Process, origin: Origin) -> Process:
        for _ in range(_MAX_CLIMB):
            parent = self.process(process.stat.ppid)
            if parent is None or not _belongs(parent, process, origin):
                break
            process = parent
        return process


def _belongs(parent: Process, child: Process, origin: Origin) -> bool:
    """Whether `parent` is part of the work that `child` belongs to."""
    if parent.stat.pid == 1 or parent.stat.start_ticks > child.stat.start_ticks or parent.uid != child.uid:
        return False
    if parent.stat.comm in _NOT_WORK_CUT or _is_interactive_shell(parent):
        return False
    return origin_of(parent.cgroup) == origin


def _is_interactive_shell(process: Process) -> bool:
    if process.stat.comm.lstrip("-") not in _SHELLS:
        return False
    return all(word.startswith("-") and word != "-c" for word in process.argv[1:])


def _name(leader: Process, process: Process) -> str:
    name = program_of(leader.argv) or program_of(process.argv) or leader.stat.comm or process.stat.comm
    return clean_text(redact_text(name)) or "unnamed"


def _uses(found: Iterable[tuple[GpuProcess, Workload | None]]) -> tuple[WorkloadUse, ...]:
    memory: dict[tuple[str, str], dict[int, int | None]] = defaultdict(dict)
    holders: dict[str, set[str]] = defaultdict(set)
    for process, workload in found:
        if workload is None:
            # Somebody unknown is on this GPU too: it is shared with whoever is known.
            holders[process.gpu_uuid].add("")
            continue
        holders[process.gpu_uuid].add(workload.workload_id)
        per_pid = memory[(process.gpu_uuid, workload.workload_id)]
        # The driver lists a process once per kind of context (compute, graphics), each time with all its memory.
        known, told = per_pid.get(process.pid), process.mem_used_bytes
        per_pid[process.pid] = told if known is None else max(known, told or 0)
    return tuple(
        WorkloadUse(
            workload_id=workload,
            gpu_uuid=gpu,
            basis="process",
            shared=len(holders[gpu]) > 1,
            mem_used_bytes=_total(per_pid.values()),
        )
        for (gpu, workload), per_pid in sorted(memory.items())
    )


def _total(parts: Iterable[int | None]) -> int | None:
    values = list(parts)
    return None if None in values else sum(v for v in values if v is not None)


_HIDDEN = Absence(
    "source",
    "processes",
    "*",
    "process-not-visible",
    "The driver reports processes on a GPU that this agent cannot see in procfs, so their work has no name.",
    "In a container, share the host's PID namespace (hostPID); under hidepid, add the agent's user to its group.",
)
