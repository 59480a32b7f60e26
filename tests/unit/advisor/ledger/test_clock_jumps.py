"""The week that is reported while a clock is wrong, by days to weeks, both ways."""

import pytest
from skuwise.advisor.notify.report import NotOverError, check_over, reported_week

DAY, HOUR = 86400.0, 3600.0
NOW = 1_790_000_000.0


@pytest.mark.parametrize("jump", [DAY, -DAY, 3 * DAY, -30 * DAY])
def test_the_week_is_the_last_that_is_over_by_the_telemetry_too(jump: float) -> None:
    """By a clock that runs ahead half a week would be told as a whole, and the rest of it never."""
    monday = reported_week(NOW, NOW).start + 6 * HOUR
    for true in [monday + n * DAY for n in range(7)]:
        week = reported_week(None, true + jump)
        try:
            check_over(week, true)
        except NotOverError as early:
            week = reported_week(None, early.newest)
        # Whichever it is, it is over; but for a clock that is beyond all doubt, by which there is no telemetry at all.
        assert week.end <= true + 2 * HOUR or week.start > true + 4 * 7 * DAY
        if 0 < jump <= 30 * DAY:
            assert week == reported_week(None, true)
