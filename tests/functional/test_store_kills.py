"""Killed at any moment, a database opens, is whole, and holds every tick that was said to be committed."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.benchmarks import kills  # pyright: ignore[reportMissingImports] - not in the wheel


@pytest.mark.parametrize("seed", [1, 2])
def test_no_committed_tick_is_lost_to_a_kill(tmp_path: Path, seed: int) -> None:
    committed, early = kills.run(tmp_path, 24, seed)
    assert committed >= 3 * 10
    assert early < 24
