"""Mixture-of-experts serving across nodes: experts are spread over all GPUs, so every token crosses the fabric.

A decode step reads this GPU's share of the experts and its requests' cache, and sends each token to the nodes that
hold its experts and back, layer by layer. Half of that hides behind the other half of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.load import Load
from skuwise.advisor.demo.seeded_rng import day_level, log_uniform, salt, smooth

Floats = npt.NDArray[np.float64]

# (weights in bytes, active parameters, hidden size, layers with experts, all layers, experts a token, cache bytes a
# token) of models that are served so, from their config.json: DeepSeek-V3 (FP8, compressed cache of 576 values a
# layer), Qwen3-235B-A22B (FP8), Llama-4-Maverick (FP8).
MODELS = (
    (671e9, 37e9, 7168, 58, 61, 8, 61 * 576 * 2),
    (235e9, 22e9, 4096, 94, 94, 8, 94 * 2 * 512 * 2),
    (400e9, 17e9, 5120, 24, 48, 1, 48 * 2 * 1024 * 2),
)


@dataclass(frozen=True, slots=True)
class Experts:
    """One group of GPUs (on several nodes) that serves one model; every GPU sees about the same."""

    seed: int
    weight_bytes: float
    active_parameters: float
    hidden: int
    expert_layers: int
    layers: int
    experts_per_token: int
    cache_bytes: float
    context_tokens: float
    group_gpus: int
    group_nodes: int
    line_rate: float  # of the fabric, bytes per second and GPU
    peak_in_flight: float  # requests on each GPU
    night_share: float
    weekend_share: float
    peak_hour_utc: float
    burstiness: float
    latency_seconds: float  # of one layer's dispatch and combine, whatever their size
    hidden_share: float  # of the exchange that overlaps
    prefill_share: float
    mem_share: float
    context_power: float
    cpu: float
    load_seconds: float

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = Load.none(1, len(t))
        up = (age > self.load_seconds).astype(np.float64)
        n = self._in_flight(t)
        busy = up * (1 - np.exp(-2 * n))
        n = np.maximum(n, 1.0)
        reading, computing, off_node, near, step = self.step(n, gpu)
        prefill = np.minimum(self.prefill_share * n / self.peak_in_flight, 0.5)
        decode = 1 - prefill
        wobble = 1 + 0.04 * smooth(self.seed + 5, t, 3.0)
        load.memory[:] = np.minimum(busy * wobble * (decode * reading / step + 0.3 * prefill), 1.0)
        load.compute[:] = np.minimum(busy * wobble * (decode * computing / step + 0.5 * prefill), 1.0)
        load.sm[:] = busy * (decode * np.minimum(0.9, 0.35 + reading / step) + 0.85 * prefill)
        load.occupancy[:] = busy * (decode * 0.17 + 0.24 * prefill)
        load.vector[:] = busy * 0.06
        load.engine[:] = busy
        # Prefill moves more tokens a second than decode does, in larger messages.
        prefilled = 0.4 * gpu.sustained_flops / (2 * self.active_parameters)
        ratio = prefilled / np.maximum(n / step, 1e-9)
        rate = busy * (decode + np.minimum(prefill * ratio, 2.0)) * wobble
        load.fabric_tx[:] = np.clip(rate * off_node / step / self.line_rate, 0, 0.9)
        load.fabric_rx[:] = load.fabric_tx * (1 + 0.06 * smooth(self.seed + 8, t, 40.0).astype(np.float32))
        load.nvlink[:] = np.minimum(rate * near / step, gpu.nvlink * gpu.eta_link)
        tokens = busy * n / step
        load.pcie_tx[:] = 4e6 + 900 * tokens
        load.pcie_rx[:] = 6e6 + 1200 * tokens + 8e9 * (1 - up)
        load.mem_used_bytes[:] = gpu.sku.mem_bytes * np.where(
            up > 0, self.mem_share, 0.03 + 0.4 * age / self.load_seconds
        )
        load.resident[:] = 1.0
        load.context_power[:] = self.context_power
        load.cpu[:] = self.cpu * (0.4 + 0.6 * busy) * gpus / gpu.node_gpus
        load.disk_read[:] = 3e9 * (1 - up) + 2e5
        load.disk_write[:] = 1e6
        load.storage_tx[:] = 2e5 + 50 * tokens
        load.storage_rx[:] = 2e5 + 1e9 * (1 - up)
        load.host_mem[:] = 0.05 + 0.01 * gpus
        return load

    def step(self, n: Floats, gpu: SimGpu) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Of a decode step with `n` requests a GPU: seconds of reading and computing, bytes off the node and within it
        per GPU, and the seconds of it all."""
        batch = n * self.group_gpus
        # Of a layer's experts those are read that some token of the whole batch chose: all, at these sizes.
        touched = 1 - np.exp(-batch * self.experts_per_token / 128)
        reading = (self.weight_bytes / self.group_gpus * touched + n * self.context_tokens * self.cache_bytes) / (
            gpu.sustained_bandwidth
        )
        computing = 2 * self.active_parameters * n / gpu.sustained_flops
        # Tokens go out in FP8 (1 byte a value) and come back in BF16 (2), once to each node and then to its GPUs.
        per_copy = n * self.expert_layers * self.hidden * 3
        far = min(self.experts_per_token, 4) * (1 - 1 / self.group_nodes)
        off_node = per_copy * min(far, self.group_nodes - 1)
        near = per_copy * max(self.experts_per_token * 7 / 8, 1)
        exchange = off_node / (0.8 * self.line_rate) + near / (gpu.nvlink * gpu.eta_link)
        fixed = self.layers * 10e-6 + self.expert_layers * self.latency_seconds
        step = np.cbrt(reading**3 + computing**3) * 1.1 + (1 - self.hidden_share) * exchange + fixed
        return reading, computing, off_node, near, step

    def _in_flight(self, t: Floats) -> Floats:
        level = day_level(t, self.night_share, self.weekend_share, self.peak_hour_utc)
        bursts = self.burstiness * (0.6 * smooth(self.seed, t, 420.0) + 0.5 * smooth(self.seed + 3, t, 17.0))
        return np.maximum(self.peak_in_flight * level * np.exp(bursts), 0.02)


def experts(rng: np.random.Generator, *, gpu: SimGpu, gpus: int, nodes: int, line_rate: float) -> Experts:
    """A model that fits the group, with enough requests that reading its experts fills most of a step."""
    fits = [m for m in MODELS if m[0] / gpus <= 0.6 * gpu.sku.mem_bytes] or [min(MODELS)]
    weights, active, hidden, expert_layers, layers, chosen, cache = fits[int(rng.integers(0, len(fits)))]
    return Experts(
        seed=salt(rng),
        weight_bytes=weights,
        active_parameters=active,
        hidden=hidden,
        expert_layers=expert_layers,
        layers=layers,
        experts_per_token=chosen,
        cache_bytes=cache,
        context_tokens=log_uniform(rng, 1500, 8000),
        group_gpus=gpus,
        group_nodes=nodes,
        line_rate=line_rate,
        peak_in_flight=log_uniform(rng, 24, 96),
        night_share=rng.uniform(0.3, 0.7),
        weekend_share=rng.uniform(0.6, 1.0),
        peak_hour_utc=rng.uniform(8, 22),
        burstiness=rng.uniform(0.1, 0.3),
        latency_seconds=rng.uniform(8e-6, 25e-6),
        hidden_share=rng.uniform(0.5, 0.9),
        prefill_share=rng.uniform(0.02, 0.1),
        mem_share=rng.uniform(0.85, 0.95),
        context_power=rng.uniform(0.3, 0.6),
        cpu=rng.uniform(0.04, 0.15),
        load_seconds=rng.uniform(150, 500),
    )
