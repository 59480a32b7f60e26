"""Services: few requests, experts across nodes, long prompts, and the halves of disaggregated serving.

With one request or two in flight a decode step still reads all weights, so the GPU works hard for seconds and then
rests. A standby holds its weights and answers probes; now and then it takes over for a while.

Mixture-of-experts: a decode step reads this GPU's share of the experts and its requests' cache, and sends each token to
the nodes that hold its experts and back, layer by layer. Half of that hides behind the other half of the batch.

Prefill: a prompt's tokens go through the layers at once, as large matrix products: compute is what it waits for,
whatever the number of requests. Prompts come as people send them, so the GPU is busy in shares of the time.
"""

import numpy as np
from skuwise.advisor.demo import serving
from skuwise.advisor.demo.hardware import Floats, Load, Model, SimGpu
from skuwise.advisor.demo.seeded_rng import day_level, drawn, salt, smooth, uniform_at

from ..nodes import scale
from ..ranges import RANGES


class Light(Model):
    """`inner` answers one or two requests at a time, while there are any."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        slot = t / self.request_seconds
        number = np.floor(slot).astype(np.int64)
        chance = self.peak_duty * day_level(t, self.night_share, self.weekend_share, self.peak_hour_utc)
        # In its slot a request begins and ends somewhere: the seconds at its edges are busy in part.
        begin = 0.5 * uniform_at(self.seed + 1, number)
        length = 0.3 + 0.7 * uniform_at(self.seed + 2, number) * (1 - begin)
        edge = self.request_seconds
        covered = np.clip((slot - number - begin) * edge, 0, 1) * np.clip(
            (begin + length - slot + number) * edge + 1, 0, 1
        )
        gate = covered * (uniform_at(self.seed, number) < chance)
        scale(load, np.where(age > self.inner.load_seconds, gate, 1.0))
        return load


class Standby(Model):
    """`inner` is what it does when it takes over; else a probe every `probe_seconds` runs one token."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        late = uniform_at(self.seed, np.floor(t / self.probe_seconds).astype(np.int64))
        probed = (t % self.probe_seconds) < 1
        gate = np.where(probed, self.probe_share * (0.6 + 0.8 * late), 0.0)
        if self.drill_every_seconds:
            slot = np.floor(t / self.drill_every_seconds).astype(np.int64)
            begin = uniform_at(self.seed + 3, slot) * (self.drill_every_seconds - self.drill_seconds)
            within = t - slot * self.drill_every_seconds
            gate = np.where((within > begin) & (within <= begin + self.drill_seconds), 1.0, gate)
        scale(load, np.where(age > self.load_seconds, gate, 1.0))
        return load


def lightly_loaded(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Light:
    """A service with a request now and then: large enough a model that its weights rule each step."""
    wide = [m for m in serving.MODELS if m[0] * 2 <= 0.7 * gpus * gpu.sku.mem_bytes]
    slow = [m for m in wide if m[0] * 2 / gpus / gpu.sustained_bandwidth >= 4e-3] or wide[-1:] or [serving.MODELS[0]]
    model = slow[int(rng.integers(0, len(slow)))]
    cases = "wide" if wide else "other", "nvlink" if gpu.nvlink else "other"
    inner = serving.draw(rng, model, **drawn(rng, RANGES["light-serving"]["lightly-loaded"], *cases))
    return Light(inner=inner, seed=salt(rng), **drawn(rng, RANGES["light-serving"]["lightly-loaded-1"]))


def standby(rng: np.random.Generator, inner: Model, *, load_seconds: float, drills: bool) -> Standby:
    """A replica that waits to take over from another."""
    return Standby(
        inner=inner,
        seed=salt(rng),
        probe_seconds=float(rng.integers(5, 31)),
        probe_share=rng.uniform(0.02, 0.12),  # of the second in which a probe falls
        drill_every_seconds=rng.uniform(1.5, 3.0) * 86400 if drills else 0.0,  # 0: it is never tried
        drill_seconds=rng.uniform(1800, 3600),
        load_seconds=load_seconds,
    )


# Weights in bytes, active parameters, hidden size, layers with experts, all layers, experts a token, and cache bytes a
# token of models that are served so, from their config.json: DeepSeek-V3 (FP8, compressed cache of 576 values a
# layer), Qwen3-235B-A22B (FP8), Llama-4-Maverick (FP8).
_FIELDS = (
    "weight_bytes",
    "active_parameters",
    "hidden",
    "expert_layers",
    "layers",
    "experts_per_token",
    "cache_bytes",
)
_EXPERTS = (
    (671e9, 37e9, 7168, 58, 61, 8, 61 * 576 * 2),
    (235e9, 22e9, 4096, 94, 94, 8, 94 * 2 * 512 * 2),
    (400e9, 17e9, 5120, 24, 48, 1, 48 * 2 * 1024 * 2),
)


class Experts(Model):
    """One group of GPUs (on several nodes) that serves one model; every GPU sees about the same."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.with_context(len(t))
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
    fits = [m for m in _EXPERTS if m[0] / gpus <= 0.6 * gpu.sku.mem_bytes] or [min(_EXPERTS)]
    size = dict(zip(_FIELDS, fits[int(rng.integers(0, len(fits)))], strict=True))
    seed, group = salt(rng), {"group_gpus": gpus, "group_nodes": nodes, "line_rate": line_rate}
    return Experts(seed=seed, **size, **drawn(rng, RANGES["moe-serving"]["experts"]), **group)


class Prefilling(Model):
    """One replica. Shares of time are of a GPU's; `sends` says how its KV cache leaves: fabric bytes per second of
    line rate for each GPU, 0 where it stays."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.with_context(len(t))
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


_SIZE = ("parameters", "layers", "hidden", "kv_width")  # of `serving.MODELS`


def prefill_heavy(rng: np.random.Generator, gpus: int, gpu: SimGpu, *, sends_line_rate: float = 0.0) -> Prefilling:
    """Online: classification, extraction, reranking or long documents, with answers of some tokens."""
    fits = [m for m in serving.MODELS if m[0] * 2 <= 0.7 * gpus * gpu.sku.mem_bytes] or [serving.MODELS[0]]
    size = dict(zip(_SIZE, fits[int(rng.integers(0, len(fits)))], strict=True))
    seed = salt(rng)
    given = drawn(rng, RANGES["prefill"]["prefill-heavy"], "sends_line_rate" if sends_line_rate else "other")
    return Prefilling(seed=seed, **size, **given, sends_line_rate=sends_line_rate)


def encoding(rng: np.random.Generator) -> Prefilling:
    """Offline: an encoder over a corpus, in full batches from the first document to the last."""
    size = dict(zip(_SIZE, (7.1e9, 32, 4096, 1024), strict=True))  # an embedding model of 7B (Mistral's config.json)
    return Prefilling(seed=salt(rng), **size, **drawn(rng, RANGES["prefill"]["encoding"]))


class Receiving(Model):
    """`inner` decodes; at its day's peak caches come in at `share` of the line rate."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        rate = self.share * self.inner.in_flight(t) / self.inner.peak_in_flight
        # A cache arrives within a second or not at all: bursts, not a stream.
        chance = np.clip(rate / 0.05, 0.02, 1.0)
        comes = uniform_at(self.seed, np.floor(t).astype(np.int64)) < chance
        load.fabric_rx[:] = np.clip(comes * rate / chance, 0, 0.9) * (age > self.inner.load_seconds)
        load.fabric_tx[:] = 0.015 * load.fabric_rx
        return load
