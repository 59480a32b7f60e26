"""The page of metrics of serve: bounded, clean, valid, and silent about what is old."""

from __future__ import annotations

from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from skuwise.advisor.core.incident_types import Incident
from skuwise.advisor.metrics_page import PageLimits, SiteState, make_page
from skuwise.tests.support.incident_builders import HOSTILE, HOUR, NOW, sighting


def incident(name: str, number: int = 0) -> Incident:
    seen = sighting(name, since=NOW - 3 * HOUR)
    return Incident(f"i-{number}", seen, "open", NOW, seen.since, NOW, NOW, float(number), 10.0 * number)


def page(*incidents: Incident, limit: int = 500) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Series -> labels and values, read back from the page."""
    text = generate_latest(make_page(SiteState(incidents=incidents), PageLimits(limit), NOW, {})).decode()
    assert "\x1b" not in text and max(map(len, text.splitlines())) < 1000
    return {
        family.name: [(one.labels, one.value) for one in family.samples]
        for family in text_string_to_metric_families(text)
    }


def test_hostile_names_make_a_valid_page() -> None:
    found = page(incident(HOSTILE + '"\\\n' + "x" * 10_000, 1), incident("b", 2))
    assert len(found["skuwise_incident_info"]) == 2


def test_the_worst_have_series_and_the_rest_one() -> None:
    found = page(*(incident(f"w{n}", n) for n in range(10)), limit=3)
    cost = [(labels["incident"], value) for labels, value in found["skuwise_incident_cost_usd"]]
    assert cost == [("i-9", 90.0), ("i-8", 80.0), ("i-7", 70.0), ("other", 210.0)]
    assert found["skuwise_incident_truncated"] == [({}, 7.0)]


def test_two_of_the_same_labels_are_one_series() -> None:
    found = page(incident("w", 1), incident("w", 1))
    assert len(found["skuwise_incident_info"]) == 1 and found["skuwise_incident_truncated"] == [({}, 1.0)]


def test_idle_seconds_and_counts() -> None:
    found = page(incident("w", 1))
    who = {"workload_id": "w", "workload": "w", "team": "search", "user": "ann"}
    assert found["skuwise_workload_idle_seconds"] == [(who, 10800.0)]
    counts = {(one["kind"], one["severity"], one["state"]): value for one, value in found["skuwise_incident_open"]}
    assert counts["held-idle", "medium", "open"] == 1 and counts["stopped", "high", "open"] == 0


def test_unknown_incidents_are_not_none() -> None:
    text = generate_latest(make_page(SiteState(incidents_readable=False), PageLimits(), NOW, {})).decode()
    assert "skuwise_incident_open" not in text and "skuwise_incident_file_readable 0.0\n" in text
