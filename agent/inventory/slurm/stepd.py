"""Whose Slurm job a process is where jobs have no cgroup (``ProctrackType=proctrack/linuxproc``, ``pgid``).

Every step of a job is started by a ``slurmstepd`` of its own, which names job and step in its title:
``slurmstepd: [22.batch]``. Titles can be given by anybody, so only a process of root's is believed, by its real user
and without a terminal: a user may start sudo under any name and title, and leave it waiting for a password.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..processes.procfs import Process, read_process, read_stat

_COMM = "slurmstepd"
_TITLE = re.compile(r"slurmstepd: \[(\d{1,12}|s[0-9A-Z]{11,19})\.[0-9a-z_+]{1,20}\]\s*")
_MAX_PROCESSES = 65536


def stepd_job(process: Process, trusted_uids: frozenset[int]) -> str | None:
    """The job (or SLUID) whose step this process runs, if it is a slurmstepd."""
    if process.stat.comm != _COMM or process.uid not in trusted_uids or process.stat.tty:
        return None
    match = _TITLE.fullmatch(" ".join(process.argv))
    return match.group(1) if match else None


def stepd_jobs(procfs: Path, trusted_uids: frozenset[int]) -> frozenset[str]:
    """Every job that has a step here. It goes through all processes: not for every scan."""
    try:
        pids = [int(entry.name) for entry in os.scandir(procfs) if entry.name.isdecimal()]
    except OSError:
        return frozenset()
    found: set[str] = set()
    for pid in sorted(pids)[:_MAX_PROCESSES]:
        stat = read_stat(procfs, pid)
        if stat is None or stat.comm != _COMM:
            continue
        process = read_process(procfs, pid)
        job = stepd_job(process, trusted_uids) if process is not None else None
        if job is not None:
            found.add(job)
    return frozenset(found)
