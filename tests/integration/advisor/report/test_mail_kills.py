"""A sender that is killed at any line of its work: every team has its mail in the end, and at most one has it twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from skuwise.benchmarks.performance.advisor import outbox_kills
from skuwise.tests.support.forked import alone


@pytest.mark.slow
def test_no_mail_is_lost_to_a_kill_and_one_at_most_is_sent_twice(tmp_path: Path, seed_of: Callable[[int], int]) -> None:
    rounds = alone(outbox_kills.run, tmp_path, 20, seed_of(1))
    assert len(rounds) == 20 and sum(one.where != "" for one in rounds) >= 18
    for one in rounds:
        assert min(one.copies) == 1 and sum(one.copies) <= len(one.copies) + 1, one
        # Twice only where the audit shows an attempt of which nobody knew what became of it.
        assert sum(one.copies) - len(one.copies) <= one.unended, one
