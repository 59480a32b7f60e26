"""The GPU vendors that the agent knows, in the order in which they are asked. Light: no driver is loaded by this."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.clock import boot_seconds
from ..config import AgentConfig
from ..model import Absence, Capability, Gpu, Instant
from .gpu_backend import GpuBackend

if TYPE_CHECKING:
    from .nvidia_driver import NvidiaDriver

# linux/capability.h. Profiling needs CAP_SYS_ADMIN, or CAP_PERFMON from driver R565 on.
_SYS_ADMIN, _PERFMON = 21, 38
_PROFILERS = frozenset({"gpm", "burst"})  # the sources that read GPM
_PARAMETER = re.compile(r"^RmProfilingAdminOnly:\s*(\d+)\s*$", re.MULTILINE)
_EFFECTIVE = re.compile(r"^CapEff:\s*([0-9a-fA-F]{1,16})\s*$", re.MULTILINE)
_PERFMON_DROP_IN = (
    "in a drop-in of skuwise-agent.service, AmbientCapabilities=CAP_PERFMON and CapabilityBoundingSet=CAP_PERFMON "
    "(driver R565 and newer; CAP_SYS_ADMIN before)"
)
_OPEN_TO_ALL = (
    "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, and reload the driver; every user of "
    "the node may then profile"
)


@dataclass(frozen=True, slots=True)
class Privileges:
    """`restricted`: profiling is for administrators (``RmProfilingAdminOnly``); None: the driver does not say.

    `may_profile`: this process has a capability that the driver asks for; None: unknown.
    """

    restricted: bool | None
    may_profile: bool | None


def read_privileges(procfs: Path) -> Privileges:
    """What ``driver/nvidia/params`` and ``self/status`` of `procfs` say."""
    parameter = _PARAMETER.search(_text(procfs / "driver/nvidia/params"))
    effective = _EFFECTIVE.search(_text(procfs / "self/status"))
    held = int(effective[1], 16) if effective else None
    return Privileges(
        None if parameter is None else parameter[1] != "0",
        None if held is None else bool(held & (1 << _SYS_ADMIN | 1 << _PERFMON)),
    )


def explain(line: Capability, procfs: Path) -> Capability:
    """`line` with the exact cause, where the driver refused GPM; any other as it is."""
    absence = line.absence
    if absence is None or line.source not in _PROFILERS or absence.reason != "no-permission":
        return line
    return replace(line, absence=_explained(absence, read_privileges(procfs)))


def _explained(absence: Absence, privileges: Privileges) -> Absence:
    if privileges.restricted is None:
        return absence
    if not privileges.restricted:
        detail = "The driver refuses profiling although RmProfilingAdminOnly is 0 in /proc/driver/nvidia/params."
        remedy = "See whether a virtual machine's host or a container keeps performance counters to itself."
    elif privileges.may_profile:
        detail = (
            "Profiling is for administrators (RmProfilingAdminOnly: 1 in /proc/driver/nvidia/params), and the driver "
            "does not take this process's capability for enough."
        )
        remedy = (
            f"Before R565 only CAP_SYS_ADMIN counts, and in a container it has to be the host's. Or: {_OPEN_TO_ALL}."
        )
    else:
        detail = (
            "Profiling is for administrators (RmProfilingAdminOnly: 1 in /proc/driver/nvidia/params), and this process "
            "has neither CAP_PERFMON nor CAP_SYS_ADMIN."
        )
        remedy = f"Either {_OPEN_TO_ALL}. Or {_PERFMON_DROP_IN}."
    return replace(absence, detail=detail, remedy=remedy)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(65536).decode("utf-8", "replace")
    except OSError:
        return ""


def _connect(config: AgentConfig) -> NvidiaDriver:
    from .nvidia_driver import NvidiaDriver  # noqa: PLC0415 - whoever only asks for names loads no NVML

    return NvidiaDriver(config.interval_seconds, config.max_gap_seconds, now=boot_seconds)


NVIDIA = GpuBackend(
    name="nvml",
    vendor="NVIDIA",
    library="libnvidia-ml.so.1",
    sources=("nvml", "gpm", "nvlink"),
    connect=_connect,
    version_file="module/nvidia/version",
    burst_source="gpm",
    explain=explain,
)


GPU_BACKENDS: tuple[GpuBackend, ...] = (NVIDIA,)

# Absences of these sources are of all GPUs of a vendor.
DRIVER_NAMES = tuple(backend.name for backend in GPU_BACKENDS)


def gpus_here(config: AgentConfig, instant: Instant, backends: Sequence[GpuBackend] = GPU_BACKENDS) -> tuple[Gpu, ...]:
    """The GPUs and instances that the drivers of this node name at once. Unguarded: a hung driver hangs the caller."""
    found: list[Gpu] = []
    for backend in backends:
        driver = backend.connect(config)
        driver.open(instant)
        if driver.fault is None:
            found += driver.sources[0].probe().gpus
        for source in driver.sources:
            source.close()
    return tuple(found)
