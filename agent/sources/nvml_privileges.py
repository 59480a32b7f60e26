"""Why the driver refuses profiling (GPM), as procfs tells it, and what to do about it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ..model import Capability

# linux/capability.h. Profiling needs CAP_SYS_ADMIN, or CAP_PERFMON from driver R565 on.
_PROFILING_CAPABILITIES = 1 << 21 | 1 << 38
_PROFILERS = ("gpm", "burst")  # the sources that read GPM
_FOR_ADMINS = "Profiling is for administrators (RmProfilingAdminOnly: 1 in /proc/driver/nvidia/params), and "
_PERFMON_DROP_IN = (
    "in a drop-in of skuwise-agent.service, AmbientCapabilities=CAP_PERFMON and CapabilityBoundingSet=CAP_PERFMON "
    "(driver R565 and newer; CAP_SYS_ADMIN before)"
)
_OPEN_TO_ALL = (
    "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, and reload the driver; every user of "
    "the node may then profile"
)


def explain(line: Capability, procfs: Path) -> Capability:
    """One of doctor's lines with the exact cause, where the driver refused GPM; any other as it is."""
    absence = line.absence
    if absence is None or line.source not in _PROFILERS or absence.reason != "no-permission":
        return line
    restricted = _number(procfs / "driver/nvidia/params", "RmProfilingAdminOnly")
    held = _number(procfs / "self/status", "CapEff")
    if restricted is None:  # this driver does not say
        return line
    if restricted == 0:
        detail = "The driver refuses profiling although RmProfilingAdminOnly is 0 in /proc/driver/nvidia/params."
        remedy = "See whether a virtual machine's host or a container keeps performance counters to itself."
    elif held is not None and held & _PROFILING_CAPABILITIES:
        detail = f"{_FOR_ADMINS}the driver does not take this process's capability for enough."
        remedy = (
            f"Before R565 only CAP_SYS_ADMIN counts, and in a container it has to be the host's. Or: {_OPEN_TO_ALL}."
        )
    else:
        detail = f"{_FOR_ADMINS}this process has neither CAP_PERFMON nor CAP_SYS_ADMIN."
        remedy = f"Either {_OPEN_TO_ALL}. Or {_PERFMON_DROP_IN}."
    return replace(line, absence=replace(absence, detail=detail, remedy=remedy))


def _number(path: Path, name: str) -> int | None:
    """The hexadecimal number of `name` in a file of procfs; None where there is none."""
    try:
        found = re.search(rf"^{name}:\s*([0-9a-fA-F]{{1,16}})\s*$", path.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return int(found[1], 16) if found else None
