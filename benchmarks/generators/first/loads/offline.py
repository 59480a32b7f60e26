"""Work off a queue, shard after shard, day and night; and people who run a cell, look, think, and run another."""

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo import serving
from skuwise.advisor.demo.hardware import Floats, Load, Model, SimGpu
from skuwise.advisor.demo.seeded_rng import drawn, salt, smooth, uniform_at

from ..nodes import scale
from ..ranges import RANGES


class Sharded(Model):
    """`inner` on shard after shard: at a shard's end its last requests run out, its results are written, the next is
    read."""

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
        scale(load, gate)
        load.disk_write += np.float32(4e8) * rests.astype(np.float32)
        load.disk_read += np.float32(3e8) * (rests & (left < -0.5 * pause)).astype(np.float32)
        return load


class Decoding(Model):
    """Images, video or sound: host cores decode, the GPU takes what they give it and waits for more."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.with_context(len(t))
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
        load.cpu[:] = np.where(up, self.cpu * (1 + 0.04 * smooth(self.seed + 4, t, 20.0)), 0.1) * gpus / gpu.node_gpus
        load.io_wait[:] = 0.02
        load.disk_read[:] = 0.3 * self.bytes_per_second * gpus * up
        load.disk_write[:] = 2e6
        load.host_mem[:] = 0.2
        return load


class Offloaded(Model):
    """A model larger than the GPU: its weights stay on the host and cross PCIe for every step of a large batch."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.with_context(len(t))
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
        load.cpu[:] = self.cpu * gpus / gpu.node_gpus
        load.disk_read[:] = 1e6 + 1.5e9 * (~up)
        load.disk_write[:] = 2e6
        load.host_mem[:] = 0.25
        return load


def sharded(rng: np.random.Generator, inner: Model) -> Sharded:
    return Sharded(inner=inner, seed=salt(rng), **drawn(rng, RANGES["batch-inference"]["sharded"]))


def generating(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> serving.Serving:
    """An engine over a list of prompts: always as many requests in flight as it takes."""
    fits = [m for m in serving.MODELS if m[0] * 2 <= 0.6 * gpus * gpu.sku.mem_bytes] or [serving.MODELS[0]]
    slow = [m for m in fits if m[0] * 2 / gpus / gpu.sustained_bandwidth >= 5e-3] or fits[-1:]
    return serving.draw(
        rng,
        slow[int(rng.integers(0, len(slow)))],
        **drawn(
            rng,
            RANGES["batch-inference"]["generating"],
            "fits-0-0-2-0-6-gpus-gpu-sku-mem_bytes" if fits[0][0] * 2 <= 0.6 * gpus * gpu.sku.mem_bytes else "other",
            "nvlink" if gpu.nvlink else "other",
        ),
    )


def decoding_media(rng: np.random.Generator) -> Decoding:
    return Decoding(seed=salt(rng), **drawn(rng, RANGES["batch-inference"]["decoding-media"]))


def offloaded(rng: np.random.Generator) -> Offloaded:
    return Offloaded(seed=salt(rng), **drawn(rng, RANGES["batch-inference"]["offloaded"]))


_DAY = 86400.0


class Notebook(Model):
    """One kernel on one GPU. It keeps its memory between cells, and over night until somebody restarts it."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:  # noqa: ARG002
        load = self.with_context(len(t))
        running, slot = self._cells(t)
        shape = 0.55 + 0.9 * uniform_at(self.seed + 11, slot)  # what runs differs from cell to cell
        flicker = 1 + 0.2 * smooth(self.seed + 12, t, 1.6)
        load.compute[:] = np.clip(running * self.level * shape * flicker, 0, 1)
        load.memory[:] = np.clip(running * self.memory_level * shape * flicker, 0, 1)
        load.vector[:] = running * 0.1 * shape
        load.sm[:] = np.clip(running * self.sm * shape * flicker, 0, 1)
        load.occupancy[:] = np.clip(running * self.occupancy * shape, 0, 0.7)
        load.engine[:] = np.clip(running * self.engine * (0.8 + 0.25 * shape) * flicker, 0, 1)
        load.pcie_rx[:] = 2e5 + running * 3e8 * shape
        load.pcie_tx[:] = 2e5 + running * 5e7
        load.mem_used_bytes[:] = gpu.sku.mem_bytes * self._held(t)
        load.cpu[:] = (0.03 + 4 * self.cpu * running) / gpu.node_gpus
        load.disk_read[:] = 1e5 + 5e7 * running
        load.disk_write[:] = 2e5
        load.host_mem[:] = 0.06
        return load

    def _cells(self, t: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Share of each second in which a cell runs, and the number of its slot."""
        slot = np.floor(t / self.slot_seconds).astype(np.int64)
        length = 2 + self.longest_cell_seconds * uniform_at(self.seed + 1, slot) ** 2
        begin = uniform_at(self.seed + 2, slot) * np.maximum(self.slot_seconds - length, 0)
        within = t - slot * self.slot_seconds
        inside = np.clip(within - begin, 0, 1) * np.clip(begin + length - within + 1, 0, 1)
        chosen = uniform_at(self.seed, slot) < self.cell_chance
        return inside * chosen * self._at_desk(t), slot

    def _at_desk(self, t: Floats) -> npt.NDArray[np.bool_]:
        day = np.floor(t / _DAY).astype(np.int64)
        hour = (t % _DAY) / 3600
        begin = self.first_hour_utc + 1.5 * (uniform_at(self.seed + 3, day) - 0.5)
        end = begin + self.day_hours * (0.7 + 0.6 * uniform_at(self.seed + 4, day))
        lunch = (hour > begin + 3.2) & (hour < begin + 4.0)
        weekend = (day + 3) % 7 >= 5
        comes = uniform_at(self.seed + 5, day) < np.where(weekend, self.weekend_chance, 0.92)
        return comes & (hour >= begin) & (hour < end) & ~lunch

    def _held(self, t: Floats) -> Floats:
        """Memory as a share: it grows with what was loaded that day; a restart lets it go until the next morning."""
        day = np.floor(t / _DAY - self.first_hour_utc / 24).astype(np.int64)
        since = (t / 3600 - self.first_hour_utc) % 24
        step = np.floor(since / 1.3)
        grown = np.minimum(1.0, 0.35 + 0.13 * step + 0.1 * uniform_at(self.seed + 6, day * 24 + step.astype(np.int64)))
        restarted = (uniform_at(self.seed + 7, day) < self.restart_chance) & (since > self.day_hours)
        return np.where(restarted, 0.008, self.mem_share * grown * (0.6 + 0.4 * uniform_at(self.seed + 8, day)))


def small_cells(rng: np.random.Generator) -> Notebook:
    """Exploration: cells of seconds to minutes whose kernels fill nothing."""
    return _draw(rng, **drawn(rng, RANGES["notebooks"]["small-cells"]))


def heavy_cells(rng: np.random.Generator) -> Notebook:
    """Trying out a model: cells that run it over a batch and fill the tensor cores while they last."""
    return _draw(rng, **drawn(rng, RANGES["notebooks"]["heavy-cells"]))


def _draw(rng: np.random.Generator, **given: float) -> Notebook:
    return Notebook(
        seed=salt(rng),
        first_hour_utc=rng.uniform(6, 15),
        day_hours=rng.uniform(6, 9),
        weekend_chance=rng.uniform(0.0, 0.3),
        slot_seconds=rng.uniform(240, 600),  # a cell at most in each such slot
        cell_chance=rng.uniform(0.5, 0.95),
        longest_cell_seconds=rng.uniform(80, 235),
        mem_share=rng.uniform(0.1, 0.6),
        restart_chance=rng.uniform(0.0, 0.6),
        context_power=rng.uniform(0.3, 0.6),
        cpu=rng.uniform(0.03, 0.15),
        **given,
    )
