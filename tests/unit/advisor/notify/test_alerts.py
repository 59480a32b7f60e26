"""Incidents as alerts: labels that stay, times that Alertmanager accepts, values that are no markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from skuwise.advisor.core.incident_types import Incident
from skuwise.advisor.core.timestamps import parse_moment
from skuwise.advisor.incidents.settings import WatchSettings
from skuwise.advisor.mail.alertmanager import Alertmanager, check_alertmanager
from skuwise.advisor.notify.alerts import ANNOTATION_MAX, LABEL_MAX, alerts_of
from skuwise.advisor.notify.letters import Writing
from skuwise.advisor.views.document.dashboard import Dashboard
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.incident_fixtures import HOSTILE, HOUR, NOW, ended, incident

WRITING = Writing(WatchSettings())


def alerts(*incidents: Incident, now: float = NOW, writing: Writing = WRITING) -> list[dict[str, Any]]:
    return json.loads(json.dumps(alerts_of(incidents, now, writing, lambda _: "search")))


def test_an_open_incident_lasts_three_passes_and_has_what_routes_need() -> None:
    (one,) = alerts(incident(1, severity="high"))
    assert one["labels"] == {
        "alertname": "SkuwiseHeldIdle", "severity": "critical", "incident": "i-00000001", "kind": "held-idle",
        "subject": "workload:w-000001", "workload": "train-llm", "job_id": "4711", "holder": "job", "team": "search",
        "user": "alice", "node": "gpu-009", "gpu_sku": "H100-SXM5",
    }  # fmt: skip
    assert parse_moment(one["startsAt"]) == NOW - 2.1 * HOUR and parse_moment(one["endsAt"]) == NOW + 900
    assert one["annotations"]["summary"].endswith("(alice, job 4711): $51 so far")
    assert one["annotations"]["command"] == "skuwise job w-000001" and "generatorURL" not in one
    linked = alerts(incident(1), writing=replace(WRITING, dashboard=Dashboard("https://g.example.org/{workload}")))
    assert linked[0]["generatorURL"] == "https://g.example.org/w-000001"


def test_what_ended_is_sent_for_an_hour_with_its_end() -> None:
    over = ended(incident(1), NOW + 600)
    (one,) = alerts(over, now=NOW + 900)
    assert parse_moment(one["endsAt"]) == NOW + 600
    assert alerts(over, now=NOW + 600 + HOUR) == []


def test_names_from_outside_are_bounded_and_no_markup() -> None:
    one = incident(1, user=HOSTILE * 20, node=HOSTILE, name=HOSTILE, namespace=HOSTILE, team=HOSTILE)
    (found,) = alerts(replace(one, acknowledged_by=HOSTILE * 100))
    for name, value in found["labels"].items():
        assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name)
        assert 0 < len(value) <= LABEL_MAX and not set(value) & set("<>\n\x1b\u202e")
    assert len(found["labels"]) <= 16
    assert all(0 < len(value) <= ANNOTATION_MAX for value in found["annotations"].values())
    assert not any(set(value) & set("<>\x1b\u202e") for value in found["annotations"].values())


@pytest.mark.parametrize(
    ("url", "words"),
    [("http://alerts.example.org:9093", "not encrypted"), ("https://a.example.org/?x=1", "a query or a fragment")],
)
def test_an_address_that_would_leak_is_refused(url: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_alertmanager(url)
    with pytest.raises(UsageError, match=words):
        Alertmanager(url, "", {})
