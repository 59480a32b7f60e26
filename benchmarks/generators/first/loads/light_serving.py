"""Services that few or none call: single requests with rest between them, and replicas that stand by.

With one request or two in flight a decode step still reads all weights, so the GPU works hard for seconds and then
rests. A standby holds its weights and answers probes; now and then it takes over for a while.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo import serving
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.load import Load, Model
from skuwise.advisor.demo.seeded_rng import day_level, log_uniform, salt, uniform_at

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Light:
    """`inner` answers one or two requests at a time, while there are any."""

    inner: serving.Serving
    seed: int
    request_seconds: float
    peak_duty: float  # chance that a request is running, at the day's peak
    night_share: float
    weekend_share: float
    peak_hour_utc: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        slot = t / self.request_seconds
        number = np.floor(slot).astype(np.int64)
        chance = self.peak_duty * day_level(t, self.night_share, self.weekend_share, self.peak_hour_utc)
        # In its slot a request begins and ends somewhere: the seconds at its edges are busy in part.
        begin = 0.5 * uniform_at(self.seed + 1, number)
        length = 0.3 + 0.7 * uniform_at(self.seed + 2, number) * (1 - begin)
        edge = self.request_seconds
        covered = np.clip((slot - number - begin) * edge, 0, 1) * np.clip(
            (begin + length - slot + number) * edge + 1, 0, 1
        )
        gate = covered * (uniform_at(self.seed, number) < chance)
        load.scale(np.where(age > self.inner.load_seconds, gate, 1.0))
        return load


@dataclass(frozen=True, slots=True)
class Standby:
    """`inner` is what it does when it takes over; else a probe every `probe_seconds` runs one token."""

    inner: Model
    seed: int
    probe_seconds: float
    probe_share: float  # of the second in which a probe falls
    drill_every_seconds: float  # 0: it is never tried
    drill_seconds: float
    load_seconds: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        late = uniform_at(self.seed, np.floor(t / self.probe_seconds).astype(np.int64))
        probed = (t % self.probe_seconds) < 1
        gate = np.where(probed, self.probe_share * (0.6 + 0.8 * late), 0.0)
        if self.drill_every_seconds:
            slot = np.floor(t / self.drill_every_seconds).astype(np.int64)
            begin = uniform_at(self.seed + 3, slot) * (self.drill_every_seconds - self.drill_seconds)
            within = t - slot * self.drill_every_seconds
            gate = np.where((within > begin) & (within <= begin + self.drill_seconds), 1.0, gate)
        load.scale(np.where(age > self.load_seconds, gate, 1.0))
        return load


def lightly_loaded(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Light:
    """A service with a request now and then: large enough a model that its weights rule each step."""
    wide = [m for m in serving.MODELS if m[0] * 2 <= 0.7 * gpus * gpu.sku.mem_bytes]
    slow = [m for m in wide if m[0] * 2 / gpus / gpu.sustained_bandwidth >= 4e-3] or wide[-1:] or [serving.MODELS[0]]
    inner = serving.draw(
        rng,
        slow[int(rng.integers(0, len(slow)))],
        bytes_per_parameter=2.0 if wide else 1.0,  # INT8 where 16 bits do not fit
        peak_in_flight=rng.uniform(3.0, 5.0),
        night_share=1.0,
        weekend_share=1.0,
        burstiness=rng.uniform(0.05, 0.2),
        allreduce_seconds=rng.uniform(6e-6, 14e-6) if gpu.nvlink else rng.uniform(20e-6, 40e-6),
        launch_seconds=rng.uniform(4e-6, 12e-6),
        prefill_share=rng.uniform(0.02, 0.08),
        context_tokens=log_uniform(rng, 400, 3000),
    )
    return Light(
        inner=inner,
        seed=salt(rng),
        request_seconds=rng.uniform(6, 30),
        peak_duty=rng.uniform(0.08, 0.4),
        night_share=rng.uniform(0.08, 0.4),
        weekend_share=rng.uniform(0.3, 1.0),
        peak_hour_utc=rng.uniform(8, 22),
    )


def standby(rng: np.random.Generator, inner: Model, *, load_seconds: float, drills: bool) -> Standby:
    """A replica that waits to take over from another."""
    return Standby(
        inner=inner,
        seed=salt(rng),
        probe_seconds=float(rng.integers(5, 31)),
        probe_share=rng.uniform(0.02, 0.12),
        drill_every_seconds=rng.uniform(1.5, 3.0) * 86400 if drills else 0.0,
        drill_seconds=rng.uniform(1800, 3600),
        load_seconds=load_seconds,
    )
