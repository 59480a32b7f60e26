"""Training and fine-tuning: steps of phases, and what comes between them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .hardware import GB
from .rhythm import HOUR, F, during, jitter, phase_share, step_count, wander
from .work import BYTES, CHANNELS, Load, at_rest


@dataclass(frozen=True, slots=True)
class Style:
    """A training. Levels are those of the compute phase; `exchange`: share of the step that waits for the links, in
    which a collective spins; `gap`: share in which the GPU has nothing to do.

    `nvlink`, `fabric`, `pcie`: bytes per second of a GPU in the exchange; `overlap`: share of it beside the compute.
    `cpu`: cores of a GPU that work all the time; `gap_cpu`: in the gap. `read`: bytes per second of a GPU.
    `checkpoint_gb`: of a node. `spin_sm`: SMs that a collective keeps active.
    """

    period: float
    tensor: float
    dram: float
    sm: float = 0.85
    occupancy: float = 0.35
    exchange: float = 0.0
    gap: float = 0.03
    nvlink: float = 0.0
    fabric: float = 0.0
    pcie: float = 0.4 * GB
    overlap: float = 0.3
    engine: float = 0.99
    cpu: float = 1.5
    gap_cpu: float = 0.0
    iowait: float = 0.0
    read: float = 0.02 * GB
    from_storage: bool = False
    memory: float = 0.8
    memory_noise: float = 0.0
    spin_sm: float = 0.2
    checkpoint_hours: float = 1.5
    checkpoint_gb: float = 20.0
    eval_hours: float = 0.0
    stalls_a_day: float = 0.0
    clock: float = 1.0
    unevenness: float = 0.04


def train(rng: np.random.Generator, seconds: int, style: Style) -> Load:
    """The history of one run from its first second to its last."""
    load = _steps(rng, seconds, style)
    _start(rng, load)
    if style.eval_hours:
        _evaluations(rng, load, style)
    _checkpoints(rng, load, style)
    if style.stalls_a_day:
        _stalls(rng, load, style)
    tail = int(min(rng.uniform(15, 90), seconds / 10))
    _silence(load, during(seconds, [(seconds - tail, seconds)]), read=0.0)
    return load


def _steps(rng: np.random.Generator, seconds: int, s: Style) -> Load:
    steps = step_count(rng, seconds, s.period, s.unevenness)
    worked = 1 - s.exchange - s.gap
    busy = phase_share(steps, 0, worked)
    spin = phase_share(steps, worked, worked + s.exchange)
    gap = np.clip(1 - busy - spin, 0, 1).astype(np.float32)
    level = (1 + wander(rng, seconds, 0.02)) * jitter(rng, seconds, 0.02)
    linked = s.overlap * busy + spin
    load = at_rest(seconds, s.memory)
    load.engine = np.minimum(s.engine * busy + 0.995 * spin, 1).astype(np.float32)
    load.sm = np.clip(s.sm * busy * level + s.spin_sm * spin, 0, 1)
    load.occupancy = np.clip(s.occupancy * busy * level + 0.05 * spin, 0, 1)
    load.tensor = np.clip(s.tensor * busy * level, 0, 0.97)
    load.dram = np.clip(s.dram * busy * level + 0.04 * spin, 0, 0.95)
    for name, level_of in (("nvlink", s.nvlink), ("fabric", s.fabric)):
        if level_of:
            flow = (level_of * linked * jitter(rng, seconds, 0.05)).astype(np.float32)
            setattr(load, f"{name}_tx", flow)
            setattr(load, f"{name}_rx", (flow * jitter(rng, seconds, 0.01)).astype(np.float32))
    load.pcie_rx = (s.pcie * (0.5 + 0.5 * linked) * jitter(rng, seconds, 0.08)).astype(np.float32)
    load.pcie_tx = (load.pcie_rx * (0.9 if s.exchange and not s.nvlink else 0.25)).astype(np.float32)
    load.clock = np.clip(s.clock * (1 + wander(rng, seconds, 0.006)), 0.2, 1).astype(np.float32)
    load.cpu = ((s.cpu + s.gap_cpu * (gap > 0.02)) * jitter(rng, seconds, 0.05)).astype(np.float32)
    load.iowait = (s.iowait * gap * jitter(rng, seconds, 0.2)).astype(np.float32)
    flow = (s.read * (1 + 0.5 * gap) * jitter(rng, seconds, 0.3)).astype(np.float32)
    if s.from_storage:
        load.storage_rx = flow
    else:
        load.read = flow
    if s.memory_noise:
        # The allocator's high-water mark: it rises in steps and hardly ever falls.
        rise = np.maximum.accumulate(1 - s.memory_noise * np.exp(-np.arange(seconds) / rng.uniform(600, 5400)))
        load.memory = (load.memory * rise).astype(np.float32)
    return load


def _silence(load: Load, share: F, *, read: float) -> None:
    """Nothing runs for a share of each second; memory stays."""
    left = 1 - share
    for name in (*BYTES, "engine", "sm", "occupancy", "tensor", "dram", "iowait"):
        setattr(load, name, getattr(load, name) * left)
    load.cpu = load.cpu * left + 0.6 * share
    load.read = (load.read * left + read * share).astype(np.float32)
    load.storage_rx = load.storage_rx * left
    for rank in load.ranks.values():
        for name in rank:
            if name not in ("memory", "clock"):
                rank[name] = rank[name] * left


def _start(rng: np.random.Generator, load: Load) -> None:
    long = min(rng.lognormal(np.log(150), 0.6), load.seconds / 4)
    _silence(load, during(load.seconds, [(0, long)]), read=rng.uniform(0.2, 1.5) * GB)
    ramp = np.clip(np.arange(load.seconds) / long, 0, 1).astype(np.float32)
    load.memory = load.memory * np.where(ramp < 0.3, 0.02, ramp).astype(np.float32)


def _evaluations(rng: np.random.Generator, load: Load, s: Style) -> None:
    spans = every(rng, load.seconds, s.eval_hours * HOUR, rng.uniform(120, 700))
    share = during(load.seconds, spans)
    # Forward passes alone: fewer bytes on the links, the same engine.
    for name, left in (
        ("nvlink_tx", 0.15),
        ("nvlink_rx", 0.15),
        ("fabric_tx", 0.02),
        ("fabric_rx", 0.02),
        ("tensor", 0.75),
        ("dram", 1.1),
    ):
        setattr(load, name, (getattr(load, name) * (1 - (1 - left) * share)).astype(np.float32))


def _checkpoints(rng: np.random.Generator, load: Load, s: Style) -> None:
    rate = rng.uniform(0.4, 2.5) * GB
    spans = every(rng, load.seconds, s.checkpoint_hours * HOUR, max(s.checkpoint_gb * GB / rate, 2))
    share = during(load.seconds, spans)
    _silence(load, share * np.float32(rng.uniform(0.6, 0.97)), read=0.0)
    load.pcie_tx = (load.pcie_tx + np.float32(min(0.3 * rate, 2 * GB)) * share).astype(np.float32)
    load.write = (load.write + rate * share * jitter(rng, load.seconds, 0.15)).astype(np.float32)


def _stalls(rng: np.random.Generator, load: Load, s: Style) -> None:
    count = rng.poisson(s.stalls_a_day * load.seconds / 86400)
    spans = []
    for _ in range(count):
        at, long = rng.uniform(0, load.seconds), rng.lognormal(np.log(1200), 0.7)
        spans.append((at, at + long))
        if rng.random() < 0.5:  # a rank is lost: the others spin in a collective until the time-out
            hung = during(load.seconds, [(at, at + long * 0.5)])
            _silence(load, hung, read=0.0)
            load.engine += hung
            load.sm += np.float32(s.spin_sm) * hung
            load.dram += np.float32(0.02) * hung
            spans[-1] = (at + long * 0.5, at + long)
    gone = during(load.seconds, spans)
    _silence(load, gone, read=0.3 * GB)
    load.memory = load.memory * np.where(gone > 0.5, np.float32(0.01), np.float32(1))


def every(rng: np.random.Generator, seconds: int, period: float, long: float) -> list[tuple[float, float]]:
    """Spans of `long` seconds, so far apart, not exactly."""
    out, at = [], period * rng.uniform(0.3, 1)
    while at < seconds:
        out.append((at, at + long * rng.uniform(0.8, 1.3)))
        at += period * rng.normal(1, 0.03) + long
    return out


def slow_rank(rng: np.random.Generator, seconds: int, style: Style, ranks: int) -> Load:
    """One rank needs longer than the others, who spin in the collective until it is there."""
    slow = rng.uniform(1.3, 1.8)
    base = 1 - style.exchange - style.gap
    others = replace(style, exchange=1 - style.gap - base / slow, overlap=style.overlap)
    load = train(rng, seconds, others)
    which = int(rng.integers(ranks))
    by_rank: dict[str, F] = {}
    worked = load.tensor / max(style.tensor, 1e-3)
    if rng.random() < 0.6:  # a slow GPU: it works while the others wait, with the clock down or its memory faulty
        stretch = np.minimum(slow * worked, 1)
        by_rank["tensor"] = np.clip(load.tensor * slow * rng.uniform(0.92, 1.0), 0, 0.97).astype(np.float32)
        by_rank["dram"] = np.clip(load.dram * slow * 0.95, 0, 0.95).astype(np.float32)
        by_rank["sm"] = np.clip(style.sm * stretch, 0, 1).astype(np.float32)
        by_rank["clock"] = (load.clock / np.float32(slow)).astype(np.float32)
    else:  # a slow host side: its GPU waits between kernels
        by_rank["engine"] = np.clip(load.engine * rng.uniform(0.55, 0.72), 0, 1).astype(np.float32)
        by_rank["sm"] = (load.tensor / max(style.tensor, 1e-3) * style.sm).astype(np.float32)
    load.ranks[which] = by_rank
    return load


def pipeline(rng: np.random.Generator, seconds: int, style: Style, ranks: int) -> Load:
    """Pipeline stages: bubbles at all of them, the first with the embeddings, the last with the loss."""
    load = train(rng, seconds, replace(style, gap=rng.uniform(0.12, 0.3)))
    for rank in range(ranks):
        level = np.float32(rng.normal(1, 0.05) + (0.12 if rank == ranks - 1 else 0))
        load.ranks[rank] = {
            "tensor": np.clip(load.tensor * level, 0, 0.97),
            "memory": np.clip(load.memory * rng.uniform(0.75, 1.1), 0, 0.97),
        }
    return load


def throttle(rng: np.random.Generator, load: Load, clock: float) -> Load:
    """Too warm under load: the clock goes down while it works, and up again in between."""
    warm = np.convolve(load.engine, np.full(61, 1 / 61, np.float32), mode="same") > 0.3
    low = clock * (1 + wander(rng, load.seconds, 0.02))
    load.clock = np.where(warm, np.minimum(low, load.clock), load.clock).astype(np.float32)
    load.throttled = warm.astype(np.float32)
    return load


def concatenated(parts: list[Load]) -> Load:
    """One after the other."""
    joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in CHANNELS}
    out = Load(**joined)
    for rank in {rank for load in parts for rank in load.ranks}:
        names = {name for load in parts for name in load.ranks.get(rank, {})}
        out.ranks[rank] = {name: np.concatenate([load.of(name, rank) for load in parts]) for name in names}
    return out
