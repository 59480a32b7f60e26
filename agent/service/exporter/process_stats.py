"""What the agent's own process holds and since when, and one setting that keeps it small."""

from __future__ import annotations

import ctypes
import os
import resource
import time
from pathlib import Path

from ...inventory.processes.procfs import read_start_ticks

_STATM = Path("/proc/self/statm")
_M_ARENA_MAX = -8  # malloc.h


def resident_bytes() -> int:
    """What of this process is in memory (RSS)."""
    return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()


def started_ts() -> float:
    """When this process began, in Unix seconds by today's wall clock."""
    ticks = read_start_ticks("/proc", os.getpid()) or 0
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted + ticks / os.sysconf("SC_CLK_TCK")


def use_one_arena() -> None:
    """Let all threads allocate from one heap, which costs nothing where one thread runs Python at a time.

    Measured: 1.5 MB less than with glibc's heap for each thread. Elsewhere than on glibc it does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
