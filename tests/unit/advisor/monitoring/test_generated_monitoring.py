"""The rules and boards that stand ready are what the description gives, and every panel says what it is."""

from __future__ import annotations

import re
import shlex
import subprocess
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from skuwise.__main__ import COMMANDS
from skuwise.advisor.monitoring.alert_rules import ALERTS, rules_text
from skuwise.advisor.monitoring.boards import BOARDS
from skuwise.advisor.monitoring.grafana import board_json, board_text
from skuwise.advisor.monitoring.panels import Board
from skuwise.tests.support.golden_files import renewed
from skuwise.tests.support.prometheus_engines import needed

DEPLOY = Path(__file__).parents[4] / "deploy"


@pytest.mark.parametrize("board", BOARDS, ids=lambda one: one.uid)
def test_a_board_is_what_its_description_gives(board: Board) -> None:
    assert renewed(DEPLOY / "grafana" / f"{board.uid}.json", board_text(board)) == board_text(board)


def test_the_rules_are_what_their_description_gives_and_pass_promtool(tmp_path: Path) -> None:
    assert renewed(DEPLOY / "prometheus" / "serve-alert-rules.yaml", rules_text()) == rules_text()
    needed("promtool")
    queries = [query.expr for board in BOARDS for panel in board.panels for query in panel.queries]
    plain = [re.sub(r"\$(cluster|team|node)", ".*", one).replace("$__rate_interval", "5m") for one in queries]
    made = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(plain)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "x", "rules": made}]}))
    (tmp_path / "rules.yaml").write_text(rules_text())
    command = ["promtool", "check", "rules", "panels.yaml", "rules.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_held_idle_incident_fires_and_an_acknowledged_one_does_not(tmp_path: Path) -> None:
    needed("promtool")
    labels = '{incident="i", kind="held-idle", workload="w", user="ann", team="t", state='
    (tmp_path / "rules.yaml").write_text(rules_text())
    case = {
        "interval": "1m",
        "input_series": [{"series": f'skuwise_incident_info{labels}"{state}"}}', "values": "1x10"}
                         for state in ("open", "acknowledged")],
        "promql_expr_test": [
            {"expr": 'count(ALERTS{alertstate="firing"})', "eval_time": "5m",
             "exp_samples": [{"labels": "{}", "value": 1}]}
        ],
    }  # fmt: skip
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [case]}))
    command = ["promtool", "test", "rules", "test.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("board", BOARDS, ids=lambda one: one.uid)
def test_panels_have_a_unit_a_command_and_a_place_of_their_own(board: Board) -> None:
    panels = board_json(board)["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    for one, other in combinations([one["gridPos"] for one in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    for panel in board.panels:
        assert panel.unit and panel.queries and panel.command in panel.description


def test_commands_named_by_panels_and_alerts_exist() -> None:
    named = {panel.command for board in BOARDS for panel in board.panels} | {one.command for one in ALERTS}
    assert all(shlex.split(one)[0] == "skuwise" and shlex.split(one)[1] in COMMANDS for one in named)
