"""What work does on its GPUs, a sample at a time, with its true kind and bottleneck.

Rests on: DCGM's documentation of the profiling fields (tensor 0.93 at best, DRAM 0.8 to 0.9 in practice); NCCL kernels
that keep the engine busy on a few SMs while a job waits for its network or its host; published readings of Acme's LLM
clusters (GPU_UTIL near 100 with SM activity at a third to a half); decode as reading of weights (DRAM high, tensor low)
and prefill as its opposite; Alibaba's cluster-trace-v2026-GenAI (production serving: 5 to 12 % busy, bursts of some
seconds, day and night, memory held); checkpoints as bursts of writes with a dip in activity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Activity:
    """Rows are GPUs (or instances), columns samples. Shares are 0 to 1; `wire` and links are shares of the line rate
    one way; `cpu` is a share of the GPU's part of the host; `disk` and `web` are bytes per second a GPU."""

    context: Floats
    engine: Floats
    sm: Floats
    tensor: Floats
    dram: Floats
    memory: Floats
    nvlink: Floats
    pcie_tx: Floats
    pcie_rx: Floats
    wire: Floats
    cpu: Floats
    disk_read: Floats
    disk_write: Floats
    web: Floats

    def row(self, number: int) -> Activity:
        return Activity(**{one.name: getattr(self, one.name)[number] for one in fields(self)})

    def during(self, mask: npt.NDArray[np.bool_]) -> Activity:
        """Nothing outside of `mask`."""
        return Activity(**{one.name: np.where(mask, getattr(self, one.name), 0.0) for one in fields(self)})


@dataclass(frozen=True)
class Clock:
    """The moments of a fleet: Unix seconds, evenly spaced."""

    ts: Floats
    interval_s: float

    @property
    def count(self) -> int:
        return len(self.ts)

    @property
    def hour(self) -> Floats:
        return (self.ts % 86400) / 3600

    @property
    def workday(self) -> npt.NDArray[np.bool_]:
        return (self.ts // 86400 + 3) % 7 < 5


@dataclass(frozen=True)
class Span:
    """What a workload spreads over."""

    devices: int
    nodes: int


Maker = Callable[[Clock, Span, np.random.Generator], Activity]


@dataclass(frozen=True)
class Behavior:
    """`also`: bottlenecks that a careful judge may name as well."""

    kind: str
    bottleneck: str
    make: Maker
    also: tuple[str, ...] = ()
    launch_bound: bool = False


def still(shape: tuple[int, ...]) -> Activity:
    """Nothing at all, without a context."""
    return Activity(**{one.name: np.zeros(shape) for one in fields(Activity)})


def wander(rng: np.random.Generator, rows: int, count: int, samples: float) -> Floats:
    """Noise of unit variance that remembers about `samples` samples."""
    length = min(max(int(6 * samples), 1), 2000)
    kernel = np.exp(-np.arange(length) / max(samples, 1e-9))
    kernel /= np.sqrt((kernel**2).sum())
    white = rng.standard_normal((rows, count + length - 1))
    return np.stack([np.convolve(row, kernel, mode="valid") for row in white])


def around(
    rng: np.random.Generator, clock: Clock, span: Span, mean: float, spread: float = 0.04, own: float = 0.02
) -> Floats:
    """A level with noise that all devices share, and some of each device's own; within 0 and 1."""
    common = spread * wander(rng, 1, clock.count, 600 / clock.interval_s)
    each = own * rng.standard_normal((span.devices, clock.count)) + own * rng.standard_normal((span.devices, 1))
    return np.clip(mean * (1 + common + each), 0.0, 1.0)


def _training(
    engine: float, sm: float, tensor: float, dram: float, *, nvlink: float = 0.12, wire: float = 0.1,
    pcie: float = 0.03, cpu: float = 0.12, read: float = 4e7, memory: float = 0.82, checkpoint_h: float = 2.0,
    spread: float = 0.03,
) -> Maker:  # fmt: skip
    def make(clock: Clock, span: Span, rng: np.random.Generator) -> Activity:
        shape = (span.devices, clock.count)
        phase = rng.uniform(0, checkpoint_h * 3600)
        saving = ((clock.ts - clock.ts[0] + phase) % (checkpoint_h * 3600)) < max(200.0, clock.interval_s)
        busy = np.where(saving, rng.uniform(0.1, 0.35, clock.count), 1.0)
        pace = 1 + spread * wander(rng, 1, clock.count, 900 / clock.interval_s)

        def level(mean: float, own: float = 0.02) -> Floats:
            return np.clip(around(rng, clock, span, mean, 0.01, own) * busy * pace, 0.0, 1.0)

        links = nvlink if span.devices > 1 else 0.0
        fabric = wire if span.nodes > 1 else 0.0
        held = np.clip(memory * (1 + 0.01 * rng.standard_normal((span.devices, 1))), 0.02, 0.97)
        return Activity(
            context=np.ones(shape), engine=np.clip(level(engine, 0.004), 0, 1), sm=level(sm), tensor=level(tensor),
            dram=level(dram), memory=held * np.ones(shape), nvlink=level(links), pcie_tx=level(pcie * 0.6),
            pcie_rx=level(pcie), wire=level(fabric), cpu=level(cpu, 0.05),
            disk_read=read * level(1.0, 0.2), disk_write=np.where(saving, 1.2e9, 2e5) * np.ones(shape),
            web=2e4 * level(1.0, 0.3),
        )  # fmt: skip

    return make


def daily(clock: Clock, rng: np.random.Generator, low: float, high: float, peak_h: float = 15.0) -> Floats:
    """Load over the day, between two shares, somewhat lower at weekends."""
    wave = 0.5 + 0.5 * np.cos((clock.hour - peak_h) / 24 * 2 * np.pi)
    noise = 1 + 0.08 * wander(rng, 1, clock.count, 1200 / clock.interval_s)[0]
    return np.clip((low + (high - low) * wave) * np.where(clock.workday, 1.0, 0.8) * noise, 0.0, 1.0)


def _serving(
    low: float, high: float, sm: float, tensor: float, dram: float, *, nvlink: float = 0.05, memory: float = 0.9,
    own: float = 0.05,
) -> Maker:  # fmt: skip
    """Sustained requests: the levels are those at full load; memory is allocated once. `own`: how much of the noise is
    each device's; under tensor parallelism every token takes all of them."""

    def make(clock: Clock, span: Span, rng: np.random.Generator) -> Activity:
        shape = (span.devices, clock.count)
        load = daily(clock, rng, low, high)
        noise = own * rng.standard_normal(shape)
        if own < 0.05:
            noise = noise + 0.05 * rng.standard_normal(clock.count)
        each = np.clip(load * (1 + noise), 0.0, 1.0)
        # A batch that is half full keeps the engine nearly as busy: each token reads all weights.
        engine = np.clip(each**0.35, 0, 0.99) * (each > 0.01)
        return Activity(
            context=np.ones(shape), engine=engine, sm=sm * engine, tensor=tensor * each, dram=dram * engine**1.2,
            memory=memory * np.ones(shape), nvlink=(nvlink if span.devices > 1 else 0.0) * each, pcie_tx=0.01 * each,
            pcie_rx=0.008 * each, wire=np.zeros(shape), cpu=0.1 + 0.1 * each, disk_read=1e5 * np.ones(shape),
            disk_write=2e5 * np.ones(shape), web=1.5e6 * each,
        )  # fmt: skip

    return make


def _light(low: float, high: float, tensor: float, dram: float) -> Maker:
    """Requests that come one by one, day and night: each takes the engine for some seconds, then nothing runs."""

    def make(clock: Clock, span: Span, rng: np.random.Generator) -> Activity:
        shape = (span.devices, clock.count)
        mean, seconds = rng.uniform(low, high), float(np.exp(rng.uniform(np.log(0.4), np.log(6.0))))
        load = mean * daily(clock, rng, 0.75, 1.25) * rng.uniform(0.85, 1.15, (span.devices, 1))
        engine = np.clip(rng.poisson(load * clock.interval_s / seconds) * seconds / clock.interval_s, 0, 1)
        held = rng.uniform(0.3, 0.9)
        return Activity(
            context=np.ones(shape), engine=engine, sm=0.55 * engine, tensor=tensor * engine, dram=dram * engine,
            memory=held * np.ones(shape), nvlink=np.zeros(shape), pcie_tx=0.01 * engine, pcie_rx=0.01 * engine,
            wire=np.zeros(shape), cpu=0.05 + 0.2 * engine, disk_read=2e4 * np.ones(shape),
            disk_write=1e5 * np.ones(shape), web=4e5 * engine,
        )  # fmt: skip

    return make


def _interactive(clock: Clock, span: Span, rng: np.random.Generator) -> Activity:
    """A notebook: runs of a few minutes in working hours; what it allocates, the kernel keeps for days."""
    shape = (span.devices, clock.count)
    working = clock.workday & (clock.hour > rng.uniform(7, 9)) & (clock.hour < rng.uniform(17, 20))
    running = working & (wander(rng, 1, clock.count, 150 / clock.interval_s)[0] > 1.1)
    engine = np.where(running, rng.uniform(0.2, 0.95, shape), 0.0)
    steps = np.cumsum(np.where(running, rng.uniform(0, 0.01, clock.count), 0.0))
    memory = np.clip(0.03 + steps % 0.5, 0, 0.9) * np.ones(shape)
    return Activity(
        context=np.ones(shape), engine=engine, sm=0.6 * engine, tensor=0.2 * engine, dram=0.35 * engine,
        memory=memory, nvlink=np.zeros(shape), pcie_tx=0.02 * engine, pcie_rx=0.05 * engine, wire=np.zeros(shape),
        cpu=0.01 + 0.3 * engine, disk_read=5e6 * engine, disk_write=1e5 * engine, web=2e4 * engine,
    )  # fmt: skip


def _until(make: Maker, days: float) -> Maker:
    """Work that ends after so many days of the fleet while its process lives on: memory and context stay."""

    def made(clock: Clock, span: Span, rng: np.random.Generator) -> Activity:
        return _only_while(make(clock, span, rng), clock.ts - clock.ts[0] < days * 86400)

    return made


def _nightly(make: Maker, begin_h: float, end_h: float) -> Maker:
    """Work of some hours a day in a process that lives on."""

    def made(clock: Clock, span: Span, rng: np.random.Generator) -> Activity:
        return _only_while(make(clock, span, rng), (clock.hour >= begin_h) & (clock.hour < end_h))

    return made


def _without(make: Maker, begin_day: float, end_day: float) -> Maker:
    """Work that stops between two days of the fleet and goes on afterwards."""

    def made(clock: Clock, span: Span, rng: np.random.Generator) -> Activity:
        day = (clock.ts - clock.ts[0]) / 86400
        return _only_while(make(clock, span, rng), (day < begin_day) | (day >= end_day))

    return made


def _only_while(activity: Activity, mask: npt.NDArray[np.bool_]) -> Activity:
    return replace(activity.during(mask), context=activity.context, memory=activity.memory)


def _seldom(every_h: float, seconds: float) -> Maker:
    """A service that is asked every few hours, by day and by night."""

    def make(clock: Clock, span: Span, rng: np.random.Generator) -> Activity:
        shape = (span.devices, clock.count)
        asked = rng.random(shape) < clock.interval_s / (every_h * 3600)
        engine = np.where(asked, min(seconds / clock.interval_s, 1.0), 0.0)
        nothing = still(shape)
        return replace(
            nothing, context=np.ones(shape), engine=engine, sm=0.5 * engine, tensor=0.1 * engine, dram=0.3 * engine,
            memory=np.full(shape, 0.6), web=1e5 * engine,
        )  # fmt: skip

    return make


def _held(memory: float, context: bool = True) -> Maker:
    def make(clock: Clock, span: Span, rng: np.random.Generator) -> Activity:
        shape = (span.devices, clock.count)
        nothing = still(shape)
        given = {one.name: getattr(nothing, one.name) for one in fields(nothing)}
        held = memory * rng.uniform(0.8, 1.2) if memory < 0.5 else memory
        return Activity(**{**given, "context": np.full(shape, float(context)), "memory": np.full(shape, held)})

    return make


BEHAVIORS: Mapping[str, Behavior] = {
    "train_compute": Behavior("training", "compute", _training(0.98, 0.83, 0.50, 0.42, nvlink=0.15, wire=0.15)),
    "train_hbm": Behavior("training", "hbm-bandwidth", _training(0.98, 0.78, 0.09, 0.80, wire=0.08)),
    "train_network": Behavior(
        "training", "network", _training(0.99, 0.19, 0.07, 0.11, nvlink=0.06, wire=0.68, cpu=0.2, spread=0.06)
    ),
    "train_nvlink": Behavior("training", "nvlink", _training(0.99, 0.45, 0.17, 0.26, nvlink=0.66, wire=0.05)),
    "train_pcie": Behavior("training", "pcie", _training(0.98, 0.33, 0.12, 0.2, nvlink=0.0, wire=0.0, pcie=0.72)),
    "train_launch": Behavior(
        "training", "latency",
        _training(0.97, 0.2, 0.035, 0.06, nvlink=0.012, wire=0.006, pcie=0.006, cpu=0.15, read=1e6, memory=0.3),
        also=("host-input",), launch_bound=True,
    ),
    "train_input": Behavior(
        "training", "host-input",
        _training(0.38, 0.29, 0.13, 0.15, nvlink=0.04, wire=0.03, pcie=0.12, cpu=0.93, read=3e8, spread=0.08),
    ),
    "finetune": Behavior(
        "fine-tuning", "compute", _training(0.96, 0.74, 0.41, 0.42, nvlink=0.1, wire=0.0, checkpoint_h=1.0, memory=0.6),
    ),
    "decode": Behavior("online-inference", "hbm-bandwidth", _serving(0.3, 0.95, 0.55, 0.07, 0.72)),
    "decode_together": Behavior(
        "online-inference", "hbm-bandwidth", _serving(0.3, 0.95, 0.55, 0.07, 0.72, own=0.004)
    ),
    "prefill": Behavior("online-inference", "compute", _serving(0.45, 0.97, 0.8, 0.52, 0.34)),
    "light": Behavior("online-inference", "latency", _light(0.06, 0.28, 0.12, 0.35), also=("idle",)),
    "batch_decode": Behavior("batch-inference", "hbm-bandwidth", _training(
        0.98, 0.6, 0.12, 0.76, nvlink=0.03, wire=0.0, read=2e6, memory=0.92, checkpoint_h=1e4,
    )),
    "batch_compute": Behavior("batch-inference", "compute", _training(
        0.97, 0.8, 0.48, 0.4, nvlink=0.0, wire=0.0, read=2e7, memory=0.25, checkpoint_h=1e4,
    )),
    "interactive": Behavior("interactive", "idle", _interactive, also=("latency",)),
    "held_idle": Behavior("idle", "idle", _held(0.008)),
    "held_full": Behavior("idle", "idle", _held(0.9)),
    "held_bare": Behavior("idle", "idle", _held(0.0, context=False)),
    "held_after_job": Behavior("training", "compute", _until(_training(0.98, 0.83, 0.50, 0.42), 1.5), also=("idle",)),
    "held_after_use": Behavior(
        "online-inference", "latency", _until(_light(0.06, 0.28, 0.12, 0.35), 1.5), also=("idle",)
    ),
    "held_notebook": Behavior("interactive", "idle", _until(_interactive, 1.8), also=("latency",)),
    "nightly": Behavior(
        "batch-inference", "compute", _nightly(_training(0.97, 0.8, 0.48, 0.4, nvlink=0.0, wire=0.0), 1, 5),
        also=("idle",),
    ),
    "stalled": Behavior("training", "compute", _without(_training(0.98, 0.83, 0.50, 0.42), 1.6, 1.9)),
    "seldom": Behavior("online-inference", "idle", _seldom(3.0, 20.0), also=("latency",)),
    "oversized": Behavior(
        "online-inference", "latency", _serving(0.01, 0.06, 0.2, 0.3, 0.4, nvlink=0.0, memory=0.15), also=("idle",)
    ),
    "oversized_pool": Behavior(
        "online-inference", "latency", _serving(0.01, 0.06, 0.2, 0.3, 0.4, nvlink=0.01), also=("idle",)
    ),
    "alone": Behavior("online-inference", "hbm-bandwidth", _serving(0.3, 0.95, 0.55, 0.07, 0.72, nvlink=0.0)),
    "experts": Behavior(
        "online-inference", "hbm-bandwidth", _serving(0.3, 0.95, 0.55, 0.07, 0.72, nvlink=0.006, own=0.004)
    ),
}  # fmt: skip
