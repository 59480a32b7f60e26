"""What a job does on its GPUs, second by second.

Rests on: NVML's documentation of utilization (the share of its last window in which a kernel ran; NCCL kernels that
wait count as running) and of power (an average over a second on Ampere and newer); DCGM's of the profiling fields;
frameworks' behavior: memory grows while a model is loaded and stays with PyTorch's caching allocator, ranks of a gang
step together because each step ends in a collective, all of them stand still while one saves a checkpoint, a slow rank
makes the others wait with a busy engine at less power; continuous batching in serving; the pauses in running jobs that
were counted in Philly's utilization logs (whole minutes at 0 % within a job).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from .jobs import DAY, HOUR, Job

Rng = np.random.Generator
Floats = npt.NDArray[np.floating]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Signals:
    """Rows are the job's GPUs, columns seconds. `util`, `engine`, `tensor`, `dram`, `memory`: 0 to 1; `power`: 0 at
    rest with a context, 1 at the limit; `context`: whether a process holds the GPU; `wire`: share of the fabric's line
    rate for each of its GPUs."""

    util: Floats
    engine: Floats
    tensor: Floats
    dram: Floats
    memory: Floats
    power: Floats
    context: Mask
    wire: Floats

    def where(self, on: Mask) -> Signals:
        """Nothing at the seconds at which `on` is not (no process, no memory)."""
        cut = {one.name: np.where(on, value := getattr(self, one.name), value.dtype.type(0)) for one in fields(self)}
        return Signals(**cut)  # type: ignore[arg-type]


def signals(job: Job, first: int, last: int, start_of_day: float = 0.0) -> Signals:
    """Of the seconds from `first` to `last` of the window, all of them within the job. `start_of_day`: UTC seconds of
    the day at which the window begins."""
    make = {"training": _training, "batch": _batch, "service": _service, "notebook": _notebook, "held": _held}
    seconds = np.arange(first, last)
    return make[job.kind](job, seconds, np.random.default_rng(job.seed), start_of_day)


def _noise(rng: Rng, rows: int, count: int, memory_s: float, sigma: float) -> Floats:
    """Noise that remembers about so many seconds, made coarsely and drawn out."""
    every = max(1, int(memory_s / 4))
    length = count // every + 3
    decay = np.exp(-every / memory_s)
    white = rng.standard_normal((rows, length + 30)) * np.sqrt(1 - decay**2)
    smooth = np.apply_along_axis(lambda row: np.convolve(row, decay ** np.arange(30), mode="valid"), 1, white)
    places = np.arange(count) / every
    return np.stack([np.interp(places, np.arange(row.size), row) for row in smooth]).astype(np.float32) * sigma


def _pauses(rng: Rng, count: int, age: Floats, every_s: float, lasts_s: float) -> Mask:
    """Spans of about `lasts_s` at about every `every_s` of the job's age."""
    phase = rng.uniform(0, every_s)
    drawn = lasts_s * rng.lognormal(0, 0.25, int(age[-1] / every_s) + 3)
    number = ((age + phase) // every_s).astype(int)
    return ((age + phase) % every_s) < drawn[np.minimum(number, len(drawn) - 1)] if count else np.zeros(0, dtype=bool)


def _training(job: Job, t: npt.NDArray[np.int64], rng: Rng, _: float) -> Signals:
    n, count, age = len(job.devices), len(t), t - job.start
    same = np.random.default_rng(job.alike)  # what those who were submitted together have in common
    warm = float(np.exp(same.uniform(np.log(12), np.log(200)))) * rng.uniform(0.9, 1.1)
    period = float(np.exp(same.uniform(np.log(0.3), np.log(14)))) * rng.uniform(0.98, 1.02)
    stall = 0.0 if same.random() < 0.5 else float(same.uniform(0.03, 0.5))
    comm = float(same.uniform(0.05, 0.35)) if n > 1 else 0.0
    level, low = float(same.uniform(0.45, 0.95)), float(same.uniform(0.15, 0.35))
    held = float(same.uniform(0.25, 0.95))
    engine, power = _steps(rng, t, period, stall, comm, level, low)
    own = 1 + _noise(rng, n, count, 40, 0.012) + rng.normal(0, 0.012, (n, 1)).astype(np.float32)
    common = 1 + _noise(rng, 1, count, 400, float(same.uniform(0.005, 0.04)))
    util = np.clip(engine * (1 + rng.normal(0, 0.01, (n, count))), 0, 1)
    watts = np.clip(power * own * common, 0, 1)
    util, watts = _straggler(rng, util, watts, n)
    checkpoint = _pauses(rng, count, age, float(np.exp(same.uniform(np.log(900), np.log(7200)))),
                         float(np.exp(same.uniform(np.log(4), np.log(150)))))  # fmt: skip
    quiet = np.broadcast_to((age < warm) | (checkpoint & (age > warm)), (n, count))
    # Reading a model or writing it out takes a kernel now and then.
    util = np.where(quiet, (rng.random((n, count)) < 0.08) * rng.uniform(0, 0.3, (n, count)), util)
    watts = np.where(quiet, 0.05 + 0.05 * rng.random((n, count)), watts)
    if same.random() < 0.6:
        trial = _pauses(rng, count, age, float(same.uniform(1800, 9000)), float(same.uniform(30, 500))) & ~quiet[0]
        util = np.where(trial, np.clip(float(same.uniform(0.4, 1)) * util, 0, 1), util)
        watts = np.where(trial, watts * float(same.uniform(0.5, 0.9)), watts)
    stages = rng.uniform(0.75, 1.0, (n, 1)) if n > 1 and same.random() < 0.2 else 1 + rng.normal(0, 0.008, (n, 1))
    grown = np.clip(age / warm, 0.04, 1) ** 1.5
    memory = np.clip(held * stages * grown * np.ones((n, 1)), 0.006, 0.985)
    wire = np.zeros((n, count))
    if len(job.nodes) > 1:
        wire = np.clip(float(same.uniform(0.03, 0.5)) * watts / max(level, 0.1) * (util > 0.4), 0, 1)
    alive = _alive(job, age, rng) & _ranks(job, age, rng)
    busy = util * watts
    return _of(util, util, busy * float(same.uniform(0.2, 0.7)), busy * float(same.uniform(0.3, 0.9)), memory, watts,
               np.ones((n, count), dtype=bool), wire).where(alive)  # fmt: skip


def _ranks(job: Job, age: Floats, rng: Rng) -> Mask:
    """When each rank's process holds its GPU: Python and its libraries are loaded first, the ranks come and go within
    some seconds of one another."""
    lag = min(float(np.exp(rng.uniform(np.log(4), np.log(60)))), 0.3 * (job.end - job.start))
    of_node = {node: float(rng.uniform(0, 3)) for node in job.nodes}
    first = np.array([[lag + of_node[node] + float(rng.uniform(0, 2))] for node, _ in job.devices])
    last = job.end - job.start - rng.uniform(0, 2, first.shape)
    return (age >= first) & (age <= np.maximum(last, first))


def _alive(job: Job, age: Floats, rng: Rng) -> Mask:
    """A long job may fail, and is begun anew on its GPUs within minutes: no process holds them meanwhile."""
    lasts, alive = job.end - job.start, np.ones(len(age), dtype=bool)
    if lasts > 1.5 * HOUR and rng.random() < 0.15:
        at, gone = rng.uniform(0.2, 0.8) * lasts, float(np.exp(rng.uniform(np.log(15), np.log(240))))
        alive &= ~((age > at) & (age < at + gone))
    return alive


def _steps(
    rng: Rng, t: npt.NDArray[np.int64], period: float, stall: float, comm: float, level: float, low: float
) -> tuple[Floats, Floats]:
    """Engine and power of a gang by the second: compute, exchange (the engine busy, less power), wait for input."""
    parts = 4 if period > 1.2 else 0
    if not parts:
        mean = level * (1 - stall - comm) + 0.55 * level * comm + low * 0.4 * stall
        shape = (1, len(t))
        return (
            np.clip(1 - stall + rng.normal(0, 0.015, shape), 0, 1).astype(np.float32),
            np.clip(mean + rng.normal(0, 0.01, shape), 0, 1).astype(np.float32),
        )
    drift = np.cumsum(rng.normal(0, 0.002 * period, len(t)))
    at = ((t[:, None] + drift[:, None] + np.arange(parts) / parts) / period) % 1.0
    waits, talks = at < stall, (at >= stall) & (at < stall + comm)
    engine = 1.0 - waits
    power = np.where(waits, 0.4 * low, np.where(talks, 0.55 * level, level))
    return engine.mean(axis=1)[None].astype(np.float32), power.mean(axis=1)[None].astype(np.float32)


def _straggler(rng: Rng, util: Floats, watts: Floats, n: int) -> tuple[Floats, Floats]:
    """Now and then one GPU of a gang is slow: it works without a break, the others wait for it."""
    if n < 2 or rng.random() > 0.12:
        return util, watts
    slow, count = int(rng.integers(n)), util.shape[1]
    first = int(rng.uniform(0, 0.7) * count)
    during = np.zeros(count, dtype=bool)
    during[first : first + int(rng.uniform(0.1, 1.0) * count)] = True
    others = np.arange(n) != slow
    watts = np.where(during & others[:, None], watts * 0.7, watts)
    util = np.where(during & ~others[:, None], np.clip(util * rng.uniform(0.85, 1.0), 0, 1), util)
    return util, watts


def _batch(job: Job, t: npt.NDArray[np.int64], rng: Rng, _: float) -> Signals:
    """Files one after the other: no gang, no checkpoints, a short pause at each file."""
    n, count, age = len(job.devices), len(t), t - job.start
    warm, level = float(rng.uniform(8, 90)), float(rng.uniform(0.4, 0.95))
    busy = np.clip(rng.uniform(0.75, 1.0) + _noise(rng, 1, count, 30, 0.05), 0, 1) * np.ones((n, 1))
    between = _pauses(rng, count, age, float(rng.uniform(60, 900)), float(rng.uniform(1, 12)))
    util = np.where(between | (age < warm), 0.02, busy * (1 + rng.normal(0, 0.02, (n, count))))
    util = np.clip(util, 0, 1)
    watts = np.clip(level * util * (1 + _noise(rng, n, count, 60, 0.03)) + 0.04, 0, 1)
    memory = np.clip(rng.uniform(0.15, 0.9) * np.clip(age / warm, 0.04, 1) * np.ones((n, 1)), 0.006, 0.98)
    return _of(util, util, 0.2 * util, 0.7 * util, memory * np.ones((n, count)), watts, np.ones((n, count), dtype=bool),
               np.zeros((n, count))).where(_ranks(job, age, rng))  # fmt: skip


def _service(job: Job, t: npt.NDArray[np.int64], rng: Rng, start_of_day: float) -> Signals:
    """A replica: requests by day and night; its GPUs take each of them together. Others of the service share the load
    of the day with it, and no request."""
    n, count = len(job.devices), len(t)
    same = np.random.default_rng(job.alike)
    peak, low = float(np.exp(same.uniform(np.log(0.08), np.log(0.95)))), float(same.uniform(0.15, 0.6))
    hour = ((t + start_of_day) % DAY) / HOUR
    wave = low + (1 - low) * (0.5 + 0.5 * np.cos((hour - same.uniform(12, 20)) / 12 * np.pi))
    load = np.clip(peak * wave * (1 + _noise(same, 1, count, 1500, 0.1)[0] + _noise(rng, 1, count, 90, 0.12)[0]), 0, 1)
    held, lasts = float(same.uniform(0.3, 0.93)), float(np.exp(same.uniform(np.log(0.3), np.log(6))))
    arrivals = rng.poisson(load / lasts)
    length = max(1, round(lasts))
    running = np.convolve(arrivals, np.ones(length), mode="full")[:count]
    share = min(lasts, 1.0)
    engine = np.clip(running * share, 0, 1) if peak < 0.5 else np.clip(running * share * 1.6, 0, 1)
    depth = np.clip(running / max(running.max(), 1), 0, 1)
    util = np.clip(engine * (1 + rng.normal(0, 0.015, (n, count))), 0, 1)
    watts = np.clip((0.12 + 0.5 * depth) * engine * (1 + rng.normal(0, 0.015, (n, 1))) + 0.04, 0, 1) * np.ones((n, 1))
    age = t - job.start
    up = np.broadcast_to(age > 120, (n, count))
    memory = np.where(up, held, held * np.clip(age / 120, 0.02, 1)) * (1 + rng.normal(0, 0.003, (n, 1)))
    return _of(np.where(up, util, 0), np.where(up, util, 0), 0.1 * util * up, 0.7 * util * up, memory,
               np.where(up, watts, 0.04), np.ones((n, count), dtype=bool), np.zeros((n, count)))  # fmt: skip


def _notebook(job: Job, t: npt.NDArray[np.int64], rng: Rng, _: float) -> Signals:
    """Cells that run for seconds to minutes, thought between them, lunch; what a cell allocates stays."""
    count, begin = len(t), float(t[0] - job.start)
    running, memory = np.zeros(count), np.zeros(count)
    # From its start on, also where the window begins later: what was allocated before is held.
    age, held, most = float(rng.uniform(5, 120)), 0.01, float(rng.uniform(0.1, 0.95))
    while age < job.end - job.start:
        cell = float(np.exp(rng.normal(np.log(35), 1.3)))
        held = min(most, held + float(rng.exponential(0.03)))
        first, last = (int(np.clip(one - begin, 0, count)) for one in (age, age + cell))
        running[first:last], memory[first:] = rng.uniform(0.15, 1.0), held
        pause = float(rng.uniform(2400, 9000)) if rng.random() < 0.05 else 0.0
        age += cell + float(np.exp(rng.normal(np.log(200), 1.2))) + pause
    util = np.clip(running * (1 + rng.normal(0, 0.1, count)), 0, 1)[None]
    watts = np.clip(0.6 * util * rng.uniform(0.5, 1) + 0.04, 0, 1)
    memory = np.maximum(memory, 0.008)[None]
    return _of(
        util, util, 0.2 * util, 0.35 * util, memory, watts, np.ones((1, count), dtype=bool), np.zeros((1, count))
    )


def _held(job: Job, t: npt.NDArray[np.int64], rng: Rng, _: float) -> Signals:
    shape = (len(job.devices), len(t))
    zero = np.zeros(shape)
    return _of(zero, zero, zero, zero, np.full(shape, rng.uniform(0.02, 0.9)), 0.04 + 0.005 * rng.random(shape),
               np.ones(shape, dtype=bool), zero)  # fmt: skip


def _of(*values: npt.NDArray) -> Signals:
    """Signals in the order of the fields, rows that all GPUs share drawn out."""
    shape = values[6].shape
    drawn = (np.broadcast_to(one, shape).astype(bool if place == 6 else np.float32) for place, one in enumerate(values))
    named = dict(zip((one.name for one in fields(Signals)), drawn, strict=True))
    return Signals(**named)
