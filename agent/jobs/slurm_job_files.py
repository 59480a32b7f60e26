"""The files that Slurm's prolog and epilog write, two per run of a job: a strict reader.

`systemd/slurm/prolog.sh` writes ``JOB-RESTARTS.job`` into a folder that only root can write, `epilog.sh` an empty
``JOB-RESTARTS.end`` beside it. The run's start and end are the times at which the two were written. Where slurmd ran no
prolog, as it does for most runs of a requeued job, the epilog writes both, and the start is not told.

Accounts and names in them were chosen by users. A file that is not exactly what the prolog writes is refused whole; one
without its last line is still being written, or was cut off by a full disk, and is none.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..base.safe_text import clean_text
from .command_line import plain_name
from .scheduler_claims import JobFacts

_FILE = re.compile(r"([0-9]{1,12})-([0-9]{1,5})\.(job|end)")
_SIZE_LIMIT = 8192
_FILES_LIMIT = 4096
_REQUIRED = frozenset({"version", "job_id", "gpus"})
_TEXTS = ("user", "account", "name", "partition", "qos", "cluster", "node")
_NUMBERS = ("restarts", "uid", "array_job_id", "array_task_id")
_KEYS = _REQUIRED.union(_TEXTS, _NUMBERS, ("sluid", "start", "conf", "complete", "without_prolog"))
_LAST = b"complete=1\n"
_SLUID = re.compile(r"s[0-9A-Z]{11,19}")
_START = re.compile(r"[0-9]{9,11}")
_NUMBER = re.compile(r"[0-9]{1,10}")
_ITEM = re.compile(r"[0-9]{1,4}(?:-[0-9]{1,4})?|(?:GPU|MIG)-[0-9A-Za-z/-]{8,80}")
_MAX_DEVICES = 256


@dataclass(frozen=True, slots=True)
class JobFile(JobFacts):
    """What was told of one run of a job on this node.

    `devices`: gres indices or UUIDs as Slurm gave them; empty: the job was given no GPU; None: not told. `since` and
    `until` are the prolog's and the epilog's time; `since` None: its epilog alone wrote of it. `conf` and `node` are
    what slurmd calls slurm.conf and this node. None: not told.
    """

    job_id: str = ""
    devices: tuple[str, ...] | None = None
    cluster: str | None = None
    node: str | None = None
    conf: str | None = None
    without_prolog: bool = False

    @property
    def run(self) -> tuple[str, float | None]:
        """What tells this run from every other one."""
        return (self.job_id, self.until if self.without_prolog else self.since)


@dataclass(frozen=True, slots=True)
class JobFiles:
    """All files of the folder. `refused`: name and reason. `missing`: why the folder itself tells nothing."""

    jobs: tuple[JobFile, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    missing: str | None = None


def parse_devices(text: str) -> tuple[str, ...] | None:
    """``0,2-3`` or UUIDs as single names; empty for an empty text; None: it is not such a list."""
    if not text:
        return ()
    names: list[str] = []
    for item in text.split(","):
        if not _ITEM.fullmatch(item):
            return None
        first, dash, last = item.partition("-")
        if first.isdecimal() and dash:
            if not 0 <= int(last) - int(first) < _MAX_DEVICES:
                return None
            names += [str(index) for index in range(int(first), int(last) + 1)]
        else:
            names.append(str(int(item)) if item.isdecimal() else item)
    return tuple(dict.fromkeys(names)) if len(names) <= _MAX_DEVICES else None


def parse_job_file(raw: bytes, job_id: str) -> JobFile | str | None:
    """The file's content, or the reason why it is refused; None: it has no end yet."""
    if len(raw) > _SIZE_LIMIT:
        return "longer than 8 kB"
    if not raw.endswith(b"\n" + _LAST):
        return None
    values: dict[str, str] = {}
    for line in raw[:-1].split(b"\n"):
        key, equals, value = line.decode("utf-8", "replace").partition("=")
        if not equals or key not in _KEYS or key in values:
            return "a line that the prolog does not write"
        values[key] = value
    if not values.keys() >= _REQUIRED or values["version"] != "2":
        return "not of version 2"
    if values["job_id"] != job_id:
        return "another job's id than in its name"
    devices = parse_devices(values["gpus"])
    if devices is None:
        return "an invalid list of GPUs"
    start, sluid = values.get("start", ""), values.get("sluid", "")
    if (start and not _START.fullmatch(start)) or (sluid and not _SLUID.fullmatch(sluid)):
        return "a start or SLUID that is none"
    if any(number and not _NUMBER.fullmatch(number) for key in _NUMBERS if (number := values.get(key, ""))):
        return "a number that is none"
    conf, restarts, uid = (values.get(key, "") for key in ("conf", "restarts", "uid"))
    texts: dict[str, Any] = {key: clean_text(values.get(key, "")) or None for key in _TEXTS}
    texts["name"] = plain_name(texts["name"] or "") or None
    return JobFile(
        job_id,
        devices,
        conf=conf if conf.startswith("/") and conf.isprintable() else None,
        without_prolog="without_prolog" in values,
        sluid=sluid or None,
        start_seconds=int(start) if start else None,
        restarts=int(restarts) if restarts else None,
        uid=int(uid) if uid else None,
        array_job_id=values.get("array_job_id") or None,
        array_task_id=values.get("array_task_id") or None,
        **texts,
    )


def read_job_files(folder: Path, trusted_uids: frozenset[int]) -> JobFiles:
    """Every run in `folder`, in the order of their ids and starts.

    Only what `trusted_uids` own and nobody else can write is believed.
    """
    try:
        about = folder.lstat()
        names = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return JobFiles(missing=f"{folder} does not exist: the prolog is not installed, or no job ran since boot")
    except OSError as error:
        return JobFiles(missing=f"{folder} cannot be read: {error.strerror}")
    if not (stat.S_ISDIR(about.st_mode) and _is_trusted(about, trusted_uids)):
        return JobFiles(missing=f"{folder} is not a folder that only root can write")
    found: dict[tuple[str, str], tuple[JobFile, float]] = {}
    ends: dict[tuple[str, str], float] = {}
    refused: list[tuple[str, str]] = []
    for name in names[:_FILES_LIMIT]:
        match = _FILE.fullmatch(name)
        if match is None:
            continue
        read = _read(folder / name, trusted_uids)
        if read is None:
            continue
        if isinstance(read, str):
            refused.append((clean_text(name, 64), read))
            continue
        raw, written = read
        run = (match.group(1), match.group(2))
        if match.group(3) == "end":
            ends[run] = written
            continue
        parsed = parse_job_file(raw, run[0])
        if isinstance(parsed, str):
            refused.append((clean_text(name, 64), parsed))
        elif parsed is not None:
            found[run] = (parsed, written)
    timed = [_timed(job, since, ends.get(run)) for run, (job, since) in found.items()]
    jobs = [job for job in timed if not job.without_prolog or job.until is not None]
    return JobFiles(tuple(sorted(jobs, key=lambda job: (job.job_id, job.since or job.until or 0.0))), tuple(refused))


def _timed(job: JobFile, since: float, end: float | None) -> JobFile:
    """An end before the start is of an earlier run under the same name."""
    return replace(
        job, since=None if job.without_prolog else since, until=end if end is not None and end >= since else None
    )


def _read(path: Path, trusted_uids: frozenset[int]) -> tuple[bytes, float] | str | None:
    """Bytes and when they were written; the reason why it is refused; None: it vanished."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"cannot be opened ({error.strerror})"
    try:
        about = os.fstat(fd)
        if not (stat.S_ISREG(about.st_mode) and _is_trusted(about, trusted_uids)):
            return "not a plain file that only root can write"
        return os.read(fd, _SIZE_LIMIT + 1), about.st_mtime
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    finally:
        os.close(fd)


def _is_trusted(about: os.stat_result, trusted_uids: frozenset[int]) -> bool:
    return about.st_uid in trusted_uids and not about.st_mode & 0o022
