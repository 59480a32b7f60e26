"""The page of metrics of serve: bounded, clean, valid, and silent about what is old."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from skuwise.advisor.core.incident_types import Advance, Incident
from skuwise.advisor.metrics_page import SitePage
from skuwise.advisor.show.writers.formats import render
from skuwise.advisor.state.file import State
from skuwise.advisor.state.incidents import commit
from skuwise.tests.support.incident_builders import HOSTILE, HOUR, NOW, opened, sighting
from skuwise.tests.support.report_fixtures import fleet

Series = dict[str, list[tuple[dict[str, str], float]]]


def series(page: SitePage) -> Series:
    """Series -> labels and values, read back from the page."""
    text = generate_latest(page.page({})).decode()  # type: ignore[arg-type] - it collects
    assert "\x1b" not in text and max(map(len, text.splitlines()), default=0) < 1000
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setattr("time.time", lambda: NOW)
    return State(tmp_path / "a.db")


def incidents(state: State, *names: str, most: int = 500) -> Series:
    """The page of incidents of these names, the costs of which rise; at most `most` have series."""
    seen = [sighting(name, since=NOW - 3 * HOUR) for name in names]
    rows = [Incident(f"i-{n}", s, "open", NOW, s.since, NOW, NOW, float(n), 10.0 * n) for n, s in enumerate(seen)]
    with state.writing() as db:
        commit(db, Advance(tuple(rows)))
    return series(SitePage(state.path.parent / "none", lambda: [state], lambda: None, most))


def test_the_worst_have_series_and_the_rest_one(state: State) -> None:
    page_series = incidents(state, *(f"w{n}" for n in range(10)), most=3)
    cost = [(labels["incident"], value) for labels, value in page_series["skuwise_incident_cost_usd"]]
    assert cost == [("i-9", 90.0), ("i-8", 80.0), ("i-7", 70.0), ("other", 210.0)]
    assert page_series["skuwise_incident_truncated"] == [({}, 7.0)]


def test_idle_seconds_and_counts_whatever_the_names(state: State) -> None:
    page_series = incidents(state, "w", "w", HOSTILE + '"\\\n' + "x" * 10_000)
    # Two of the same labels would make the whole page invalid.
    who = {"workload_id": "w", "workload": "w", "team": "search", "user": "ann"}
    assert page_series["skuwise_workload_idle_seconds"].count((who, 10800.0)) == 1
    counts = {
        (labels["kind"], labels["severity"], labels["state"]): value
        for labels, value in page_series["skuwise_incident_open"]
    }
    assert counts["held-idle", "medium", "open"] == 3 and counts["stopped", "high", "open"] == 0


def test_the_page_tells_what_the_files_say_and_keeps_advice_that_can_no_longer_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    advice, states = tmp_path / "advice.json", [State(tmp_path / "a.db"), State(tmp_path / "b.db")]
    served = SitePage(advice, lambda: states, lambda: None)
    now = fleet().generated_at
    monkeypatch.setattr("time.time", lambda: now)
    assert series(served) == {}
    advice.write_text(render(fleet(), "json"))
    with states[0].writing() as db:
        commit(db, opened(sighting(), now=NOW))
    page_series = series(served)
    assert page_series["skuwise_advice_readable"] == [({}, 1.0)] and page_series["skuwise_fleet_gpus"] == [({}, 96.0)]
    assert len(page_series["skuwise_finding_info"]) == 6 and len(page_series["skuwise_incident_info"]) == 1
    for damaged in ('{"schema": "skuwise.advice/1", ', '{"schema": "x/1"}', "[]"):
        advice.write_text(damaged)
        for _ in range(2):
            page_series = series(served)
        assert page_series["skuwise_advice_readable"] == [({}, 0.0)]
        assert page_series["skuwise_fleet_gpus"] == [({}, 96.0)]
        assert capsys.readouterr().err.count("advice.json cannot be read") == 1
    now += 2 * 86400
    assert "skuwise_workload_info" not in series(served) and series(served)["skuwise_advice_stale"] == [({}, 1.0)]
    states[1].path.write_bytes(b"no database" * 500)
    page_series = series(served)
    # Unknown is not "none is open".
    assert page_series["skuwise_incident_file_readable"] == [({}, 0.0)] and "skuwise_incident_open" not in page_series
