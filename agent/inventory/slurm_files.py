"""The files that the Slurm prolog writes, one per job: a strict reader.

`systemd/slurm/prolog.sh` writes ``<job id>.job`` into a folder that only root can write, and `epilog.sh` removes it.
Job names and accounts in them were chosen by users. A file that is not exactly what the prolog writes is refused whole.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from .text import clean_text

_FILE = re.compile(r"([0-9]{1,12})\.job")
_SIZE_LIMIT = 4096
_FILES_LIMIT = 1024
_REQUIRED = frozenset({"version", "job_id", "gpus"})
_KEYS = _REQUIRED | {"sluid", "start", "user", "account", "name"}
_SLUID = re.compile(r"s[0-9A-Z]{11,19}")
_START = re.compile(r"[0-9]{9,11}")
_ITEM = re.compile(r"[0-9]{1,4}(?:-[0-9]{1,4})?|(?:GPU|MIG)-[0-9A-Za-z/-]{8,80}")
_MAX_DEVICES = 256


@dataclass(frozen=True, slots=True)
class JobFile:
    """What the prolog wrote. `devices`: minor numbers or UUIDs as Slurm gave them; empty: the job was given no GPU."""

    job_id: str
    devices: tuple[str, ...]
    sluid: str | None = None
    start_seconds: int | None = None
    user: str | None = None
    account: str | None = None
    name: str | None = None


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
            names += [str(minor) for minor in range(int(first), int(last) + 1)]
        else:
            names.append(str(int(item)) if item.isdecimal() else item)
    return tuple(dict.fromkeys(names)) if len(names) <= _MAX_DEVICES else None


def parse_job_file(raw: bytes, job_id: str) -> JobFile | str:
    """The file's content, or the reason why it is refused."""
    if len(raw) > _SIZE_LIMIT:
        return "longer than 4 kB"
    if not raw.endswith(b"\n"):
        return "cut off"
    values: dict[str, str] = {}
    for line in raw[:-1].split(b"\n"):
        key, equals, value = line.decode("utf-8", "replace").partition("=")
        if not equals or key not in _KEYS or key in values:
            return "a line that the prolog does not write"
        values[key] = value
    if not values.keys() >= _REQUIRED or values["version"] != "1":
        return "not of version 1"
    if values["job_id"] != job_id:
        return "another job's id than its name says"
    devices = parse_devices(values["gpus"])
    if devices is None:
        return "a list of GPUs that is none"
    start, sluid = values.get("start", ""), values.get("sluid", "")
    if (start and not _START.fullmatch(start)) or (sluid and not _SLUID.fullmatch(sluid)):
        return "a start or SLUID that is none"
    texts = {key: clean_text(values.get(key, "")) or None for key in ("user", "account", "name")}
    return JobFile(job_id, devices, sluid or None, int(start) if start else None, **texts)


def read_job_files(folder: Path, trusted_uids: frozenset[int]) -> JobFiles:
    """Every job's file in `folder`. Only what `trusted_uids` own and nobody else can write is believed."""
    try:
        about = folder.lstat()
        names = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return JobFiles(missing=f"{folder} does not exist: the prolog is not installed, or no job ran since boot")
    except OSError as error:
        return JobFiles(missing=f"{folder} cannot be read: {error.strerror}")
    if not (stat.S_ISDIR(about.st_mode) and _is_trusted(about, trusted_uids)):
        return JobFiles(missing=f"{folder} is not a folder that only root can write")
    jobs: list[JobFile] = []
    refused: list[tuple[str, str]] = []
    for name in names[:_FILES_LIMIT]:
        match = _FILE.fullmatch(name)
        if match is None:
            continue  # the prolog's temporary file, or somebody else's
        raw = _read(folder / name, trusted_uids)
        if raw is None:
            continue
        parsed = parse_job_file(raw, match.group(1)) if isinstance(raw, bytes) else raw
        if isinstance(parsed, str):
            refused.append((clean_text(name, 64), parsed))
        else:
            jobs.append(parsed)
    return JobFiles(tuple(jobs), tuple(refused))


def _read(path: Path, trusted_uids: frozenset[int]) -> bytes | str | None:
    """Bytes; the reason why it is refused; None: it vanished."""
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
        return os.read(fd, _SIZE_LIMIT + 1)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    finally:
        os.close(fd)


def _is_trusted(about: os.stat_result, trusted_uids: frozenset[int]) -> bool:
    return about.st_uid in trusted_uids and not about.st_mode & 0o022
