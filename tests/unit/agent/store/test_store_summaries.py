"""Values that come on one tick in thirty (dcgm-exporter's) weigh what they speak for, and tell nothing of seconds."""

from __future__ import annotations

from collections.abc import Sequence
from math import sin, tau

import pytest
from skuwise.agent.statistics.rollup_stats import GpuLimits, Samples, paced, roll_gpu

HOUR = 3600
ENDS = [float(second) for second in range(1, HOUR + 1)]


def on_page(value: float, every: int = 30, missed: frozenset[int] = frozenset()) -> list[float | None]:
    """`value` on each `every`-th tick, but not on the pages that were missed."""
    return [
        value if second % every == 0 and second // every not in missed else None for second in range(1, HOUR + 1)
    ]  # fmt: skip


def hour(**values: Sequence[float | None]) -> dict[str, object]:
    return roll_gpu(Samples(ENDS, [1.0] * HOUR, values), GpuLimits(), "hour")


def test_an_hour_of_pages_covers_the_hour() -> None:
    row = hour(sm_active=on_page(0.3), gpu_util=[0.3] * HOUR)
    assert row["sm_active_n"] == 120 and row["sm_active_mean"] == pytest.approx(0.3)
    assert sum(row["sm_active_bins"]) == sum(row["gpu_util_bins"]) == HOUR  # type: ignore[arg-type]
    assert row["observed_seconds"] == HOUR


def test_an_idle_hour_of_pages_is_an_idle_run_of_an_hour() -> None:
    row = hour(sm_active=on_page(0.0))
    assert (row["idle_run_seconds"], row["duty"]) == (HOUR, 0.0)
    broken = on_page(0.0)
    broken[30 * 60 - 1] = 0.9  # the sixtieth page: half an hour in
    assert hour(sm_active=broken)["idle_run_seconds"] == 1800.0


def test_a_page_that_did_not_come_is_spoken_for_by_nobody() -> None:
    row = hour(sm_active=on_page(0.0, missed=frozenset({40, 41})))
    assert sum(row["sm_active_bins"]) == 118 * 30  # type: ignore[arg-type]
    assert row["idle_run_seconds"] == (120 - 41) * 30.0


def test_means_over_half_a_minute_tell_nothing_of_seconds() -> None:
    wave = [0.5 + 0.4 * sin(tau * second / 10) for second in ENDS]
    by_page = [value if index % 30 == 7 or index % 30 == 11 else None for index, value in enumerate(wave)]
    power = [300 + 100 * value for value in wave]
    row = hour(
        sm_active=by_page,
        tensor_active=by_page,
        power_watts=power,
        nvlink_tx_bytes_per_second=power,
        nvlink_rx_bytes_per_second=power,
    )
    assert row["sm_active_cv"] is None and row["tensor_nvlink_correlation"] is None
    assert row["period_seconds"] == pytest.approx(10.0, abs=0.1)  # power is there each second
    whole = hour(
        sm_active=list(wave),
        tensor_active=list(wave),
        nvlink_tx_bytes_per_second=power,
        nvlink_rx_bytes_per_second=power,
    )
    assert whole["sm_active_cv"] is not None and whole["tensor_nvlink_correlation"] == pytest.approx(1.0)


def test_a_measure_on_most_samples_stays_as_it_is() -> None:
    values: list[float | None] = [0.5 if second % 3 else None for second in range(60)]
    samples = Samples(ENDS[:60], [1.0] * 60, {"sm_active": values})
    assert paced(values, samples) == (values, samples.ends, samples.seconds, True)
