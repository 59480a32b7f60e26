"""What stands ready for Prometheus and Grafana: checked by promtool, named as the page and the catalogue have it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import yaml
from skuwise.advisor.telemetry.prometheus.promql.promql import DCGM_GAUGES, rule_name
from skuwise.tests.support.prometheus_engines import needed

FOLDER = Path(__file__).parents[4] / "deploy" / "prometheus"


def promtool(*arguments: str, folder: Path = FOLDER) -> None:
    needed("promtool")
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def rules(name: str) -> list[dict[str, str]]:
    document = yaml.safe_load((FOLDER / name).read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def dashboard_queries() -> list[str]:
    board = json.loads((FOLDER / "dashboard.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_rules_and_scrape_configuration_pass_promtool() -> None:
    promtool("check", "rules", "recording-rules.yaml", "alert-rules.yaml")
    promtool("check", "config", "scrape.yaml")


def test_the_dashboards_queries_are_promql(tmp_path: Path) -> None:
    plain = [q.replace("$__rate_interval", "5m").replace("$node", ".*") for q in dashboard_queries()]
    made = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(plain)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "x", "rules": made}]}))
    promtool("check", "rules", "rules.yaml", folder=tmp_path)


def test_recording_rules_give_the_mean_and_the_maximum_of_their_five_minutes(tmp_path: Path) -> None:
    gpu = '{gpu="0", UUID="GPU-a"}'
    wanted = {"skuwise:gpu_util:mean5m": 60.0, "skuwise:gpu_util:max5m": 80.0, "skuwise:tensor_active:mean5m": 0.25}
    tests = {
        "rule_files": [str(FOLDER / "recording-rules.yaml")],
        "evaluation_interval": "5m",
        "tests": [{
            "interval": "1m",
            "input_series": [
                {"series": f"DCGM_FI_DEV_GPU_UTIL{gpu}", "values": "_ 40 50 60 70 80"},
                # Under its newer name.
                {"series": f"DCGM_FI_PROF_PIPE_TENSOR_UTIL_RATIO{gpu}", "values": "0.25x5"},
            ],
            "promql_expr_test": [
                {"expr": rule, "eval_time": "5m1s", "exp_samples": [{"labels": rule + gpu, "value": value}]}
                for rule, value in wanted.items()
            ],
        }],
    }  # fmt: skip
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", "test.yaml", folder=tmp_path)


def test_recording_rules_are_those_that_the_advisor_looks_for() -> None:
    written = {rule["record"]: " ".join(rule["expr"].split()) for rule in rules("recording-rules.yaml")}
    wanted = {}
    for gauge in DCGM_GAUGES:
        for statistic, function in (("mean", "avg_over_time"), ("max", "max_over_time")):
            if statistic in gauge.statistics:
                wanted[rule_name(gauge.measure, statistic)] = " or ".join(
                    f"{function}({name}[5m])" for name in gauge.names
                )
    assert written == wanted
