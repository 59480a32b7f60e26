"""A job table as a file: opened, whatever wrote it, and kept up to date where several readings come together."""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import tzinfo
from pathlib import Path

from ...rules.base.errors import UsageError
from ...rules.base.files import open_stream, standard_input
from ...rules.base.output import write_whole
from ..base.slurm_job import SlurmJob
from .json_jobs import read_json_jobs
from .read_jobs import Keep, ReadJobs, keep_all
from .sacct import read_sacct

# No cleaned name holds it (`clean_text`), so what is written here needs no escaping.
_DELIMITER = "\x1f"
_COLUMNS = (
    "JobID", "JobIDRaw", "Cluster", "JobName", "User", "Account", "Partition", "QOS", "State", "Submit", "Start", "End",
    "Restarts", "NodeList", "AllocTRES",
)  # fmt: skip
_MODE = 0o640  # it names people
PATIENCE_SECONDS = 60.0  # of a pipe, for its first byte and between any two: sacct thinks before it prints


def read_job_table(
    path: Path | None,
    *,
    zone: tzinfo | None = None,
    keep: Keep = keep_all,
    patience_seconds: float = PATIENCE_SECONDS,
    stdin: int = 0,
) -> ReadJobs:
    """The runs of a file that sacct wrote, as text or JSON, or that `write_job_table` wrote. None: of stdin.

    A pipe that gives nothing for `patience_seconds` at a time is left. Raises NothingToDo for an empty one, UsageError
    for what is no job table or cannot be read.
    """
    what = "stdin" if path is None else str(path)
    try:
        with standard_input(patience_seconds, stdin) if path is None else open_stream(path, patience_seconds) as file:
            return _read(file, what, zone, keep)
    except TimeoutError as error:
        raise UsageError(
            f"{what} cannot be read: {error.strerror}.", "Let sacct write a file first, and name that."
        ) from error
    except OSError as error:
        raise UsageError(f"{what} cannot be read: {error.strerror}.", "Name a file that sacct wrote.") from error


def _read(file: io.BufferedReader, what: str, zone: tzinfo | None, keep: Keep) -> ReadJobs:
    if file.peek(1).lstrip()[:1] == b"{":
        return read_json_jobs(file, keep=keep, what=what)
    return read_sacct(file, zone=zone, keep=keep, what=what)


def write_job_table(path: Path, jobs: Iterable[SlurmJob]) -> None:
    """Write a table that `read_job_table` reads back, all or nothing. Raises SkuwiseError."""
    rows = (_fields(job) for job in sorted(jobs, key=lambda job: (job.started, job.job_id)))
    write_whole(path, (f"{_DELIMITER.join(row)}\n" for row in (_COLUMNS, *rows)), into_devices=False, mode=_MODE)


def _fields(job: SlurmJob) -> tuple[str, ...]:
    array = f"{job.array_job_id}_{job.array_task_id}" if job.array_job_id and job.array_task_id else job.job_id
    raw = job.job_id if job.job_id.isdigit() else ""
    counts = (("cpu", job.cpus), ("gres/gpu", job.gpus))
    tres = [f"{name}={count}" for name, count in counts if count is not None]
    if job.mem_bytes is not None:
        tres.append(f"mem={job.mem_bytes / 1024**2:.6f}M")
    told = (
        array, raw, job.cluster, job.name, job.user, job.account, job.partition, job.qos, job.state,
        _moment(job.submitted), _moment(job.started), _moment(job.ended),
        None if job.restarts is None else str(job.restarts), job.node_list, ",".join(tres),
    )  # fmt: skip
    return tuple(one or "" for one in told)


def _moment(moment: float | None) -> str:
    return "Unknown" if moment is None else f"{moment:.0f}"
