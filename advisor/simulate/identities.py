"""Names, owners and schedulers of simulated workloads. Some say what runs, some tell nothing, as in life."""

from __future__ import annotations

import numpy as np

from ...agent.model import Workload
from .plan import identifier

# Share of workloads whose name, framework and command say nothing about them: the shape of the signals must do.
_SILENT_SHARE = 0.3

_TEAMS = ("nlp", "vision", "speech", "search", "ads", "bio")
_USERS = ("amara", "bjorn", "chen", "dalia", "emre", "farah", "goran", "hana")


def slurm_job(
    rng: np.random.Generator, cluster: str, start: float, *, names: tuple[str, ...], framework: str, command: str
) -> Workload:
    """A batch job. Its series is (cluster, account, user, name with digits folded)."""
    number = str(int(rng.integers(100_000, 999_999)))
    account, user = _pick(rng, _TEAMS), _pick(rng, _USERS)
    silent = rng.random() < _SILENT_SHARE
    name = f"run-{int(rng.integers(1, 99))}" if silent else _pick(rng, names)
    folded = "".join("0" if c.isdigit() else c for c in name)
    return Workload(
        workload_id=identifier(cluster, "slurm", number, f"{start:.0f}"),
        series_id=identifier(cluster, account, user, folded),
        name=name,
        scheduler="slurm",
        job_id=number,
        user=user,
        account=account,
        framework=None if silent else framework,
        command=None if silent else command,
    )


def pod(
    rng: np.random.Generator, cluster: str, namespace: str, deployment: str, *, replica: int, silent: bool
) -> Workload:
    """One pod of a deployment. All replicas are one series."""
    suffix = f"{int(rng.integers(0, 16**5)):05x}"
    name = f"{deployment}-{replica}-{suffix}"
    return Workload(
        workload_id=identifier(cluster, "kubernetes", name),
        series_id=identifier(cluster, namespace, deployment),
        name=deployment,
        scheduler="kubernetes",
        namespace=namespace,
        pod=name,
        framework=None if silent else "vllm",
        command=None if silent else "python3 -m vllm.entrypoints.openai.api_server",
    )


def deployment_name(rng: np.random.Generator) -> tuple[str, str, bool]:
    """Name and namespace of a service, and whether they and its command tell nothing."""
    silent = bool(rng.random() < _SILENT_SHARE)
    names = ("app", "backend", "svc") if silent else ("chat", "assistant", "summarise", "code-complete", "rag-answer")
    return f"{_pick(rng, names)}-{int(rng.integers(1, 99))}", _pick(rng, _TEAMS), silent


def leftover(rng: np.random.Generator, cluster: str, start: float) -> Workload:
    """A process that nobody ended: no scheduler knows it."""
    user = _pick(rng, _USERS)
    pid = int(rng.integers(2_000, 4_000_000))
    return Workload(
        workload_id=identifier(cluster, "process", str(pid), f"{start:.0f}"),
        series_id=identifier(cluster, user, "python3"),
        name="python3",
        scheduler="process",
        user=user,
        framework=_pick(rng, ("pytorch", "")) or None,
        command="python3",
    )


def _pick(rng: np.random.Generator, names: tuple[str, ...]) -> str:
    return names[int(rng.integers(0, len(names)))]
