"""Names, owners and schedulers of simulated workloads. Some say what runs, some tell nothing, as in life.

Ids and frameworks come from the agent's own functions, so that they are those a real agent would have given.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...agent.inventory.identity.ids import series_id, workload_id
from ...agent.inventory.processes.frameworks import framework_of
from ...agent.model import Workload

# Share of workloads whose name, framework and command say nothing about them: the shape of the signals must do.
_SILENT_SHARE = 0.3

_VLLM = "python3 -m vllm.entrypoints.openai.api_server"
# What serves models and how it is started, as the projects' documentation has it.
ENGINES = (
    _VLLM,
    "python3 -m sglang.launch_server --port 30000",
    "tritonserver --model-repository=/models",
    "text-generation-launcher --port 8080",
    "trtllm-serve --port 8000",
)
_TEAMS = ("nlp", "vision", "speech", "search", "ads", "bio")
_SERVICES = ("chat", "assistant", "summarise", "code-complete", "rag-answer")
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


def next_job(job: Workload, cluster: str) -> Workload:
    """The same job under the next number; of what has no number, under another id."""
    if job.job_id is None:
        return replace(job, workload_id=workload_id(cluster, job.scheduler, "next", job.workload_id))
    number = str(int(job.job_id) + 1)
    return replace(job, job_id=number, workload_id=workload_id(cluster, job.scheduler, number))


def pod(
    rng: np.random.Generator,
    cluster: str,
    namespace: str,
    deployment: str,
    *,
    replica: int,
    silent: bool,
    command: str = _VLLM,
) -> Workload:
    """One pod of a deployment. All replicas are one series."""
    suffix = f"{int(rng.integers(0, 16**5)):05x}"
    name = f"{deployment}-{replica}-{suffix}"
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


def deployment_name(rng: np.random.Generator, named: tuple[str, ...] = ()) -> tuple[str, str, bool]:
    """Name and namespace of a service, and whether they and its command tell nothing."""
    silent = bool(rng.random() < _SILENT_SHARE)
    names = ("app", "backend", "svc") if silent else named or _SERVICES
    return f"{_pick(rng, names)}-{int(rng.integers(1, 99))}", _pick(rng, _TEAMS), silent


def kube_job(rng: np.random.Generator, cluster: str, *, names: tuple[str, ...], command: str) -> Workload:
    """A job that Kubernetes runs to its end."""
    silent = rng.random() < _SILENT_SHARE
    name = f"job-{int(rng.integers(1, 999))}" if silent else f"{_pick(rng, names)}-{int(rng.integers(10_000, 99_999))}"
    pod_name = f"{name}-{int(rng.integers(0, 16**5)):05x}"
    namespace = _pick(rng, _TEAMS)
    return Workload(
        workload_id=workload_id(cluster, "kubernetes", f"uid-of-{pod_name}"),
        series_id=series_id(cluster, namespace, None, name),
        name=name,
        scheduler="kubernetes",
        namespace=namespace,
        pod=pod_name,
        framework=None if silent else framework_of(command.split()),
        command=None if silent else command,
    )


def notebook(rng: np.random.Generator, cluster: str, start: float) -> Workload:
    """Somebody's own session: a pod of a hub, or a process that only says that it is Python."""
    user = _pick(rng, _USERS)
    if rng.random() < _SILENT_SHARE:
        return leftover(rng, cluster, start)
    number = int(rng.integers(0, 16**5))
    name = f"{_pick(rng, ('jupyter', 'notebook', 'dev', 'workspace'))}-{user}"
    return Workload(
        workload_id=workload_id(cluster, "kubernetes", f"uid-of-{name}-{number:05x}"),
        series_id=series_id(cluster, "hub", user, name),
        name=name,
        scheduler="kubernetes",
        namespace="hub",
        pod=name,
        user=user,
        command="python3 -m ipykernel_launcher" if rng.random() < 0.6 else None,
    )


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
