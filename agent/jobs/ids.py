"""Identities that are the same wherever they are computed: the agent, another node, or the Prometheus path."""

import hashlib
import json
import re

_DIGITS = re.compile(r"\d+")
_STAMP_SECONDS = 32 * 86400


def workload_id(cluster: str, scheduler: str, *parts: str) -> str:
    """The identity of one run. `parts`: what `slurm_parts` gives (slurm), the pod UID (kubernetes; ``pod``, namespace,
    name where it is not known), the container id (docker), or boot id, PID and start ticks (process)."""
    return "w-" + _digest("workload", cluster, scheduler, *parts)


def slurm_parts(
    job_id: str | None,
    start_seconds: int | None,
    sluid: str | None,
    *,
    restarts: int | None = None,
    stamp_seconds: float | None = None,
) -> tuple[str, ...]:
    """What names a run of a Slurm job, so that a recycled id and a requeued run are others. `start_seconds` is the
    scheduler's own, the same on every node. Where it is not known: the SLUID or job id, the restart count, and
    `stamp_seconds`, the prolog's time, by 32 days: an id comes back later than that."""
    if job_id and start_seconds is not None:
        return (job_id, str(start_seconds))
    parts = [sluid or job_id or ""]
    if restarts:
        parts.append(f"restart {restarts}")
    if stamp_seconds is not None:
        parts.append(f"month {int(stamp_seconds // _STAMP_SECONDS)}")
    return tuple(parts)


def unnamed_series_id(cluster: str, group: str | None, user: str | None, job_id: str) -> str:
    """The series of a Slurm job of unknown name: its own, with its requeued runs and its array's tasks.
    `job_id` is the array's where it is a task of one."""
    return "s-" + _digest("series", cluster, group or "", user or "", "job", job_id)


def gang_id(cluster: str, namespace: str, kind: str, name: str, run: str) -> str:
    """The identity of one run of pods that work together: `kind` and `name` are what owns them all. `run`: the UID of
    the oldest of its pods, or when that was created (whole Unix seconds); empty: all that ever had the name is one."""
    return workload_id(cluster, "kubernetes", "gang", namespace, kind, name, *([run] if run else []))


def series_id(cluster: str, group: str | None, user: str | None, name: str) -> str:
    """The identity of what recurs: `group` is the namespace or the account. Digits in `name` are folded:
    ``train-2024-run7`` and ``train-2025-run12`` are both ``train-#-run#``."""
    return "s-" + _digest("series", cluster, group or "", user or "", _DIGITS.sub("#", name))


def _digest(*parts: str) -> str:
    # JSON keeps the parts apart whatever they hold.
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()[:16]
