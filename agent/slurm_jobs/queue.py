"""Slurm's queue: the jobs that want GPUs and have not begun, of ``squeue --json`` or of the records of sacct that are
pending. Slurm 22.05 writes words and numbers, newer versions lists and ``{"set": true, "number": 5}``.

A file of 50,000 jobs has up to 400 MB, so it is mapped, and only what is needed becomes objects.
"""

import mmap
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path
from typing import Any

import msgspec

from ...rules.base.errors import UsageError
from ...rules.base.files import open_stream
from ..base.safe_text import clean_text
from .read_jobs import JOB_ID, ReadJobs, json_text, parse_count, parse_moment, parse_name, parse_text, records_of

_REMEDY = "Write it again with SLURM_BITSTR_LEN=0 squeue --all --json."
_TASKS = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)
_INSTANCE = re.compile(r"(?:.*_)?([1-7])g\.\d{1,3}gb.*", re.ASCII)  # 1g.10gb, a100_1g.5gb
_CUT = "..."  # squeue's end of a list of tasks that is longer than SLURM_BITSTR_LEN, by default 64 bytes
_MOST_NAMED = 40  # characters of an array's tasks in its id


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job, or the tasks of an array (`jobs` of them). `gpus`: that each wants, of MIG instances their seventh;
    `gpu_type`: as asked for, several with commas between; `nodes`: that each wants; None: any number. `since`: when it
    was submitted, Unix seconds. `reason`: Slurm's word. None: unknown."""

    job_id: str
    jobs: int
    gpus: float
    nodes: int | None
    gpu_type: str | None
    since: float | None
    reason: str | None
    cluster: str | None
    name: str | None
    user: str | None
    account: str | None
    partition: str | None


@dataclass(frozen=True, slots=True)
class Queue:
    """`at`: when it was written, Unix seconds. Numbers: `refused` records that cannot be read, `cut` arrays of which
    Slurm lists a part of the tasks."""

    at: float
    jobs: tuple[WaitingJob, ...]
    refused: int = 0
    cut: int = 0

    def warnings(self) -> list[str]:
        said = (
            (self.refused, "Jobs of Slurm's queue that cannot be read: {}, left out."),
            (
                self.cut,
                "Arrays of Slurm's queue with tasks that squeue did not list: {}. Run it with SLURM_BITSTR_LEN=0.",
            ),
        )
        return [text.format(count) for count, text in said if count]


class _Document(msgspec.Struct):
    jobs: list[msgspec.Raw]
    errors: Any = None


class _Job(msgspec.Struct):
    job_id: Any = None
    job_state: Any = None
    array_job_id: Any = None
    array_task_id: Any = None
    array_task_string: Any = None
    het_job_id: Any = None
    het_job_offset: Any = None
    node_count: Any = None
    max_nodes: Any = None
    tasks: Any = None
    sockets_per_node: Any = None
    tres_req_str: Any = None
    tres_per_job: Any = None
    tres_per_node: Any = None
    tres_per_task: Any = None
    tres_per_socket: Any = None
    submit_time: Any = None
    state_reason: Any = None
    cluster: Any = None
    name: Any = None
    user_name: Any = None
    account: Any = None
    partition: Any = None


def read_squeue(path: Path) -> Queue:
    """The queue of a file of ``squeue --json``. Raises UsageError for what is none, and for one in which squeue says
    that it could not ask."""
    try:
        with open_stream(path) as file:
            at = path.stat().st_mtime
            document = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: it is empty
        why = getattr(error, "strerror", None) or "it is empty"
        raise UsageError(f"Slurm's queue {path} cannot be read: {why}.", _REMEDY) from error
    try:
        read = msgspec.json.decode(document, type=_Document)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise UsageError(f"{path} is not the output of squeue --json, or was cut.", _REMEDY) from None
    if read.errors:  # squeue 22.05 ends with status 0 and an empty list where slurmctld does not answer
        what = clean_text(str(read.errors)[:200])
        raise UsageError(f"squeue could not ask Slurm when it wrote {path}: {what}", _REMEDY)
    decode, parts, counts = msgspec.json.Decoder(_Job).decode, _Parts(), [0, 0]
    for raw in read.jobs:
        job = None
        with suppress(msgspec.DecodeError, ValueError, RecursionError):
            try:
                job = decode(raw)
            except msgspec.DecodeError:  # a job's name need not be UTF-8
                job = decode(bytes(raw).decode("utf-8", "replace"))
        if job is None or parse_count(json_text(job.job_id)) is None:
            counts[0] += 1
        elif json_text(job.job_state) == "PENDING":
            counts[1] += _CUT in json_text(job.array_task_string)
            parts.add(_of_json(job), json_text(job.het_job_id), json_text(job.het_job_offset))
    return Queue(at, parts.jobs(), *counts)


def pending_in(path: Path, zone: tzinfo | None) -> Queue | None:
    """The queue of a job table that sacct wrote at the file's time; None: it has no job that waits, as sacct may have
    been asked for others. Raises UsageError, NothingToDo as `read_job_table`."""
    try:
        with open_stream(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as document:
            if document.find(b"PENDING") < 0:
                return None
            parts, skipped, cut = _Parts(), ReadJobs(), 0
            for columns in records_of(file, skipped, str(path)):
                match = JOB_ID.fullmatch(columns.get("jobid") or columns.get("jobidraw", ""))
                if match and not match["step"] and columns.get("state", "").startswith("PENDING"):
                    parts.add(_of_columns(columns, zone), match["job"] if match["part"] else "0", match["part"] or "0")
                    cut += _CUT in (match["waiting"] or "")
            jobs = parts.jobs()
            return Queue(path.stat().st_mtime, jobs, skipped.refused, cut) if jobs else None
    except (OSError, ValueError):  # what it is for names its faults: it is a job table
        return None


class _Parts:
    """Each job once, by its id; the parts of a heterogeneous job, which begin together, as one."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], dict[str, tuple[int, WaitingJob]]] = defaultdict(dict)

    def add(self, job: WaitingJob, het_id: str, offset: str) -> None:
        """`het_id`: of the whole job; ``0`` or empty: it has no parts."""
        whole = het_id if het_id not in ("", "0") else job.job_id
        self._parts[job.cluster or "", whole][job.job_id] = (parse_count(offset) or 0, job)

    def jobs(self) -> tuple[WaitingJob, ...]:
        """Those that want GPUs."""
        wholes = (_whole(key[1], [job for _, job in sorted(parts.values(), key=lambda part: part[0])])
                  for key, parts in self._parts.items())  # fmt: skip
        return tuple(job for job in wholes if job.gpus > 0)


def _whole(job_id: str, parts: list[WaitingJob]) -> WaitingJob:
    if len(parts) == 1:
        return parts[0]
    asking = [part for part in parts if part.gpus > 0]
    types = sorted({part.gpu_type for part in asking if part.gpu_type})
    nodes = [part.nodes for part in asking]
    return replace(
        parts[0], job_id=job_id, gpus=sum(part.gpus for part in asking), gpu_type=",".join(types) or None,
        nodes=None if None in nodes else sum(filter(None, nodes)),
    )  # fmt: skip


def _of_json(job: _Job) -> WaitingJob:
    array, task, tasks = (json_text(v) for v in (job.array_job_id, job.array_task_id, job.array_task_string))
    named = tasks if len(tasks) <= _MOST_NAMED else f"{tasks[:_MOST_NAMED]}{_CUT}"
    number = f"{array}_{task}" if task else f"{array}_[{named}]" if tasks else json_text(job.job_id)
    nodes, most, each, sockets = (
        parse_count(json_text(value)) or 0 for value in (job.node_count, job.max_nodes, job.tasks, job.sockets_per_node)
    )
    wanted = [
        (job.tres_req_str, 1), (job.tres_per_job, 1), (job.tres_per_node, nodes or 1), (job.tres_per_task, each or 1),
        (job.tres_per_socket, (nodes or 1) * (sockets or 1)),
    ]  # fmt: skip
    gpus, gpu_type = _gpus([(json_text(text), times) for text, times in wanted])
    # Of GPUs for the job or each task one node is the least, no wish.
    is_told = bool(most) or nodes > 1 or _counts(json_text(job.tres_per_node))
    return WaitingJob(
        number, _tasks(tasks) if tasks and not task else 1, gpus, nodes or None if is_told else None, gpu_type,
        parse_moment(json_text(job.submit_time), None), parse_text(json_text(job.state_reason)),
        parse_text(json_text(job.cluster)), parse_name(json_text(job.name)), parse_text(json_text(job.user_name)),
        parse_text(json_text(job.account)), parse_text(json_text(job.partition)),
    )  # fmt: skip


def _of_columns(columns: Mapping[str, str], zone: tzinfo | None) -> WaitingJob:
    get: Callable[[str], str] = lambda name: columns.get(name, "")  # noqa: E731
    number = get("jobid") or get("jobidraw")
    match = JOB_ID.fullmatch(number)
    asked = get("reqtres")
    gpus, gpu_type = _gpus([(asked, 1)])
    nodes = next((parse_count(part[5:]) for part in asked.split(",") if part.startswith("node=")), None)
    return WaitingJob(
        number, _tasks(match["waiting"]) if match and match["waiting"] else 1, gpus, nodes, gpu_type,
        parse_moment(get("submit"), zone), parse_text(get("reason")), parse_text(get("cluster")),
        parse_name(get("jobname")), parse_text(get("user")), parse_text(get("account")), parse_text(get("partition")),
    )  # fmt: skip


def _tasks(text: str) -> int:
    """How many tasks ``3-9,12,20-40:2%2`` names; in sacct's JSON their bits are set, as in ``0x3F8``."""
    if text.startswith("0x"):
        with suppress(ValueError):
            return max(int(text, 16).bit_count(), 1)
    count = 0
    for part in text.partition("%")[0].removesuffix(_CUT).split(","):
        if match := _TASKS.fullmatch(part):
            first, last, step = (int(n) if n else None for n in match.groups())
            count += 1 if last is None or first is None else max(last - first, 0) // max(step or 1, 1) + 1
    return max(count, 1)


def _gpus(wanted: Iterable[tuple[str, int]]) -> tuple[float, str | None]:
    """GPUs and their type, by the first text that names any; each counts so many times. The type may stand in another
    text than the number: a cluster need not track it."""
    counts = [(_counts(text), times) for text, times in wanted]
    gpus = next((times * (c.get("") or sum(c.values())) for c, times in counts if any(c.values())), 0)
    types = sorted({gpu_type for c, _ in counts for gpu_type in c if gpu_type})
    part = _INSTANCE.fullmatch(types[0]) if len(types) == 1 else None
    return gpus * (int(part[1]) / 7 if part else 1.0), ",".join(types) or None


def _counts(text: str) -> Mapping[str, int]:
    """GPUs by type (empty: any) of ``gres:gpu:h100:2``, ``gres/gpu=4,gres/gpu:h100=4``, ``gpu``."""
    counts: dict[str, int] = defaultdict(int)
    for entry in text[:1024].split(","):
        kind, *rest = re.split("[:=]", entry.partition("(")[0].removeprefix("gres:").removeprefix("gres/"))
        if kind == "gpu":
            number = parse_count(rest[-1]) if rest else None
            named = rest if number is None else rest[:-1]
            counts[clean_text(named[0]) if named else ""] += 1 if number is None else number
    return counts
