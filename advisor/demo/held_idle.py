"""Holding GPUs without using them: a process that outlived its job and still has its memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .hardware import SimGpu
from .load import Load
from .seeded_rng import salt, uniform_at

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Holding:
    """Memory resident, power 1.3-1.6x idle because the context keeps the clocks up, now and then a stray kernel."""

    seed: int
    mem_share: float
    context_power: float
    blip_chance: float  # that a slot of ten minutes holds a second or two of small kernels (a notebook's heartbeat)

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:  # noqa: ARG002
        load = Load.none(1, len(t))
        slot = np.floor(t / 600).astype(np.int64)
        begin = np.floor(uniform_at(self.seed + 1, slot) * 590)
        within = t - slot * 600
        blip = (uniform_at(self.seed, slot) < self.blip_chance) & (within > begin) & (within <= begin + 2) & (age > 60)
        load.sm[:] = 0.03 * blip
        load.engine[:] = 0.12 * blip
        load.memory[:] = 0.01 * blip
        load.mem_used_bytes[:] = self.mem_share * gpu.sku.mem_bytes
        load.resident[:] = 1.0
        load.context_power[:] = self.context_power
        load.cpu[:] = 0.004
        load.host_mem[:] = 0.05
        return load


def held(rng: np.random.Generator) -> Holding:
    return Holding(
        seed=salt(rng),
        mem_share=rng.uniform(0.2, 0.8),
        context_power=rng.uniform(0.32, 0.58),
        blip_chance=rng.uniform(0.0, 0.3),
    )
