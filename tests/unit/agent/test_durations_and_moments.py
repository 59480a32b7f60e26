import pytest
from skuwise.advisor.core.timestamps import day, minute, parse_moment, rfc3339
from skuwise.agent.base.durations import parse_duration
from skuwise.rules.base.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("30s", 30), ("10m", 600), ("24h", 86400), ("14d", 1209600), ("1.5h", 5400)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "14", "d", "-1d", "0s", "1 d", "1y", "1h30m", "14days", "1e3s", "１d", "nan s"])
def test_what_is_no_duration(text):
    with pytest.raises(UsageError, match="not a span of time"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "ts"),
    [
        ("2026-03-01T00:00:00Z", 1772323200),
        ("2026-03-01T01:00:00+01:00", 1772323200),
        ("2026-03-01", 1772323200),
        ("2026-03-01t00:00:00.5z", 1772323200.5),
    ],
)
def test_moments(text, ts):
    assert parse_moment(text) == ts


@pytest.mark.parametrize("text", ["", "now", "2026-13-01", "2026-02-30T00:00:00Z", "2026-03-01T00:00:00", "20260301"])
def test_what_is_no_moment(text):
    with pytest.raises(UsageError, match="Invalid time"):
        parse_moment(text)


def test_moments_are_written_in_utc():
    assert rfc3339(1772323200.9) == "2026-03-01T00:00:00Z"
    assert day(1772323200) == "2026-03-01"
    assert minute(1772323260) == "2026-03-01 00:01 UTC"
