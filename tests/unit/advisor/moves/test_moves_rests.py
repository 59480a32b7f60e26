"""What is held, and what is light use: by the longest rest and by what follows it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from skuwise.advisor.core.advice_types import Advice
from skuwise.tests.support.moves_builders import END, START, advice_of, node, usage, verdicts, workload

HOURS = round((END - START) / 3600)
At = Callable[[np.ndarray], np.ndarray]


def advised(kind: str, works: At, engine: float = 0.5, asleep: float = 0.0) -> Advice:
    """A workload that works in the hours (from the window's start) for which `works` holds, else rests with its memory
    held."""
    w = workload("w", kind=kind)
    used = usage(w, label="compute", g=engine)
    hour = (used["ts"].to_numpy() - START) / 3600 - 1
    rests = ~works(hour)
    used["g_max"] = np.where(rests, asleep, 1.0)
    for name in ("u_c", "u_m", "c", "m"):
        used.loc[rests, name] = 0.0
    used.loc[rests, "g"] = asleep
    used.loc[rests, "bottleneck"] = "idle"
    return advice_of(verdicts([node(fabric=None)], [w], uses=[used], idle_hours={w.id: float(rests.sum())}))


def held(advice: Advice) -> float:
    return sum(f.gpu_hours for f in advice.findings if f.rule == "held-idle")


@pytest.mark.parametrize("kind", ["training", "batch-inference", "online-inference", "interactive", "unknown"])
def test_what_is_left_for_days_is_held_whatever_its_kind(kind: str) -> None:
    assert held(advised(kind, lambda hour: hour < HOURS - 60)) == pytest.approx(8 * 60)


@pytest.mark.parametrize("kind", ["training", "batch-inference", "online-inference", "interactive", "unknown"])
def test_nightly_runs_and_the_nights_between_days_are_use(kind: str) -> None:
    assert held(advised(kind, lambda hour: hour % 24 < 4)) == 0


def test_a_rest_that_work_followed_before_may_end_the_same_way() -> None:
    # 50 h without work once, and 60 h at the end: the same weekend and a morning.
    assert held(advised("interactive", lambda h: (h < 100) | ((h >= 150) & (h < HOURS - 60)))) == 0
    assert held(advised("interactive", lambda h: (h < 100) | ((h >= 150) & (h < HOURS - 90)))) == pytest.approx(8 * 90)


def test_a_request_now_and_then_is_use_however_little_it_is() -> None:
    w = workload("rare", kind="idle")
    used = usage(w, u_c=0, u_m=0, g=0.0, label="idle")
    asked = (used["ts"] / 3600) % 5 < 1
    used["g_max"] = np.where(asked, 0.9, 0.0)
    used.loc[asked, "g"] = 0.01
    given = verdicts([node(fabric=None)], [w], uses=[used], idle_hours={w.id: 8.0 * HOURS})
    assert held(advice_of(given)) == 0
