"""How work comes and goes, and how memory follows: each a function of time alone, so that any second can be made.

Production services were the measure of the ranges (facts about 60 serving pods of Alibaba's cluster-trace-v2026-GenAI,
half of them): at work in a third of the minutes or less, minutes that differ by a factor of ten, rests of one to five
hours at night, memory that moves with every other request by 13 to 25 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo.seeded_rng import day_level, log_uniform, salt, smooth, uniform_at

Floats = npt.NDArray[np.floating]
_DAY = 86400.0


class Course(Protocol):
    """A level, mostly 0..1, at Unix seconds `t`, `age` seconds after the start."""

    def at(self, t: Floats, age: Floats) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked for: days, weeks, campaigns and lulls, with a spread that is heavy-tailed."""

    seed: int
    mean: float  # of a usual hour by day
    night_share: float
    weekend_share: float
    peak_hour_utc: float
    spread: float  # of the logarithm
    spread_seconds: float
    lull_chance: float  # that such a slot brings nothing at all
    lull_seconds: float
    surge: float  # factor in a slot that brings much
    surge_chance: float

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


@dataclass(frozen=True, slots=True)
class Requests:
    """Work by the piece: a slot of `slot_seconds` holds a request with the chance that `demand` says, of any length."""

    demand: Course
    seed: int
    slot_seconds: float
    floor: float  # the least that a piece asks, as a share of the most

    def at(self, t: Floats, age: Floats) -> Floats:
        slot = np.floor(t / self.slot_seconds).astype(np.int64)
        asked = self.demand.at(t, age)
        # Where more comes than slots hold, requests queue, and the rest of a slot is filled by the next.
        left = (1 - self.floor) * uniform_at(self.seed + 1, slot) / np.maximum(1.0, 3 * asked)
        return np.where(uniform_at(self.seed, slot) < asked, 1 - left, 0.0)


@dataclass(frozen=True, slots=True)
class Batched:
    """Many requests at once: the level itself follows `demand`, up to `most`, and wavers by the second."""

    demand: Course
    seed: int
    most: float
    waver: float

    def at(self, t: Floats, age: Floats) -> Floats:
        asked = self.demand.at(t, age)
        # An engine serves a few at nearly the price of one: use grows fast and then saturates.
        busy = self.most * (1 - np.exp(-1.5 * asked / max(self.most, 1e-3)))
        return np.clip(busy * (1 + self.waver * smooth(self.seed, t, 2.1)), 0, self.most)


@dataclass(frozen=True, slots=True)
class Steady:
    """The same all the time, but for a slow wander, dips of some seconds, and now and then a long stop.

    `dip_seconds` in every `dip_every_seconds` (not to the second: the moment wanders) it falls to `dip_level`.
    """

    seed: int
    level: float
    wander: float
    wander_seconds: float
    dip_every_seconds: float  # 0: never
    dip_seconds: float
    dip_level: float
    irregular: float  # share of the time between dips by which they come early or late
    stop_chance: float  # that a slot of two hours holds a stop
    stop_seconds: float
    warmup_seconds: float

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


@dataclass(frozen=True, slots=True)
class AtDesk:
    """Somebody at work: days, lunches, weekends; within them spells of running, and pauses to think."""

    seed: int
    first_hour_utc: float
    day_hours: float
    weekday_chance: float
    weekend_chance: float
    evening_chance: float
    spell_seconds: float  # of one thing: a cell tried again and again, or a run that somebody waits for
    spell_chance: float
    cell_seconds: float
    cell_chance: float  # within a spell
    long_run_chance: float  # that a spell is one run from its start to its end

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


@dataclass(frozen=True, slots=True)
class Flat:
    """Memory that is taken once, after loading."""

    level: float
    load_seconds: float

    def at(self, t: Floats, age: Floats) -> Floats:  # noqa: ARG002
        return np.where(age > self.load_seconds, self.level, self.level * (0.04 + 0.7 * age / self.load_seconds))


@dataclass(frozen=True, slots=True)
class Restless:
    """Memory that follows the work: with each piece it is found elsewhere, and stays there while nothing comes."""

    work: Course
    seed: int
    base: float
    spread: float  # of the base
    piece_seconds: float
    stays_chance: float  # that a piece changes nothing

    def at(self, t: Floats, age: Floats) -> Floats:
        pieces, place = np.unique(np.floor(t / self.piece_seconds).astype(np.int64), return_inverse=True)
        found = np.full(pieces.shape, np.nan)
        # What is held now is what the last piece of work left; after some dozen pieces of rest it is the base.
        for back in range(12):
            one = pieces - back
            worked = self.work.at((one + 0.5) * self.piece_seconds, np.full(one.shape, 1e6)) > 0
            changed = worked & (uniform_at(self.seed, one) >= self.stays_chance) & np.isnan(found)
            drawn = 2 * (uniform_at(self.seed + 1, one) + uniform_at(self.seed + 2, one)) - 2
            found = np.where(changed, self.base * (1 + 1.2 * self.spread * drawn), found)
        level = np.where(np.isnan(found), self.base, found)[place.reshape(t.shape)]
        return np.clip(level, 0.02, 0.97) * np.minimum(1.0, 0.1 + age / 120)


@dataclass(frozen=True, slots=True)
class Stepped:
    """Memory in steps: another level every so often, up or down, as caches, models or cells come and go."""

    seed: int
    low: float
    high: float
    step_seconds: float
    kept_chance: float  # that a step keeps the level of the one before

    def at(self, t: Floats, age: Floats) -> Floats:
        step = np.floor(t / self.step_seconds).astype(np.int64)
        for _ in range(6):
            step = np.where(uniform_at(self.seed, step) < self.kept_chance, step - 1, step)
        level = self.low + (self.high - self.low) * uniform_at(self.seed + 1, step)
        return level * np.minimum(1.0, 0.1 + age / 60)


@dataclass(frozen=True, slots=True)
class Grown:
    """Memory of an allocator that takes what it needs and gives nothing back: up for a while, then still."""

    level: float
    growth: float
    growth_seconds: float
    warmup_seconds: float

    def at(self, t: Floats, age: Floats) -> Floats:  # noqa: ARG002
        settled = 1 - np.exp(-age / self.growth_seconds)
        return (self.level + self.growth * settled) * np.minimum(1.0, age / max(self.warmup_seconds, 1.0))


@dataclass(frozen=True, slots=True)
class Sawtooth:
    """Memory that grows through a file or an epoch and falls back at its end."""

    seed: int
    level: float
    height: float
    every_seconds: float

    def at(self, t: Floats, age: Floats) -> Floats:  # noqa: ARG002
        position = age / self.every_seconds
        number = np.floor(position).astype(np.int64)
        height = self.height * (0.5 + 0.5 * uniform_at(self.seed, number))
        return np.clip(self.level + height * (position - number), 0.01, 0.97) * np.minimum(1.0, 0.1 + age / 90)


@dataclass(frozen=True, slots=True)
class Worked:
    """A person's memory: steps while there, and `night` of it held or let go when nobody is."""

    desk: AtDesk
    steps: Stepped
    seed: int
    freed_chance: float  # that a night finds the kernel gone

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
    return Demand(
        seed=salt(rng),
        mean=mean,
        night_share=rng.uniform(0.0, 0.7) if wavy else rng.uniform(0.85, 1.0),
        weekend_share=rng.uniform(0.15, 1.1) if wavy else 1.0,
        peak_hour_utc=rng.uniform(0, 24),
        spread=rng.uniform(0.05, 1.3),
        spread_seconds=log_uniform(rng, 600, 14400),
        lull_chance=0.0 if rng.random() < 0.45 else rng.uniform(0.02, 0.4),
        lull_seconds=log_uniform(rng, 1200, 14400),
        surge=rng.uniform(1.5, 5),
        surge_chance=rng.uniform(0, 0.06),
    )
