"""Batch inference of every sort: a list of prompts, a night's documents, recordings, a stream worked off for weeks."""

from __future__ import annotations

import dataclasses

import numpy as np
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.seeded_rng import log_uniform, salt

from ..loads import batch_inference as offline
from ..loads import prefill
from .courses import Course, Flat, Sawtooth, Steady
from .drawn import Drawn, of_an_engine
from .work import Profile, Remembering, context_power, linked, work

_SORTS = ("generating", "encoding", "transcribing", "media", "small")


def queue(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Drawn:
    """One job that works off what is there, on GPUs of a node or on an instance."""
    if rng.random() < 0.3:
        return _by_steps(rng, gpus, gpu)
    sort = _SORTS[int(rng.choice(len(_SORTS), p=[0.34, 0.24, 0.16, 0.14, 0.12]))]
    profile = _profile(rng, sort, gpus)
    course, file_seconds = _worked_off(rng, sort)
    held: Course = of_an_engine(rng, course, file_seconds, restless=0.12)
    if rng.random() < 0.15:
        level = rng.uniform(0.05, 0.7)
        held = Sawtooth(salt(rng), level, rng.uniform(0.02, 0.95 - level), file_seconds)
    writes = log_uniform(rng, 1e6, 6e8) if rng.random() < 0.4 else 0.0
    return Drawn(work(rng, gpu, profile, course, held, dips_write=writes), sort, profile.bottleneck)


def _by_steps(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Drawn:
    sort = int(rng.integers(0, 4))
    if sort == 0:
        inner = offline.generating(rng, gpus, gpu)
        name, bottleneck = "generating", "hbm-bandwidth"
    elif sort == 1:
        inner = prefill.encoding(rng)
        name, bottleneck = "encoding", "compute"
    elif sort == 2:
        inner = dataclasses.replace(offline.decoding_media(rng), duty=rng.uniform(0.1, 0.95))
        name, bottleneck = "media", "host-input"
    else:
        inner = offline.offloaded(rng)
        name, bottleneck = "offloaded", "pcie"
    model = offline.sharded(rng, inner) if rng.random() < 0.4 else inner
    held = Flat(rng.uniform(0.04, 0.97), log_uniform(rng, 20, 600))
    return Drawn(Remembering(model, held, context_power(rng, gpu)), name, bottleneck)  # type: ignore[arg-type]


def _worked_off(rng: np.random.Generator, sort: str) -> tuple[Steady, float]:
    """The course of a queue, and the seconds of one file of it: reading, working, writing."""
    file_seconds = log_uniform(rng, 30, 7200)
    pause = min(log_uniform(rng, 2, 600), 0.5 * file_seconds)
    steady = rng.random() < 0.45
    return Steady(
        seed=salt(rng),
        level=rng.uniform(0.3, 1.0) if sort in ("media", "small") else rng.uniform(0.7, 1.0),
        wander=log_uniform(rng, 0.005, 0.3),
        wander_seconds=log_uniform(rng, 300, 20000),
        dip_every_seconds=0.0 if steady else file_seconds,
        dip_seconds=pause,
        dip_level=rng.uniform(0.0, 0.6),
        irregular=rng.uniform(0.3, 1.0),
        stop_chance=rng.uniform(0.0, 0.2) if rng.random() < 0.25 else 0.0,
        stop_seconds=log_uniform(rng, 60, 3600),
        warmup_seconds=log_uniform(rng, 20, 600),
    ), file_seconds


def _profile(rng: np.random.Generator, sort: str, gpus: int) -> Profile:
    compute, memory = {
        "generating": (rng.uniform(0.05, 0.6), rng.uniform(0.4, 0.98)),
        "encoding": (rng.uniform(0.3, 0.95), rng.uniform(0.1, 0.5)),
        "transcribing": (rng.uniform(0.05, 0.5), rng.uniform(0.1, 0.7)),
        "media": (rng.uniform(0.05, 0.7), rng.uniform(0.05, 0.5)),
        "small": (log_uniform(rng, 0.01, 0.3), log_uniform(rng, 0.02, 0.4)),
    }[sort]
    host = sort == "media"
    profile = Profile(
        compute=compute,
        memory=memory,
        sm=rng.uniform(0.1, 0.6) if sort == "small" else rng.uniform(0.4, 0.97),
        occupancy=rng.uniform(0.08, 0.4),
        engine=rng.uniform(0.5, 1.0) if sort in ("media", "small", "transcribing") else rng.uniform(0.85, 1.0),
        cpu=rng.uniform(0.5, 0.97) if host else rng.uniform(0.02, 0.5),
        io_wait=log_uniform(rng, 0.001, 0.15),
        pcie=log_uniform(rng, 1e-3, 0.3 if host else 0.05),
        disk_read=log_uniform(rng, 1e5, 1e9),
        disk_write=log_uniform(rng, 1e5, 1e8),
    )
    return linked(rng, profile, gpus, 0.003, 0.2) if sort == "generating" else profile
