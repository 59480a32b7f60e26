"""What the agent's own process holds."""

from __future__ import annotations

import resource
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """What of this process is in memory (RSS)."""
    return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
