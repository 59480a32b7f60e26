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


def in_days(hours: Sequence[float], days: int) -> list[float]:
    assert len(hours) == 24
    return list(hours) * days


def test_a_service_with_nights_rests_at_night_and_is_like_itself_the_day_before() -> None:
    day = [0.0] * 6 + [0.1, 0.2, 0.4, 0.6, 0.7, 0.7, 0.6, 0.6, 0.7, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1]
    found = told(course(in_days(day, 3)))
    assert found["active_share"] == pytest.approx(18 / 24)
    assert found["rest_hours_max"] == 6
    assert found["rests_per_day"] == pytest.approx(1 * 3 / 3)
    assert found["day_before"] == pytest.approx(1.0)
    assert found["night_level"] == pytest.approx(0.0)
    assert found["working_hours_share"] == pytest.approx(6.1 / 7.6)
    assert found["active_engine"] == pytest.approx(sum(day) / 18)
    assert found["between_share"] == pytest.approx(5 / 18)
    assert "weekend_level" not in found


def test_a_weekend_is_saturday_and_sunday() -> None:
    weekend = [0.0] * 120 + [0.5] * 48
    assert told(course(weekend))["weekend_level"] > 1000
    assert told(course([0.5] * 48 + [0.1] * 120))["weekend_level"] == pytest.approx(0.1 / (0.5 * 48 + 0.1 * 72) * 120)


def test_a_nightly_batch_is_on_or_off_at_the_same_hours() -> None:
    day = [0.0, 0.95, 0.95, 0.95, 0.95] + [0.0] * 19
    found = told(course(in_days(day, 4)))
    assert found["active_share"] == pytest.approx(4 / 24)
    assert found["active_engine"] == pytest.approx(0.95)
    assert found["active_fill"] == pytest.approx(1.0)
    assert found["between_share"] == 0.0
    assert found["active_swing"] == pytest.approx(0.0)
    assert found["day_before"] == pytest.approx(1.0)
    assert found["rests_per_day"] == pytest.approx(1.0)
    assert found["rest_hours_max"] == 20


def test_an_hour_is_active_by_its_highest_value() -> None:
    found = told(course([0.004] * 30, top=[0.6] * 30))
    assert found["active_share"] == 1.0
    assert told(course([0.004] * 30))["active_share"] == 0.0


def test_a_gap_joins_no_rests_and_is_none() -> None:
    whole = course([0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5])
    gap = whole.of(np.array([True, True, True, False, False, True, True, True]))
    assert told(whole)["rest_hours_max"] == 6
    found = told(gap)
    assert found["rest_hours_max"] == 2
    assert found["active_share"] == pytest.approx(2 / 6)


def test_a_short_course_of_minutes_is_seen_in_tens_of_them_and_has_no_calendar() -> None:
    minutes = [0.8] * 60 + [0.0] * 30 + [0.8] * 90  # three hours
    found = told(course(minutes, length=60.0))
    assert found["rest_hours_max"] == pytest.approx(0.5)
    assert found["active_share"] == pytest.approx(150 / 180)
    assert not {"working_hours_share", "night_level", "day_before", "weekend_level"} & set(found)


def test_one_row_tells_no_course() -> None:
    found = told(course([0.5]))
    assert found["active_share"] == 1.0
    assert not {"active_swing", "between_share", "mem_hourly_cv", "day_before", "weekend_level"} & set(found)


def test_of_several_gpus_the_longest_rest_is_the_median() -> None:
    rests = [[0.5] * (12 - n) + [0.0] * n for n in (1, 4, 9)]
    found = told(*(course(engine, gpu=gpu) for gpu, engine in enumerate(rests)))
    assert found["rest_hours_max"] == 4


def test_memory_that_breathes_swings_within_the_hour_and_changes_from_hour_to_hour() -> None:
    used = [(10 + 4 * (n % 2)) * GIB for n in range(24)]
    found = told(course([0.5] * 24, memory=used, memory_top=[16 * GIB] * 24))
    assert found["mem_swing_in_hour"] == pytest.approx(1 - 12 / 16, abs=0.01)
    assert found["mem_changes_share"] == 1.0
    assert found["mem_hourly_cv"] == pytest.approx(2 / 12, rel=0.02)


def test_engines_that_are_missing_leave_memory_alone_to_speak() -> None:
    found = told(course([NAN] * 24, memory=[(10 + n % 3) * GIB for n in range(24)]))
    assert "active_share" not in found
    assert "working_hours_share" not in found
    assert found["mem_hourly_cv"] > 0
    assert "mem_kept_at_rest" not in found


def test_engines_that_are_missing_in_some_rows_are_not_at_rest() -> None:
    found = told(course([0.5, NAN, NAN, NAN, 0.5, 0.0], top=[0.5, NAN, NAN, NAN, 0.5, 0.0]))
    assert found["active_share"] == pytest.approx(2 / 3)
    assert found["rest_hours_max"] == 1


def test_nothing_known_is_nothing_said() -> None:
    assert told(course([NAN] * 5, memory=[NAN] * 5)) == {}
    unobserved = dataclasses.replace(course([0.5] * 5), seconds=np.zeros(5))
    assert of_one(unobserved) == {}
