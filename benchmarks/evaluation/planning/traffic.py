"""What is asked of a service, whoever serves it: the demand is the service's, and each replica takes its part of it.

With fewer replicas each has more to do, on other GPUs each request takes another time: both follow from what a request
costs, never from what a plan predicts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.load import Load
from skuwise.advisor.demo.seeded_rng import day_level, smooth, uniform_at
from skuwise.advisor.demo.serving import Serving

Floats = npt.NDArray[np.float64]
# Requests in flight at which an engine takes no more: its cache is full.
IN_FLIGHT_MAX = 256.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests per second of a whole service: day and night, weekends, days unlike one another, bursts of minutes."""

    seed: int
    peak: float
    night_share: float
    weekend_share: float
    peak_hour_utc: float
    day_spread: float
    burstiness: float

    def at(self, t: Floats) -> Floats:
        day = np.floor(t / 86400).astype(np.int64)
        # About normal: the sum of three uniforms.
        bell = 2 * sum(uniform_at(self.seed + 31 + k, day) - 0.5 for k in range(3))
        level = self.peak * day_level(t, self.night_share, self.weekend_share, self.peak_hour_utc)
        asked = level * np.exp(self.day_spread * bell + self.burstiness * smooth(self.seed, t, 420.0))
        return asked.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one request takes: floating-point operations, bytes read from GPU memory, bytes over the link for each GPU
    of its replica, and seconds that no GPU shortens. `mem_bytes`: of a whole replica."""

    flops: float
    bytes: float
    link_bytes: float
    fixed_seconds: float
    mem_bytes: float

    def seconds(self, gpus: int, gpu: SimGpu) -> tuple[float, float, float, float]:
        """On a replica of so many GPUs: computing, reading, on the link, and all of it."""
        computing = self.flops / gpus / gpu.sustained_flops
        reading = self.bytes / gpus / gpu.sustained_bandwidth
        rate = gpu.nvlink * gpu.eta_link or gpu.sku.pcie_bytes_per_second * min(gpu.eta_link, 0.5)
        link = self.link_bytes * (gpus - 1) / gpus / rate
        return computing, reading, link, float(np.cbrt(computing**3 + reading**3)) + link + self.fixed_seconds


@dataclass(frozen=True, slots=True)
class Requests:
    """One of `replicas` that answer requests as they come: embedding, reranking, vision, speech. Where more comes than
    it can answer it is busy all the time."""

    traffic: Traffic
    cost: Cost
    replicas: int
    number: int
    context_power: float
    cpu: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:  # noqa: ARG002 - it is up at once
        load = Load.none(1, len(t))
        computing, reading, _, each = self.cost.seconds(gpus, gpu)
        seed = self.traffic.seed + 1000 * self.number
        # The balancer is fair over minutes, and within a second arrivals are few or many.
        balance = 1 + 0.05 * smooth(seed + 3, t, 90.0)
        within = 0.7 + 0.6 * uniform_at(seed + 7, np.floor(t).astype(np.int64))
        asked = self.traffic.at(t) / self.replicas * balance * within
        busy = np.minimum(asked * each, 1.0)
        served = busy / each
        load.compute[:] = np.minimum(served * computing, 1.0)
        load.memory[:] = np.minimum(served * reading, 1.0)
        load.engine[:] = busy
        load.sm[:] = 0.9 * busy
        load.occupancy[:] = 0.25 * busy
        load.vector[:] = 0.06 * busy
        if gpus > 1:
            moved = served * self.cost.link_bytes * (gpus - 1) / gpus
            if gpu.nvlink:
                load.nvlink[:] = moved
            else:
                load.pcie_tx[:] = moved
                load.pcie_rx[:] = moved
        load.pcie_tx[:] += 2e6 + 1e6 * busy
        load.pcie_rx[:] += 3e6 + 2e7 * busy
        load.mem_used_bytes[:] = np.minimum(self.cost.mem_bytes / gpus, 0.97 * gpu.sku.mem_bytes)
        load.resident[:] = 1.0
        load.context_power[:] = self.context_power
        load.cpu[:] = self.cpu * (0.3 + 0.7 * busy) * gpus / gpu.node_gpus
        load.disk_read[:] = 2e5
        load.disk_write[:] = 1e6
        load.storage_tx[:] = 2e5
        load.storage_rx[:] = 4e5
        load.host_mem[:] = 0.02 + 0.01 * gpus
        return load


@dataclass(frozen=True, slots=True)
class Shared(Serving):
    """An engine that decodes, one replica of a service whose tokens are spread over the replicas there are now.

    `in_flight_then`, `rate`: requests in flight on a replica as it was laid out first, and those that as many tokens
    per second need on one as it is now (rising, of equal length).
    """

    in_flight_then: tuple[float, ...] = ()
    in_flight_now: tuple[float, ...] = ()

    def in_flight(self, t: Floats) -> Floats:
        then = Serving.in_flight(self, t)
        return np.interp(then, np.array(self.in_flight_then), np.array(self.in_flight_now))


@dataclass(frozen=True, slots=True)
class Layout:
    """How a service stands: replicas of so many GPUs each, and which."""

    replicas: int
    gpus: int
    gpu: SimGpu


def shared(model: Serving, then: Layout, now: Layout) -> Shared:
    """A replica of `model` in another layout: as many tokens per second in all, whatever each step takes there."""
    in_flight = np.geomspace(0.02, 4 * IN_FLIGHT_MAX, 600)
    asked = _tokens(model, in_flight, then) * then.replicas / now.replicas
    there = np.interp(asked, _tokens(model, in_flight, now), in_flight)
    fields = {name: getattr(model, name) for name in Serving.__slots__}
    return Shared(
        **fields, in_flight_then=tuple(in_flight), in_flight_now=tuple(np.minimum(there, IN_FLIGHT_MAX))
    )  # fmt: skip


def _tokens(model: Serving, n: Floats, layout: Layout) -> Floats:
    """Tokens per second of a replica with `n` requests in flight, as `Serving.load` has it; rising with n."""
    step = model.step(np.maximum(n, 1.0), layout.gpus, layout.gpu)[2]
    return np.maximum.accumulate((1 - np.exp(-n)) * np.maximum(n, 1.0) / step) + 1e-9 * n
