"""What the environment of a Slurm job's process tells of its job.

On a real 22.05 the processes of the batch script and of srun's tasks carry the job's name, account, partition, QOS and
array ids, which the prolog is not told. The extern step's ``sleep`` carries nothing of its job. ``SLURM_JOB_GPUS`` is
with the batch script and its children alone: a job that was started with salloc or srun has ``SLURM_STEP_GPUS``, which
are those of a step and maybe not all.

A process's owner may write what he likes into it. So it names his own job, and it tells devices only where the prolog
left no file and nobody else was given them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..redaction.redact import redact_name
from ..scheduler_claims import Claim
from .job_files import JobFile, parse_devices


def start_of(variables: Mapping[str, str]) -> int | None:
    """``SLURM_JOB_START_TIME`` as Unix seconds; None: not set, or no such number."""
    text = variables.get("SLURM_JOB_START_TIME", "")
    return int(text) if _is_number(text) and 9 <= len(text) <= 11 else None


def job_of(name: str, variables: Mapping[str, str], *, with_devices: bool) -> JobFile | None:
    """The job whose cgroup is `name` (its id or its SLUID); None: the variables are not of that job.

    `with_devices`: whether ``SLURM_JOB_GPUS`` is believed; a batch job without it was given no GPU.
    """
    told = variables.get("SLURM_JOB_ID", "")
    if not _is_number(told) or len(told) > 12 or (name.isdecimal() and told != name):
        return None
    devices = parse_devices(variables.get("SLURM_JOB_GPUS", "")) if with_devices else None
    restarts = variables.get("SLURM_RESTART_COUNT", "") or variables.get("SLURM_JOB_RESTART_COUNT", "")
    array = {key: variables.get(f"SLURM_ARRAY_{key.upper()}", "") for key in ("job_id", "task_id")}
    return JobFile(
        told,
        devices,
        None if name.isdecimal() else name,
        start_of(variables),
        variables.get("SLURM_JOB_USER") or None,
        variables.get("SLURM_JOB_ACCOUNT") or None,
        redact_name(variables.get("SLURM_JOB_NAME", "")) or None,
        variables.get("SLURM_JOB_PARTITION") or None,
        variables.get("SLURM_JOB_QOS") or None,
        array_job_id=array["job_id"] if _is_number(array["job_id"]) else None,
        array_task_id=array["task_id"] if _is_number(array["task_id"]) else None,
        restarts=int(restarts) if _is_number(restarts) and len(restarts) < 6 else None,
    )


def filled(job: JobFile, more: JobFile | None) -> JobFile:
    """`job` with what it lacks taken from `more`: who told first is believed."""
    if more is None:
        return job
    names = (
        "sluid", "start_seconds", "user", "account", "name", "partition", "qos", "array_job_id", "array_task_id",
        "restarts",
    )  # fmt: skip
    return replace(job, **{name: getattr(more, name) for name in names if getattr(job, name) is None})


def of_job(claim: Claim | JobFile) -> JobFile:
    """What is told of another run of the same job says of the job, and nothing that is the run's own."""
    return JobFile(
        claim.job_id or "",
        None,
        user=claim.user,
        account=claim.account,
        name=claim.name,
        partition=claim.partition,
        qos=claim.qos,
        array_job_id=claim.array_job_id,
        array_task_id=claim.array_task_id,
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 12
