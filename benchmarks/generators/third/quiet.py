"""Notebooks, and GPUs that are held while nothing runs."""

import numpy as np

from .hardware import GB
from .rhythm import HOUR, during, jitter, sessions
from .work import Load, at_rest


def notebook(
    rng: np.random.Generator, t0: float, seconds: int, zone: float, *, chance: float = 0.85, big: float = 0.6
) -> Load:
    """A person who tries things: cells that run for seconds to minutes while somebody is there; memory comes and goes
    with the kernel, and mostly stays over night. `big`: the most memory that it takes."""
    load = at_rest(seconds, 0.0)
    memory = np.zeros(seconds, np.float32)
    at_work = sessions(rng, t0, seconds, zone, chance)
    runs: list[tuple[float, float, float, float, float]] = []
    held = rng.uniform(0.05, big) if rng.random() < 0.6 else 0.0
    last = 0
    for begin, end in at_work:
        memory[last : int(begin)] = held
        at, last = begin, int(begin)
        while at < end:
            at += rng.exponential(rng.uniform(150, 700))
            long = min(rng.lognormal(np.log(25), 1.1), 290)
            runs.append(
                (at, min(at + long, end), rng.uniform(0.3, 1.0), rng.uniform(0.02, 0.5), rng.uniform(0.05, 0.5))
            )
            now = min(int(at), seconds)
            memory[last:now] = held
            last = now
            if rng.random() < 0.2 or held == 0.0:
                held = float(rng.uniform(0.05, big))
            elif rng.random() < 0.03:
                held = 0.01
            at += long
        memory[last : min(int(end), seconds)] = held
        last = min(int(end), seconds)
        if rng.random() < 0.15:
            held = 0.0  # the kernel is culled
    memory[last:] = held
    for number in range(4):  # runs of a sort share their levels
        quarter = runs[number::4]
        if not quarter:
            continue
        share = during(seconds, [(a, b) for a, b, *_ in quarter]) * jitter(rng, seconds, 0.15)
        engine, tensor, dram = (float(np.mean([r[i] for r in quarter])) for i in (2, 3, 4))
        scale = rng.uniform(0.6, 1.2)
        load.engine += np.float32(min(engine * scale, 1)) * np.minimum(share, 1)
        load.tensor += np.float32(tensor * scale) * share
        load.dram += np.float32(dram * scale) * share
        load.sm += np.float32(min(engine * 0.6 * scale, 1)) * share
    for name in ("engine", "sm", "tensor", "dram"):
        setattr(load, name, np.clip(getattr(load, name), 0, 0.97).astype(np.float32))
    load.occupancy = 0.35 * load.sm
    load.pcie_rx = (0.4 * GB * load.engine).astype(np.float32)
    load.pcie_tx = (0.1 * GB * load.engine).astype(np.float32)
    load.cpu = (0.1 + 0.9 * during(seconds, at_work) * jitter(rng, seconds, 0.3)).astype(np.float32)
    load.memory = memory
    return load


def held(rng: np.random.Generator, seconds: int, memory: float) -> Load:
    """A process keeps its memory and does nothing; now and then something reads the GPU's state."""
    load = at_rest(seconds, memory)
    blips = during(seconds, [(t, t + 0.2) for t in rng.uniform(0, seconds, rng.poisson(seconds / (30 * HOUR)))])
    load.engine = (0.3 * blips).astype(np.float32)
    return load


def hung(rng: np.random.Generator, seconds: int, memory: float) -> Load:
    """A collective that never ends: the engine is busy for ever, and nothing is done."""
    load = at_rest(seconds, memory)
    load.engine += np.float32(0.998)
    load.sm += np.float32(rng.uniform(0.08, 0.3))
    load.occupancy += np.float32(0.04)
    load.dram += np.float32(0.005)
    load.cpu += np.float32(1.0)
    return load
