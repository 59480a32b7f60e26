"""Online serving by an engine that preallocates its memory: decode steps under a daily load with bursts.

A decode step reads the weights and the requests' KV cache once and computes one token for each request in flight; what
does not scale with bandwidth (launches, small all-reduces, sampling) is the step's residual. Utilisation of memory,
tensor cores and NVLink follow from those times, so they keep the ratios that the SKU forces on them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .hardware import SimGpu
from .load import Load
from .seeded_rng import day_level, log_uniform, salt, smooth

Floats = npt.NDArray[np.float64]

# (parameters, layers, hidden size, KV heads x head size) of dense models that are served widely: 8B, 14B, 32B, 70B,
# 123B (the models' own config.json).
MODELS = (
    (8.0e9, 32, 4096, 1024),
    (14.8e9, 48, 5120, 1024),
    (32.8e9, 64, 5120, 1024),
    (70.6e9, 80, 8192, 1024),
    (123e9, 88, 12288, 1024),
)


@dataclass(frozen=True, slots=True)
class Serving:
    """One replica of a service on its tensor-parallel GPUs."""

    seed: int
    parameters: float
    layers: int
    hidden: int
    kv_width: int
    bytes_per_parameter: float
    context_tokens: float
    peak_in_flight: float
    night_share: float  # of the day's peak
    weekend_share: float
    peak_hour_utc: float
    burstiness: float
    prefill_share: float  # of the busy time, at the day's peak
    allreduce_seconds: float  # of one small all-reduce: some 10 us over NVLink, far more over PCIe
    launch_seconds: float  # of one layer's kernels
    mem_share: float
    context_power: float
    cpu: float
    load_seconds: float  # until the weights are read and the memory is taken

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = Load.none(1, len(t))
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
                over_pcie = np.minimum(traffic, gpu.sku.pcie_bytes_per_second * gpu.eta_link)
                load.pcie_tx[:] = over_pcie
                load.pcie_rx[:] = over_pcie
        tokens = busy * n / step
        load.pcie_tx[:] += 4e6 + 600 * tokens
        load.pcie_rx[:] += 6e6 + 900 * tokens + 8e9 * (1 - up)
        loading = 0.02 + 0.5 * age / self.load_seconds
        load.mem_used_bytes[:] = gpu.sku.mem_bytes * np.where(up > 0, self.mem_share, loading)
        load.resident[:] = 1.0
        load.context_power[:] = self.context_power
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


def decode(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Serving:
    """A well-used service: enough requests in flight that reading weights and cache fills most of every step."""
    fits = [m for m in MODELS if m[0] * 2 <= 0.7 * gpus * gpu.sku.mem_bytes]
    # A model whose weights are read in less than 5 ms would be served on fewer GPUs: launches would rule its steps.
    sized = [m for m in fits if m[0] * 2 / gpus / gpu.sustained_bandwidth >= 5e-3] or fits[-1:]
    nvlink = bool(gpu.nvlink)
    return draw(
        rng,
        sized[int(rng.integers(0, len(sized)))],
        peak_in_flight=log_uniform(rng, 24, 120),
        night_share=rng.uniform(0.08, 0.5),
        allreduce_seconds=rng.uniform(6e-6, 14e-6) if nvlink else rng.uniform(30e-6, 60e-6),
        launch_seconds=rng.uniform(4e-6, 12e-6),  # CUDA graphs
        prefill_share=rng.uniform(0.03, 0.12),
        context_tokens=log_uniform(rng, 700, 5000),
    )


def over_provisioned(rng: np.random.Generator, *, nvlink: bool) -> Serving:
    """A small model spread over many GPUs for few requests: launches and small all-reduces are what it waits for."""
    return draw(
        rng,
        MODELS[int(rng.integers(0, 2)) if nvlink else 0],
        peak_in_flight=rng.uniform(4.0, 9.0),
        night_share=rng.uniform(0.5, 0.75),
        allreduce_seconds=rng.uniform(18e-6, 32e-6) if nvlink else rng.uniform(60e-6, 120e-6),
        launch_seconds=rng.uniform(60e-6, 110e-6),  # eager mode: 8-12 kernels a layer at some 5-10 us
        prefill_share=rng.uniform(0.01, 0.05),
        context_tokens=log_uniform(rng, 300, 2000),
    )


def draw(rng: np.random.Generator, model: tuple[float, int, int, int], **given: float) -> Serving:
    """What all services have in common, from ranges seen in the field."""
    parameters, layers, hidden, kv_width = model
    values: dict[str, float] = {
        "bytes_per_parameter": 2.0,
        "weekend_share": rng.uniform(0.5, 1.0),
        "peak_hour_utc": rng.uniform(8, 22),
        "burstiness": rng.uniform(0.1, 0.35),
        "mem_share": rng.uniform(0.85, 0.95),  # gpu_memory_utilization of 0.85-0.95, taken at the start
        "context_power": rng.uniform(0.3, 0.6),
        "cpu": rng.uniform(0.02, 0.09),
        "load_seconds": rng.uniform(60, 240),
    }
    values.update(given)
    return Serving(seed=salt(rng), parameters=parameters, layers=layers, hidden=hidden, kv_width=kv_width, **values)


def replica(model: Serving, number: int) -> Serving:
    """The same service on other GPUs: the balancer gives it the same day, its bursts are its own."""
    return dataclasses.replace(model, seed=model.seed + 1000 * number)
