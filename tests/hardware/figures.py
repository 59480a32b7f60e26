"""The arithmetic between what an agent saw and what the work did. Pure: no GPU, no files."""

from collections.abc import Sequence

from skuwise.agent.model import Tick
from skuwise.rules.catalog.types import GpuSku


def time_mean(ticks: Sequence[Tick], gpu_uuid: str, metric: str) -> float | None:
    """Mean of a metric over the time it was there for; None where it never was."""
    pairs = [(t.gpus[gpu_uuid][metric], t.interval_seconds) for t in ticks if metric in t.gpus.get(gpu_uuid, {})]
    seconds = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / seconds if seconds else None


def coverage(ticks: Sequence[Tick], gpu_uuid: str, metric: str) -> float:
    """Share of the ticks that hold the metric."""
    return sum(metric in t.gpus.get(gpu_uuid, {}) for t in ticks) / len(ticks) if ticks else 0.0


def tensor_flops_per_second(ticks: Sequence[Tick], gpu_uuid: str, sku: GpuSku) -> float | None:
    """BF16 FLOP/s that `tensor_active` and the SM clock stand for: the product is taken tick by tick.

    The catalog's dense rate holds at its reference clock, so the rate of a tick scales with its clock.
    """
    peak = sku.dense_flops.get("bf16")
    total = seconds = 0.0
    for tick in ticks:
        values = tick.gpus.get(gpu_uuid, {})
        if "tensor_active" in values and "sm_clock_hertz" in values:
            total += values["tensor_active"] * values["sm_clock_hertz"] * tick.interval_seconds
            seconds += tick.interval_seconds
    return None if peak is None or not seconds else total / seconds / sku.tensor_reference_hertz * peak


def dram_bytes_per_second(ticks: Sequence[Tick], gpu_uuid: str, sku: GpuSku) -> float | None:
    """Bytes per second that `dram_active` stands for, by the catalog's peak bandwidth."""
    active = time_mean(ticks, gpu_uuid, "dram_active")
    return None if active is None else active * sku.mem_bandwidth_bytes_per_second


def energy_over_power(ticks: Sequence[Tick], gpu_uuid: str) -> float | None:
    """Energy summed over the ticks, divided by mean power times time: 1 where the two agree."""
    held = [(t.gpus[gpu_uuid], t.interval_seconds) for t in ticks if gpu_uuid in t.gpus]
    both = [(v["energy_joules"], v["power_watts"] * s) for v, s in held if "energy_joules" in v and "power_watts" in v]
    drawn = sum(joules for _, joules in both)
    return sum(joules for joules, _ in both) / drawn if drawn else None
