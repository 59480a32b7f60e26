"""Batch inference: a queue that never empties until it is empty, shard after shard, without day or night."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo import serving
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.load import Load, Model
from skuwise.advisor.demo.seeded_rng import log_uniform, salt, smooth, uniform_at

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sharded:
    """`inner` on shard after shard: at a shard's end its last requests run out, its results are written, the next is
    read."""

    inner: Model
    seed: int
    shard_seconds: float
    tail_seconds: float
    pause_seconds: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        number = np.floor(t / self.shard_seconds).astype(np.int64)
        within = t - number * self.shard_seconds
        # Shards differ in size: each ends somewhere in the last third of its slot, and the next begins at once.
        length = self.shard_seconds * (1 - 0.3 * uniform_at(self.seed, number))
        pause = self.pause_seconds * (0.5 + uniform_at(self.seed + 1, number))
        left = length - within
        ends = (left <= self.tail_seconds) & (left > 0)
        rests = (left <= 0) & (left > -pause)
        gate = np.where(ends, 0.25 + 0.75 * left / self.tail_seconds, np.where(rests, 0.0, 1.0))
        load.scale(gate)
        load.disk_write += np.float32(4e8) * rests.astype(np.float32)
        load.disk_read += np.float32(3e8) * (rests & (left < -0.5 * pause)).astype(np.float32)
        return load


@dataclass(frozen=True, slots=True)
class Decoding:
    """Images, video or sound: host cores decode, the GPU takes what they give it and waits for more."""

    seed: int
    duty: float
    level: float
    memory_level: float
    batch_seconds: float
    mem_share: float
    context_power: float
    cpu: float
    bytes_per_second: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = Load.none(1, len(t))
        up = age > 30
        # Batches arrive when they are decoded, never in a rhythm: how many fall into a second varies.
        arrived = uniform_at(self.seed, np.floor(t / self.batch_seconds).astype(np.int64))
        duty = (
            np.clip(self.duty * (0.55 + 0.9 * arrived) * (1 + 0.08 * smooth(self.seed + 2, t, 45.0)), 0.02, 0.95) * up
        )
        load.compute[:] = duty * self.level
        load.memory[:] = duty * self.memory_level
        load.vector[:] = 0.15 * duty
        load.sm[:] = 0.8 * duty
        load.occupancy[:] = 0.3 * duty
        load.engine[:] = duty
        load.pcie_rx[:] = 1e6 + self.bytes_per_second * duty
        load.pcie_tx[:] = 1e6 + 0.02 * self.bytes_per_second * duty
        load.mem_used_bytes[:] = gpu.sku.mem_bytes * self.mem_share * np.minimum(1.0, age / 60)
        load.resident[:] = 1.0
        load.context_power[:] = self.context_power
        load.cpu[:] = np.where(up, self.cpu * (1 + 0.04 * smooth(self.seed + 4, t, 20.0)), 0.1) * gpus / gpu.node_gpus
        load.io_wait[:] = 0.02
        load.disk_read[:] = 0.3 * self.bytes_per_second * gpus * up
        load.disk_write[:] = 2e6
        load.host_mem[:] = 0.2
        return load


@dataclass(frozen=True, slots=True)
class Offloaded:
    """A model larger than the GPU: its weights stay on the host and cross PCIe for every step of a large batch."""

    seed: int
    bus_share: float  # of the line rate, while weights cross
    wait_share: float  # of a step spent on copies that nothing hides
    level: float
    step_seconds: float
    mem_share: float
    context_power: float
    cpu: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = Load.none(1, len(t))
        up = age > 90
        # Steps of a second or two slide against the clock: each second holds a little more or less of the copying.
        slide = 0.08 * np.sin(2 * np.pi * t / self.step_seconds) + 0.05 * smooth(self.seed, t, 9.0)
        copying = np.clip(self.wait_share + slide, 0.05, 0.97) * up
        work = up - copying
        load.compute[:] = work * self.level
        load.memory[:] = 0.4 * work + 0.05 * copying
        load.sm[:] = 0.8 * work + 0.03 * copying
        load.occupancy[:] = 0.2 * work
        load.vector[:] = 0.08 * work
        load.engine[:] = work + 0.3 * copying
        bus = gpu.sku.pcie_bytes_per_second * self.bus_share
        load.pcie_rx[:] = 2e7 + bus * (copying + 0.8 * work)
        load.pcie_tx[:] = 1e7 + 0.03 * bus * copying
        load.mem_used_bytes[:] = gpu.sku.mem_bytes * self.mem_share * np.minimum(1.0, age / 120)
        load.resident[:] = 1.0
        load.context_power[:] = self.context_power
        load.cpu[:] = self.cpu * gpus / gpu.node_gpus
        load.disk_read[:] = 1e6 + 1.5e9 * (~up)
        load.disk_write[:] = 2e6
        load.host_mem[:] = 0.25
        return load


def sharded(rng: np.random.Generator, inner: Model) -> Sharded:
    return Sharded(
        inner=inner,
        seed=salt(rng),
        shard_seconds=log_uniform(rng, 500, 4000),
        tail_seconds=rng.uniform(5, 40),
        pause_seconds=rng.uniform(3, 40),
    )


def generating(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> serving.Serving:
    """An engine over a list of prompts: always as many requests in flight as it takes."""
    fits = [m for m in serving.MODELS if m[0] * 2 <= 0.6 * gpus * gpu.sku.mem_bytes] or [serving.MODELS[0]]
    slow = [m for m in fits if m[0] * 2 / gpus / gpu.sustained_bandwidth >= 5e-3] or fits[-1:]
    return serving.draw(
        rng,
        slow[int(rng.integers(0, len(slow)))],
        bytes_per_parameter=2.0 if fits[0][0] * 2 <= 0.6 * gpus * gpu.sku.mem_bytes else 1.0,
        peak_in_flight=log_uniform(rng, 40, 110),
        night_share=1.0,
        weekend_share=1.0,
        burstiness=rng.uniform(0.01, 0.05),
        allreduce_seconds=rng.uniform(6e-6, 14e-6) if gpu.nvlink else rng.uniform(20e-6, 40e-6),
        launch_seconds=rng.uniform(4e-6, 12e-6),
        prefill_share=rng.uniform(0.02, 0.1),
        context_tokens=log_uniform(rng, 900, 4000),
    )


def decoding_media(rng: np.random.Generator) -> Decoding:
    return Decoding(
        seed=salt(rng),
        duty=rng.uniform(0.2, 0.5),
        level=rng.uniform(0.35, 0.7),
        memory_level=rng.uniform(0.2, 0.45),
        batch_seconds=log_uniform(rng, 0.2, 2.5),
        mem_share=rng.uniform(0.15, 0.6),
        context_power=rng.uniform(0.3, 0.6),
        cpu=rng.uniform(0.84, 0.96),
        bytes_per_second=log_uniform(rng, 3e8, 1.5e9),
    )


def offloaded(rng: np.random.Generator) -> Offloaded:
    return Offloaded(
        seed=salt(rng),
        bus_share=rng.uniform(0.76, 0.9),  # pinned copies reach 80-90 % of the line rate
        wait_share=rng.uniform(0.58, 0.8),
        level=rng.uniform(0.3, 0.7),
        step_seconds=rng.uniform(1.3, 9.0),
        mem_share=rng.uniform(0.6, 0.93),
        context_power=rng.uniform(0.3, 0.6),
        cpu=rng.uniform(0.1, 0.3),
    )
