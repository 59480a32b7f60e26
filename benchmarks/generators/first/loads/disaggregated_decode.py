"""The decode half of disaggregated serving: the caches of new prompts come in over the fabric."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.load import Load
from skuwise.advisor.demo.seeded_rng import uniform_at
from skuwise.advisor.demo.serving import Serving

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Receiving:
    """`inner` decodes; at its day's peak caches come in at `share` of the line rate."""

    inner: Serving
    seed: int
    share: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        rate = self.share * self.inner.in_flight(t) / self.inner.peak_in_flight
        # A cache arrives within a second or not at all: bursts, not a stream.
        chance = np.clip(rate / 0.05, 0.02, 1.0)
        comes = uniform_at(self.seed, np.floor(t).astype(np.int64)) < chance
        load.fabric_rx[:] = np.clip(comes * rate / chance, 0, 0.9) * (age > self.inner.load_seconds)
        load.fabric_tx[:] = 0.015 * load.fabric_rx
        return load
