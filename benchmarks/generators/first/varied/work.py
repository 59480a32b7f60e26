"""How work comes and goes, how memory follows, and what work does to a GPU: each a function of time alone.

Production services were the measure of the ranges (facts about 60 serving pods of Alibaba's cluster-trace-v2026-GenAI,
half of them): at work in a third of the minutes or less, minutes that differ by a factor of ten, rests of one to five
hours at night, memory that moves with every other request by 13 to 25 %.
"""

import dataclasses
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Self

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo.hardware import Floats, Load, Model, SimGpu
from skuwise.advisor.demo.seeded_rng import day_level, drawn, log_uniform, salt, smooth, uniform_at
from skuwise.rules.policy.labels import BottleneckLabel

from ..ranges import RANGES

_DAY = 86400.0


class Course(SimpleNamespace):
    """A level, mostly 0..1."""

    def but(self, **changed: object) -> Self:
        """The same with some parameters changed."""
        return type(self)(**(vars(self) | changed))

    def at(self, t: Floats, age: Floats) -> Floats:
        """The level at Unix seconds `t`, `age` seconds after the start."""
        raise NotImplementedError


class Demand(Course):
    """What is asked for: days, weeks, campaigns and lulls, with a spread that is heavy-tailed."""

    def at(self, t: Floats, age: Floats) -> Floats:  # noqa: ARG002
        level = self.mean * day_level(t, self.night_share, self.weekend_share, self.peak_hour_utc)
        wander = 0.8 * smooth(self.seed, t, self.spread_seconds) + 0.6 * smooth(
            self.seed + 3, t, self.spread_seconds / 9
        )
        level = level * np.exp(self.spread * wander - 0.4 * self.spread**2)
        # Lulls come where little is asked anyway: at night rather than by day.
        slot = np.floor(t / self.lull_seconds).astype(np.int64)
        calm = 1.6 - 1.2 * day_level(t, 0.0, 1.0, self.peak_hour_utc)
        level = np.where(uniform_at(self.seed + 6, slot) < self.lull_chance * calm, 0.0, level)
        return np.where(uniform_at(self.seed + 7, slot) < self.surge_chance, self.surge * level, level)


class Requests(Course):
    """Work by the piece: a slot of `slot_seconds` holds a request with the chance that `demand` says, of any length."""

    def at(self, t: Floats, age: Floats) -> Floats:
        slot = np.floor(t / self.slot_seconds).astype(np.int64)
        asked = self.demand.at(t, age)
        # Where more comes than slots hold, requests queue, and the rest of a slot is filled by the next.
        left = (1 - self.floor) * uniform_at(self.seed + 1, slot) / np.maximum(1.0, 3 * asked)
        return np.where(uniform_at(self.seed, slot) < asked, 1 - left, 0.0)


class Batched(Course):
    """Many requests at once: the level itself follows `demand`, up to `most`, and wavers by the second."""

    def at(self, t: Floats, age: Floats) -> Floats:
        asked = self.demand.at(t, age)
        # An engine serves a few at nearly the price of one: use grows fast and then saturates.
        busy = self.most * (1 - np.exp(-1.5 * asked / max(self.most, 1e-3)))
        return np.clip(busy * (1 + self.waver * smooth(self.seed, t, 2.1)), 0, self.most)


class Steady(Course):
    """The same all the time, but for a slow wander, dips of some seconds, and now and then a long stop.

    `dip_seconds` in every `dip_every_seconds` (not to the second: the moment wanders) it falls to `dip_level`.
    """

    def at(self, t: Floats, age: Floats) -> Floats:
        level = self.level * (1 + self.wander * smooth(self.seed, t, self.wander_seconds))
        level = level * (1 + 0.3 * self.wander * smooth(self.seed + 4, t, 2.7))
        if self.dip_every_seconds:
            slot = np.floor(age / self.dip_every_seconds).astype(np.int64)
            late = self.irregular * uniform_at(self.seed + 8, slot) * max(self.dip_every_seconds - self.dip_seconds, 0)
            length = self.dip_seconds * (1 + self.irregular * (uniform_at(self.seed + 9, slot) - 0.5))
            within = age - slot * self.dip_every_seconds - late
            # The first slot begins with the work, not with a dip.
            level = np.where((within >= 0) & (within < length) & (slot > 0), self.dip_level * level, level)
        slot = np.floor(t / 7200).astype(np.int64)
        begin = uniform_at(self.seed + 11, slot) * max(7200 - self.stop_seconds, 0)
        within = t - slot * 7200
        stopped = (uniform_at(self.seed + 10, slot) < self.stop_chance) & (within > begin)
        level = np.where(stopped & (within <= begin + self.stop_seconds), 0.0, level)
        return np.clip(np.where(age < self.warmup_seconds, 0.0, level), 0, 1)


class AtDesk(Course):
    """Somebody at work: days, lunches, weekends; within them spells of running, and pauses to think."""

    def at(self, t: Floats, age: Floats) -> Floats:  # noqa: ARG002
        present = self.present(t)
        spell = np.floor(t / self.spell_seconds).astype(np.int64)
        on = present & (uniform_at(self.seed, spell) < self.spell_chance)
        long = uniform_at(self.seed + 1, spell) < self.long_run_chance
        cell = np.floor(t / self.cell_seconds).astype(np.int64)
        within = t / self.cell_seconds - cell
        share = 0.05 + 0.95 * uniform_at(self.seed + 3, cell) ** 1.5
        runs = (uniform_at(self.seed + 2, cell) < self.cell_chance) & (within < share)
        shape = 0.35 + 0.65 * uniform_at(self.seed + 4, np.where(long, spell, cell))
        return np.where(on & (long | runs), shape, 0.0)

    def present(self, t: Floats) -> npt.NDArray[np.bool_]:
        day = np.floor((t / 3600 - self.first_hour_utc + 3) / 24).astype(np.int64)
        hour = t / 3600 - day * 24 - self.first_hour_utc
        begin = 3 * (uniform_at(self.seed + 5, day) - 0.4)
        length = self.day_hours * (0.4 + 0.9 * uniform_at(self.seed + 6, day))
        lunch = (hour > begin + 3.2) & (hour < begin + 4.1)
        back = (uniform_at(self.seed + 8, day) < self.evening_chance) & (hour > begin + length + 2)
        evening = back & (hour < begin + length + 3.5)
        weekend = (day + 3) % 7 >= 5
        comes = uniform_at(self.seed + 7, day) < np.where(weekend, self.weekend_chance, self.weekday_chance)
        return comes & (((hour >= begin) & (hour < begin + length) & ~lunch) | evening)


class Flat(Course):
    """Memory that is taken once, after loading."""

    def at(self, t: Floats, age: Floats) -> Floats:  # noqa: ARG002
        return np.where(age > self.load_seconds, self.level, self.level * (0.04 + 0.7 * age / self.load_seconds))


class Restless(Course):
    """Memory that follows the work: with each piece it is found elsewhere, and stays there while nothing comes."""

    def at(self, t: Floats, age: Floats) -> Floats:
        pieces, place = np.unique(np.floor(t / self.piece_seconds).astype(np.int64), return_inverse=True)
        levels = np.full(pieces.shape, np.nan)
        # What is held now is what the last piece of work left; after some dozen pieces of rest it is the base.
        for back in range(12):
            step = pieces - back
            worked = self.work.at((step + 0.5) * self.piece_seconds, np.full(step.shape, 1e6)) > 0
            changed = worked & (uniform_at(self.seed, step) >= self.stays_chance) & np.isnan(levels)
            drawn = 2 * (uniform_at(self.seed + 1, step) + uniform_at(self.seed + 2, step)) - 2
            levels = np.where(changed, self.base * (1 + 1.2 * self.spread * drawn), levels)
        level = np.where(np.isnan(levels), self.base, levels)[place.reshape(t.shape)]
        return np.clip(level, 0.02, 0.97) * np.minimum(1.0, 0.1 + age / 120)


class Stepped(Course):
    """Memory in steps: another level every so often, up or down, as caches, models or cells come and go."""

    def at(self, t: Floats, age: Floats) -> Floats:
        step = np.floor(t / self.step_seconds).astype(np.int64)
        for _ in range(6):
            step = np.where(uniform_at(self.seed, step) < self.kept_chance, step - 1, step)
        level = self.low + (self.high - self.low) * uniform_at(self.seed + 1, step)
        return level * np.minimum(1.0, 0.1 + age / 60)


class Grown(Course):
    """Memory of an allocator that takes what it needs and gives nothing back: up for a while, then still."""

    def at(self, t: Floats, age: Floats) -> Floats:  # noqa: ARG002
        settled = 1 - np.exp(-age / self.growth_seconds)
        return (self.level + self.growth * settled) * np.minimum(1.0, age / max(self.warmup_seconds, 1.0))


class Sawtooth(Course):
    """Memory that grows through a file or an epoch and falls back at its end."""

    def at(self, t: Floats, age: Floats) -> Floats:  # noqa: ARG002
        position = age / self.every_seconds
        number = np.floor(position).astype(np.int64)
        height = self.height * (0.5 + 0.5 * uniform_at(self.seed, number))
        return np.clip(self.level + height * (position - number), 0.01, 0.97) * np.minimum(1.0, 0.1 + age / 90)


class Worked(Course):
    """A person's memory: steps while there, and `night` of it held or released otherwise."""

    def at(self, t: Floats, age: Floats) -> Floats:
        present = self.desk.present(t)
        # At night no cell moves anything: what the evening left stays.
        day = np.floor((t / 3600 - self.desk.first_hour_utc + 3) / 24)
        evening = (day * 24 + self.desk.first_hour_utc + 0.7 * self.desk.day_hours) * 3600
        held = self.steps.at(np.where(present, t, np.minimum(t, evening)), age)
        gone = ~present & (t > evening) & (uniform_at(self.seed, day.astype(np.int64)) < self.freed_chance)
        return np.where(gone, 0.004, held)


def demand(rng: np.random.Generator, mean: float, *, wavy: bool | None = None) -> Demand:
    """Demand about `mean`: three in four follow the day, some the week, some neither."""
    wavy = bool(rng.random() < 0.75) if wavy is None else wavy
    return Demand(seed=salt(rng), mean=mean, **drawn(rng, RANGES["courses"]["demand"], "wavy" if wavy else "other"))


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
        """What the seconds at work wait for, in the order of the questions about bottlenecks."""
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


class Work(Model):
    """`profile` at the times that `course` says, on memory that follows `held`.

    `vary`: how far pieces of work differ from one another. `dips_write`: where the course dips, the host writes so
    many bytes per second.
    """

    dips_write = 0.0
    spin_sm = 0.0  # SMs that hold a warp while the work stands still: collectives that poll

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.with_context(len(t))
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


class Turns(Model):
    """`usual`, and `other` for `other_seconds` in every `every_seconds` since the start: evaluation after training,
    generation before a step of reinforcement learning. The turns come early or late by `irregular`."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        slot = np.floor(age / self.every_seconds).astype(np.int64)
        early = self.irregular * uniform_at(self.seed, slot) * max(self.every_seconds - self.other_seconds, 0)
        left = (slot + 1) * self.every_seconds - age - early
        turned = (left >= 0) & (left < self.other_seconds)
        load = Load(1, len(t))
        for model, where in ((self.usual, ~turned), (self.other, turned)):
            if where.any():
                load.place(model.load(t[where], age[where], gpus, gpu), [0], where)
        return load


class Remembering(Model):
    """`inner` with other memory and another context at rest."""

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
