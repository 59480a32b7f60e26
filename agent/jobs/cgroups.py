"""Who started a process, from the paths in ``/proc/PID/cgroup``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# cgroup v2: .../slurmstepd.scope/job_3385/step_0/..., also <node>_slurmstepd.scope; v1: /slurm[_node]/uid_N/job_N/...
_SLURM_JOB = re.compile(r"/(?:(?:[^/]*_)?slurmstepd\.scope|slurm(?:_[^/]+)?/uid_\d+)/job_(\d{1,12})(?=/|$)")
# Slurm 26.05 and newer name the job by its SLUID.
_SLURM_SLUID = re.compile(r"/(?:[^/]*_)?slurmstepd\.scope/(s[0-9A-Z]{11,19})(?=/|$)")
# What lies below is a user's own to name. Below a job's task the user may name as well: the first job in a path counts.
_USERS_OWN = re.compile(r"/user\.slice(?=/|$)|/user@\d+\.service(?=/|$)")
# systemd driver: ...-pod<uid with underscores>.slice; cgroupfs driver: /pod<uid>. Static pods have a plain 32-hex uid.
# The part before is cut off where the agent's own cgroup namespace begins deeper.
_POD = re.compile(
    r"(?:^|[/-])pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?=\.slice|/|$)"
)
# Docker and Podman by either cgroup driver; containerd and CRI-O outside pods (nerdctl's namespace is ``default``).
_CONTAINER = re.compile(r"/(?:docker|libpod|nerdctl|cri-containerd|crio|default)[-/]([0-9a-f]{64})(?=\.scope|/|$)")


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
        named = [match for pattern in (_SLURM_JOB, _SLURM_SLUID) if (match := pattern.search(path))]
        match = min(named, key=lambda one: one.start(), default=None)
        if match is not None and not _USERS_OWN.search(path, 0, match.start()):
            key = match.group(1)
            return Origin("slurm", key, key if key.isdecimal() else None)
    for path in paths:
        if (match := _POD.search(path)) and not _USERS_OWN.search(path, 0, match.start()):
            return Origin("kubernetes", match.group(1).replace("_", "-"))
    for path in paths:
        if match := _CONTAINER.search(path):
            return Origin("docker", match.group(1))
    return PLAIN
