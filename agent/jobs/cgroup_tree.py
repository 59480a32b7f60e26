"""Which Slurm jobs and which pods live on this node, from the names of their cgroups.

The tree is read as far as this process can see it; None means that no such tree is in sight, which says nothing about
jobs or pods. Every directory may vanish between two reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from .cgroups import pod_uid

_STEPD = re.compile(r"(?:.*_)?slurmstepd\.scope")
_JOB = re.compile(r"job_(\d{1,12})")
_SLUID = re.compile(r"s[0-9A-Z]{11,19}")
# Controllers under which Slurm keeps its v1 tree, depending on the site's plugins.
_V1_CONTROLLERS = ("freezer", "devices", "cpuset", "memory", "cpu,cpuacct")
_MAX_ENTRIES = 4096
_STEP_DEPTH = 3  # step_extern/user/task_special
_MAX_PIDS, _MAX_STEPS = 64, 64


def slurm_jobs(cgroups: Path) -> dict[str, Path] | None:
    """Job id (or SLUID) -> its cgroup; `cgroups` is ``/sys/fs/cgroup``. None: no tree of Slurm's is in sight."""
    scopes = [
        f"{folder}/{name}"
        for folder in (f"{cgroups}/system.slice", str(cgroups))
        for name in folders_in(folder)
        if _STEPD.fullmatch(name)
    ]
    if not scopes:
        scopes = _v1_users(cgroups)
    if not scopes:
        return None
    found: dict[str, Path] = {}
    for scope in scopes:
        for name in folders_in(scope):
            if match := _JOB.fullmatch(name):
                found[match.group(1)] = Path(scope, name)
            elif _SLUID.fullmatch(name):
                found[name] = Path(scope, name)
    return found


def step_pids(job: Path) -> dict[str, tuple[int, ...]]:
    """The processes of each step of a job: ``batch``, ``extern`` (with ``PrologFlags=Contain``) and srun's numbers."""
    steps = [name for name in folders_in(str(job)) if name.startswith("step_")][:_MAX_STEPS]
    return {name.removeprefix("step_"): _pids(f"{job}/{name}") for name in steps}


def _pids(step: str) -> tuple[int, ...]:
    pids: list[int] = []
    folders = [(step, 0)]
    while folders and len(pids) < _MAX_PIDS:
        folder, depth = folders.pop()
        pids += [int(word) for word in read_ascii(f"{folder}/cgroup.procs", 65536).split() if word.isdigit()]
        if depth < _STEP_DEPTH:
            folders += [(f"{folder}/{name}", depth + 1) for name in folders_in(folder)]
    return tuple(sorted(pid for pid in set(pids) if pid > 0)[:_MAX_PIDS])


def pod_uids(cgroups: Path) -> frozenset[str] | None:
    """The UIDs of the pods that have a cgroup here. None: no tree of the kubelet's is in sight."""
    roots = [folder for top in _kube_tops(cgroups) for folder in (top, *_qos_folders(top))]
    if not roots:
        return None
    names = (name for root in roots for name in folders_in(root))
    return frozenset(uid for name in names if (uid := pod_uid(name)) is not None)


def _kube_tops(cgroups: Path) -> Iterator[str]:
    # v2 first; on v1 every controller has the same tree, so one is enough.
    for base in (str(cgroups), *(f"{cgroups}/{name}" for name in ("cpuset", "memory", "cpu"))):
        found = False
        for folder in (base, f"{base}/kubelet", f"{base}/kubelet.slice"):
            for name in folders_in(folder):
                if name.endswith(("kubepods", "kubepods.slice")):
                    found = True
                    yield f"{folder}/{name}"
        if found:
            return


def _qos_folders(top: str) -> list[str]:
    return [f"{top}/{name}" for name in folders_in(top) if "besteffort" in name or "burstable" in name]


def _v1_users(cgroups: Path) -> list[str]:
    for controller in _V1_CONTROLLERS:
        base = f"{cgroups}/{controller}"
        slurm = [name for name in folders_in(base) if name == "slurm" or name.startswith("slurm_")]
        users = [f"{base}/{top}/{user}" for top in slurm for user in folders_in(f"{base}/{top}")]
        if slurm:
            return [path for path in users if path.rsplit("/", 1)[-1].startswith("uid_")] or [f"{base}/{slurm[0]}"]
    return []


def folders_in(path: str | Path) -> list[str]:
    """The names of its folders, in order; empty where it cannot be read."""
    names: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
                    if len(names) >= _MAX_ENTRIES:
                        break
    except OSError:
        return []
    return sorted(names)


def read_ascii(path: str | Path, limit: int = 1 << 20) -> str:
    """A file of the kernel's, up to `limit` bytes; empty where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(limit).decode("ascii", "replace")
    except OSError:
        return ""
