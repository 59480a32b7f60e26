"""Slurm's queue, of ``squeue --json``: the jobs that want GPUs and have not begun. Slurm 22.05 writes words and
numbers, newer versions lists and ``{"set": true, "number": 5}``.

sacct's records of jobs that are pending are none: most have no reason, and those that may not begin yet are missing.
"""

import mmap
import re
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...rules.base.errors import UsageError
from ...rules.base.files import open_stream
from ..base.safe_text import clean_text
from .read_jobs import json_text, parse_count, parse_moment, parse_name, parse_text

_REMEDY = "Write it again with SLURM_BITSTR_LEN=0 squeue --all --json."
_TASKS = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)
_INSTANCE = re.compile(r"(?:.*_)?([1-7])g\.\d{1,3}gb.*", re.ASCII)  # 1g.10gb, a100_1g.5gb
_CUT = "..."  # squeue's end of a list of tasks that is longer than SLURM_BITSTR_LEN, by default 64 bytes
_MOST_NAMED = 40  # characters of an array's tasks in its id


class WaitingJob(NamedTuple):
    """A job, or the tasks of an array (`jobs` of them). `gpus`: that each wants, of MIG instances their seventh;
    `gpu_type`: as asked for, several with commas between; `nodes`: that each wants; None: any number. `since`: when it
    was submitted, Unix seconds. `reason`: Slurm's word. None: unknown."""

    id: str
    cluster: str | None
    name: str | None
    user: str | None
    account: str | None
    partition: str | None
    jobs: int
    gpus: float
    nodes: int | None
    gpu_type: str | None
    since: float | None
    reason: str | None


class Queue(NamedTuple):
    """`at`: when it was written, Unix seconds. `warnings`: what of it could not be read."""

    at: float
    jobs: tuple[WaitingJob, ...]
    warnings: tuple[str, ...] = ()


class _Document(msgspec.Struct):
    jobs: list[msgspec.Raw]
    errors: Any = None


def read_squeue(path: Path) -> Queue:
    """Raises UsageError for what is no queue, and for one in which squeue says that it could not ask."""
    try:
        with open_stream(path) as file:
            at = path.stat().st_mtime
            document = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # 50,000 jobs have up to 400 MB
        read = msgspec.json.decode(document, type=_Document)
    except OSError as error:
        raise UsageError(f"Slurm's queue {path} cannot be read: {error.strerror}.", _REMEDY) from error
    except (msgspec.DecodeError, ValueError, RecursionError):  # mmap's too, of an empty file
        raise UsageError(f"{path} is not the output of squeue --json, or was cut.", _REMEDY) from None
    if read.errors:  # squeue 22.05 ends with status 0 and an empty list where slurmctld does not answer
        what = clean_text(str(read.errors)[:200])
        raise UsageError(f"squeue could not ask Slurm when it wrote {path}: {what}", _REMEDY)
    refused = cut = 0
    # By cluster and id; the parts of a heterogeneous job, which begin together, are one.
    wholes: dict[tuple[str, str], dict[str, tuple[int, WaitingJob]]] = defaultdict(dict)
    for raw in read.jobs:
        job: Any = None
        with suppress(msgspec.DecodeError, ValueError, RecursionError):
            # A job's name need not be UTF-8.
            job = msgspec.json.decode(bytes(raw).decode("utf-8", "replace"))
        if not isinstance(job, dict) or not json_text(job.get("job_id")):
            refused += 1
        elif json_text(job.get("job_state")) == "PENDING":
            part, het = _waiting(job), json_text(job.get("het_job_id"))
            offset = parse_count(json_text(job.get("het_job_offset"))) or 0
            wholes[part.cluster or "", het if het not in ("", "0") else part.id][part.id] = offset, part
            cut += _CUT in json_text(job.get("array_task_string"))
    said = (
        (refused, "Jobs of Slurm's queue that cannot be read: {}, left out."),
        (cut, "Arrays of Slurm's queue with tasks that squeue did not list: {}. Run it with SLURM_BITSTR_LEN=0."),
    )
    jobs = (_whole(key[1], [part for _, part in sorted(parts.values())]) for key, parts in wholes.items())
    return Queue(
        at, tuple(job for job in jobs if job.gpus > 0), tuple(text.format(count) for count, text in said if count)
    )


def _whole(job_id: str, parts: list[WaitingJob]) -> WaitingJob:
    if len(parts) == 1:
        return parts[0]
    asking = [part for part in parts if part.gpus > 0]
    types = ",".join(sorted({part.gpu_type for part in asking if part.gpu_type})) or None
    nodes = None if any(part.nodes is None for part in asking) else sum(part.nodes or 0 for part in asking)
    return parts[0]._replace(id=job_id, gpus=sum(part.gpus for part in asking), gpu_type=types, nodes=nodes)


def _waiting(job: Mapping[str, object]) -> WaitingJob:
    def text(name: str) -> str:
        return json_text(job.get(name))

    array, task, tasks = text("array_job_id"), text("array_task_id"), text("array_task_string")
    named = tasks if len(tasks) <= _MOST_NAMED else f"{tasks[:_MOST_NAMED]}{_CUT}"
    least, most, each = (parse_count(text(name)) or 0 for name in ("node_count", "max_nodes", "tasks"))
    wanted = {"req_str": 1, "per_job": 1, "per_node": least or 1, "per_task": each or 1}
    counts = {name: _gpus(text(f"tres_{name}")) for name in wanted}
    sums = (wanted[name] * (by_type.get("") or sum(by_type.values())) for name, by_type in counts.items())
    # Another text than that of the number may have the type: a cluster need not track it.
    types = sorted({gpu_type for by_type in counts.values() for gpu_type in by_type if gpu_type})
    part = _INSTANCE.fullmatch(types[0]) if len(types) == 1 else None
    # Of GPUs for the job or each task one node is the least, no wish.
    is_wish = bool(most) or least > 1 or counts["per_node"]
    return WaitingJob(
        id=f"{array}_{task}" if task else f"{array}_[{named}]" if tasks else text("job_id"),
        cluster=parse_text(text("cluster")), name=parse_name(text("name")), user=parse_text(text("user_name")),
        account=parse_text(text("account")), partition=parse_text(text("partition")),
        jobs=_count(tasks) if tasks and not task else 1,
        gpus=next(filter(None, sums), 0) * (int(part[1]) / 7 if part else 1.0),
        nodes=least or None if is_wish else None, gpu_type=",".join(types) or None,
        since=parse_moment(text("submit_time"), None), reason=parse_text(text("state_reason")),
    )  # fmt: skip


def _count(tasks: str) -> int:
    """How many tasks ``3-9,12,20-40:2%2`` names."""
    count = 0
    for part in tasks.partition("%")[0].removesuffix(_CUT).split(","):
        if match := _TASKS.fullmatch(part):
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            count += max(last - first, 0) // max(step, 1) + 1
    return max(count, 1)


def _gpus(text: str) -> Mapping[str, int]:
    """GPUs by type (empty: any) of ``gres:gpu:h100:2``, ``gres/gpu=4,gres/gpu:h100=4``, ``gpu``."""
    counts: dict[str, int] = defaultdict(int)
    for entry in text[:1024].split(","):
        kind, *rest = re.split("[:=]", entry.partition("(")[0].removeprefix("gres:").removeprefix("gres/"))
        if kind == "gpu":
            number = parse_count(rest[-1]) if rest else None
            named = rest if number is None else rest[:-1]
            counts[clean_text(named[0]) if named else ""] += 1 if number is None else number
    return counts
