"""Killed at any moment, a database opens, is whole, and holds every tick that was said to be committed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from skuwise.benchmarks.performance.agent import writer_kills
from skuwise.tests.support.forked import alone


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_no_committed_tick_is_lost_to_a_kill(tmp_path: Path, seed: int, seed_of: Callable[[int], int]) -> None:
    committed, early = alone(writer_kills.run, tmp_path, 24, seed_of(seed))
    assert committed >= 3 * 10
    assert early < 24


@pytest.mark.slow
def test_killed_at_birth_a_database_is_whole_or_not_there(tmp_path: Path, seed_of: Callable[[int], int]) -> None:
    assert min(alone(killed_at_birth, tmp_path, 40, seed_of(3))) > 0, "what the kill left was refused"


def killed_at_birth(folder: Path, count: int, seed: int) -> list[int]:
    """The last tick that each of so many databases took after the kill."""
    rng, found = random.Random(seed), []
    for number in range(count):
        path = folder / f"{number}.db"
        writer_kills.kill_once(path, 0, rng.uniform(0.0, 0.008), working=False)
        found.append(writer_kills.kill_once(path, 0, 0.0, working=True))
    return found
