"""Which device nodes the device cgroup of a Slurm job lets it open, where that can be read (cgroup v1).

``devices.list`` names what is allowed only where the group's default is to deny. Slurm itself takes devices away from a
group that allows all, and the kernel then prints ``a *:* rwm`` whatever was taken away: that says nothing. With cgroup
v2 the rule is a BPF program, which nobody can read back.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .cgroups import folders_in, read_ascii

NVIDIA_MAJOR = 195  # registered for NVIDIA's graphics devices (the kernel's devices.txt)
_GPU_DRIVERS = frozenset({"nvidia", "nvidia-frontend"})
_CAPS_DRIVER = "nvidia-caps"
_NUMBER = re.compile(r"[0-9]{1,10}")  # the kernel's device numbers have 32 bits


@dataclass(frozen=True, slots=True)
class Majors:
    """The character devices of the driver: GPUs, and the capabilities of MIG instances (None: there are none)."""

    gpus: frozenset[int] = frozenset({NVIDIA_MAJOR})
    caps: int | None = None


@dataclass(frozen=True, slots=True)
class Allowed:
    """The character devices that may be read and written: pairs of major and minor, where None stands for all."""

    entries: frozenset[tuple[int | None, int | None]]

    def has(self, major: int, minor: int) -> bool:
        """Whether that device may be opened."""
        pairs = ((major, minor), (major, None), (None, minor), (None, None))
        return any(pair in self.entries for pair in pairs)

    def has_gpu(self, majors: Majors, minor: int) -> bool:
        """Whether ``/dev/nvidiaN`` may be opened."""
        return any(self.has(major, minor) for major in majors.gpus)


EVERYTHING = Allowed(frozenset({(None, None)}))


def read_majors(procfs: Path) -> Majors:
    """From ``/proc/devices``; where the driver is not in it, the registered number."""
    gpus: set[int] = set()
    caps: int | None = None
    for line in read_ascii(procfs / "devices").partition("Block devices")[0].splitlines():
        number, _, name = line.strip().partition(" ")
        if not _NUMBER.fullmatch(number):
            continue
        if name in _GPU_DRIVERS:
            gpus.add(int(number))
        elif name == _CAPS_DRIVER:
            caps = int(number)
    return Majors(frozenset(gpus) or frozenset({NVIDIA_MAJOR}), caps)


def parse_devices_list(text: str) -> Allowed | None:
    """What ``devices.list`` allows; None: it is not such a list. ``a`` allows everything."""
    entries: set[tuple[int | None, int | None]] = set()
    for line in text.splitlines():
        words = line.split()
        if len(words) != 3 or words[0] not in ("a", "b", "c"):
            return None
        if words[0] == "a":
            return EVERYTHING
        if words[0] == "b" or not {"r", "w"} <= set(words[2]):
            continue
        major, _, minor = words[1].partition(":")
        if not all(number == "*" or _NUMBER.fullmatch(number) for number in (major, minor)):
            return None
        entries.add((None if major == "*" else int(major), None if minor == "*" else int(minor)))
    return Allowed(frozenset(entries))


def job_lists(cgroups: Path, job_id: str) -> tuple[Allowed, Allowed] | None:
    """What the job may open, and what Slurm itself may (its folder's list); None: no such list is in sight.

    `cgroups` is ``/sys/fs/cgroup``.
    """
    base = cgroups / "devices"
    for top in folders_in(base):
        if top != "slurm" and not top.startswith("slurm_"):
            continue
        for user in folders_in(base / top):
            job = base / top / user / f"job_{job_id}"
            if not user.startswith("uid_") or not job.is_dir():
                continue
            mine, whole = (parse_devices_list(read_ascii(folder / "devices.list")) for folder in (job, base / top))
            if mine is None or whole is None or not read_ascii(job / "devices.list"):
                return None
            return mine, whole
    return None


def read_open_minors(
    procfs: Path, pid: int, majors: frozenset[int], number_of: Callable[[str], tuple[int, int] | None]
) -> frozenset[int]:
    """The minor numbers of the devices of these majors that a process holds open; empty where that may not be read.

    `number_of` gives the major and minor of the device behind a descriptor's path: what the path is called is the
    process's own choice.
    """
    try:
        paths = list(Path(f"{procfs}/{pid}/fd").iterdir())[:4096]
    except OSError:
        return frozenset()
    numbers = (number_of(str(path)) for path in paths)
    return frozenset(number[1] for number in numbers if number is not None and number[0] in majors)


def device_number(path: str) -> tuple[int, int] | None:
    """Major and minor of a character device; None: there is none by that name."""
    try:
        about = Path(path).stat()
    except OSError:
        return None
    return (os.major(about.st_rdev), os.minor(about.st_rdev)) if stat.S_ISCHR(about.st_mode) else None
