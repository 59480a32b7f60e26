"""The agent's figures against what the work did. Needs a GPU and PyTorch (tests/hardware)."""

import math

import numpy as np
import pytest
from skuwise.agent.model import Gpu
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.catalog.types import GpuSku
from skuwise.tests.hardware.watched import Watch, Watched

pytestmark = [pytest.mark.hardware]
INTERVALS = (1.0, 0.1)


def sku_of(gpu: Gpu) -> GpuSku:
    """The catalog's figures of a GPU; skips where the catalog lacks it."""
    return load_catalog().gpu(gpu.sku or gpu.name) or pytest.skip(f"the catalog lacks {gpu.name}")


def mean(watched: Watched, *metrics: str) -> float:
    """The mean of a metric of the GPU that worked, or of the product of several, over the time for which it was there;
    skips, with the recorded reason, where the agent never had it."""
    ticks = [(tick.gpus[watched.gpu.uuid], tick.interval_seconds) for tick in watched.ticks]
    pairs = [(values, seconds) for values, seconds in ticks if all(metric in values for metric in metrics)]
    if not pairs:
        reasons = {reason for missing, reason in watched.absences if missing in (*metrics, "*")}
        pytest.skip(f"{metrics} is missing on this GPU: {', '.join(sorted(reasons)) or 'no reason recorded'}")
    total = sum(math.prod(values[metric] for metric in metrics) * seconds for values, seconds in pairs)
    return total / sum(seconds for _, seconds in pairs)


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize(("work", "tolerance"), [("matmul", 0.10), ("train", 0.15)])
def test_tensor_activity_times_clock_is_the_flop_rate(
    watch: Watch, work: str, tolerance: float, interval: float
) -> None:
    # tensor_active x SM clock is published to predict FLOP utilisation within 2 points (OFU, arXiv 2605.20799); the
    # wider bounds leave room for tiles that round up and for products that are not on the tensor pipe.
    # The catalog's dense rate holds at its reference clock, so the rate of a tick scales with its clock.
    watched = watch(work, interval)
    sku = sku_of(watched.gpu)
    seen = mean(watched, "tensor_active", "sm_clock_hertz") / sku.tensor_reference_hertz * sku.dense_flops["bf16"]
    assert seen == pytest.approx(watched.per_second("tensor_flops"), rel=tolerance)


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize(("work", "figures"), [("copy", ("bytes_read", "bytes_written")), ("decode", ("bytes_read",))])
def test_dram_activity_times_peak_is_the_byte_rate(
    watch: Watch, work: str, figures: tuple[str, ...], interval: float
) -> None:
    # Refresh and row activation are part of DRAM activity but move nothing: 15 % either way.
    watched = watch(work, interval)
    seen = mean(watched, "dram_active") * sku_of(watched.gpu).mem_bandwidth_bytes_per_second
    assert seen == pytest.approx(watched.per_second(*figures), rel=0.15)


@pytest.mark.parametrize("work", ["matmul", "decode", "idle"])
def test_energy_agrees_with_power_and_with_nvml(watch: Watch, work: str) -> None:
    watched = watch(work, 1.0)
    mean(watched, "energy_joules")
    start, end = watched.ticks[0].ts - watched.ticks[0].interval_seconds, watched.ticks[-1].ts
    seen = sum(tick.gpus[watched.gpu.uuid]["energy_joules"] for tick in watched.ticks)
    times, joules, watts = np.array(watched.power).T
    counted = float(np.diff(np.interp((start, end), times, joules, left=np.nan, right=np.nan))[0])
    polled = watts[(times >= start) & (times <= end)].mean()
    assert seen == pytest.approx(mean(watched, "power_watts") * (end - start), rel=0.02)
    assert seen == pytest.approx(counted, rel=0.03)
    assert polled == pytest.approx(counted / (end - start), rel=0.10)


def test_idle_is_idle(watch: Watch) -> None:
    watched = watch("idle", 1.0)
    assert mean(watched, "sm_active") < 0.01
    assert mean(watched, "tensor_active") < 0.001
    assert mean(watched, "dram_active") < 0.05  # refresh shows as some activity


def test_held_memory_shows_and_nothing_else_does(watch: Watch) -> None:
    idle, held = watch("idle", 1.0), watch("held", 1.0)
    more = mean(held, "mem_used_bytes") - mean(idle, "mem_used_bytes")
    block = held.figures["held_bytes"]
    assert block <= more <= block + 2 * 2**30  # a CUDA context takes some hundred MiB
    assert mean(held, "sm_active") < 0.01


def test_input_bound_work_leaves_the_gpu_waiting(watch: Watch) -> None:
    watched = watch("input", 1.0)
    busy = watched.figures["gpu_busy_seconds"] / watched.figures["seconds"]
    assert mean(watched, "sm_active") <= busy + 0.05
    assert mean(watched, "sm_active") < 0.5


@pytest.mark.parametrize(
    ("work", "direction", "figure"),
    [("pcie", "pcie_rx", "host_to_device_bytes"), ("nvlink", "nvlink_tx", "device_to_device_bytes")],
)
def test_traffic_goes_in_its_direction(watch: Watch, work: str, direction: str, figure: str) -> None:
    watched = watch(work, 1.0)
    seen = mean(watched, f"{direction}_bytes_per_second")
    assert seen == pytest.approx(watched.per_second(figure), rel=0.15)
    assert work == "nvlink" or seen > mean(watched, "pcie_tx_bytes_per_second")


@pytest.mark.parametrize("metric", ["sm_active", "tensor_active", "dram_active", "power_watts"])
def test_fast_sampling_tells_the_same_mean(watch: Watch, metric: str) -> None:
    slow, fast = watch("matmul", 1.0), watch("matmul", 0.1)
    # GPM wants 100 ms between samples and ticks jitter about 100 ms: at worst every second tick comes too soon.
    assert sum(metric in tick.gpus.get(fast.gpu.uuid, {}) for tick in fast.ticks) > 0.45 * len(fast.ticks)
    assert mean(fast, metric) == pytest.approx(mean(slow, metric), rel=0.05)
