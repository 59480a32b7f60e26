"""What a burst's readings tell, on signals whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from skuwise.agent.statistics.burst_stats import Burst, BurstReading, burst_of, even_grid


def signal(step_seconds: float, t: float, *, phase: float = 0.0) -> float:
    """Work for 60 % of each step."""
    return 0.9 if (t / step_seconds + phase) % 1.0 < 0.6 else 0.02


def readings(
    step_seconds: float, seconds: float = 10.0, spacing: float = 0.104, jitter: float = 0.0, seed: int = 7
) -> list[BurstReading]:
    """Compute for 60 % of a step, NVLink in the rest, the fabric with the compute; each reading a mean of 20 points."""
    rng = random.Random(seed)
    made, start = [], 100.0
    while start < 100.0 + seconds:
        end = start + spacing + rng.uniform(0.0, jitter)
        points = [start + (end - start) * (i + 0.5) / 20 for i in range(20)]
        busy = sum(signal(step_seconds, t) for t in points) / 20
        values = {"sm_active": busy, "tensor_active": busy * 0.7, "dram_active": 0.4}
        values |= {"nvlink_rx_bytes_per_second": 1e9 * (1 - busy), "nvlink_tx_bytes_per_second": 2e9 * (1 - busy)}
        made.append(BurstReading(end, end - start, values, 5e9 * busy))
        start = end
    return made


@pytest.mark.parametrize("step_seconds", [0.35, 0.5, 0.8, 0.89, 1.7, 3.1])
@pytest.mark.parametrize("jitter", [0.0, 0.02])
def test_the_step_time_is_found(step_seconds: float, jitter: float, seed_of: Callable[[int], int]) -> None:
    burst = burst_of("GPU-1", 1.8e9, readings(step_seconds, jitter=jitter, seed=seed_of(7)))
    assert burst is not None and burst.period_seconds is not None and burst.period_strength is not None
    assert burst.period_seconds == pytest.approx(step_seconds, rel=0.04)
    assert burst.period_strength > 0.5
    assert burst.tensor_nvlink_correlation == pytest.approx(-1.0, abs=0.01)
    assert burst.tensor_fabric_correlation == pytest.approx(1.0, abs=0.01)
    assert burst.seconds == pytest.approx(10.0, abs=0.2)


def test_duty_idle_run_and_dispersion() -> None:
    burst = burst_of("GPU-1", 1.8e9, readings(4.0))
    assert burst is not None
    assert burst.duty == pytest.approx(0.72, abs=0.03)  # 2.4 s of each 4 s, seen from its start for 10 s
    assert burst.idle_run_seconds == pytest.approx(1.6, abs=0.2)
    assert burst.sm_active_cv == pytest.approx(0.75, abs=0.15)


def test_noise_has_no_period_and_flat_signals_no_correlation() -> None:
    rng = random.Random(3)
    noise = [BurstReading(0.1 * i, 0.1, {"sm_active": rng.random(), "tensor_active": rng.random()}) for i in range(100)]
    burst = burst_of("GPU-1", 1.8e9, noise)
    assert burst is not None and burst.period_seconds is None and burst.tensor_nvlink_correlation is None
    idle = burst_of("GPU-1", 1.8e9, [BurstReading(0.1 * i, 0.1, {"sm_active": 0.0}) for i in range(100)])
    assert idle == Burst("GPU-1", 1.8e9, pytest.approx(10.0), 100, duty=0.0, idle_run_seconds=pytest.approx(10.0))  # type: ignore[arg-type]


def test_what_was_not_read_is_not_told() -> None:
    assert burst_of("GPU-1", 1.8e9, readings(0.8)[:19]) is None
    nothing = burst_of("GPU-1", 1.8e9, [BurstReading(0.1 * i, 0.1, {}) for i in range(100)])
    assert nothing == Burst("GPU-1", 1.8e9, pytest.approx(10.0), 100)  # type: ignore[arg-type]


def test_a_hole_stays_a_hole_and_shifts_nothing() -> None:
    ends = [0.1, 0.2, 0.3, 0.7, 0.8]
    grid, step = even_grid([1.0, 2.0, 3.0, 7.0, 8.0], ends, [0.1] * 5)
    assert step == pytest.approx(0.1)
    assert grid == [1.0, 2.0, 3.0, None, None, None, 7.0, 8.0]
