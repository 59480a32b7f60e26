"""Names, owners and schedulers of simulated workloads. Some say what runs, some tell nothing, as in life.

Ids and frameworks come from the agent's own functions, so that they are those a real agent would have given.
"""

from __future__ import annotations

import numpy as np

from ...agent.inventory.frameworks import framework_of
from ...agent.inventory.ids import series_id, workload_id
from ...agent.model import Workload

# Share of workloads whose name, framework and command say nothing about them: the shape of the signals must do.
_SILENT_SHARE = 0.3

_TEAMS = ("nlp", "vision", "speech", "search", "ads", "bio")
_USERS = ("amara", "bjorn", "chen", "dalia", "emre", "farah", "goran", "hana")


def slurm_job(rng: np.random.Generator, cluster: str, *, names: tuple[str, ...], command: str) -> Workload:
    """A batch job, run by `command` and called by one of `names`."""
    number = str(int(rng.integers(100_000, 999_999)))
    account, user = _pick(rng, _TEAMS), _pick(rng, _USERS)
    silent = rng.random() < _SILENT_SHARE
    name = f"run-{int(rng.integers(1, 99))}" if silent else _pick(rng, names)
    return Workload(
        workload_id=workload_id(cluster, "slurm", number),
        series_id=series_id(cluster, account, user, name),
        name=name,
        scheduler="slurm",
        job_id=number,
        user=user,
        account=account,
        framework=None if silent else framework_of(command.split()),
        command=None if silent else command,
    )


def pod(
    rng: np.random.Generator, cluster: str, namespace: str, deployment: str, *, replica: int, silent: bool
) -> Workload:
    """One pod of a deployment. All replicas are one series."""
    suffix = f"{int(rng.integers(0, 16**5)):05x}"
    name = f"{deployment}-{replica}-{suffix}"
    command = "python3 -m vllm.entrypoints.openai.api_server"
    return Workload(
        workload_id=workload_id(cluster, "kubernetes", f"uid-of-{name}"),
        series_id=series_id(cluster, namespace, None, deployment),
        name=deployment,
        scheduler="kubernetes",
        namespace=namespace,
        pod=name,
        framework=None if silent else framework_of(command.split()),
        command=None if silent else command,
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
        workload_id=workload_id(cluster, "process", "boot", str(pid), f"{100 * start:.0f}"),
        series_id=series_id(cluster, None, user, "python3"),
        name="python3",
        scheduler="process",
        user=user,
        command="python3",
    )


def _pick(rng: np.random.Generator, names: tuple[str, ...]) -> str:
    return names[int(rng.integers(0, len(names)))]
