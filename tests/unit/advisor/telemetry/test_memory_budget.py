"""Who waits for whom while answers are decoded."""

from __future__ import annotations

import threading

from skuwise.advisor.telemetry.prometheus.client.memory_budget import MemoryBudget


def enters(budget: MemoryBudget, size: int) -> tuple[threading.Event, threading.Thread]:
    inside = threading.Event()

    def work() -> None:
        with budget.taking(size):
            inside.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return inside, thread


def test_small_ones_go_together_and_a_large_one_goes_alone() -> None:
    budget = MemoryBudget(100, together_bytes=20)
    with budget.taking(10):
        small, _ = enters(budget, 10)
        assert small.wait(30)
        large, thread = enters(budget, 90)  # more than may go together: it waits, and is not refused
        assert not large.wait(0.2)
    assert large.wait(30)
    thread.join(30)
    with budget.taking(90):
        late, thread = enters(budget, 1)
        assert not late.wait(0.2)
    assert late.wait(30)


def test_nothing_goes_together_beyond_all_there_is() -> None:
    budget = MemoryBudget(15, together_bytes=20)
    with budget.taking(10):
        other, _ = enters(budget, 10)
        assert not other.wait(0.2)
    assert other.wait(30)
