"""Interactive work: somebody runs a cell, looks, thinks, and runs another, in working hours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.load import Load
from skuwise.advisor.demo.seeded_rng import salt, smooth, uniform_at

Floats = npt.NDArray[np.float64]
_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Notebook:
    """One kernel on one GPU. It keeps its memory between cells, and over night until somebody restarts it."""

    seed: int
    first_hour_utc: float
    day_hours: float
    weekend_chance: float
    slot_seconds: float  # a cell at most in each such slot
    cell_chance: float
    longest_cell_seconds: float
    level: float  # of what the SKU sustains, in a cell
    memory_level: float
    sm: float
    occupancy: float
    engine: float
    mem_share: float
    restart_chance: float
    context_power: float
    cpu: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:  # noqa: ARG002
        load = Load.none(1, len(t))
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
        load.resident[:] = 1.0
        load.context_power[:] = self.context_power
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
    return _draw(
        rng,
        level=rng.uniform(0.03, 0.2),
        memory_level=rng.uniform(0.04, 0.22),
        sm=rng.uniform(0.15, 0.36),
        occupancy=rng.uniform(0.06, 0.17),
        engine=rng.uniform(0.75, 0.98),
    )


def heavy_cells(rng: np.random.Generator) -> Notebook:
    """Trying out a model: cells that run it over a batch and fill the tensor cores while they last."""
    return _draw(
        rng,
        level=rng.uniform(0.66, 0.85),
        memory_level=rng.uniform(0.2, 0.35),
        sm=rng.uniform(0.85, 0.93),
        occupancy=rng.uniform(0.2, 0.35),
        engine=rng.uniform(0.93, 1.0),
    )


def _draw(rng: np.random.Generator, **given: float) -> Notebook:
    return Notebook(
        seed=salt(rng),
        first_hour_utc=rng.uniform(6, 15),
        day_hours=rng.uniform(6, 9),
        weekend_chance=rng.uniform(0.0, 0.3),
        slot_seconds=rng.uniform(240, 600),
        cell_chance=rng.uniform(0.5, 0.95),
        longest_cell_seconds=rng.uniform(80, 235),
        mem_share=rng.uniform(0.1, 0.6),
        restart_chance=rng.uniform(0.0, 0.6),
        context_power=rng.uniform(0.3, 0.6),
        cpu=rng.uniform(0.03, 0.15),
        **given,
    )
