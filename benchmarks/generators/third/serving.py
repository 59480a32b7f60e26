"""Serving: requests that come, batches that decode, and rest in between; and offline inference."""

from dataclasses import dataclass

import numpy as np

from .hardware import GB
from .rhythm import F, day_course, during, in_system, is_weekend, jitter, queued, wander
from .training import every
from .work import Load, at_rest


@dataclass(frozen=True, slots=True)
class Demand:
    """When requests come: `peak` a second, less by `depth` at night; `zone`: hours from UTC; `quiet_weekend`: share
    left. `bursts`: how uneven the minutes are."""

    peak: float
    depth: float
    zone: float
    peak_hour: float = 14.0
    quiet_weekend: float = 1.0
    bursts: float = 0.3
    sharpness: float = 1.0


def arrivals(rng: np.random.Generator, t0: float, seconds: int, d: Demand) -> F:
    """Requests a second that are to be expected."""
    t = t0 + np.arange(seconds, dtype=np.float64)
    rate = d.peak * day_course(t, d.zone, d.depth, d.peak_hour, d.sharpness)
    rate = rate * np.where(is_weekend(t, d.zone), d.quiet_weekend, 1.0)
    uneven = np.exp(wander(rng, seconds, d.bursts, 6) + wander(rng, seconds, d.bursts, 0.7) - d.bursts**2)
    return (rate * uneven).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Engine:
    """A serving engine for language models. Levels with a batch of one and with `batch` requests; `prefill`: share of a
    second that the prompt of one request takes, at `prefill_tensor`. `nvlink`, `pcie`: bytes per second of a GPU when
    the batch is full, and in a prompt."""

    seconds: float
    batch: float
    dram: tuple[float, float]
    tensor: tuple[float, float]
    prefill: float = 0.05
    prefill_tensor: float = 0.6
    memory: float = 0.9
    nvlink: float = 0.0
    pcie: float = 0.1 * GB
    fabric: float = 0.0
    engine: float = 0.98
    weights_share: float = 0.3


def serve(rng: np.random.Generator, t0: float, seconds: int, demand: Demand, e: Engine) -> Load:
    """A continuous batch: all that are in work share the engine; what is too much waits."""
    rate = arrivals(rng, t0, seconds, demand)
    held = in_system(rng, rate, e.seconds)
    running = np.minimum(held, e.batch)
    fill = running / e.batch
    some = np.minimum(held, 1)
    prompts = np.clip(rng.poisson(rate * 20).astype(np.float32) / 20 * e.prefill * jitter(rng, seconds, 0.4), 0, 0.9)
    prompts = np.minimum(prompts, np.where(held > 0, 0.9, 0)).astype(np.float32)
    decode = np.maximum(some - prompts, 0)
    noise = jitter(rng, seconds, 0.03)
    load = at_rest(seconds, e.memory)
    load.engine = np.clip(e.engine * np.maximum(some, prompts) * jitter(rng, seconds, 0.005), 0, 1)
    load.dram = np.clip((decode * (e.dram[0] + (e.dram[1] - e.dram[0]) * fill) + 0.25 * prompts) * noise, 0, 0.93)
    load.tensor = np.clip(
        (decode * (e.tensor[0] + (e.tensor[1] - e.tensor[0]) * fill) + e.prefill_tensor * prompts) * noise, 0, 0.95
    )
    load.sm = np.clip((decode * (0.35 + 0.4 * fill) + 0.88 * prompts) * noise, 0, 1)
    load.occupancy = np.clip((decode * (0.1 + 0.15 * fill) + 0.3 * prompts) * noise, 0, 1)
    linked = decode * (0.15 + 0.85 * fill) * 0.6 + prompts
    for name, level in (("nvlink", e.nvlink), ("pcie", e.pcie), ("fabric", e.fabric)):
        if level:
            setattr(load, f"{name}_tx", (level * linked * noise).astype(np.float32))
            setattr(load, f"{name}_rx", (level * linked * jitter(rng, seconds, 0.05)).astype(np.float32))
    load.cpu = (0.15 + 1.1 * some).astype(np.float32)
    load.queue = held
    load.kv_share = np.clip(fill * (1 + wander(rng, seconds, 0.05)), 0, 1).astype(np.float32)
    load.tokens = (running * 30).astype(np.float32)
    return load


def requests(
    rng: np.random.Generator,
    t0: float,
    seconds: int,
    demand: Demand,
    *,
    each: float,
    tensor: float,
    dram: float,
    memory: float,
    sm: float = 0.6,
    spread: float = 0.4,
    memory_noise: float = 0.0,
    cpu: float = 1.0,
    engine: float = 0.98,
) -> Load:
    """One request (or batch) after the other, each of which takes `each` seconds of the GPU: image generation, speech,
    classifiers. `memory_noise`: what the framework's cache takes and returns."""
    worked = queued(rng, arrivals(rng, t0, seconds, demand), each, spread)
    noise = jitter(rng, seconds, 0.04)
    load = at_rest(seconds, memory)
    load.engine = (engine * worked).astype(np.float32)
    load.sm, load.tensor = np.clip(sm * worked * noise, 0, 1), np.clip(tensor * worked * noise, 0, 0.95)
    load.dram, load.occupancy = np.clip(dram * worked * noise, 0, 0.93), 0.4 * sm * worked
    load.pcie_rx = (0.3 * GB * worked * noise).astype(np.float32)
    load.pcie_tx = (0.1 * GB * worked * noise).astype(np.float32)
    load.cpu = (0.1 + cpu * worked).astype(np.float32)
    load.storage_rx = (2e6 * worked).astype(np.float32)
    if memory_noise:
        load.memory = np.clip(memory * (1 + wander(rng, seconds, memory_noise, 4)), 0.02, 0.97).astype(np.float32)
    return load


@dataclass(frozen=True, slots=True)
class Batch:
    """Inference over a list: levels while it runs. `items`: seconds from one file of the list to the next; `spread`:
    how much items differ; `gap`: share in which the next batch is made ready."""

    tensor: float
    dram: float
    sm: float
    memory: float
    items: float
    gap: float = 0.05
    spread: float = 0.15
    nvlink: float = 0.0
    pcie: float = 0.3 * GB
    cpu: float = 2.0
    read: float = 0.05 * GB
    write: float = 5e6
    occupancy: float = 0.3
    flat: bool = True
    engine: float = 0.985


def offline(rng: np.random.Generator, seconds: int, b: Batch) -> Load:
    """As fast as it goes, without a clock: levels follow the items, and there is no step."""
    # Items of differing length: the level holds for one item and changes with the next.
    count = int(seconds / b.items) + 8
    ends = np.cumsum(b.items * rng.lognormal(-0.02, 0.5, count))
    item = np.minimum(np.searchsorted(ends, np.arange(seconds)), count - 1)
    level = np.exp(rng.normal(0, b.spread, count)).astype(np.float32)[item] * jitter(rng, seconds, 0.05)
    wait = (rng.random(count) < 0.5)[item]
    pauses = np.clip(b.gap * 2 * wait * jitter(rng, seconds, 0.8), 0, 0.9).astype(np.float32)
    busy = 1 - pauses
    load = at_rest(seconds, b.memory)
    load.engine = np.clip(b.engine * busy, 0, 1).astype(np.float32)
    load.tensor, load.dram = np.clip(b.tensor * busy * level, 0, 0.95), np.clip(b.dram * busy * level, 0, 0.93)
    load.sm = np.clip(b.sm * busy * np.sqrt(level), 0, 1)
    load.occupancy = np.clip(b.occupancy * busy * level, 0, 1)
    load.nvlink_tx = load.nvlink_rx = (b.nvlink * busy * level).astype(np.float32)
    load.pcie_rx = (b.pcie * busy * level).astype(np.float32)
    load.pcie_tx = (0.3 * b.pcie * busy * level).astype(np.float32)
    load.cpu = (b.cpu * jitter(rng, seconds, 0.1)).astype(np.float32)
    load.read = (b.read * jitter(rng, seconds, 0.4)).astype(np.float32)
    outputs = during(seconds, every(rng, seconds, rng.uniform(300, 1800), 3))
    load.write = (b.write + 0.3 * GB * outputs).astype(np.float32)
    if not b.flat:
        load.memory = np.clip(b.memory * (1 + wander(rng, seconds, 0.08, 3)), 0.03, 0.95).astype(np.float32)
    _begin(rng, load)
    return load


def _begin(rng: np.random.Generator, load: Load) -> None:
    long = min(rng.lognormal(np.log(90), 0.5), load.seconds / 5)
    left = 1 - during(load.seconds, [(0, long), (load.seconds - 20, load.seconds)])
    for name in ("engine", "sm", "tensor", "dram", "occupancy", "nvlink_tx", "nvlink_rx", "pcie_rx", "pcie_tx"):
        setattr(load, name, getattr(load, name) * left)
    load.memory = load.memory * np.clip(np.arange(load.seconds) / long, 0.05, 1).astype(np.float32)


def worker_at_queue(rng: np.random.Generator, seconds: int, b: Batch, duty: float, mean_run: float) -> Load:
    """A worker at a queue: at full speed while there is something, at rest until the next delivery."""
    load = offline(rng, seconds, b)
    spans, at = [], rng.uniform(0, mean_run)
    while at < seconds:
        long = rng.lognormal(np.log(mean_run), 0.6)
        spans.append((at, at + long))
        at += long / duty * rng.uniform(0.7, 1.3)
    share = during(seconds, spans)
    for name in (
        "engine",
        "sm",
        "tensor",
        "dram",
        "occupancy",
        "nvlink_tx",
        "nvlink_rx",
        "pcie_rx",
        "pcie_tx",
        "read",
        "write",
    ):
        setattr(load, name, getattr(load, name) * share)
    load.cpu = (0.1 + load.cpu * share).astype(np.float32)
    return load
