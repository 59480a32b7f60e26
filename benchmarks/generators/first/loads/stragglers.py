"""One rank is late in every step: the others poll in the collective until it comes, and it alone never waits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.load import PER_GPU, Load
from skuwise.advisor.demo.seeded_rng import log_uniform
from skuwise.advisor.demo.training import Training, draw

from ..disturbances import SW_THERMAL

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Straggling:
    """The node that holds the late rank. `waiting` is what the other ranks do, `slow` the index among the workload's
    GPUs on this node.

    clock: its clock is low (a warm spot, a bad power stage), and it says so. silent: it is as slow, and no counter says
    why. host: its own loader is late.
    """

    waiting: Training
    slow: int
    cause: Literal["clock", "silent", "host"]

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        others = self.waiting.load(t, age, gpus, gpu)
        late = self._late().load(t, age, gpus, gpu)
        load = Load.none(gpus, len(t))
        load.place(others, list(range(gpus)), slice(None))
        for name in PER_GPU:
            getattr(load, name)[self.slow] = getattr(late, name)[0]
        if self.cause == "clock":
            # The same work takes longer because each second does less of it.
            load.clock_loss[self.slow] = self._slower()
            load.throttle[self.slow] = np.where(load.engine[self.slow] > 0.05, SW_THERMAL, 0)
            load.heat[self.slow] = 20
            load.compute[self.slow] = np.minimum(late.compute[0] / (1 - self._slower()), 1.0)
        return load

    def _late(self) -> Training:
        model = self.waiting
        if self.cause == "host":
            return dataclasses.replace(model, input_share=model.input_share + model.spin_share, spin_share=0.0)
        return dataclasses.replace(
            model,
            spin_share=0.0,
            compute_level=model.compute_level * (1 - self._slower()),
            memory_level=model.memory_level * (1 - self._slower()),
        )

    def _slower(self) -> float:
        model = self.waiting
        work = 1 - model.input_share - model.exposed_share - model.update_share - model.spin_share
        return model.spin_share / (work + model.spin_share)


def waiting_for_one(rng: np.random.Generator, start: float, *, fabric: bool) -> Training:
    """Data-parallel training in which every rank but one waits for more than half of each step."""
    few = rng.random() < 0.5  # a ring with a few channels, or kernels that fill the GPU and poll
    exposed = rng.uniform(0.02, 0.05)
    return draw(
        rng,
        start,
        step_seconds=log_uniform(rng, 3, 25),
        input_share=rng.uniform(0.005, 0.02),
        exposed_share=exposed,
        update_share=rng.uniform(0.01, 0.03),
        spin_share=rng.uniform(0.5, 0.66),
        spin_sm=rng.uniform(0.12, 0.4) if few else rng.uniform(0.82, 0.97),
        fabric_exposed=rng.uniform(0.7, 0.9) if fabric else 0.0,
        fabric_hidden=rng.uniform(0.02, 0.08) if fabric else 0.0,
        nvlink_hidden=rng.uniform(0.01, 0.06),
    )
