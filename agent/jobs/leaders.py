"""Which process is the work: the leader of what runs on a GPU, found by climbing from parent to parent.

The climb ends where the next process is not part of the work (`attribution` says what that is).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .cgroups import Origin, origin_of
from .command_line import parse_command
from .plain_names import plain_name
from .procfs import Process, read_process

MAX_CLIMB = 64
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


class Context:
    """The processes looked at during one call, so that a common ancestor is read once."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._read: dict[int, Process | None] = {}

    def process(self, pid: int) -> Process | None:
        if pid not in self._read:
            self._read[pid] = read_process(self._procfs, pid) if pid > 0 else None
        return self._read[pid]

    def ancestors(self, process: Process) -> Iterator[Process]:
        """Its parent, its parent's parent, and so on."""
        for _ in range(MAX_CLIMB):
            parent = self.process(process.stat.ppid)
            if parent is None or parent.stat.start_ticks > process.stat.start_ticks:
                return
            yield parent
            process = parent

    def leader(self, process: Process, origin: Origin) -> Process:
        for _ in range(MAX_CLIMB):
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


def name_of_work(leader: Process, process: Process) -> str:
    """What is run, as a person names it."""
    names = (*(parse_command(one.argv).program for one in (leader, process)), leader.stat.comm, process.stat.comm)
    return next((plain for name in names if name and (plain := plain_name(name))), "unnamed")
