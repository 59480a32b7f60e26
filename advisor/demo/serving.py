"""Online serving by an engine that preallocates its memory, and processes that hold memory and do nothing. A decode
step reads the weights and the requests' KV cache once and computes one token for each request in flight."""

from collections.abc import Sequence

import numpy as np

from .hardware import Floats, Load, Model, SimGpu
from .seeded_rng import TABLES, day_level, drawn, salt, smooth, uniform_at

_RANGES = TABLES["serving"]
MODELS: list[list[float]] = _RANGES["models"]


class Serving(Model):
    """One replica of a service on its tensor-parallel GPUs, under a daily load with bursts."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.with_context(len(t))
        up = (age > self.load_seconds).astype(np.float64)
        n = self.in_flight(t)
        busy = up * (1 - np.exp(-n))
        n = np.maximum(n, 1.0)
        reading, computing, step = self.step(n, gpus, gpu)
        prefill = np.minimum(self.prefill_share * n / self.peak_in_flight, 0.6)
        decode = 1 - prefill
        wobble = 1 + 0.04 * smooth(self.seed + 5, t, 3.0)
        load.memory[:] = np.minimum(busy * wobble * (decode * reading / step + 0.3 * prefill), 1.0)
        load.compute[:] = np.minimum(busy * wobble * (decode * computing / step + 0.72 * prefill), 1.0)
        active = np.minimum(1.0, reading / step + 0.25)
        load.sm[:] = busy * (decode * 0.9 * active + 0.93 * prefill)
        load.occupancy[:] = busy * (decode * (0.1 + 0.14 * active) + 0.25 * prefill)
        load.vector[:] = busy * 0.06 * active
        load.engine[:] = busy
        if gpus > 1:
            moved = 2 * self.layers * self.hidden * 2 * 2 * (gpus - 1) / gpus  # bytes a token and GPU, ring all-reduce
            prefilled = 0.72 * gpu.sustained_flops * gpus / (2 * self.parameters)  # tokens per second
            traffic = busy * moved * (decode * n / step + prefill * prefilled)
            if gpu.nvlink:
                load.nvlink[:] = np.minimum(traffic, gpu.nvlink * gpu.eta_link)
            else:
                # Through the host each byte crosses PCIe, at no more than all-reduce sustains there.
                load.pcie_tx[:] = load.pcie_rx[:] = np.minimum(traffic, gpu.sku.pcie_bytes_per_second * gpu.eta_link)
        tokens = busy * n / step
        load.pcie_tx[:] += 4e6 + 600 * tokens
        load.pcie_rx[:] += 6e6 + 900 * tokens + 8e9 * (1 - up)
        loading = 0.02 + 0.5 * age / self.load_seconds
        load.mem_used_bytes[:] = gpu.sku.mem_bytes * np.where(up > 0, self.mem_share, loading)
        load.cpu[:] = self.cpu * (0.3 + 0.7 * busy) * gpus / gpu.node_gpus
        load.io_wait[:] = 0.02 * (1 - up)
        load.disk_read[:] = 2e9 * (1 - up) + 2e5
        load.disk_write[:] = 1e6 + 200 * tokens
        load.storage_tx[:] = 2e5 + 50 * tokens
        load.storage_rx[:] = 2e5 + 30 * tokens + 1e9 * (1 - up)
        load.host_mem[:] = 0.03 + 0.01 * gpus
        return load

    def step(self, n: Floats, gpus: int, gpu: SimGpu) -> tuple[Floats, Floats, Floats]:
        """Seconds of one decode step with `n` requests in flight: reading memory, computing, and all of it."""
        weights = self.parameters * self.bytes_per_parameter / gpus / gpu.sustained_bandwidth
        cache = 2 * self.layers * self.kv_width * 2 * self.context_tokens / gpus / gpu.sustained_bandwidth
        reading = weights + n * cache
        computing = 2 * self.parameters * n / gpus / gpu.sustained_flops
        fixed = self.layers * (self.launch_seconds + (2 * self.allreduce_seconds if gpus > 1 else 0.0))
        # Reading and computing overlap, but not wholly (soft maximum, p = 3), and the scheduler adds a tenth.
        return reading, computing, np.cbrt(reading**3 + computing**3) * 1.1 + fixed

    def in_flight(self, t: Floats) -> Floats:
        """Requests in flight: day and night, weekends, bursts of minutes and of seconds."""
        level = day_level(t, self.night_share, self.weekend_share, self.peak_hour_utc)
        bursts = self.burstiness * (0.6 * smooth(self.seed, t, 420.0) + 0.5 * smooth(self.seed + 3, t, 17.0))
        counted = 1 + smooth(self.seed + 7, t, 1.7) / np.sqrt(1 + self.peak_in_flight * level)
        return np.maximum(self.peak_in_flight * level * np.exp(bursts) * counted, 0.02)

    def replica(self, number: int) -> "Serving":
        """The same service on other GPUs: the balancer gives it the same day, its bursts are its own."""
        return self.but(seed=self.seed + 1000 * number)


def decode(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Serving:
    """A well-used service."""
    fits = [m for m in MODELS if m[0] * 2 <= 0.7 * gpus * gpu.sku.mem_bytes]
    # A model whose weights are read in less than 5 ms would be served on fewer GPUs: launches would rule its steps.
    sized = [m for m in fits if m[0] * 2 / gpus / gpu.sustained_bandwidth >= 5e-3] or fits[-1:]
    model = sized[int(rng.integers(0, len(sized)))]
    return draw(rng, model, **drawn(rng, _RANGES["decode"], "nvlink" if gpu.nvlink else "pcie"))


def over_provisioned(rng: np.random.Generator, gpu: SimGpu) -> Serving:
    """A small model spread over many GPUs for few requests."""
    model = MODELS[int(rng.integers(0, 2)) if gpu.nvlink else 0]
    return draw(rng, model, **drawn(rng, _RANGES["over-provisioned"], "nvlink" if gpu.nvlink else "pcie"))


def draw(rng: np.random.Generator, model: Sequence[float], **given: float) -> Serving:
    """A service of one of MODELS: what all have in common, and what is `given`."""
    size = dict(zip(("parameters", "layers", "hidden", "kv_width"), model, strict=True))
    return Serving(**size, **(drawn(rng, _RANGES["common"]) | given), seed=salt(rng))


class Holding(Model):
    """Memory resident, power 1.3-1.6x idle because the context keeps the clocks up, now and then a stray kernel."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:  # noqa: ARG002
        load = self.with_context(len(t))
        slot = np.floor(t / 600).astype(np.int64)
        begin = np.floor(uniform_at(self.seed + 1, slot) * 590)
        within = t - slot * 600
        blip = (uniform_at(self.seed, slot) < self.blip_chance) & (within > begin) & (within <= begin + 2) & (age > 60)
        load.sm[:] = 0.03 * blip
        load.engine[:] = 0.12 * blip
        load.memory[:] = 0.01 * blip
        load.mem_used_bytes[:] = self.mem_share * gpu.sku.mem_bytes
        load.cpu[:] = 0.004
        load.host_mem[:] = 0.05
        return load


def held(rng: np.random.Generator) -> Holding:
    """A process that outlived its job."""
    return Holding(seed=salt(rng), **drawn(rng, TABLES["held"]))
