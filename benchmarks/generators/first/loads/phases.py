"""Workloads that change what they do: a training job that evaluates, a container that trains by day and serves by
night."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo.fleet_plan import TruePhase
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.load import PER_GPU, PER_HOST, Load, Model
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Alternating:
    """`usual`, and `other` for `other_seconds` in every `cycle_seconds`, beginning `offset_seconds` after midnight UTC
    of the first day of 1970 and a whole number of cycles."""

    usual: Model
    other: Model
    cycle_seconds: float
    offset_seconds: float
    other_seconds: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        # A second belongs to what ran at its end.
        turned = (t - self.offset_seconds) % self.cycle_seconds < self.other_seconds
        if not turned.any():
            return self.usual.load(t, age, gpus, gpu)
        if turned.all():
            return self.other.load(t, age, gpus, gpu)
        load = Load.none(1, len(t))
        for model, where in ((self.usual, ~turned), (self.other, turned)):
            part = model.load(t[where], age[where], gpus, gpu)
            for name in PER_GPU:
                getattr(load, name)[:, where] = getattr(part, name)
            for name in PER_HOST:
                getattr(load, name)[where] = getattr(part, name)
        return load

    def phases(
        self,
        runs: Sequence[tuple[float, float]],
        usual: tuple[KindLabel, BottleneckLabel],
        other: tuple[KindLabel, BottleneckLabel],
    ) -> tuple[TruePhase, ...]:
        """The truth about each span of `runs`."""
        found: list[TruePhase] = []
        for begin, stop in runs:
            first = int(np.floor((begin - self.offset_seconds) / self.cycle_seconds))
            last = int(np.ceil((stop - self.offset_seconds) / self.cycle_seconds))
            for number in range(first, last):
                at = self.offset_seconds + number * self.cycle_seconds
                turn, again = at + self.other_seconds, at + self.cycle_seconds
                for a, z, (kind, bottleneck) in ((at, turn, other), (turn, again, usual)):
                    start, end = max(a, begin), min(z, stop)
                    if start < end:
                        found.append(TruePhase(start, end, kind, bottleneck))
        return tuple(found)
