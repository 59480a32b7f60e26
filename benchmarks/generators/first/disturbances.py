"""What happens to a workload from outside: throttling, counters that stand still, storage over the compute fabric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.load import Load, Model
from skuwise.advisor.demo.seeded_rng import salt, smooth, uniform_at

Floats = npt.NDArray[np.float64]

# NVML's clocks event reasons.
HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x8, 0x20, 0x40, 0x80


@dataclass(frozen=True, slots=True)
class Throttled:
    """`inner` on GPUs that are slowed down.

    power: somebody set the limit far below the SKU's. thermal: intake air too warm, worst in the afternoon. brake: the
    power supply asks for less (half of the clock at once).
    """

    inner: Model
    seed: int
    cause: Literal["power", "thermal", "brake"]
    depth: float  # share of the limit (power) or of the clock (thermal, brake) taken away
    share: float  # of the time

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        if self.cause == "power":
            load.cap_loss[:] = self.depth
            return load
        if self.cause == "thermal":
            # Afternoons are warmest: the share is that of the day, moved by some hours of weather.
            warmth = 0.5 + 0.5 * np.cos(2 * np.pi * (t / 86400 - 0.62)) + 0.12 * smooth(self.seed, t, 7000.0)
            held = warmth > (0.5 + 0.5 * np.cos(np.pi * self.share))
            depth = self.depth * (0.85 + 0.15 * smooth(self.seed + 1, t, 40.0))
            bits = np.where(uniform_at(self.seed + 2, np.floor(t / 30).astype(np.int64)) < 0.3, HW_THERMAL, SW_THERMAL)
        else:
            slot = np.floor(t / 5400).astype(np.int64)
            held = uniform_at(self.seed, slot) < self.share
            depth = self.depth * np.ones_like(t)
            bits = np.full(len(t), HW_SLOWDOWN | POWER_BRAKE)
        load.clock_loss[:] = np.clip(held * depth, 0, 0.9)
        load.throttle[:] = np.where(held, bits, 0)
        load.heat[:] = np.where(held, 24 if self.cause == "thermal" else 0, 0)
        # What memory delivers depends on the SMs that ask for it.
        load.memory *= (1 - 0.6 * load.clock_loss).astype(np.float32)
        return load


@dataclass(frozen=True, slots=True)
class Blinded:
    """`inner` at work while the profiling counters stand at zero: seen after an XID, until the driver is reloaded
    (NVIDIA/DCGM#303). GPU-Util, power, clocks and memory go on."""

    inner: Model
    since: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        load.blind[:] = t > self.since
        return load


@dataclass(frozen=True, slots=True)
class RdmaStorage:
    """`inner` with its storage behind the compute ports: data comes in and checkpoints or cache blocks go out there."""

    inner: Model
    seed: int
    read_share: float  # of the line rate, while a read runs
    read_duty: float
    write_share: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        slot = np.floor(t / 3).astype(np.int64)
        reading = uniform_at(self.seed, slot) < self.read_duty
        level = self.read_share * (0.5 + uniform_at(self.seed + 1, slot))
        writing = load.disk_write > 5e7
        at_work = np.minimum(1.0, load.engine.mean(axis=0) * 3)
        load.fabric_rx += np.clip(reading * level * at_work, 0, 0.9).astype(np.float32)
        load.fabric_tx += np.clip(0.01 * reading * level + self.write_share * writing, 0, 0.9).astype(np.float32)
        np.clip(load.fabric_rx, 0, 0.95, out=load.fabric_rx)
        np.clip(load.fabric_tx, 0, 0.95, out=load.fabric_tx)
        return load


def throttled(rng: np.random.Generator, inner: Model) -> Throttled:
    cause = ("power", "thermal", "brake")[int(rng.integers(0, 3))]
    return Throttled(
        inner=inner,
        seed=salt(rng),
        cause=cause,  # type: ignore[arg-type]
        depth=rng.uniform(0.4, 0.55) if cause == "power" else rng.uniform(0.25, 0.5),
        share=rng.uniform(0.72, 0.95),
    )


def rdma_storage(rng: np.random.Generator, inner: Model) -> RdmaStorage:
    return RdmaStorage(
        inner=inner,
        seed=salt(rng),
        read_share=rng.uniform(0.05, 0.3),
        read_duty=rng.uniform(0.05, 0.4),
        write_share=rng.uniform(0.1, 0.4),
    )
