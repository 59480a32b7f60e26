"""NVIDIA's GPUs as the agent knows them from outside this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.clock import boot_seconds
from ...config import AgentConfig
from ..gpu_backend import GpuBackend
from .profiling_permissions import explain

if TYPE_CHECKING:
    from .driver import NvidiaDriver


def _connect(config: AgentConfig) -> NvidiaDriver:
    from .driver import NvidiaDriver  # noqa: PLC0415 - whoever only asks for names loads no NVML

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
