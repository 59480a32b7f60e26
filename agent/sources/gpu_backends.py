"""The GPU vendors that the agent knows, in the order in which they are asked. Light: no driver is loaded by this."""

from __future__ import annotations

from collections.abc import Sequence

from ..config import AgentConfig
from ..model import Gpu, Instant
from .gpu_backend import GpuBackend
from .nvidia.backend import NVIDIA

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
