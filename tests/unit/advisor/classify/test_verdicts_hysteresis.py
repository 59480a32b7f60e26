"""Labels that do not flicker: two thresholds, a least time, and what breaks a course."""

from __future__ import annotations

import numpy as np
import pandas as pd
from skuwise.advisor.classify.bottlenecks.bottlenecks import Courses, courses, latched, settled


def _course(length: int, seconds: float = 60.0) -> Courses:
    starts = np.zeros(length, dtype=np.bool_)
    starts[0] = True
    return Courses(np.arange(length), starts, np.full(length, seconds))


def _rows(ts: list[float], uuid: list[str], interval: float = 60.0) -> pd.DataFrame:
    return pd.DataFrame(
        {"node": "n1", "gpu_uuid": uuid, "ts": ts, "interval_seconds": interval, "observed_seconds": interval}
    )


def test_an_answer_holds_between_the_two_levels() -> None:
    level = np.array([0.3, 0.55, 0.45, 0.45, 0.3, 0.45])
    answers = latched(level >= 0.5, level >= 0.4, _course(6))
    assert answers.tolist() == [False, True, True, True, False, False]


def test_a_course_ends_with_the_gpu_and_at_a_hole() -> None:
    along = courses(_rows([120.0, 60.0, 180.0, 60.0, 600.0], ["a", "a", "b", "b", "b"]))
    assert along.order.tolist() == [1, 0, 3, 2, 4]
    assert along.starts.tolist() == [True, False, True, True, True]
    level = np.array([0.45, 0.55, 0.45, 0.55, 0.45])  # rows as in the table: only the second minute of a is carried
    assert latched(level >= 0.5, level >= 0.4, along).tolist() == [True, True, False, True, False]


def test_a_label_of_some_minutes_is_part_of_what_was_before() -> None:
    labels = np.array(["compute"] * 5 + ["latency"] * 2 + ["compute"] * 5, dtype=object)
    kept = settled(labels, _course(12), hold_seconds=300, loose=np.zeros(12, dtype=np.bool_))
    assert set(kept) == {"compute"}
    longer = np.array(["compute"] * 5 + ["latency"] * 6, dtype=object)
    both = settled(longer, _course(11), hold_seconds=300, loose=np.zeros(11, dtype=np.bool_))
    assert both.tolist() == longer.tolist()


def test_idle_minutes_stay_idle_and_lend_their_label_to_nothing() -> None:
    labels = np.array(["compute"] * 5 + ["idle", "latency"], dtype=object)
    kept = settled(labels, _course(7), hold_seconds=300, loose=labels == "idle")
    assert kept.tolist() == labels.tolist()
