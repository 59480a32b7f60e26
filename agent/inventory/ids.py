"""Identities that come out the same whoever computes them: the agent, another node, or the Prometheus road."""

from __future__ import annotations

import hashlib
import json
import re

_DIGITS = re.compile(r"\d+")


def workload_id(cluster: str, scheduler: str, *parts: str) -> str:
    """The identity of one run.

    `parts`: what `slurm_parts` gives (slurm), the pod UID (kubernetes; ``pod``, namespace and name where the UID is not
    known), the container id (docker), or boot id, PID and start time in clock ticks (process).
    """
    return "w-" + _digest("workload", cluster, scheduler, *parts)


def slurm_parts(job_id: str | None, start_seconds: int | None, sluid: str | None) -> tuple[str, ...]:
    """What names a run of a Slurm job: its id and start, so that a recycled id is another run.

    `start_seconds` is the scheduler's own, the same on every node (a start read from processes would differ by node);
    where it is not known the SLUID names the run, and where that is not known either, the id alone.
    """
    if job_id and start_seconds is not None:
        return (job_id, str(start_seconds))
    return (sluid or job_id or "",)


def gang_id(cluster: str, namespace: str, kind: str, name: str, run: str) -> str:
    """The identity of one run of pods that work together (`pods.works_of`): `kind` and `name` are what owns them all.

    `run`: the UID of the oldest of its pods, or when that was created in whole Unix seconds; empty where neither is
    known: then all that ever had the name is one run.
    """
    return workload_id(cluster, "kubernetes", "gang", namespace, kind, name, *([run] if run else []))


def series_id(cluster: str, group: str | None, user: str | None, name: str) -> str:
    """The identity of what recurs: `group` is the namespace or the account; digits in `name` are folded."""
    return "s-" + _digest("series", cluster, group or "", user or "", fold_digits(name))


def fold_digits(name: str) -> str:
    """``train-2024-run7`` and ``train-2025-run12`` are one name: ``train-#-run#``."""
    return _DIGITS.sub("#", name)


def _digest(*parts: str) -> str:
    # JSON keeps the parts apart whatever they hold.
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()[:16]
