"""What the processes of a Slurm job tell of it: their environment of the job, their ancestors whose they are.

On a real 22.05 the processes of the batch script and of srun's tasks carry the job's name, account, partition, QOS and
array ids, which the prolog is not told. The extern step's ``sleep`` carries nothing of its job. ``SLURM_JOB_GPUS`` is
with the batch script and its children alone: a job that was started with salloc or srun has ``SLURM_STEP_GPUS``, which
are those of a step and maybe not all.

A process's owner may write what he likes into it. So it names his own job, and it tells devices only where the prolog
left no file and nobody else was given them.

Where jobs have no cgroup (``ProctrackType=proctrack/linuxproc``, ``pgid``), a process is its job's by its step: every
step is started by a ``slurmstepd`` of its own, which names job and step in its title:
``slurmstepd: [22.batch]``. Titles can be given by anybody, so only a process of root's is believed, by its real user
and without a terminal: a user may start sudo under any name and title, and leave it waiting for a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .command_line import plain_name
from .processes import Process, read_process, read_stat
from .slurm_job_files import JobFile, parse_devices

_COMM = "slurmstepd"
_TITLE = re.compile(r"slurmstepd: \[(\d{1,12}|s[0-9A-Z]{11,19})\.[0-9a-z_+]{1,20}\]\s*")
_MAX_PROCESSES = 65536
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
    told["name"] = plain_name(told["name"] or "") or None
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


def stepd_job(process: Process, trusted_uids: frozenset[int]) -> str | None:
    """The job (or SLUID) whose step this process runs, if it is a slurmstepd."""
    if process.stat.comm != _COMM or process.uid not in trusted_uids or process.stat.tty:
        return None
    match = _TITLE.fullmatch(" ".join(process.argv))
    return match.group(1) if match else None


def stepd_jobs(procfs: Path, trusted_uids: frozenset[int]) -> frozenset[str]:
    """Every job that has a step here. It goes through all processes: not for every scan."""
    try:
        pids = [int(entry.name) for entry in os.scandir(procfs) if entry.name.isdecimal()]
    except OSError:
        return frozenset()
    found: set[str] = set()
    for pid in sorted(pids)[:_MAX_PROCESSES]:
        stat = read_stat(procfs, pid)
        if stat is None or stat.comm != _COMM:
            continue
        process = read_process(procfs, pid)
        job = stepd_job(process, trusted_uids) if process is not None else None
        if job is not None:
            found.add(job)
    return frozenset(found)
