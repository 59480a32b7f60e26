"""Control groups: who started a process, by ``/proc/PID/cgroup``, and which jobs and pods live on this node, as far
as ``/sys/fs/cgroup`` is in sight."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
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
    """As `read_ascii`."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - hundreds of these at a time
            return file.read(limit)
    except OSError:
        return b""
