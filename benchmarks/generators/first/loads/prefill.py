"""Work that is mostly prefill: long prompts with short answers, the prefill half of disaggregated serving, encoders.

A prompt's tokens go through the layers at once, as large matrix products: compute is what it waits for, whatever the
number of requests. Prompts come as people send them, so the GPU is busy in shares of the time that follow the day.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.load import Load
from skuwise.advisor.demo.seeded_rng import day_level, log_uniform, salt, smooth, uniform_at
from skuwise.advisor.demo.serving import MODELS

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prefilling:
    """One replica. Shares of time are of a GPU's; `sends` says how its KV cache leaves: fabric bytes per second of
    line rate for each GPU, 0 where it stays."""

    seed: int
    parameters: float
    layers: int
    hidden: int
    kv_width: int
    peak_load: float  # share of the time at work at the day's peak
    night_share: float
    weekend_share: float
    peak_hour_utc: float
    burstiness: float
    level: float  # of what the SKU sustains, within a prompt
    memory_level: float
    decode_share: float  # of its time at work: the few tokens it answers with, read at full bandwidth
    sends_line_rate: float
    mem_share: float
    mem_grows: bool  # torch's allocator, not an engine that takes its memory at the start
    context_power: float
    cpu: float
    load_seconds: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = Load.none(1, len(t))
        up = age > self.load_seconds
        busy = self._at_work(t) * up
        tokens = self.level * gpu.sustained_flops * gpus / (2 * self.parameters)  # a second of prefill
        prefill = busy * (1 - self.decode_share)
        decode = busy * self.decode_share
        wobble = 1 + 0.05 * smooth(self.seed + 5, t, 2.3)
        moved = 2 * self.layers * self.hidden * 2 * 2 * (gpus - 1) / gpus  # bytes a token and GPU, ring all-reduce
        link = gpu.nvlink * gpu.eta_link or gpu.sku.pcie_bytes_per_second * min(gpu.eta_link, 0.5)
        # All-reduces of activations are not hidden: they lengthen the prompt by their time.
        shown = 1 / (1 + moved * tokens / link) if gpus > 1 else 1.0
        load.compute[:] = np.minimum(prefill * self.level * shown * wobble, 1.0)
        load.memory[:] = np.minimum((prefill * self.memory_level * shown + 0.8 * decode) * wobble, 1.0)
        load.compute[:] += 0.05 * decode
        load.sm[:] = prefill * (0.94 * shown + 0.3 * (1 - shown)) + 0.7 * decode
        load.occupancy[:] = prefill * 0.24 * shown + 0.18 * decode
        load.vector[:] = 0.06 * busy
        load.engine[:] = busy
        traffic = prefill * moved * tokens * shown if gpus > 1 else 0.0
        if gpu.nvlink:
            load.nvlink[:] = traffic
        else:
            load.pcie_tx[:] = traffic
            load.pcie_rx[:] = traffic
        load.pcie_tx[:] += 3e6 + 4e6 * busy
        load.pcie_rx[:] += 5e6 + 2e7 * busy + 8e9 * (1 - up)
        if self.sends_line_rate:
            # The cache of a prompt is sent layer by layer while the next layers run (RDMA writes to the decode side).
            cache = 2 * self.layers * self.kv_width * 2 / gpus
            sent = prefill * cache * tokens * shown / self.sends_line_rate
            load.fabric_tx[:] = np.minimum(sent * wobble, 0.95)
            load.fabric_rx[:] = 0.015 * load.fabric_tx  # acknowledgements and block tables
        held = self.mem_share
        if self.mem_grows:
            held = self.mem_share * (0.85 + 0.15 * (1 - np.exp(-age / 3000))) + 0.01 * smooth(self.seed + 9, t, 600.0)
        load.mem_used_bytes[:] = gpu.sku.mem_bytes * np.where(up, held, 0.03 + 0.4 * age / self.load_seconds)
        load.resident[:] = 1.0
        load.context_power[:] = self.context_power
        load.cpu[:] = self.cpu * (0.3 + 0.7 * busy) * gpus / gpu.node_gpus
        load.disk_read[:] = 2e9 * (1 - up) + 3e5
        load.disk_write[:] = 1e6
        load.storage_tx[:] = 2e5 + 1e5 * busy
        load.storage_rx[:] = 4e5 + 2e6 * busy + 1e9 * (1 - up)
        load.host_mem[:] = 0.03 + 0.01 * gpus
        return load

    def _at_work(self, t: Floats) -> Floats:
        """Share of each second in which a prompt is worked on: bursts queue up, so it saturates at 1."""
        level = self.peak_load * day_level(t, self.night_share, self.weekend_share, self.peak_hour_utc)
        wanders = self.burstiness * (0.7 * smooth(self.seed, t, 300.0) + 0.5 * smooth(self.seed + 3, t, 11.0))
        second = np.floor(t).astype(np.int64)
        chance = 0.5 + uniform_at(self.seed + 7, second)  # arrivals within a second
        at_work = np.clip(level * np.exp(wanders) * np.where(level > 0.93, 1.0, chance), 0.004, 1.0)
        return at_work.astype(np.float64)


def prefill_heavy(rng: np.random.Generator, gpus: int, gpu: SimGpu, *, sends_line_rate: float = 0.0) -> Prefilling:
    """Online: classification, extraction, reranking or long documents, with answers of some tokens."""
    fits = [m for m in MODELS if m[0] * 2 <= 0.7 * gpus * gpu.sku.mem_bytes] or [MODELS[0]]
    parameters, layers, hidden, kv_width = fits[int(rng.integers(0, len(fits)))]
    return Prefilling(
        seed=salt(rng),
        parameters=parameters,
        layers=layers,
        hidden=hidden,
        kv_width=kv_width,
        peak_load=rng.uniform(0.6, 0.92),
        night_share=rng.uniform(0.06, 0.4),
        weekend_share=rng.uniform(0.4, 1.0),
        peak_hour_utc=rng.uniform(8, 22),
        burstiness=rng.uniform(0.12, 0.4),
        level=rng.uniform(0.68, 0.9),
        memory_level=rng.uniform(0.2, 0.42),
        decode_share=0.0 if sends_line_rate else rng.uniform(0.02, 0.14),
        sends_line_rate=sends_line_rate,
        mem_share=rng.uniform(0.85, 0.95),
        mem_grows=False,
        context_power=rng.uniform(0.3, 0.6),
        cpu=rng.uniform(0.05, 0.25),
        load_seconds=rng.uniform(60, 240),
    )


def encoding(rng: np.random.Generator) -> Prefilling:
    """Offline: an encoder over a corpus, in full batches from the first document to the last."""
    parameters, layers, hidden, kv_width = 7.1e9, 32, 4096, 1024  # an embedding model of 7B (Mistral's config.json)
    return Prefilling(
        seed=salt(rng),
        parameters=parameters,
        layers=layers,
        hidden=hidden,
        kv_width=kv_width,
        peak_load=rng.uniform(1.0, 1.2),
        night_share=1.0,
        weekend_share=1.0,
        peak_hour_utc=0.0,
        burstiness=rng.uniform(0.01, 0.05),
        level=rng.uniform(0.66, 0.88),
        memory_level=rng.uniform(0.2, 0.42),
        decode_share=0.0,
        sends_line_rate=0.0,
        mem_share=log_uniform(rng, 0.3, 0.9),
        mem_grows=True,
        context_power=rng.uniform(0.3, 0.6),
        cpu=rng.uniform(0.1, 0.5),
        load_seconds=rng.uniform(30, 120),
    )
