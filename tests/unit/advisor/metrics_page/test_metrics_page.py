"""The page of metrics of serve: bounded, clean, valid, and silent about what is old."""

from __future__ import annotations

import re

from skuwise.advisor.core.incident_types import Incident
from skuwise.advisor.metrics_page.bounded_series import labels_of
from skuwise.advisor.metrics_page.page import render_page
from skuwise.advisor.metrics_page.site_state import PageLimits, SiteState
from skuwise.agent.base.openmetrics import PLAIN
from skuwise.tests.support.incident_builders import HOSTILE, HOUR, NOW, sighting


def incident(name: str, number: int = 0) -> Incident:
    seen = sighting(name, since=NOW - 3 * HOUR)
    return Incident(f"i-{number}", seen, "open", NOW, seen.since, NOW, NOW, float(number), 10.0 * number)


def page(*incidents: Incident, limit: int = 500) -> str:
    return render_page(SiteState(incidents=incidents), PageLimits(limit), NOW, PLAIN, {})


def test_hostile_names_make_a_valid_page() -> None:
    text = page(incident(HOSTILE + '"\\\n' + "x" * 10_000, 1), incident("b", 2))
    label = r'\w+="(?:[^"\\\n]|\\["\\n])*"'
    assert all(re.fullmatch(rf"#.*|\w+(\{{{label}(,{label})*\}})? \S+", line) for line in text.splitlines())
    assert "\x1b" not in text and max(map(len, text.splitlines())) < 1000


def test_the_worst_have_series_and_the_rest_one() -> None:
    text = page(*(incident(f"w{n}", n) for n in range(10)), limit=3)
    cost = [line for line in text.splitlines() if line.startswith("skuwise_incident_cost_usd{")]
    assert [line.split('"')[1] for line in cost] == ["i-9", "i-8", "i-7", "other"]
    assert cost[-1].endswith(" 210.0") and "skuwise_incident_truncated 7\n" in text


def test_two_of_the_same_labels_are_one_series() -> None:
    text = page(incident("w", 1), incident("w", 1))
    assert text.count("skuwise_incident_info{") == 1 and "skuwise_incident_truncated 1\n" in text


def test_idle_seconds_and_counts() -> None:
    text = page(incident("w", 1))
    who = labels_of({"workload_id": "w", "workload": "w", "team": "search", "user": "ann"})
    assert f"skuwise_workload_idle_seconds{{{who}}} 10800.0" in text
    assert 'skuwise_incident_open{kind="held-idle",severity="medium",state="open"} 1\n' in text
    assert 'skuwise_incident_open{kind="stopped",severity="high",state="open"} 0\n' in text


def test_unknown_incidents_are_not_none() -> None:
    text = render_page(SiteState(incidents_readable=False), PageLimits(), NOW, PLAIN, {})
    assert "skuwise_incident_open" not in text and "skuwise_incident_file_readable 0\n" in text
