"""Weeks of a report: Monday to Monday, UTC, wherever the clock of the machine stands."""

from __future__ import annotations

import pytest
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.report.weeks import WEEK_SECONDS, reported_week, week_of
from skuwise.rules.base.errors import UsageError


@pytest.mark.parametrize(
    ("moment", "monday"),
    [
        ("2026-11-16T00:00:00Z", "2026-11-16"),
        ("2026-11-15T23:59:59Z", "2026-11-09"),
        ("2026-11-16T01:00:00+02:00", "2026-11-09"),
        ("2026-11-22", "2026-11-16"),
        ("2024-12-31", "2024-12-30"),
    ],
)
def test_a_week_goes_from_monday_to_monday(moment: str, monday: str) -> None:
    week = week_of(parse_moment(moment))
    assert (week.name, week.start) == (monday, parse_moment(monday))
    assert week.end == week.start + WEEK_SECONDS


def test_the_last_week_that_is_over_is_reported() -> None:
    monday = parse_moment("2026-11-16")
    assert reported_week(None, monday).name == "2026-11-09"
    assert reported_week(None, monday - 1).name == "2026-11-02"
    assert reported_week(monday + 86400, monday + 2 * 86400).name == "2026-11-16"
    with pytest.raises(UsageError, match="is to come"):
        reported_week(monday + WEEK_SECONDS, monday + 86400)
