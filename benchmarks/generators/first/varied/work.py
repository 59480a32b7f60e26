"""Work as what it does to a GPU while it runs, and a course that says when it does."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.load import PER_GPU, PER_HOST, Load, Model
from skuwise.advisor.demo.seeded_rng import log_uniform, salt, smooth, uniform_at
from skuwise.rules.policy.labels import BottleneckLabel

from .courses import Course

Floats = npt.NDArray[np.float64]

# How far a context at rest lifts the idle power of a GPU, by architecture: H100 71.8 to 121.7 W, A100 53.7 to 80.0,
# L40S 35.6 to 102.1 (arXiv 2605.23918); T4, L4, A10G and B200 are taken to behave alike.
_CONTEXT_POWER = {"Turing": (0.1, 1.8), "Ampere": (0.02, 0.43), "Ada": (0.07, 2.1), "Hopper": (0.03, 0.75),
                  "Blackwell": (0.1, 0.8)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Profile:
    """What a second at work holds. Compute and memory are shares of what the SKU sustains, links of their rates;
    `sm`, `occupancy`, `engine`, `vector` shares of a second."""

    compute: float
    memory: float
    sm: float
    occupancy: float
    engine: float
    vector: float = 0.05
    nvlink: float = 0.0
    fabric: float = 0.0
    pcie: float = 0.0
    asymmetry: float = 0.0  # of the fabric: how much more goes one way
    cpu: float = 0.1
    io_wait: float = 0.005
    disk_read: float = 1e6
    disk_write: float = 1e6

    @property
    def bottleneck(self) -> BottleneckLabel:
        """What the seconds at work wait for, in the order in which bottlenecks are told."""
        for label, share in (("network", self.fabric), ("nvlink", self.nvlink), ("pcie", self.pcie)):
            if share >= 0.5:
                return label  # type: ignore[return-value]
        if (self.engine < 0.7 and self.cpu >= 0.8) or self.io_wait > 0.15:
            return "host-input"
        if self.memory >= 0.6 and self.memory >= 1.25 * self.compute:
            return "hbm-bandwidth"
        if self.compute >= 0.5 and self.compute >= 1.25 * self.memory:
            return "compute"
        return "mixed" if min(self.compute, self.memory) >= 0.4 else "latency"


@dataclass(frozen=True, slots=True)
class Work:
    """`profile` at the times that `course` says, on memory that follows `held`.

    `vary`: how far pieces of work differ from one another. `dips_write`: where the course dips, the host writes so
    many bytes per second.
    """

    profile: Profile
    course: Course
    held: Course
    seed: int
    vary: float
    context_power: float
    dips_write: float = 0.0
    spin_sm: float = 0.0  # SMs that hold a warp while the work stands still: collectives that poll

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = Load.none(1, len(t))
        p, at = self.profile, self.course.at(t, age)
        piece = np.floor(t / 37).astype(np.int64)
        shape = 1 + self.vary * (2 * uniform_at(self.seed, piece) - 1)
        flicker = 1 + 0.5 * self.vary * smooth(self.seed + 1, t, 1.9)
        done = at * shape * flicker
        load.compute[:] = np.clip(done * p.compute, 0, 1)
        load.memory[:] = np.clip(done * p.memory, 0, 1)
        load.vector[:] = np.clip(done * p.vector, 0, 0.6)
        still = 1 - np.clip(2 * at, 0, 1) if self.spin_sm else 0.0
        load.sm[:] = np.clip(at * p.sm * flicker + still * self.spin_sm, 0, 0.97)
        load.occupancy[:] = np.clip(at * p.occupancy * shape + 0.25 * still * self.spin_sm, 0, 0.8)
        load.engine[:] = np.clip(at * p.engine + (still if self.spin_sm else 0.0), 0, 1)
        if gpus > 1:
            load.nvlink[:] = np.clip(done * p.nvlink, 0, 0.97) * gpu.nvlink * gpu.eta_link
        load.fabric_tx[:] = np.clip(done * p.fabric, 0, 0.95)
        load.fabric_rx[:] = np.clip(done * p.fabric * (1 - p.asymmetry), 0, 0.95)
        bus = gpu.sku.pcie_bytes_per_second
        if gpus > 1 and not gpu.nvlink:
            load.pcie_tx[:] = np.clip(done * p.nvlink, 0, 0.6) * bus * gpu.eta_link
        load.pcie_tx[:] = np.clip(load.pcie_tx + 1e6 + 0.3 * done * p.pcie * bus, 0, 0.9 * bus)
        load.pcie_rx[:] = np.clip(load.pcie_tx + 2e6 + 0.7 * done * p.pcie * bus, 0, 0.9 * bus)
        load.mem_used_bytes[:] = gpu.sku.mem_bytes * np.clip(self.held.at(t, age), 0.002, 0.975)
        load.resident[:] = 1.0
        load.context_power[:] = self.context_power + 2.2 * self.spin_sm * still
        share = gpus / gpu.node_gpus
        load.cpu[:] = np.clip(p.cpu * (0.25 + 0.75 * np.minimum(at * 1.2, 1)), 0, 0.97) * share
        load.io_wait[:] = p.io_wait * np.minimum(at * 1.2, 1) * share
        load.disk_read[:] = p.disk_read * at + 1e5
        dipped = (at < 0.5 * np.max(at, initial=0.0)) if self.dips_write else np.zeros(len(t), dtype=bool)
        load.disk_write[:] = p.disk_write * at + 3e5 + self.dips_write * (dipped & (age > 900))
        load.storage_rx[:] = 0.5 * load.disk_read
        load.host_mem[:] = 0.04 + 0.015 * gpus
        return load


@dataclass(frozen=True, slots=True)
class Turns:
    """`usual`, and `other` for `other_seconds` in every `every_seconds` since the start: evaluation after training,
    generation before a step of reinforcement learning. The turns come early or late by `irregular`."""

    usual: Model
    other: Model
    seed: int
    every_seconds: float
    other_seconds: float
    irregular: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        slot = np.floor(age / self.every_seconds).astype(np.int64)
        early = self.irregular * uniform_at(self.seed, slot) * max(self.every_seconds - self.other_seconds, 0)
        left = (slot + 1) * self.every_seconds - age - early
        turned = (left >= 0) & (left < self.other_seconds)
        load = Load.none(1, len(t))
        for model, where in ((self.usual, ~turned), (self.other, turned)):
            if where.any():
                part = model.load(t[where], age[where], gpus, gpu)
                for name in PER_GPU:
                    getattr(load, name)[:, where] = getattr(part, name)
                for name in PER_HOST:
                    getattr(load, name)[where] = getattr(part, name)
        return load


@dataclass(frozen=True, slots=True)
class Remembering:
    """`inner` with other memory and another context at rest."""

    inner: Model
    held: Course
    context_power: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        load.mem_used_bytes[:] = gpu.sku.mem_bytes * np.clip(self.held.at(t, age), 0.002, 0.975)
        # A collective that polls adds to what the context draws.
        load.context_power += np.float32(self.context_power) - load.context_power.min(initial=9.0)
        return load


def context_power(rng: np.random.Generator, gpu: SimGpu) -> float:
    return rng.uniform(*_CONTEXT_POWER.get(gpu.sku.architecture, (0.05, 0.6)))


def work(rng: np.random.Generator, gpu: SimGpu, profile: Profile, course: Course, held: Course, **given: float) -> Work:
    return Work(
        profile=profile,
        course=course,
        held=held,
        seed=salt(rng),
        vary=rng.uniform(0.02, 0.4),
        context_power=context_power(rng, gpu),
        **given,
    )


def linked(rng: np.random.Generator, profile: Profile, gpus: int, low: float, high: float) -> Profile:
    """The profile with NVLink (or, without it, PCIe) between its GPUs, where there are several."""
    return dataclasses.replace(profile, nvlink=log_uniform(rng, low, high)) if gpus > 1 else profile
