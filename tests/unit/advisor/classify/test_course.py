"""What the course of hours tells, on small hand-made courses whose answer can be counted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from skuwise.advisor.classify.features.course import Course, course_features
from skuwise.advisor.core.segments import Segments

HOUR, DAY = 3600.0, 86400.0
MONDAY = 1_789_948_800.0  # 2026-09-21 00:00 UTC
ACTIVE = 0.05
GIB = 2.0**30
NAN = float("nan")


def course(
    engine: Sequence[float], *, memory: Sequence[float] | float = 10 * GIB, top: Sequence[float] | None = None,
    memory_top: Sequence[float] | None = None, length: float = HOUR, gpu: int = 0, start: float = MONDAY,
) -> Course:  # fmt: skip
    """A course of one GPU, a row each `length` seconds; the highest values are the means where none are given."""
    count = len(engine)
    level = np.array(engine, dtype=float)
    highest = level if top is None else np.array(top, dtype=float)
    used = np.full(count, memory) if isinstance(memory, float) else np.array(memory, dtype=float)
    return Course(
        gpu=np.full(count, gpu, dtype=np.intp),
        ts=start + length * np.arange(1, count + 1, dtype=np.float64),
        length_seconds=np.full(count, length),
        seconds=np.full(count, length),
        engine=level,
        engine_p95=highest,
        engine_max=highest,
        memory=used,
        memory_max=used if memory_top is None else np.array(memory_top, dtype=float),
    )


def beside(*courses: Course) -> Course:
    """Courses of several GPUs as one workload's."""
    return Course(*(np.concatenate([getattr(c, f.name) for c in courses]) for f in dataclasses.fields(Course)))


def of_one(course: Course) -> dict[str, float]:
    """The features that can be told of one workload."""
    figures = course_features(course, Segments.of_lengths([len(course.ts)]), ACTIVE)
    return {name: float(values[0]) for name, values in figures.items() if math.isfinite(values[0])}


def told(*courses: Course) -> dict[str, float]:
    return of_one(beside(*courses))


DAY_OF_SERVICE = [0.0] * 6 + [0.1, 0.2, 0.4, 0.6, 0.7, 0.7, 0.6, 0.6, 0.7, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1]
NIGHTLY = [0.0, 0.95, 0.95, 0.95, 0.95] + [0.0] * 19
PAUSE = course([0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5])
BLIND = course([NAN] * 24, memory=[(10 + n % 3) * GIB for n in range(24)])
SOME_MISSING = [0.5, NAN, NAN, NAN, 0.5, 0.0]
CALENDAR = ("working_hours_share", "night_level", "day_before", "weekend_level")


@pytest.mark.parametrize(
    ("courses", "figures", "untold"),
    [
        # It rests at night and is like itself the day before.
        ([course(DAY_OF_SERVICE * 3)],
         {"active_share": 18 / 24, "rest_hours_max": 6, "rests_per_day": 1, "day_before": 1.0, "night_level": 0.0,
          "working_hours_share": 6.1 / 7.6, "active_engine": sum(DAY_OF_SERVICE) / 18, "between_share": 5 / 18},
         ["weekend_level"]),
        ([course([0.5] * 48 + [0.1] * 120)], {"weekend_level": 0.1 / (0.5 * 48 + 0.1 * 72) * 120}, []),
        # On or off at the same hours.
        ([course(NIGHTLY * 4)],
         {"active_share": 4 / 24, "active_engine": 0.95, "active_fill": 1.0, "between_share": 0.0, "active_swing": 0.0,
          "day_before": 1.0, "rests_per_day": 1.0, "rest_hours_max": 20}, []),
        # An hour is active by its highest value.
        ([course([0.004] * 30, top=[0.6] * 30)], {"active_share": 1.0}, []),
        ([course([0.004] * 30)], {"active_share": 0.0}, []),
        # A gap joins no rests and is none.
        ([PAUSE], {"rest_hours_max": 6}, []),
        ([PAUSE.of(np.array([True, True, True, False, False, True, True, True]))],
         {"rest_hours_max": 2, "active_share": 2 / 6}, []),
        # Three hours of minutes are seen in tens of them.
        ([course([0.8] * 60 + [0.0] * 30 + [0.8] * 90, length=60.0)],
         {"rest_hours_max": 0.5, "active_share": 150 / 180}, CALENDAR),
        ([course([0.5])], {"active_share": 1.0},
         ["active_swing", "between_share", "mem_hourly_cv", "day_before", "weekend_level"]),
        # Of several GPUs the longest rest is the median.
        ([course([0.5] * (12 - n) + [0.0] * n, gpu=gpu) for gpu, n in enumerate((1, 4, 9))], {"rest_hours_max": 4}, []),
        # Engines that are missing leave memory alone to speak, and are not at rest.
        ([BLIND], {}, ["active_share", "working_hours_share", "mem_kept_at_rest"]),
        ([course(SOME_MISSING)], {"active_share": 2 / 3, "rest_hours_max": 1}, []),
    ],
)  # fmt: skip
def test_what_a_course_tells(courses: list[Course], figures: dict[str, float], untold: Sequence[str]) -> None:
    found = told(*courses)
    assert {name: found[name] for name in figures} == pytest.approx(figures)
    assert not set(untold) & set(found)


def test_a_weekend_is_saturday_and_sunday() -> None:
    assert told(course([0.0] * 120 + [0.5] * 48))["weekend_level"] > 1000


def test_memory_that_breathes_swings_within_the_hour_and_changes_from_hour_to_hour() -> None:
    used = [(10 + 4 * (n % 2)) * GIB for n in range(24)]
    found = told(course([0.5] * 24, memory=used, memory_top=[16 * GIB] * 24))
    assert found["mem_swing_in_hour"] == pytest.approx(1 - 12 / 16, abs=0.01)
    assert found["mem_changes_share"] == 1.0
    assert found["mem_hourly_cv"] == pytest.approx(2 / 12, rel=0.02)
    assert told(BLIND)["mem_hourly_cv"] > 0


def test_nothing_known_is_nothing_said() -> None:
    assert told(course([NAN] * 5, memory=[NAN] * 5)) == {}
    unobserved = dataclasses.replace(course([0.5] * 5), seconds=np.zeros(5))
    assert of_one(unobserved) == {}
