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
from typing import Any

from ..redaction.redact import redact_name
from .job_files import JobFile, parse_devices

_TEXTS = ("user", "account", "name", "partition", "qos")


def start_of(variables: Mapping[str, str]) -> int | None:
    """``SLURM_JOB_START_TIME`` as Unix seconds; None: not set, or no such number."""
    text = variables.get("SLURM_JOB_START_TIME", "")
    return int(text) if _is_number(text) and 9 <= len(text) <= 11 else None


def job_of(name: str, variables: Mapping[str, str], *, with_devices: bool) -> JobFile | None:
    """The job whose cgroup is `name` (its id or its SLUID); None: the variables are not of that job.

    `with_devices`: whether ``SLURM_JOB_GPUS`` is believed; a batch job without it was given no GPU.
    """
    job_id = variables.get("SLURM_JOB_ID", "")
    if not _is_number(job_id) or len(job_id) > 12 or (name.isdecimal() and job_id != name):
        return None
    restarts = variables.get("SLURM_RESTART_COUNT", "") or variables.get("SLURM_JOB_RESTART_COUNT", "")
    told: dict[str, Any] = {key: variables.get(f"SLURM_JOB_{key.upper()}") or None for key in _TEXTS}
    told["name"] = redact_name(told["name"] or "") or None
    for key in ("array_job_id", "array_task_id"):
        number = variables.get(f"SLURM_{key.upper()}", "")
        told[key] = number if _is_number(number) else None
    return JobFile(
        job_id,
        parse_devices(variables.get("SLURM_JOB_GPUS", "")) if with_devices else None,
        sluid=None if name.isdecimal() else name,
        start_seconds=start_of(variables),
        restarts=int(restarts) if _is_number(restarts) and len(restarts) < 6 else None,
        **told,
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 12
