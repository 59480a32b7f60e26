"""Reads the jobs of slurmrestd's ``/slurmdb/vX/jobs`` and of ``sacct --json``, which print the same.

The versions of its data differ (https://slurm.schedmd.com/rest.html): a number is a number, or
``{"set": true, "infinite": false, "number": 5}`` from v0.0.40 on; a state is a word or a list of words. What is spelled
in a way that is not known here is not told.

The entries of one list in a large JSON object, one at a time: the list as a whole takes ten times its text, and a
hostile one thirty times.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import BinaryIO

from ...rules.base.errors import NothingToDo, UsageError
from ..base.slurm_job import SlurmJob
from .fields import (
    MOST_COUNT,
    NOT_BEGUN,
    Resources,
    first_resources,
    parse_job_state,
    parse_moments,
    parse_name,
    parse_node_list,
    parse_text,
)
from .read_jobs import MAX_JOBS, Keep, ReadJobs, keep_all

# A value is looked for in the first piece, then in the next: a job has some 6 kB, and a small one costs little.
_PIECES = (1 << 9, 1 << 15, 1 << 22)
_BLANKS = b" \t\r\n"
_BOM = codecs.BOM_UTF8


def list_entries(document: bytes, name: str) -> Iterator[object]:
    """The entries of the list `name` of an object. Raises ValueError for what is no JSON, or has a value of more than
    4 MiB apart from that list; KeyError where there is no such list."""
    found = False
    at = _expect(document, len(_BOM) if document.startswith(_BOM) else 0, b"{")
    closed = document[at : at + 1] == b"}"
    while not closed:
        key, at = _value(document, at)
        if not isinstance(key, str):
            raise ValueError("a name is no text")
        at = _expect(document, at, b":")
        if key != name:
            _, at = _value(document, at)
        elif found:
            raise ValueError("the list appears twice")
        elif document[at : at + 1] != b"[":
            raise KeyError(name)
        else:
            found = True
            at = _skip(document, at + 1)
            ended = document[at : at + 1] == b"]"
            while not ended:
                one, at = _value(document, at)
                yield one
                ended, at = _more(document, at, b"]")
            at = _skip(document, at + 1)
        closed, at = _more(document, at, b"}")
    if _skip(document, at + 1) != len(document):
        raise ValueError("more comes after the object")
    if not found:
        raise KeyError(name)


def _more(document: bytes, at: int, end: bytes) -> tuple[bool, int]:
    """Whether the end stands here, and where that is or what comes after the comma."""
    if document[at : at + 1] == end:
        return True, at
    return False, _expect(document, at, b",")


def _expect(document: bytes, at: int, sign: bytes) -> int:
    at = _skip(document, at)
    if document[at : at + 1] != sign:
        raise ValueError(f"{sign!r} is missing")
    return _skip(document, at + 1)


def _skip(document: bytes, at: int) -> int:
    while at < len(document) and document[at] in _BLANKS:
        at += 1
    return at


def _value(document: bytes, at: int) -> tuple[object, int]:
    """The value that begins here, and where what comes after it begins."""
    for size in _PIECES:
        whole = at + size >= len(document)
        text, _ = codecs.utf_8_decode(document[at : at + size], "strict", whole)
        try:
            value, end = _DECODER.raw_decode(text)
        except RecursionError:
            raise ValueError("nested too deep") from None
        except ValueError:
            if whole:
                raise
            continue
        if whole or end < len(text):  # a number may go on
            return value, _skip(document, at + len(text[:end].encode("utf-8", "surrogatepass")))
    raise ValueError("a value is too long")


_DECODER = json.JSONDecoder()


MAX_JSON_BYTES = 256 * 1024 * 1024


def read_json_jobs(file: BinaryIO, *, keep: Keep = keep_all, what: str = "the answer") -> ReadJobs:
    """The runs that a document holds. Raises NothingToDo where it is empty, UsageError for what is no such document."""
    text = file.read(MAX_JSON_BYTES + 1)
    if len(text) > MAX_JSON_BYTES:
        raise UsageError(f"{what} is larger than {MAX_JSON_BYTES >> 20} MiB.", "Ask for a shorter time.")
    if not text.strip():
        raise NothingToDo(f"{what} is empty.", "Ask for a longer time.")
    found, count = ReadJobs(), 0
    try:
        for job in list_entries(text, "jobs"):
            count += 1
            if count > MAX_JOBS:
                raise UsageError(f"{what} holds more than {MAX_JOBS} jobs.", "Ask for a shorter time.")
            _take(job, found, keep)
    except KeyError:
        raise UsageError(
            f"{what} has no list of jobs.", "Use sacct --json, or /slurmdb/vX/jobs of slurmrestd."
        ) from None
    except ValueError:
        raise UsageError(f"{what} is not JSON, or was cut.", "Write it again with sacct --json.") from None
    return found


def _take(said: object, found: ReadJobs, keep: Keep) -> None:
    job = _table(said)
    job_id, time, array = _number(job.get("job_id")), _table(job.get("time")), _table(job.get("array"))
    state = _state(job.get("state"))
    if not job_id or job_id < 0:
        found.refused += 1
        return
    start, end, submitted = (_moment(time.get(name)) for name in ("start", "end", "submission"))
    if start is None or state in NOT_BEGUN:
        return
    if end is not None and end < start:
        found.refused += 1
        return
    array_id, task = _number(array.get("job_id")), _number(array.get("task_id"))
    of_array = bool(array_id) and task is not None
    tres, association = _table(job.get("tres")), _table(job.get("association"))
    given = first_resources(_resources(tres.get("allocated")), _resources(tres.get("requested")))
    restarts = _number(job.get("restart_cnt"))
    run = SlurmJob(
        job_id=str(job_id), started=start, ended=end, submitted=submitted,
        cluster=_text(job.get("cluster")) or _text(association.get("cluster")),
        name=parse_name(name) if isinstance(name := job.get("name"), str) else None,
        user=_text(job.get("user")) or _text(association.get("user")), account=_text(job.get("account")),
        partition=_text(job.get("partition")), qos=_text(job.get("qos")),
        array_job_id=str(array_id) if of_array else None, array_task_id=str(task) if of_array else None, state=state,
        restarts=restarts if restarts is not None and restarts >= 0 else None,
        node_list=parse_node_list(nodes) if isinstance(nodes := job.get("nodes"), str) else None,
        gpus=given.gpus, cpus=given.cpus, mem_bytes=given.mem_bytes,
    )  # fmt: skip
    found.add(run, keep)


def _table(said: object) -> dict[str, object]:
    return said if isinstance(said, dict) else {}


def _text(said: object) -> str | None:
    return parse_text(said) if isinstance(said, str) else None


def _number(said: object) -> int | None:
    if isinstance(said, dict):
        if said.get("set") is not True or said.get("infinite") is True:
            return None
        said = said.get("number")
    return said if isinstance(said, int) and not isinstance(said, bool) and abs(said) < 2**62 else None


def _moment(said: object) -> float | None:
    number = _number(said)
    return next(iter(parse_moments(str(number), None)), None) if number else None


def _state(said: object) -> str | None:
    said = _table(said).get("current") if isinstance(said, dict) else said
    first = next(iter(said), None) if isinstance(said, list) else said
    return parse_job_state(first) if isinstance(first, str) else None


def _resources(said: object) -> Resources:
    """Of a list of ``{"type": "gres", "name": "gpu:h100", "count": 4}``; memory is counted in MiB."""
    if not isinstance(said, list) or not said:
        return Resources()
    counts: dict[str, int] = {}
    for one in map(_table, said):
        kind, name, count = one.get("type"), one.get("name"), _number(one.get("count"))
        if isinstance(kind, str) and count is not None and 0 <= count < MOST_COUNT:
            counts[f"{kind}/{name}" if name else kind] = count
    typed = [count for name, count in counts.items() if name.startswith("gres/gpu:")]
    memory = counts.get("mem")
    gpus = counts.get("gres/gpu", sum(typed))
    return Resources(gpus if gpus < MOST_COUNT else None, counts.get("cpu"), memory * 1024.0**2 if memory else None)
