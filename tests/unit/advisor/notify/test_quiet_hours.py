"""Quiet hours: across midnight, on the days when the clock is set, and what is sent within them."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from skuwise.advisor.incidents.settings import WatchSettings
from skuwise.advisor.notify.quiet import is_quiet, waits
from skuwise.tests.support.incident_fixtures import incident

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


def settings(begin: int, end: int) -> WatchSettings:
    return WatchSettings(quiet_hours=(begin, end), time_zone=BERLIN)


@pytest.mark.parametrize(
    ("hours", "moment", "quiet"),
    [
        ((22, 7), "2026-11-24T21:59:59", False), ((22, 7), "2026-11-24T22:00:00", True),
        ((22, 7), "2026-11-25T00:00:00", True), ((22, 7), "2026-11-25T06:59:59", True),
        ((22, 7), "2026-11-25T07:00:00", False), ((1, 5), "2026-11-25T00:59:59", False),
        ((1, 5), "2026-11-25T01:00:00", True), ((1, 5), "2026-11-25T05:00:00", False),
        ((0, 8), "2026-11-25T00:00:00", True), ((23, 0), "2026-11-25T00:00:00", False),
    ],
)  # fmt: skip
def test_hours_are_local_and_may_cross_midnight(hours: tuple[int, int], moment: str, quiet: bool) -> None:
    assert is_quiet(settings(*hours), at(moment)) is quiet


def test_the_night_when_the_clock_is_set_ahead_ends_by_the_local_clock() -> None:
    # 2026-03-29: 02:00 CET becomes 03:00 CEST.
    night = settings(22, 2)
    last = at("2026-03-29T01:59:59")
    assert is_quiet(night, last) and not is_quiet(night, last + 1.0)
    assert not is_quiet(settings(2, 3), last + 1.0)  # an hour that does not happen


def test_only_high_severity_is_sent_within_them() -> None:
    night, moment = settings(22, 7), at("2026-11-25T03:00:00")
    assert [waits(incident(severity=one), night, moment) for one in ("low", "medium", "high")] == [True, True, False]
    assert not waits(incident(severity="low"), WatchSettings(), moment)
    assert not waits(incident(severity="low"), night, at("2026-11-25T12:00:00"))
