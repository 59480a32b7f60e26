"""What the agent's own process holds, and since when."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from ..jobs.processes import read_start_ticks

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """What of this process is in memory (RSS)."""
    return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()


def started_ts() -> float:
    """When this process began, in Unix seconds by today's wall clock."""
    ticks = read_start_ticks("/proc", os.getpid()) or 0
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted + ticks / os.sysconf("SC_CLK_TCK")
