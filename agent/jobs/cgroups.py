"""Control groups: who started a process, by ``/proc/PID/cgroup``, and which jobs and pods live on this node.

The tree (``/sys/fs/cgroup``) is read as far as this process can see it, and every directory may vanish between two
reads.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

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
_MAX_ENTRIES, _MAX_STEPS, _MAX_STEP_FOLDERS, _MAX_PIDS = 4096, 64, 256, 64


@dataclass(frozen=True, slots=True)
class Origin:
    """`key` names the job, pod or container; empty for a plain process. `job_id` None: not in the path."""

    scheduler: Literal["slurm", "kubernetes", "docker", "process"]
    key: str = ""
    job_id: str | None = None


PLAIN = Origin("process")


def pod_uid(name: str) -> str | None:
    """The pod's UID in the name of a cgroup, as the API server writes it; None: it names no pod."""
    match = _POD.search(name)
    return match.group(1).replace("_", "-") if match else None


def origin_of(cgroup: str) -> Origin:
    """The scheduler and its key. A Slurm job inside a pod is the job; a container inside a pod is the pod."""
    paths = [line.split(":", 2)[-1] for line in cgroup.splitlines()]
    for path in paths:
        if (match := _JOB_PATH.search(path)) and not _USERS_OWN.search(path, 0, match.start()):
            job = match.group(1) or match.group(3)
            return Origin("slurm", job or match.group(2), job)
    for path in paths:
        if (match := _POD.search(path)) and not _USERS_OWN.search(path, 0, match.start()):
            return Origin("kubernetes", match.group(1).replace("_", "-"))
    for path in paths:
        if match := _CONTAINER.search(path):
            return Origin("docker", match.group(1))
    return PLAIN


def slurm_jobs(cgroups: Path) -> dict[str, Path] | None:
    """Job id (or SLUID) -> its cgroup; `cgroups` is ``/sys/fs/cgroup``. None: no tree of Slurm's is in sight, which
    says nothing about jobs."""
    scopes = [
        folder / name
        for folder in (cgroups / "system.slice", cgroups)
        for name in folders_in(folder)
        if name == "slurmstepd.scope" or name.endswith("_slurmstepd.scope")
    ]
    for base in () if scopes else map(cgroups.joinpath, _V1_CONTROLLERS):
        tops = [base / name for name in folders_in(base) if name == "slurm" or name.startswith("slurm_")]
        scopes += [top / user for top in tops for user in (".", *folders_in(top))]
    found = [(scope / name, _JOB_FOLDER.fullmatch(name)) for scope in scopes for name in folders_in(scope)]
    return {match[1] or match[2]: path for path, match in found if match} if scopes else None


def step_pids(job: Path) -> dict[str, tuple[int, ...]]:
    """The processes of each step of a job: ``batch``, ``extern`` (with ``PrologFlags=Contain``) and srun's numbers."""
    found: dict[str, tuple[int, ...]] = {}
    for step in [name for name in folders_in(job) if name.startswith("step_")][:_MAX_STEPS]:
        folders = [folder for folder, _, _ in islice(os.walk(job / step), _MAX_STEP_FOLDERS)]
        words = {word for folder in folders for word in read_ascii(f"{folder}/cgroup.procs", 65536).split()}
        pids = sorted(int(word) for word in words if word.isdigit() and int(word) > 0)
        found[step.removeprefix("step_")] = tuple(pids[:_MAX_PIDS])
    return found


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
            return frozenset(uid for name in names if (uid := pod_uid(name)) is not None)
    return frozenset()


def folders_in(path: str | Path) -> list[str]:
    """The names of its folders, in order; empty where it cannot be read."""
    try:
        with os.scandir(path) as entries:
            return sorted(islice((one.name for one in entries if one.is_dir(follow_symlinks=False)), _MAX_ENTRIES))
    except OSError:
        return []


def read_ascii(path: str | Path, limit: int = 1 << 20) -> str:
    """A file of the kernel's, up to `limit` bytes; empty where it cannot be read."""
    return read_bytes(path, limit).decode("ascii", "replace")


def read_bytes(path: str | Path, limit: int = 4096) -> bytes:
    """As `read_ascii`."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - hundreds of these at a time
            return file.read(limit)
    except OSError:
        return b""
