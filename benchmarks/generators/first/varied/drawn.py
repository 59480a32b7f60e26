"""What a draw of work brings along: its model, and what sort of its kind it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from skuwise.advisor.demo.load import Model
from skuwise.advisor.demo.seeded_rng import log_uniform, salt
from skuwise.rules.policy.labels import BottleneckLabel

from .courses import Course, Flat, Grown, Restless, Sawtooth, Stepped


@dataclass(frozen=True, slots=True)
class Drawn:
    """One piece of work for a number of GPUs. `sort`: what sort of its kind, in a word or two."""

    model: Model
    sort: str
    bottleneck: BottleneckLabel


def taken_once(rng: np.random.Generator) -> Flat:
    """An engine's pool, or any level that does not move."""
    pool = rng.random() < 0.55
    return Flat(rng.uniform(0.85, 0.97) if pool else rng.uniform(0.03, 0.85), log_uniform(rng, 20, 600))


def of_an_engine(rng: np.random.Generator, course: Course, piece_seconds: float, *, restless: float) -> Course:
    """Memory of what serves or works off a queue: mostly taken once, else moving with the work or in rare steps."""
    draw = rng.random()
    if draw < restless:
        return Restless(
            work=course,
            seed=salt(rng),
            base=rng.uniform(0.08, 0.85),
            spread=log_uniform(rng, 0.02, 0.6),
            piece_seconds=max(piece_seconds, log_uniform(rng, 20, 1800)),  # of minutes: parts stay for the next request
            stays_chance=rng.uniform(0.0, 0.9),
        )
    if draw < restless + 0.12:
        low = rng.uniform(0.03, 0.7)
        high = min(low + rng.uniform(0.02, 0.4), 0.96)
        return Stepped(salt(rng), low, high, log_uniform(rng, 1800, 86400), rng.uniform(0.2, 0.9))
    if draw < restless + 0.2:
        level = rng.uniform(0.05, 0.7)
        return Grown(level, rng.uniform(0.01, min(0.5, 0.95 - level)), log_uniform(rng, 600, 2e5), 60.0)
    return taken_once(rng)


def of_an_allocator(rng: np.random.Generator, period_seconds: float) -> Course:
    """Memory of a training: up for minutes and then still, or still from the start, or moving with its epochs."""
    draw = rng.random()
    level = rng.uniform(0.08, 0.95)
    if draw < 0.4:
        return Grown(level * 0.9, 0.1 * level, log_uniform(rng, 60, 7200), log_uniform(rng, 20, 900))
    if draw < 0.7:
        return Flat(level, log_uniform(rng, 20, 900))
    if draw < 0.85:
        return Sawtooth(salt(rng), 0.8 * level, 0.2 * level, period_seconds)
    return Stepped(salt(rng), 0.6 * level, level, log_uniform(rng, 600, 20000), rng.uniform(0.3, 0.9))
