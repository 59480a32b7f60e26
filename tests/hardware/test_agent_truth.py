"""The agent's figures against what the work did. Needs a GPU and PyTorch (docs/hardware.md)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from skuwise.agent.model import Gpu
from skuwise.rules.catalog.types import GpuSku
from skuwise.tests.hardware.figures import (
    coverage,
    dram_bytes_per_second,
    energy_over_power,
    tensor_flops_per_second,
    time_mean,
)
from skuwise.tests.hardware.findings import Findings
from skuwise.tests.hardware.watched import Watch, Watched

pytestmark = [pytest.mark.hardware, pytest.mark.slow]
INTERVALS = (1.0, 0.1)
SkuOf = Callable[[Gpu], GpuSku]


def mean(watched: Watched, metric: str) -> float:
    """The mean of a metric of the GPU that worked; skips, with the recorded reason, where the agent never had it."""
    value = time_mean(watched.ticks, watched.uuid, metric)
    if value is None:
        reasons = {a.reason for a in watched.header.absences if a.subject == watched.uuid and a.metric in (metric, "*")}
        pytest.skip(f"{metric} is missing on this GPU: {', '.join(sorted(reasons)) or 'no reason recorded'}")
    return value


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize(("work", "tolerance"), [("matmul", 0.10), ("train", 0.15)])
def test_tensor_activity_times_clock_is_the_flop_rate(
    watch: Watch, sku_of: SkuOf, findings: Findings, work: str, tolerance: float, interval: float
) -> None:
    # tensor_active x SM clock is published to predict FLOP utilisation within 2 points (OFU, arXiv 2605.20799); the
    # wider bounds leave room for tiles that round up and for products that are not on the tensor pipe.
    watched = watch(work, interval)
    mean(watched, "tensor_active")
    seen = tensor_flops_per_second(watched.ticks, watched.uuid, sku_of(watched.gpu))
    done = watched.truth.per_second("tensor_flops")
    assert seen is not None
    findings.add(
        f"tensor-{work}-{interval:g}s",
        "Does tensor_active x SM clock give the FLOP rate?",
        f"{seen / done:.3f} of the achieved rate",
        seen_flops_per_second=seen,
        achieved_flops_per_second=done,
        tensor_active=mean(watched, "tensor_active"),
        sm_clock_hertz=mean(watched, "sm_clock_hertz"),
    )
    assert seen == pytest.approx(done, rel=tolerance)


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize(("work", "figures"), [("copy", ("bytes_read", "bytes_written")), ("decode", ("bytes_read",))])
def test_dram_activity_times_peak_is_the_byte_rate(
    watch: Watch, sku_of: SkuOf, findings: Findings, work: str, figures: tuple[str, ...], interval: float
) -> None:
    # Refresh and row activation are part of DRAM activity but move nothing: 15 % either way.
    watched = watch(work, interval)
    mean(watched, "dram_active")
    seen = dram_bytes_per_second(watched.ticks, watched.uuid, sku_of(watched.gpu))
    done = watched.truth.per_second(*figures)
    assert seen is not None
    findings.add(
        f"dram-{work}-{interval:g}s",
        "Does dram_active x peak bandwidth give the bytes moved?",
        f"{seen / done:.3f} of the bytes moved",
        seen_bytes_per_second=seen,
        moved_bytes_per_second=done,
        dram_active=mean(watched, "dram_active"),
    )
    assert seen == pytest.approx(done, rel=0.15)


@pytest.mark.parametrize("work", ["matmul", "decode", "idle"])
def test_energy_agrees_with_power_and_with_nvml(watch: Watch, findings: Findings, work: str) -> None:
    watched = watch(work, 1.0)
    ratio = energy_over_power(watched.ticks, watched.uuid)
    if ratio is None:
        pytest.skip("the agent had no energy on this GPU")
    start, end = watched.ticks[0].ts - watched.ticks[0].interval_seconds, watched.ticks[-1].ts
    seen = sum(tick.gpus[watched.uuid]["energy_joules"] for tick in watched.ticks)
    counted = watched.power.joules_between(watched.true_uuid, start, end)
    polled = watched.power.mean_watts(watched.true_uuid, start, end)
    findings.add(
        f"energy-{work}",
        "Do the energy counter, its difference and the power reading agree?",
        f"agent's energy over NVML's {seen / counted:.3f}; polled mean power {polled:.1f} W "
        f"against {counted / (end - start):.1f} W from energy",
        agent_joules=seen,
        nvml_joules=counted,
        polled_watts=polled,
    )
    assert ratio == pytest.approx(1.0, rel=0.02)
    assert seen == pytest.approx(counted, rel=0.03)
    assert polled == pytest.approx(counted / (end - start), rel=0.10)


def test_idle_is_idle(watch: Watch) -> None:
    watched = watch("idle", 1.0)
    assert mean(watched, "sm_active") < 0.01
    assert mean(watched, "tensor_active") < 0.001
    assert mean(watched, "dram_active") < 0.05  # refresh shows as some activity


def test_held_memory_shows_and_nothing_else_does(watch: Watch, findings: Findings) -> None:
    idle, held = watch("idle", 1.0), watch("held", 1.0)
    more = mean(held, "mem_used_bytes") - mean(idle, "mem_used_bytes")
    block = held.truth.figures["held_bytes"]
    findings.add(
        "held-memory",
        "How much memory does a process show beyond what it allocated?",
        f"{(more - block) / 2**20:.0f} MiB of context and reserve",
        held_bytes=block,
        seen_more_bytes=more,
        idle_watts=mean(idle, "power_watts"),
        held_watts=mean(held, "power_watts"),
    )
    assert block <= more <= block + 2 * 2**30  # a CUDA context takes some hundred MiB
    assert mean(held, "sm_active") < 0.01


def test_input_bound_work_leaves_the_gpu_waiting(watch: Watch, findings: Findings) -> None:
    watched = watch("input", 1.0)
    busy = watched.truth.figures["gpu_busy_seconds"] / watched.truth.figures["seconds"]
    findings.add(
        "input-bound",
        "What does the agent see of a GPU that waits for its host?",
        f"busy {busy:.4f} of the time by CUDA events, sm_active {mean(watched, 'sm_active'):.4f}",
        busy=busy,
        gpu_util=time_mean(watched.ticks, watched.uuid, "gpu_util"),
    )
    assert mean(watched, "sm_active") <= busy + 0.05
    assert mean(watched, "sm_active") < 0.5


def test_pcie_traffic_comes_in_on_rx(watch: Watch, findings: Findings) -> None:
    watched = watch("pcie", 1.0)
    rx, tx = mean(watched, "pcie_rx_bytes_per_second"), mean(watched, "pcie_tx_bytes_per_second")
    done = watched.truth.per_second("host_to_device_bytes")
    findings.add(
        "pcie-direction",
        "Is a copy from the host RX, and does its rate hold?",
        f"rx {rx / done:.3f} of the bytes copied, tx {tx / done:.3f}",
        rx=rx,
        tx=tx,
        copied_bytes_per_second=done,
    )
    assert rx > tx
    assert rx == pytest.approx(done, rel=0.15)


def test_nvlink_traffic_goes_out_on_tx(watch: Watch, findings: Findings) -> None:
    watched = watch("nvlink", 1.0)
    tx, done = mean(watched, "nvlink_tx_bytes_per_second"), watched.truth.per_second("device_to_device_bytes")
    findings.add(
        "nvlink-direction",
        "Is a copy to another GPU TX of the first, and does its rate hold?",
        f"tx {tx / done:.3f} of the bytes copied",
        tx=tx,
        rx=mean(watched, "nvlink_rx_bytes_per_second"),
        copied_bytes_per_second=done,
    )
    assert tx == pytest.approx(done, rel=0.15)


@pytest.mark.parametrize("metric", ["sm_active", "tensor_active", "dram_active", "power_watts"])
def test_fast_sampling_tells_the_same_mean(watch: Watch, findings: Findings, metric: str) -> None:
    slow, fast = watch("matmul", 1.0), watch("matmul", 0.1)
    there = coverage(fast.ticks, fast.uuid, metric)
    findings.add(
        f"burst-{metric}",
        "Does 0.1 s sampling give values, and the same mean as 1 s?",
        f"values in {there:.0%} of the ticks; mean {mean(fast, metric):.4g} against {mean(slow, metric):.4g} at 1 s",
        coverage=there,
    )
    # GPM wants 100 ms between samples and ticks jitter about 100 ms: at worst every second tick comes too soon.
    assert there > 0.45
    assert mean(fast, metric) == pytest.approx(mean(slow, metric), rel=0.05)
