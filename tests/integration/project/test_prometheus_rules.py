"""What is deployed beside the agent, by the programs that take it: promtool, Kubernetes' schemas."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from skuwise.tests.support.prometheus_engines import needed
from skuwise.tests.support.shared_artifacts import locked_environment

DEPLOY = Path(__file__).parents[3] / "deploy"
FOLDER = DEPLOY / "prometheus"
RULES = ("recording-rules.yaml", "alert-rules.yaml", "serve-alert-rules.yaml")
BOARDS = [*sorted(DEPLOY.glob("grafana/*.json")), FOLDER / "dashboard.json"]


def promtool(*arguments: str, folder: Path = FOLDER) -> None:
    needed("promtool")
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def run_case(folder: Path, rule_file: str, given: dict[str, str], minutes: int, expected: dict[str, dict]) -> None:
    """`given`: values by series; `expected`: by query after some minutes, values by labels."""
    case = {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in given.items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": f"{minutes}m",
             "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()]}
            for query, samples in expected.items()
        ],
    }  # fmt: skip
    document = {"rule_files": [str(FOLDER / rule_file)], "evaluation_interval": "5m", "tests": [case]}
    (folder / "test.yaml").write_text(yaml.safe_dump(document))
    promtool("test", "rules", "test.yaml", folder=folder)


def queries() -> list[str]:
    """Of every panel, with Grafana's variables filled in."""
    panels = [panel for path in BOARDS for panel in json.loads(path.read_text())["panels"]]
    expressions = [target["expr"].replace("$__rate_interval", "5m") for panel in panels for target in panel["targets"]]
    return [re.sub(r"\$(cluster|team|node)", ".*", query) for query in expressions]


def test_rules_and_scrape_configuration_pass_promtool() -> None:
    promtool("check", "rules", *RULES)
    promtool("check", "config", "scrape.yaml")


def test_the_dashboards_queries_are_promql(tmp_path: Path) -> None:
    made = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries())]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "x", "rules": made}]}))
    promtool("check", "rules", "rules.yaml", folder=tmp_path)


def test_a_held_idle_incident_fires_and_an_acknowledged_one_does_not(tmp_path: Path) -> None:
    labels = '{incident="i", kind="held-idle", workload="w", user="ann", team="t", state='
    given = {f'skuwise_incident_info{labels}"{state}"}}': "1x10" for state in ("open", "acknowledged")}
    run_case(tmp_path, "serve-alert-rules.yaml", given, 6, {'count(ALERTS{alertstate="firing"})': {"{}": 1}})


@pytest.mark.parametrize(
    ("series", "value"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", 50), ("DCGM_FI_PROF_SM_ACTIVE", 0.5), ("DCGM_FI_DEV_POWER_USAGE", 0.5),
        ("DCGM_FI_PROF_NVLINK_TX_BYTES", 0.5),
    ],
)  # fmt: skip
def test_panels_show_nodes_of_older_and_newer_dcgm_exporters(tmp_path: Path, series: str, value: float) -> None:
    (asked,) = [query for query in queries() if re.search(rf"\b{series}\b", query)]
    nodes = {"Hostname": "old", "hostname": "new"}
    given = {f'{series}{{{label}="{node}", gpu="0"}}': f"{value}x5" for label, node in nodes.items()}
    expected = {f'{{node="{node}"}}': 0.5 for node in nodes.values()}
    run_case(tmp_path, "recording-rules.yaml", given, 5, {asked: expected})


ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def validator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that validates."""
    made = locked_environment(tmp_path_factory.mktemp("schemas"), ROOT / "requirements/schemas.lock")
    return made / "kubernetes-validate"


def validate(validator: Path, version: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [str(validator), "--strict", "-k", version, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


MANIFESTS = [
    ROOT / "deploy/kubernetes" / name for name in ("namespace.yaml", "daemonset.yaml", "metrics.yaml", "watch.yaml")
]


def test_every_manifest_is_what_kubernetes_takes(tmp_path: Path, validator: Path) -> None:
    for version in ("1.25", "1.37"):
        done = validate(validator, version, *MANIFESTS)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (done.stdout + done.stderr).count("passed for resource") == 8
    wrong = tmp_path / "daemonset.yaml"
    wrong.write_text(MANIFESTS[1].read_text().replace("hostPID:", "hostPid:"))
    done = validate(validator, "1.37", wrong)
    assert done.returncode != 0 and "hostPid" in done.stdout + done.stderr
