"""Reads ``sacct --parsable2`` (or ``--parsable``) as it is: any columns in any order, as the header names them.

sacct escapes nothing: a job's name may hold the delimiter and line breaks, so a record may be spread over lines or have
too many fields, and whoever names a job may write lines that look like another's. A record that is not whole is lost,
alone where nothing else is in doubt. slurmdbd keeps no name of more than 255 bytes (``job_name tinytext``), so what a
broken name could have made up lies within so many bytes of the break, and what stands there is refused with it. A name
that holds delimiters and whole lines at once, and ends on one, cannot be told from the truth: only a delimiter that
nobody could know helps (`ask.py`).
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import BinaryIO

from ...rules.base.errors import NothingToDo, UsageError
from ..base.slurm_job import SlurmJob
from .fields import (
    NOT_BEGUN,
    parse_count,
    parse_job_id,
    parse_job_state,
    parse_moments,
    parse_name,
    parse_node_list,
    parse_span,
    parse_text,
    parse_tres,
)
from .read_jobs import MAX_JOBS, Keep, ReadJobs, keep_all

MAX_LINES = 20_000_000
MAX_BYTES = 4 * 1024**3
_MAX_LINE = 256 * 1024
# A job's name, and the line break behind it.
_NAME_BYTES = 256
_HEADER = re.compile(r"(?P<first>[A-Za-z]{2,40})(?P<delimiter>[^A-Za-z\n]{1,80})")
_COLUMN = re.compile(r"[A-Za-z]{2,40}")
_NO_TABLE = "Use sacct --parsable2 --allusers --duplicates --format=JobID,JobIDRaw,... (docs/operations.md)."


def read_sacct(
    file: BinaryIO, *, zone: tzinfo | None = None, keep: Keep = keep_all, what: str = "the file"
) -> ReadJobs:
    """The runs of a job table. `zone`: where sacct wrote its times (None: as this machine); `keep`: which are wanted.

    Raises NothingToDo for an empty file, UsageError for what is no output of sacct or more than a table can be.
    """
    lines = _lines(file, what)
    header = next((line for line in lines if line.text.strip()), None)
    if header is None:
        raise NothingToDo(f"{what} is empty.", "Ask sacct for a longer time: --starttime.")
    table = _table(header.text, zone, what)
    found = ReadJobs()
    for fields in _Records(table, header.text, found).read(lines):
        table.take(fields, found, keep)
        if len(found.jobs) > MAX_JOBS:
            raise UsageError(f"{what} holds more than {MAX_JOBS} jobs.", "Narrow it with sacct's --starttime.")
    return found


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    bytes: int
    whole: bool  # it ends with a line break
    cut: bool = False  # it was longer than a record may be, and its text is left out


def _lines(file: BinaryIO, what: str) -> Iterator[_Line]:
    """Lines as text, of bounded length and number. Bytes that are no UTF-8 become U+FFFD."""
    read = number = 0
    while raw := file.readline(_MAX_LINE):
        number += 1
        read += len(raw)
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
            if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise UsageError(f"{what} is UTF-16.", "Save it as UTF-8.")
        if number > MAX_LINES or read > MAX_BYTES:
            raise UsageError(f"{what} is larger than a job table may be.", "Narrow it with sacct's --starttime.")
        if len(raw) == _MAX_LINE and not raw.endswith(b"\n"):
            while len(rest := file.readline(_MAX_LINE)) == _MAX_LINE and not rest.endswith(b"\n"):
                read += len(rest)
                if read > MAX_BYTES:
                    break
            yield _Line("", len(raw), rest.endswith(b"\n"), cut=True)
            continue
        yield _Line(raw.decode("utf-8", "replace").rstrip("\r\n"), len(raw), raw.endswith(b"\n"))


@dataclass(frozen=True)
class _Table:
    """The header: which column stands where."""

    delimiter: str
    width: int
    at: Mapping[str, int]
    zone: tzinfo | None
    what: str

    def split(self, text: str) -> list[str]:
        return text.split(self.delimiter)

    def begins(self, fields: Sequence[str]) -> bool:
        """Whether so begins a record: with an id where the ids stand."""
        at = self.id_at
        return len(fields) > at and parse_job_id(fields[at]) is not None

    @property
    def id_at(self) -> int:
        return min(self.at[name] for name in ("jobid", "jobidraw") if name in self.at)

    def take(self, fields: Sequence[str], found: ReadJobs, keep: Keep) -> None:
        """One whole record into the reading."""

        def told(name: str) -> str | None:
            at = self.at.get(name)
            return None if at is None else fields[at]

        shown, raw = (parse_job_id(told(name) or "") for name in ("jobid", "jobidraw"))
        known = shown or raw
        if known is None or any(told(name) and not one for name, one in (("jobid", shown), ("jobidraw", raw))):
            found.refused += 1
            return
        if known.step or (raw is not None and raw.step):
            return
        state = parse_job_state(told("state"))
        start, end = parse_span(told("start"), told("end"), told("elapsedraw") or told("elapsed"), self.zone)
        if known.waiting or state in NOT_BEGUN or (start is None and _no_time(told("start"))):
            return
        if start is None:
            found.untimed += 1
            return
        if end is not None and end < start:
            found.refused += 1
            return
        if raw is None and (known.task or known.part):
            found.unraw_tasks += 1
        asked = parse_tres(told("alloctres"), told("reqtres"))
        submitted = parse_moments(told("submit"), self.zone)
        job = SlurmJob(
            job_id=raw.job if raw else told("jobid") or known.job,
            started=start, ended=end, submitted=submitted[0] if submitted else None,
            cluster=parse_text(told("cluster")), name=parse_name(told("jobname")),
            user=parse_text(told("user")), account=parse_text(told("account")),
            partition=parse_text(told("partition")), qos=parse_text(told("qos")),
            array_job_id=known.job if known.task else None, array_task_id=known.task, state=_once(state),
            restarts=parse_count(told("restarts")), node_list=_once(parse_node_list(told("nodelist"))),
            gpus=asked.gpus, cpus=asked.cpus, mem_bytes=asked.mem_bytes,
        )  # fmt: skip
        found.add(job, keep)


def _once(text: str | None) -> str | None:
    """Few states and lists of nodes, on very many lines: each once in memory."""
    return None if text is None else sys.intern(text)


def _no_time(text: str | None) -> bool:
    return text is not None and text.strip().lower() in ("unknown", "none", "")


def _table(header: str, zone: tzinfo | None, what: str) -> _Table:
    found = _HEADER.match(header)
    alone = _COLUMN.fullmatch(header)
    delimiter = found["delimiter"] if found else "|"
    names = [name.lower() for name in header.split(delimiter)]
    # --parsable: a delimiter behind the last column too.
    columns = names[:-1] if names[-1] == "" and len(names) > 1 else names
    if not (found or alone) or not all(_COLUMN.fullmatch(name) for name in columns):
        raise UsageError(f"{what} is not the output of sacct --parsable2.", _NO_TABLE)
    at = {name: n for n, name in enumerate(columns)}
    if not {"jobid", "jobidraw"} & at.keys():
        raise UsageError(f"{what} has no column JobID or JobIDRaw.", _NO_TABLE)
    if "start" not in at:
        raise UsageError(f"{what} has no column Start: ids are used again.", _NO_TABLE)
    return _Table(delimiter, len(names), at, zone, what)


class _Records:
    """Whole records of a table's lines."""

    def __init__(self, table: _Table, header: str, found: ReadJobs) -> None:
        self._table = table
        self._header = header
        self._found = found
        self._held: deque[tuple[int, list[str]]] = deque()  # whole, until no broken name can have made them up
        self._open: str | None = None  # the beginning of a record whose name goes on in the next line
        self._too_long = False  # the line before had too many fields: its name may go on
        self._doubt = 0  # bytes that a broken name may still reach
        self._at = 0

    def read(self, lines: Iterator[_Line]) -> Iterator[list[str]]:
        for line in lines:
            # A name that goes on in this line began at most so many bytes before it.
            while self._held and self._held[0][0] <= self._at - _NAME_BYTES:
                yield self._held.popleft()[1]
            self._at += line.bytes
            if line.cut:
                self._pass_over()
                continue
            if not line.whole:
                # sacct ends each line: this one was cut, and what its last field says may be half of it.
                self._found.refused += line.text != ""
                self._open = None
                break
            self._line(line)
        if self._open is not None:
            self._found.refused += 1
        yield from (fields for _, fields in self._held)

    def _pass_over(self) -> None:
        """A line too long to be read: it may end a name that made up what is before it, or begin one that goes on."""
        self._found.refused += 1 + len(self._held)
        self._held.clear()
        self._open, self._too_long, self._doubt = None, False, _NAME_BYTES

    def _line(self, line: _Line) -> None:
        text = line.text
        if self._open is not None:
            self._go_on(text)
            return
        if text == self._header or not text:
            return
        fields, width = self._table.split(text), self._table.width
        begins = self._table.begins(fields)
        if self._doubt > 0:
            self._doubt -= line.bytes
            whole = begins and len(fields) == width
            self._found.refused += whole
            if not whole:
                self._doubt = 0  # the rest of the broken name: from here on all is well
            if whole or not begins:
                return
        if begins and len(fields) == width:
            self._held.append((self._at, fields))
            self._too_long = False
        elif begins and len(fields) < width:
            self._open = text
            self._too_long = False
        elif begins:
            self._found.refused += 1
            self._too_long = True
        elif self._too_long:
            self._too_long = False  # the rest of the name that had too many fields
        elif self._table.delimiter in text or not text.startswith(("sacct:", "slurm_")):
            # The rest of a name whose beginning looked like a whole record: it may have made up any that are near.
            self._found.refused += max(len(self._held), 1)
            self._held.clear()

    def _go_on(self, text: str) -> None:
        joined = f"{self._open}\n{text}"
        fields, width = self._table.split(joined), self._table.width
        if len(fields) < width and len(joined) <= _MAX_LINE:
            self._open = joined
            return
        self._open = None
        if len(fields) == width and self._table.begins(fields):
            self._held.append((self._at, fields))
            return
        self._found.refused += 1
        own = self._table.split(text)
        if len(own) == width and self._table.begins(own):
            # What was swallowed may be a job, or a line that the name makes up; so may be what follows.
            self._doubt = max(_NAME_BYTES - len(text.encode()), 0)
