"""What a workload does to its GPUs, second by second: segments of work, integrated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

F = npt.NDArray[np.floating]

# Per GPU. compute, memory: share of what the part sustains; nv_*, fab_*, pcie_*: share of the link's one-way peak.
CHANNELS = ("engine", "sm", "occupancy", "compute", "memory", "fp32", "nv_tx", "nv_rx", "fab_tx", "fab_rx", "pcie_tx",
            "pcie_rx", "spin")  # fmt: skip
HOST_CHANNELS = ("cpu", "io_wait", "read", "write", "storage")


@dataclass(slots=True)
class Activity:
    """Over `seconds` seconds: `gpu` channel -> (g, s) or (1, s) where all GPUs are alike; `host` channel -> (s,).

    `memory`: bytes, (g, s) or (1, s) in use; `clock`: (g, s) share of the boost clock that a fault allows, 1 = all;
    `throttle`: NVML's reasons in force, (g, s). `fast_period`: seconds of a step, if there is one.
    """

    seconds: int
    gpu: dict[str, F]
    host: dict[str, F] = field(default_factory=dict)
    memory: F | None = None
    clock: F | None = None
    throttle: F | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one step: its mean length in seconds, how it varies, and its rates by channel."""

    seconds: float
    rates: Mapping[str, float]
    spread: float = 0.03


def run(rng: np.random.Generator, segments: Sequence[Segment], seconds: int, *, extra: F | None = None) -> dict[str, F]:
    """Repeat the segments over `seconds` and integrate each channel onto whole seconds.

    `extra`: further seconds of the last segment by step (a slow loader, a checkpoint); repeated as often as needed.
    """
    step = sum(s.seconds for s in segments) + (float(extra.mean()) if extra is not None else 0.0)
    steps = int(seconds / step * 1.15) + 20
    lengths = np.array([s.seconds for s in segments])
    spreads = np.array([s.spread for s in segments])
    drawn = lengths * np.exp(rng.normal(0, 1, (steps, len(segments))) * spreads - spreads**2 / 2)
    if extra is not None:
        drawn[:, -1] += np.resize(extra, steps)
    # Slow drift: data and batches differ over hours, steps are not metronomes.
    drawn *= np.exp(np.interp(np.arange(steps), *_walk(rng, steps, 0.02)))[:, None]
    edges = np.concatenate([[0.0], np.cumsum(drawn.ravel())])
    marks = np.arange(seconds + 1, dtype=float) + rng.uniform(0, step)
    return {name: _integrate(edges, drawn, [s.rates.get(name, 0.0) for s in segments], marks) for name in CHANNELS}


def _integrate(edges: F, drawn: F, rates: list[float], marks: F) -> F:
    if not any(rates):
        return np.zeros((1, len(marks) - 1))
    total = np.concatenate([[0.0], np.cumsum((drawn * np.array(rates)).ravel())])
    return np.diff(np.interp(marks, edges, total))[None, :]


def _walk(rng: np.random.Generator, steps: int, scale: float) -> tuple[F, F]:
    knots = max(3, steps // 400)
    return np.linspace(0, steps, knots), rng.normal(0, scale, knots)


def constant(seconds: int, value: float) -> F:
    return np.full((1, seconds), value)


def blank(seconds: int) -> dict[str, F]:
    return {name: np.zeros((1, seconds)) for name in CHANNELS}
