"""Interactive work of every sort, and GPUs that are held while nobody works."""

from __future__ import annotations

import numpy as np
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.held_idle import Holding
from skuwise.advisor.demo.seeded_rng import log_uniform, salt

from .courses import AtDesk, Course, Flat, Stepped, Worked
from .drawn import Drawn
from .jobs import debugged
from .work import Profile, context_power, work


def session(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Drawn:
    """Somebody's kernel, shell or development pod: cells, tries, short trainings, and pauses to think."""
    debugging = rng.random() < 0.35
    desk = AtDesk(
        seed=salt(rng),
        first_hour_utc=rng.uniform(0, 24),
        day_hours=rng.uniform(5, 11),
        weekday_chance=rng.uniform(0.55, 1.0),
        weekend_chance=rng.uniform(0.0, 0.3),
        evening_chance=rng.uniform(0.0, 0.35),
        spell_seconds=log_uniform(rng, 600, 7200),
        spell_chance=rng.uniform(0.2, 1.0),
        cell_seconds=log_uniform(rng, 10, 900),
        cell_chance=rng.uniform(0.2, 1.0),
        long_run_chance=rng.uniform(0.05, 0.35) if debugging else rng.uniform(0.0, 0.1),
    )
    profile = debugged(rng, gpus, gpu) if debugging else _cells(rng)
    low = log_uniform(rng, 0.01, 0.5)
    steps = Stepped(salt(rng), low, min(low + rng.uniform(0.02, 0.6), 0.96), log_uniform(rng, 120, 7200),
                    rng.uniform(0.1, 0.9))  # fmt: skip
    held: Course = Worked(desk, steps, salt(rng), 0.0 if rng.random() < 0.5 else rng.uniform(0.1, 0.9))
    if rng.random() < 0.15:
        held = Flat(rng.uniform(0.05, 0.95), 60.0)
    sort = "debugging" if debugging else "cells"
    return Drawn(work(rng, gpu, profile, desk, held), sort, profile.bottleneck)


def held(rng: np.random.Generator, gpu: SimGpu) -> Drawn:
    """Memory and a context that nobody uses: clocks stay at their highest."""
    model = Holding(
        seed=salt(rng),
        mem_share=log_uniform(rng, 0.01, 0.95),
        context_power=context_power(rng, gpu),
        blip_chance=0.0 if rng.random() < 0.5 else rng.uniform(0.0, 0.3),
    )
    return Drawn(model, "held", "idle")


def _cells(rng: np.random.Generator) -> Profile:
    return Profile(
        compute=log_uniform(rng, 0.01, 0.8),
        memory=log_uniform(rng, 0.02, 0.7),
        sm=rng.uniform(0.1, 0.95),
        occupancy=rng.uniform(0.04, 0.4),
        engine=rng.uniform(0.4, 1.0),
        vector=rng.uniform(0.0, 0.3),
        cpu=rng.uniform(0.05, 0.9),
        pcie=log_uniform(rng, 1e-3, 0.1),
        disk_read=log_uniform(rng, 1e5, 3e8),
    )
