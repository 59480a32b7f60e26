"""A watcher that is killed at any moment loses no incident, and tells everybody of each event, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from skuwise.benchmarks.performance.advisor import watch_kills
from skuwise.tests.support.forked import alone


@pytest.mark.slow
def test_a_killed_watcher_loses_nothing_and_repeats_little(tmp_path: Path, seed_of: Callable[[int], int]) -> None:
    result = alone(watch_kills.run, tmp_path, 15, seed_of(1))
    assert len(result.kills) == 15
    assert (result.lost, result.doubled, result.noted_twice) == (0, 0, 0)
    assert result.events and set(result.copies) == {1}
    # Asked for again only where the kill came between queueing and noting it.
    assert result.repeated <= 15
