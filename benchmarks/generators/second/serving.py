"""Serving as a queue: requests arrive, are prefilled and decoded together, and leave."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import signal

from .activity import Activity, F, blank
from .hardware import Host

Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class Model:
    """A model as served: billions of parameters in all and active per token, bytes of each, bytes of cache a token."""

    billions: float
    active: float
    width: float
    cache: float


MODELS = (
    Model(7, 7, 2, 131e3), Model(8, 8, 1, 65e3), Model(14, 14, 2, 200e3), Model(32, 32, 1, 130e3),
    Model(70, 70, 2, 328e3), Model(70, 70, 1, 164e3), Model(3, 3, 2, 80e3),
)  # fmt: skip


def demand(rng: Rng, seconds: int, start: float, mean: float) -> F:
    """Requests per second, (s,): two peaks a working day, fewer at weekends, minutes of rush, Poisson on top."""
    t = start + np.arange(seconds)
    hour = (t / 3600 + rng.uniform(-3, 3)) % 24
    curve = 0.35 + np.exp(-((hour - 11) ** 2) / 10) + 0.8 * np.exp(-((hour - 16.5) ** 2) / 14)
    curve *= np.where((t // 86400) % 7 >= 5, rng.uniform(0.4, 0.9), 1.0)
    rush = np.exp(np.repeat(rng.normal(0, 0.25, seconds // 180 + 1), 180)[:seconds])
    wanted = curve * rush
    return rng.poisson(mean * wanted / wanted.mean()).astype(float)


@dataclass(frozen=True, slots=True)
class Mix:
    """Requests: tokens in and out (medians), and the share of the capacity that the mean demand asks for."""

    tokens_in: float
    tokens_out: float
    load: float


def replica(
    rng: Rng, host: Host, gpus: int, seconds: int, start: float, mix: Mix, model: Model
) -> tuple[Activity, str | None]:
    """One engine on `gpus` GPUs, and what its busy time goes to: multiplying, reading memory, or neither (launches and
    waits between tokens). None where no two of them differ by a quarter: nobody could say.
    """
    part = host.part
    flops, bandwidth = gpus * part.flops * part.eta_compute, gpus * part.bandwidth * part.eta_memory
    weights = model.billions * 1e9 * model.width
    room = max(0.9 * gpus * part.mem_bytes - weights, 0.05 * gpus * part.mem_bytes)
    context = mix.tokens_in + mix.tokens_out / 2
    most = float(np.clip(room / (context * model.cache), 2, 256))
    overhead = rng.uniform(0.0015, 0.005) * (1.0 if gpus == 1 else 1.3)

    def iteration(batch: F) -> tuple[F, F, F]:
        """Seconds of one token for all in `batch`; of it, reading memory and multiplying."""
        touched = weights * min(1.0, model.active / model.billions * 3) + batch * context * model.cache
        read, math = touched / bandwidth, 2 * model.active * 1e9 * batch / flops
        return np.maximum(read, math) + overhead, read, math

    per_prefill = 2 * model.active * 1e9 * mix.tokens_in / (flops * 0.85)
    full, _, _ = iteration(np.array([most * 0.8]))
    capacity = 1 / (per_prefill + mix.tokens_out * float(full[0]) / (most * 0.8))
    arrivals = demand(rng, seconds, start, capacity * mix.load)
    prefill = np.minimum(_decay(arrivals, 0.4, 0.6) * per_prefill, 0.97)
    usual, _, _ = iteration(np.array([max(1.0, most * mix.load)]))
    life = mix.tokens_out * float(usual[0]) / max(0.05, 1 - float(prefill.mean()))
    inside = np.minimum(_decay(arrivals, 1.0, float(np.exp(-1 / max(life, 0.05)))) * min(life, 1.0), most)
    smooth = _decay(inside, 0.5, 0.5)
    batch = np.maximum(smooth, 1.0)
    seconds_each, read, math = iteration(batch)
    decoding = np.clip((1 - prefill) * (1 - np.exp(-smooth)), 0, 1 - prefill)
    busy = np.clip(prefill + decoding, 0, 1)
    gpu = blank(seconds)
    gpu["engine"] = busy[None]
    thick = np.clip(read / seconds_each, 0, 1)
    gpu["sm"] = (prefill * 0.92 + decoding * rng.uniform(0.35, 0.6) * (0.4 + thick))[None]
    gpu["occupancy"] = (prefill * 0.3 + decoding * rng.uniform(0.12, 0.3))[None]
    gpu["compute"] = (prefill * rng.uniform(0.78, 0.93) + decoding * math / seconds_each)[None]
    gpu["memory"] = (prefill * rng.uniform(0.2, 0.42) + decoding * thick * 0.97)[None]
    gpu["fp32"] = (busy * 0.04)[None]
    if gpus > 1 and part.nvlink:
        hops = 4 * 80 * 8192 * 2 / 1e9  # GB moved a token of a 70B-like model, in and out of the ring
        link = np.clip(
            (decoding * batch / seconds_each * hops * 1e9 / gpus + prefill * 0.15 * part.nvlink) / part.nvlink, 0, 0.6
        )
        gpu["nv_tx"], gpu["nv_rx"] = link[None], link[None] * 0.99
    elif gpus > 1:
        gpu["pcie_tx"] = gpu["pcie_rx"] = (busy * rng.uniform(0.05, 0.25))[None]
    gpu["pcie_rx"] = gpu["pcie_rx"] + 0.002 * busy
    memory = np.full((1, seconds), rng.uniform(0.88, 0.95) * part.mem_bytes)
    hosts = {"cpu": 0.02 + 0.12 * busy, "io_wait": np.zeros(seconds), "read": np.full(seconds, 1e5),
             "write": np.full(seconds, 1e6), "storage": np.zeros(seconds)}  # fmt: skip
    spent = {
        "compute": float((prefill + decoding * math / seconds_each).sum()),
        "hbm-bandwidth": float((decoding * thick).sum()),
        "latency": float((decoding * (1 - np.maximum(thick, math / seconds_each))).sum()),
    }
    first, second = sorted(spent, key=lambda name: -spent[name])[:2]
    limit = first if spent[first] >= 1.25 * spent[second] else None
    return Activity(seconds, gpu, hosts, memory), limit


def _decay(values: F, gain: float, keep: float) -> F:
    """What is there after each second: `keep` of what was, and `gain` of what comes."""
    return np.asarray(signal.lfilter([gain], [1.0, -keep], values))


def fitting(rng: Rng, host: Host, gpus: int, *, least: float = 0.0) -> Model:
    """A model that fits on so many GPUs with room for its cache, not smaller than `least` of the memory."""
    total = gpus * host.part.mem_bytes
    good = [m for m in MODELS if least * total < m.billions * 1e9 * m.width < 0.7 * total]
    return good[int(rng.integers(0, len(good)))] if good else MODELS[1]


def experts(rng: Rng, made: Activity, rate: float) -> Activity:
    """Experts on other nodes: every token travels, as much as there is work."""
    busy = made.gpu["engine"]
    tx = busy * rate * rng.uniform(0.8, 1.2)
    made.gpu["fab_tx"], made.gpu["fab_rx"] = tx, tx * rng.uniform(0.95, 1.0)
    return made


def transfer(rng: Rng, made: Activity, rate: float, *, out: bool) -> Activity:
    """Caches go from prefill nodes to decode nodes, one way, with each request."""
    busy = made.gpu["engine"]
    bursts = np.clip(busy * rng.gamma(0.6, 1 / 0.6, busy.shape), 0, 4)
    made.gpu["fab_tx" if out else "fab_rx"] = np.clip(bursts * rate, 0, 0.9)
    made.gpu["fab_rx" if out else "fab_tx"] = np.clip(bursts * rate * 0.02, 0, 0.9)
    return made


def storage_traffic(rng: Rng, made: Activity) -> Activity:
    """Files come through the fabric's NICs: a cache that is read all the time, and models that are reloaded."""
    rate = np.zeros(made.seconds)
    at = 0.0
    while at < made.seconds:
        lasts = rng.uniform(20, 200)
        rate[int(at) : int(at + lasts)] = rng.uniform(0.05, 0.6)
        at += lasts + rng.exponential(1500)
    made.gpu["fab_rx"] = made.gpu["fab_rx"] + rate[None]
    return made


def standby(rng: Rng, host: Host, seconds: int) -> Activity:
    """A warm replica behind a failover: weights in memory, a probe now and then."""
    gpu = blank(seconds)
    probes = (np.arange(seconds) % int(rng.integers(10, 60)) == 0).astype(float)
    gpu["engine"] = probes[None] * rng.uniform(0.02, 0.08)
    gpu["sm"] = gpu["engine"] * 0.4
    gpu["memory"] = gpu["engine"] * 0.6
    memory = np.full((1, seconds), rng.uniform(0.86, 0.94) * host.part.mem_bytes)
    return Activity(seconds, gpu, {"cpu": np.full(seconds, 0.012)}, memory)


def offline(rng: Rng, host: Host, gpus: int, seconds: int, *, prefill: bool) -> Activity:
    """A queue that never empties: documents embedded or scored (prefill), or texts generated in full batches."""
    gpu = blank(seconds)
    drift = 1 + 0.05 * np.interp(np.arange(seconds), np.linspace(0, seconds, 60), rng.standard_normal(60))
    jitter = np.clip(rng.normal(1, 0.04, seconds) * drift, 0.5, 1.1)
    gpu["engine"] = np.full((1, seconds), rng.uniform(0.95, 1.0))
    if prefill:
        gpu["compute"], gpu["memory"] = (rng.uniform(0.7, 0.95) * jitter)[None], (rng.uniform(0.2, 0.4) * jitter)[None]
        gpu["sm"], gpu["occupancy"] = np.full((1, seconds), 0.93), np.full((1, seconds), 0.3)
    else:
        gpu["memory"], gpu["compute"] = (
            (rng.uniform(0.75, 0.97) * jitter)[None],
            (rng.uniform(0.12, 0.4) * jitter)[None],
        )
        gpu["sm"], gpu["occupancy"] = np.full((1, seconds), rng.uniform(0.6, 0.85)), np.full((1, seconds), 0.22)
        if gpus > 1 and host.part.nvlink:
            gpu["nv_tx"] = gpu["nv_rx"] = (rng.uniform(0.03, 0.12) * jitter)[None]
    # Shards of the input end: a pause while the next is fetched.
    at = rng.uniform(1000, 8000)
    while at < seconds:
        span = slice(int(at), int(at + rng.uniform(5, 90)))
        for values in gpu.values():
            values[:, span] = 0.0
        at += rng.uniform(1500, 9000)
    level = rng.uniform(0.88, 0.94) if not prefill or rng.random() < 0.4 else rng.uniform(0.15, 0.6)
    memory = np.full((1, seconds), level * host.part.mem_bytes)
    hosts = {"cpu": np.full(seconds, rng.uniform(0.05, 0.3)), "io_wait": np.zeros(seconds),
             "read": np.full(seconds, rng.uniform(1e6, 3e8)), "write": np.full(seconds, rng.uniform(1e6, 5e7)),
             "storage": np.zeros(seconds)}  # fmt: skip
    return Activity(seconds, gpu, hosts, memory)


def notebook(rng: Rng, host: Host, seconds: int, start: float) -> Activity:
    """A person: cells of some seconds to minutes, thinking in between, evenings and nights off."""
    gpu = blank(seconds)
    memory = np.full(seconds, 0.01)
    at, shift, used = 0.0, rng.uniform(-4, 4), 0.02
    while at < seconds:
        hour = ((start + at) / 3600 + shift) % 24
        if not 9 <= hour < 18.5 or (start + at) // 86400 % 7 >= 5:
            used = rng.uniform(0.01, 0.1) if rng.random() < 0.3 else used
            at += 1800
            continue
        lasts = float(np.clip(rng.lognormal(2.6, 1.1), 1, 280))
        span = slice(int(at), int(at + lasts) + 1)
        hard = rng.uniform(0.2, 0.9)
        used = min(0.9, max(used, rng.uniform(0.02, 0.6)))
        gpu["engine"][:, span], gpu["sm"][:, span] = rng.uniform(0.4, 1.0), rng.uniform(0.15, 0.85)
        gpu["occupancy"][:, span] = rng.uniform(0.05, 0.5)
        gpu["compute"][:, span], gpu["memory"][:, span] = hard * rng.uniform(0.05, 0.7), hard * rng.uniform(0.1, 0.6)
        gpu["pcie_rx"][:, span] = rng.uniform(0, 0.2)
        memory[int(at) :] = used
        at += lasts + float(rng.lognormal(4.6, 1.2))
    hosts = {"cpu": 0.01 + 0.1 * gpu["engine"][0], "io_wait": np.zeros(seconds), "read": np.full(seconds, 1e6),
             "write": np.full(seconds, 4e5), "storage": np.zeros(seconds)}  # fmt: skip
    return Activity(seconds, gpu, hosts, memory[None, :] * host.part.mem_bytes)
