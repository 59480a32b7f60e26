"""The dashboards and rules of deploy/: what Grafana takes, and series that somebody exports."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from skuwise.advisor.core.incident_types import Advance, Incident
from skuwise.advisor.metrics_page import SitePage, WatchPasses
from skuwise.advisor.show.writers.formats import render
from skuwise.advisor.state.file import State
from skuwise.advisor.state.incidents import commit
from skuwise.advisor.telemetry.prometheus.promql import DCGM_GAUGES, rule_name
from skuwise.agent.service.metrics_page import make_page as make_agents_page
from skuwise.tests.support.incident_builders import NOW, sighting
from skuwise.tests.support.moves_builders import advice_of, founding
from skuwise.tests.unit.agent.service.test_totals import full

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
BOARDS = sorted([*DEPLOY.glob("grafana/*.json"), DEPLOY / "prometheus/dashboard.json"])
RULES = sorted(DEPLOY.glob("prometheus/*-rules.yaml"))
NODE_EXPORTER = {f"node_infiniband_port_data_{direction}_bytes_total" for direction in ("received", "transmitted")}
EXPORTED = re.compile(r"\b(?:skuwise|DCGM|node)_\w+|\bup\b")


def board(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def rules(path: Path) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


@pytest.fixture
def exported(tmp_path: Path) -> set[str]:
    """The names of the series on both of our pages, dcgm-exporter's and node_exporter's."""
    names = {"up", *NODE_EXPORTER, *(name for gauge in DCGM_GAUGES for name in gauge.names)}
    advice, state = tmp_path / "advice.json", State(tmp_path / "a.db")
    advice.write_text(render(advice_of(founding()), "json"))
    held = sighting("w", since=NOW - 3600)
    with state.writing() as db:
        commit(db, Advance((Incident("i-1", held, "open", NOW, held.since, NOW, NOW, 1.0, 2.0),)))
    served = SitePage(advice, lambda: [state], lambda: WatchPasses(1, 0, NOW, 2.0), stale_seconds=1e12)
    for page in (served.page({"closed": 1}), make_agents_page(full(), {"scraped": 1})):
        names |= {sample.name for family in page.families for sample in family.samples}
    return names


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_one_that_grafana_takes(path: Path, exported: set[str]) -> None:
    whole = board(path)
    jsonschema.validate(whole, json.loads((ROOT / "tests/data/grafana-dashboard.schema.json").read_text()))
    panels = whole["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for cell, other in combinations([panel["gridPos"] for panel in panels], 2):
        beside = cell["x"] + cell["w"] <= other["x"] or other["x"] + other["w"] <= cell["x"]
        assert beside or cell["y"] + cell["h"] <= other["y"] or other["y"] + other["h"] <= cell["y"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    asked += [variable["query"] for variable in whole["templating"]["list"]]
    for query in asked:
        assert set(EXPORTED.findall(query)) <= exported, query
        if "DCGM_" in query:
            assert query.count('"Hostname"') == query.count('"hostname"') >= 1, query
        assert query.count('Hostname=~"$node"') == query.count('hostname=~"$node"')


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_rules_name_series_that_somebody_exports(path: Path, exported: set[str]) -> None:
    for rule in rules(path):
        assert set(EXPORTED.findall(rule["expr"])) <= exported, rule


def test_recording_rules_are_those_that_the_advisor_looks_for() -> None:
    written = {
        rule["record"]: " ".join(rule["expr"].split()) for rule in rules(DEPLOY / "prometheus/recording-rules.yaml")
    }
    wanted = {}
    for gauge in DCGM_GAUGES:
        for statistic, function in (("mean", "avg_over_time"), ("max", "max_over_time")):
            if statistic in gauge.statistics:
                asked = " or ".join(f"{function}({name}[5m])" for name in gauge.names)
                wanted[rule_name(gauge.measure, statistic)] = asked
    assert written == wanted
