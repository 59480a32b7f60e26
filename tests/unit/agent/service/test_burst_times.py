"""When bursts come: once a window, spread over the fleet, and not at the same point of every window."""

from __future__ import annotations

from itertools import pairwise

from skuwise.agent.service.driver.bursts import next_start

NOW = 1.8e9


def test_one_burst_a_window_and_never_two_close_together() -> None:
    starts = [next_start("gpu-017", NOW, 300.0)]
    for _ in range(500):
        starts.append(next_start("gpu-017", starts[-1], 300.0))
    windows = [int(start // 300) for start in starts]
    assert windows == list(range(windows[0], windows[0] + 501))
    assert min(b - a for a, b in pairwise(starts)) >= 150.0
    offsets = sorted(start % 300 for start in starts)
    assert offsets[0] < 10 and offsets[-1] > 140  # work that repeats every 300 s is met at many points


def test_a_fleet_does_not_pulse_together_and_a_restart_changes_nothing() -> None:
    starts = [next_start(f"gpu-{i:04d}", NOW, 300.0) for i in range(1000)]
    busiest = max(sum(moment <= start < moment + 10 for start in starts) for moment in sorted(starts))
    assert busiest < 120  # of 1,000 nodes, bursts of 10 s at one time
    assert next_start("gpu-0001", starts[1] - 1.0, 300.0) == starts[1]
