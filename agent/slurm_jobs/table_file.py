"""A job table as a file: what ``sacct --parsable2`` (or ``--parsable``) and ``sacct --json`` write, and our own.

sacct escapes nothing: a record whose name holds the delimiter or a line break is refused, and a name may look like
another's line; only a random delimiter helps (`import_jobs.ask_sacct`). In JSON a number is a number,
or ``{"set": true, "infinite": false, "number": 5}`` from v0.0.40 on, and a state a word or a list of words.
"""

import codecs
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import tzinfo
from pathlib import Path

import msgspec

from ...rules.base.errors import NothingToDo, UsageError
from ...rules.base.files import open_stream
from ...rules.base.output import write_whole
from ..model import SlurmJob
from .read_jobs import JOB_ID, TEXTS, Keep, ReadJobs

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
        columns = {column: next(filter(None, (_text(_at(job, place)) for place in places)), "")
                for column, places in _PLACES.items()}  # fmt: skip
        array, task = (_text(_at(job, f"array.{name}")) for name in ("job_id", "task_id"))
        columns["jobid"] = f"{array}_{task}" if array not in ("", "0") and task else ""
        for column, name in (("alloctres", "allocated"), ("reqtres", "requested")):
            tres = _at(job, f"tres.{name}")
            columns[column] = ",".join(_tres(tre) for tre in (tres if isinstance(tres, list) else ()))
        yield columns


def _at(said: object, place: str) -> object:
    for name in place.split("."):
        said = said.get(name) if isinstance(said, dict) else None
    return said


def _text(said: object) -> str:
    if isinstance(said, dict):
        said = said.get("number") if said.get("set") is True and said.get("infinite") is not True else None
    if isinstance(said, list):
        said = said[0] if said else None
    return str(said) if isinstance(said, (str, int)) and not isinstance(said, bool) else ""


def _tres(said: object) -> str:
    """``{"type": "gres", "name": "gpu:h100", "count": 4}`` as ``gres/gpu:h100=4``; memory is counted in MiB."""
    kind, name, count = (_text(_at(said, key)) for key in ("type", "name", "count"))
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
