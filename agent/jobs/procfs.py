"""One process as procfs shows it, at one moment. Any of it may vanish between two reads."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..base.safe_text import clean_text

_COMMAND_LIMIT = 65536
_ENVIRON_LIMIT = 262144
_FDS_LIMIT = 4096
# The only variables that are looked at: environments hold secrets.
ALLOWED_VARIABLES = frozenset(
    {
        "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_ACCOUNT", "SLURM_JOB_USER", "SLURM_JOB_GPUS",
        "SLURM_JOB_START_TIME", "SLURM_JOB_PARTITION", "SLURM_JOB_QOS", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
        "SLURM_RESTART_COUNT", "SLURM_JOB_RESTART_COUNT",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stat:
    """``/proc/PID/stat``. `start_ticks` (field 22: clock ticks since boot) tells a reused PID from the old one; `tty`
    (field 7): its terminal, 0 for none."""

    pid: int
    ppid: int
    comm: str
    start_ticks: int
    tty: int = 0


@dataclass(frozen=True, slots=True)
class Process:
    """A process with its owner, its cgroup paths and its arguments (empty: not readable, or a kernel thread)."""

    stat: Stat
    uid: int | None
    cgroup: str
    argv: tuple[str, ...]


def parse_stat(raw: bytes) -> Stat | None:
    """`raw` as a `Stat`; None if it is cut. The name may hold spaces and parentheses: the last one ends it."""
    head, closing, rest = raw.rpartition(b")")
    pid, opening, comm = head.partition(b" (")
    fields = rest.split()
    if not (closing and opening) or len(fields) < 20:
        return None
    try:
        return Stat(int(pid), int(fields[1]), clean_text(comm, 64), int(fields[19]), int(fields[4]))
    except ValueError:
        return None


def read_stat(procfs: Path, pid: int) -> Stat | None:
    """None: there is no such process (any more), or it is not visible to this user."""
    return parse_stat(_read(f"{procfs}/{pid}/stat", 4096))


def read_process(procfs: Path, pid: int) -> Process | None:
    """Everything about one process, as much as can be read; None if it is gone or became another meanwhile."""
    seen = read_stat(procfs, pid)
    if seen is None:
        return None
    home = f"{procfs}/{pid}"
    raw = _read(f"{home}/cmdline", _COMMAND_LIMIT)
    words = raw.rstrip(b"\0").split(b"\0") if raw else []
    if len(raw) == _COMMAND_LIMIT:
        words = words[:-1]  # cut in the middle: half a secret is not recognised as one
    process = Process(
        seen,
        _uid(_read(f"{home}/status", 4096)),
        read_cgroup(procfs, pid),
        tuple(word.decode("utf-8", "replace") for word in words),
    )
    after = read_stat(procfs, pid)
    return process if after is not None and after.start_ticks == seen.start_ticks else None


def read_start_ticks(procfs: str, pid: int) -> int | None:
    """Only `Stat.start_ticks`, as cheaply as can be: this is asked of every known process at every scan."""
    raw = _read(f"{procfs}/{pid}/stat", 4096)
    fields = raw[raw.rfind(b")") + 2 :].split(None, 20)
    try:
        return int(fields[19])
    except (IndexError, ValueError):
        return None


def start_seconds(procfs: Path, start_ticks: int, wall_seconds: float) -> float | None:
    """When a process began (Unix seconds, to some hundredths); None: procfs does not tell the time since boot."""
    words = _read(f"{procfs}/uptime", 128).split()
    try:
        return wall_seconds - float(words[0]) + start_ticks / os.sysconf("SC_CLK_TCK")
    except (IndexError, ValueError):
        return None


def read_cgroup(procfs: Path, pid: int) -> str:
    """The process's cgroup paths; empty where they cannot be read."""
    return _read(f"{procfs}/{pid}/cgroup", 16384).decode("utf-8", "replace")


def read_variables(procfs: Path, pid: int) -> dict[str, str]:
    """The allowed variables of a process's environment; empty where it may not be read."""
    found: dict[str, str] = {}
    for item in _read(f"{procfs}/{pid}/environ", _ENVIRON_LIMIT).split(b"\0"):
        name, equals, value = item.decode("utf-8", "replace").partition("=")
        if equals and name in ALLOWED_VARIABLES:
            found[name] = clean_text(value)
    return found


def read_open_minors(
    procfs: Path, pid: int, majors: frozenset[int], number_of: Callable[[str], tuple[int, int] | None]
) -> frozenset[int]:
    """The minor numbers of the devices of these majors that a process holds open; empty where that may not be read.

    `number_of` gives the major and minor of the device behind a descriptor's path: what the path is called is the
    process's own choice.
    """
    home = f"{procfs}/{pid}/fd"
    try:
        names = [path.name for path in Path(home).iterdir()][:_FDS_LIMIT]
    except OSError:
        return frozenset()
    numbers = (number_of(f"{home}/{name}") for name in names)
    return frozenset(number[1] for number in numbers if number is not None and number[0] in majors)


def device_number(path: str) -> tuple[int, int] | None:
    """Major and minor of a character device; None: there is none by that name."""
    try:
        about = Path(path).stat()
    except OSError:
        return None
    return (os.major(about.st_rdev), os.minor(about.st_rdev)) if stat.S_ISCHR(about.st_mode) else None


def _uid(status: bytes) -> int | None:
    for line in status.split(b"\n"):
        if line.startswith(b"Uid:"):
            fields = line.split()
            return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else None
    return None


def _read(path: str, limit: int) -> bytes:
    """Up to `limit` bytes; empty where nothing can be read. Plain descriptors: hundreds of these are read at a time."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    parts: list[bytes] = []
    try:
        while limit > 0 and (data := os.read(fd, limit)):
            parts.append(data)
            limit -= len(data)
    except OSError:
        return b""
    finally:
        os.close(fd)
    return b"".join(parts)
