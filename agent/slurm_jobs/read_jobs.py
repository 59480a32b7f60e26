"""Slurm's job table: what ``sacct --parsable2`` (or ``--parsable``) and ``sacct --json`` write, and our own file; how
each field of Slurm's accounting (https://slurm.schedmd.com/sacct.html) is read, what is left out, and which are of a
node. What cannot be read is None, never a guess.

sacct escapes nothing: a record whose name holds the delimiter or a line break is refused, and a name may look like
another's line; only a random delimiter helps (`import_jobs.ask_sacct`). In JSON a number is a number,
or ``{"set": true, "infinite": false, "number": 5}`` from v0.0.40 on, and a state a word or a list of words.
"""

import codecs
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from functools import lru_cache
from pathlib import Path

import msgspec

from ...rules.base.errors import NothingToDo, UsageError
from ...rules.base.files import open_stream
from ...rules.base.output import write_whole
from ..base.safe_text import clean_text
from ..jobs.command_line import plain_name
from ..jobs.slurm_conf import expand
from ..model import SlurmJob
from ..store.slurm_rows import KnownJobs, short_name

# JobID: 22, 22_7 (task of an array), 22_[1-10%2] (tasks that wait), 22+1 (part of a heterogeneous job), each with
# .batch, .extern, .interactive or a step's number behind it.
JOB_ID = re.compile(
    r"(?P<job>\d{1,10})(?:_(?:(?P<task>\d{1,10})|\[(?P<waiting>[^\]|\n]{0,400})\]?))?(?:\+(?P<part>\d{1,6}))?"
    r"(?P<step>\.[A-Za-z0-9_+]{1,64})?",
    re.ASCII,
)
_NOTHING = frozenset({"", "unknown", "none", "n/a", "(null)", "invalid", "none assigned"})
_EPOCH = re.compile(r"\d{9,11}(?:\.\d{1,6})?", re.ASCII)
_LOCAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:?\d\d)?", re.ASCII)
# Without who cancelled it: ``CANCELLED by 1000`` and sacct's cut ``CANCELLED+`` are CANCELLED.
_STATE = re.compile(r"([A-Z][A-Z_]{1,31})(?:\+| by \S{1,64})?", re.ASCII)
_COUNT = re.compile(r"\d{1,12}", re.ASCII)
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGTPE]?)", re.ASCII)
# Slurm began in 2003; the year 2200 is as far as its 32 bits of seconds reach, and more.
_FIRST, _LAST = 1_000_000_000.0, 7_258_118_400.0
# Longer values are cut first: columns of some sites hold whole command lines.
_MOST_TEXT, _MOST_LIST = 1024, 4096
MAX_NODES = 65_536  # no cluster has more; a list of more is refused before it is written out
_NODES = re.compile(r"[A-Za-z0-9._\-\[\],]{1,4096}", re.ASCII)
SLACK_SECONDS = 60.0  # a scan is 10 s, and the first look at a process may be a few scans late

Keep = Callable[[SlurmJob], bool]


def parse_text(text: str) -> str | None:
    """A name on one line without control characters; None where there is none."""
    cleaned = clean_text(text[:_MOST_TEXT])
    return None if cleaned.lower() in _NOTHING else cleaned


def parse_name(text: str) -> str | None:
    """A job's name: a job may well be called ``none``. Of one that is a command line the program is kept."""
    return plain_name(text[:_MOST_TEXT]) or None


def parse_node_list(text: str) -> str | None:
    """None too where the list is longer than we keep: a part would be another list."""
    is_list = text.lower() not in _NOTHING and len(text) <= _MOST_LIST and text.isascii() and text.isprintable()
    return text if is_list else None


def parse_job_state(text: str) -> str | None:
    match = _STATE.fullmatch(text)
    return match[1] if match else None


def parse_count(text: str) -> int | None:
    return int(text) if _COUNT.fullmatch(text) else None


def parse_moment(text: str, zone: tzinfo | None) -> float | None:
    """A moment as Unix seconds; the first, where the local clock showed it twice. `zone`: where sacct ran; None: this
    machine's. ISO with an offset and seconds since 1970 need none."""
    text = text.strip()
    moment = float(text) if _EPOCH.fullmatch(text) else 0.0
    if _LOCAL.fullmatch(text):
        with suppress(ValueError, OverflowError, OSError):
            said = datetime.fromisoformat(text)
            moment = (said if said.tzinfo is not None else said.replace(tzinfo=zone)).timestamp()
    return moment if _FIRST <= moment <= _LAST else None


def parse_tres(*texts: str) -> tuple[int | None, int | None, float | None]:
    """GPUs, CPUs and bytes of memory of ``cpu=8,gres/gpu=4,gres/gpu:h100=4,mem=32G``; what one text lacks, the
    next may. Of typed GPUs alone the sum counts. GPUs that are not named are unknown: a cluster need not track them
    (``AccountingStorageTRES``). A bare number of memory is megabytes; 0 means unknown."""
    gpus, cpus, mem_bytes = None, None, None
    for text in texts:
        parts = dict(part.split("=", 1) for part in text.split(",") if "=" in part) if len(text) <= _MOST_LIST else {}
        typed = [parse_count(count) for name, count in parts.items() if name.startswith("gres/gpu:")]
        counts = [parse_count(parts["gres/gpu"])] if "gres/gpu" in parts else typed
        gpu_count = sum(count or 0 for count in counts) if counts and None not in counts else None
        size = _SIZE.fullmatch(parts.get("mem", "0"))
        mem = float(size[1]) * 1024.0 ** " KMGTPE".index(size[2] or "M") if size is not None else 0.0
        gpus = gpu_count if gpus is None else gpus
        cpus = parse_count(parts.get("cpu", "")) if cpus is None else cpus
        mem_bytes = mem_bytes or mem or None
    return gpus, cpus, mem_bytes


# What is read as it stands: the field of `SlurmJob`, sacct's column, its places in JSON, and how its text is read.
TEXTS: Sequence[tuple[str, str, tuple[str, ...], Callable[[str], str | int | None]]] = (
    ("cluster", "cluster", ("cluster", "association.cluster"), parse_text),
    ("name", "jobname", ("name",), parse_name),
    ("user", "user", ("user", "association.user"), parse_text),
    ("account", "account", ("account",), parse_text),
    ("partition", "partition", ("partition",), parse_text),
    ("qos", "qos", ("qos",), parse_text),
    ("state", "state", ("state.current", "state"), parse_job_state),
    ("restarts", "restarts", ("restart_cnt",), parse_count),
    ("nodes", "nodelist", ("nodes",), parse_node_list),
)


@dataclass(slots=True)
class ReadJobs:
    """`jobs`: each run once, by `SlurmJob.key`. Numbers of what is not among them: `refused` records that cannot be
    read, `untimed` ones without a start that can be read. `keep`: which are wanted; None: all."""

    keep: Keep | None = None
    jobs: dict[tuple[str, str, int], SlurmJob] = field(default_factory=dict)
    refused: int = 0
    untimed: int = 0
    unraw_tasks: int = 0
    contradicted: set[tuple[str, str, int]] = field(default_factory=set)

    def take(self, columns: Mapping[str, str], zone: tzinfo | None) -> None:
        """Take a record in: `reported` has the text of sacct's columns (in lower case) that are there."""
        shown, raw = (JOB_ID.fullmatch(columns.get(name, "")) for name in ("jobid", "jobidraw"))
        match = shown or raw
        if match is None or (shown is None and columns.get("jobid")) or (raw is None and columns.get("jobidraw")):
            self.refused += 1
            return
        times = {name: columns.get(name, "") for name in ("start", "end", "submit")}
        start, end, submitted = (parse_moment(text, zone) for text in times.values())
        # What has not begun, or will begin again (sacct(1), "JOB STATE CODES"), is no run, and a step is none.
        has_not_begun = parse_job_state(columns.get("state", "")) in ("PENDING", "CONFIGURING")
        has_not_begun |= start is None and times["start"].strip().lower() in {*_NOTHING, "0"}
        if has_not_begun or match["step"] or (raw and raw["step"]) or match["waiting"] is not None:
            return
        if start is None or (end is not None and end < start):
            self.untimed += start is None
            self.refused += start is not None
            return
        self.unraw_tasks += raw is None and bool(match["task"] or match["part"])
        texts = {name: read(text[: _MOST_LIST + 1]) for name, column, _, read in TEXTS if (text := columns.get(column))}
        gpus, cpus, mem_bytes = parse_tres(
            *(columns.get(name, "")[: _MOST_LIST + 1] for name in ("alloctres", "reqtres"))
        )
        self.add(SlurmJob(
            job_id=raw["job"] if raw else columns["jobid"], started_at=start, ended_at=end, submitted_at=submitted,
            array_job_id=match["job"] if match["task"] else None, array_task_id=match["task"],
            gpus=gpus, cpus=cpus, mem_bytes=mem_bytes,
            **texts,  # type: ignore[arg-type] - each text by the reader of its field
        ))  # fmt: skip

    def add(self, job: SlurmJob) -> None:
        """Take a run in, once: what knows its end goes over what does not, else the later over the earlier."""
        if self.keep is not None and not self.keep(job):
            return
        before = self.jobs.get(job.key)
        is_others = before is not None and before.user and job.user and before.user != job.user
        if job.key in self.contradicted or is_others:
            # One run has one user. Which of two is invented is unknown.
            self.jobs.pop(job.key, None)
            self.contradicted.add(job.key)
            return
        if before is not None and before.ended_at is not None and job.ended_at is None:
            job = replace(job, ended_at=before.ended_at, state=before.state)
        self.jobs[job.key] = job

    def warnings(self) -> list[str]:
        said = (
            (self.refused, "Records that cannot be read: {}, left out (a line break or '|' in a name, or cut lines)."),
            (len(self.contradicted), "Runs with several users: {}, left out (a name may look like another job)."),
            (self.untimed, "Jobs without a start that can be read: {}, left out."),
            (self.unraw_tasks, "Tasks or parts without JobIDRaw, whose GPUs may not be found: {}. Add it to --format."),
        )
        return [text.format(count) for count, text in said if count]


def is_of_cluster(said: str | None, clusters: Collection[str], cluster: str | None) -> bool:
    """Whether a job of the cluster `said` (None: unknown) may be of this one. `clusters`: as the nodes name theirs;
    `cluster`: Slurm's name of it, if set."""
    return said is None or (said == cluster if cluster is not None else not clusters or said in clusters)


def job_nodes(job: SlurmJob) -> frozenset[str] | None:
    """The nodes it ran on, by `short_name`; None: unknown."""
    names = expand_node_list(job.nodes) if job.nodes else None
    return None if names is None else frozenset(map(short_name, names))


@lru_cache(maxsize=64)  # written out, a list of the largest cluster takes megabytes
def expand_node_list(node_list: str) -> frozenset[str] | None:
    """The nodes of a list; None for what is none, or names more than `MAX_NODES`."""
    nodes = expand(node_list, MAX_NODES) if _NODES.fullmatch(node_list) else None
    return frozenset(nodes) if nodes and all(nodes) else None


@dataclass
class JobsOfNode:
    """Keeps the jobs that ran on a database's nodes, and counts others."""

    database: KnownJobs
    own_cluster: str | None = None
    other_clusters: Counter[str] = field(default_factory=Counter)
    elsewhere: int = 0

    def __call__(self, job: SlurmJob) -> bool:
        if not is_of_cluster(job.cluster, self.database.clusters, self.own_cluster):
            self.other_clusters[job.cluster or ""] += 1
            return False
        nodes, end = job_nodes(job), float("inf") if job.ended_at is None else job.ended_at
        spans = self.database.runs.get(job.job_id, ())  # for jobs whose nodes are unknown
        seen = any(job.started_at < last + SLACK_SECONDS and end > first - SLACK_SECONDS for first, last in spans)
        here = seen if nodes is None else not nodes.isdisjoint(self.database.nodes)
        self.elsewhere += not here
        return here


# No cleaned name holds it (`clean_text`), so what is written here needs no escaping.
_DELIMITER = "\x1f"
# What is asked of sacct, and written. The name is not the last: what stands behind a line break in it ends with the
# record. Restarts: newer versions only; an older sacct (22.05) refuses the whole request for it.
COLUMNS = (
    "JobID", "JobIDRaw", "Cluster", "JobName", "User", "Account", "Partition", "QOS", "State", "Submit", "Start", "End",
    "NodeList", "AllocTRES", "ReqTRES", "Restarts",
)  # fmt: skip
_MAX_LINE = 256 * 1024
MAX_JSON_BYTES = 256 * 1024 * 1024
_HEADER = re.compile(r"[A-Za-z]{2,40}(?P<delimiter>[^A-Za-z\n]{1,80})")
_COLUMN = re.compile(r"[A-Za-z]{2,40}")
_NO_TABLE = "Use sacct --parsable2 --allusers --duplicates --format=JobID,JobIDRaw,... (docs/operations.md)."
# Columns of sacct that are read in a way of their own, and their places in JSON.
_PLACES = {
    "jobidraw": ("job_id",), "start": ("time.start",), "end": ("time.end",), "submit": ("time.submission",),
    **{column: places for _, column, places, _ in TEXTS},
}  # fmt: skip


class _Document(msgspec.Struct):
    jobs: list[msgspec.Raw]


def read_job_table(path: Path | None, *, zone: tzinfo | None = None, keep: Keep | None = None) -> ReadJobs:
    """The runs of a file that sacct or `write_job_table` wrote; None: of stdin. Raises NothingToDo for an empty one,
    UsageError for what is no table or unreadable."""
    what = "stdin" if path is None else str(path)
    try:
        with os.fdopen(0, "rb", closefd=False) if path is None else open_stream(path) as file:
            return read_jobs(file, zone=zone, keep=keep, what=what)
    except OSError as error:
        raise UsageError(
            f"{what} cannot be read: {error.strerror}.", "Let sacct write a file first, and name that."
        ) from error


def read_jobs(
    file: io.BufferedIOBase, *, zone: tzinfo | None = None, keep: Keep | None = None, what: str = "the file"
) -> ReadJobs:
    """As `read_job_table`. `zone`: where sacct wrote its times (None: as this machine); `keep`: which are wanted."""
    jobs = ReadJobs(keep)
    lines = iter(lambda: file.readline(_MAX_LINE), b"")
    first = next((line for line in lines if line.strip(codecs.BOM_UTF8 + b" \r\n\t")), b"")
    if not first:
        raise NothingToDo(f"{what} is empty.", "Ask for a longer time.")
    first = first.removeprefix(codecs.BOM_UTF8)
    if first.lstrip().startswith(b"{"):
        records = _json_records(first + file.read(MAX_JSON_BYTES), what)
    else:
        records = _text_records(first.decode("utf-8", "replace").rstrip("\r\n"), lines, jobs, what)
    for record in records:
        jobs.take(record, zone)
    return jobs


def _text_records(header: str, lines: Iterator[bytes], read_jobs: ReadJobs, what: str) -> Iterator[Mapping[str, str]]:
    """Whole records, by columns; what is broken or cut is counted in `found`. Bytes that are no UTF-8 become U+FFFD."""
    match = _HEADER.match(header)
    delimiter = match["delimiter"] if match is not None else "|"
    names = header.lower().split(delimiter)
    # --parsable: a delimiter behind the last column too.
    if not all(_COLUMN.fullmatch(name) for name in (names[:-1] if names[-1] == "" else names)):
        raise UsageError(f"{what} is not the output of sacct --parsable2.", _NO_TABLE)
    ids = [names.index(name) for name in ("jobid", "jobidraw") if name in names]
    if not ids or "start" not in names:
        raise UsageError(f"{what} has no column JobID or JobIDRaw, or no Start: ids are used again.", _NO_TABLE)
    begun = ""  # the beginning of a record whose name goes on in the next line
    for raw in lines:
        if not raw.endswith(b"\n"):  # sacct ends each line: this one was cut, or is longer than any
            read_jobs.refused, begun = read_jobs.refused + 1, ""
            continue
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        text = f"{begun}\n{line}" if begun else line
        fields, begun = text.split(delimiter), ""
        if len(fields) <= min(ids) or JOB_ID.fullmatch(fields[min(ids)]) is None:
            continue  # the rest of a broken name, the header once more, or a message of sacct's
        if len(fields) == len(names):
            yield dict(zip(names, fields, strict=True))
        elif len(fields) < len(names) and len(text) < _MAX_LINE and text.count("\n") < 256:
            begun = text  # slurmdbd keeps no name of more than 255 bytes
        else:
            read_jobs.refused += 1
    read_jobs.refused += begun != ""


def _json_records(document: bytes, what: str) -> Iterator[Mapping[str, str]]:
    """The jobs as sacct's columns have them, one at a time: as a whole they take ten times their text. Empty: it is
    none."""
    if len(document) > MAX_JSON_BYTES:
        raise UsageError(f"{what} is larger than {MAX_JSON_BYTES >> 20} MiB.", "Ask for a shorter time.")
    try:
        jobs = msgspec.json.decode(document, type=_Document).jobs
    except msgspec.ValidationError:
        remedy = "Use sacct --json, or /slurmdb/vX/jobs of slurmrestd."
        raise UsageError(f"{what} has no list of jobs.", remedy) from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise UsageError(f"{what} is not JSON, or was cut.", "Write it again with sacct --json.") from None
    for raw in jobs:
        job: object = None
        with suppress(msgspec.DecodeError, ValueError, RecursionError):
            job = msgspec.json.decode(raw)
        columns = {column: next(filter(None, (json_text(_at(job, place)) for place in places)), "")
                for column, places in _PLACES.items()}  # fmt: skip
        array, task = (json_text(_at(job, f"array.{name}")) for name in ("job_id", "task_id"))
        columns["jobid"] = f"{array}_{task}" if array not in ("", "0") and task else ""
        for column, name in (("alloctres", "allocated"), ("reqtres", "requested")):
            tres = _at(job, f"tres.{name}")
            columns[column] = ",".join(_tres(tre) for tre in (tres if isinstance(tres, list) else ()))
        yield columns


def _at(said: object, place: str) -> object:
    for name in place.split("."):
        said = said.get(name) if isinstance(said, dict) else None
    return said


def json_text(said: object) -> str:
    """A word or a number of Slurm's JSON; of a list the first. Empty: none."""
    if isinstance(said, dict):
        said = said.get("number") if said.get("set") is True and said.get("infinite") is not True else None
    if isinstance(said, list):
        said = said[0] if said else None
    return str(said) if isinstance(said, (str, int)) and not isinstance(said, bool) else ""


def _tres(said: object) -> str:
    """``{"type": "gres", "name": "gpu:h100", "count": 4}`` as ``gres/gpu:h100=4``; memory is counted in MiB."""
    kind, name, count = (json_text(_at(said, key)) for key in ("type", "name", "count"))
    return f"{kind}/{name}={count}" if name else f"{kind}={count}" if count else ""


def write_job_table(path: Path, jobs: Iterable[SlurmJob]) -> None:
    """Write a table that `read_job_table` reads back, all or nothing; it names people. Raises SkuwiseError."""
    rows = (_row(job) for job in sorted(jobs, key=lambda job: (job.started_at, job.job_id)))
    write_whole(path, (f"{_DELIMITER.join(row)}\n" for row in (COLUMNS, *rows)), into_devices=False, mode=0o640)


def _row(job: SlurmJob) -> list[str]:
    said = {column: getattr(job, name) for name, column, _, _ in TEXTS}
    is_task = job.array_job_id and job.array_task_id
    said["jobid"] = f"{job.array_job_id}_{job.array_task_id}" if is_task else job.job_id
    said["jobidraw"] = job.job_id if job.job_id.isdigit() else None
    times = {"submit": job.submitted_at, "start": job.started_at, "end": job.ended_at}
    said |= {name: "Unknown" if moment is None else f"{moment:.0f}" for name, moment in times.items()}
    mem = None if job.mem_bytes is None else f"{job.mem_bytes / 1024**2:.6f}M"
    tres = {"cpu": job.cpus, "gres/gpu": job.gpus, "mem": mem}
    said["alloctres"] = ",".join(f"{name}={count}" for name, count in tres.items() if count is not None)
    cells = (said.get(column.lower()) for column in COLUMNS)
    return ["" if cell is None else str(cell) for cell in cells]
