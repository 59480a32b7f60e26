"""`skuwise doctor` on real engines that hold independently made fleets, against the truth about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.timestamps import rfc3339
from skuwise.advisor.doctor.json import load_diagnosis_schema
from skuwise.tests.fleets import FLEETS, Fleet, Observed, Truth, compose, hardware, series, truth
from skuwise.tests.fleets.blocks import serving
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.prometheus_engines import prometheus, victoria

pytestmark = pytest.mark.slow
DAYS = 2.0
ENGINES = {"prometheus": prometheus, "victoria-metrics": victoria}
Found = dict


@pytest.fixture(scope="module", params=["everything", "mig", "dev_only", "bare_metal"])
def fleet(request: pytest.FixtureRequest) -> Fleet:
    return FLEETS[request.param](days=DAYS, interval_s=300.0)


@pytest.fixture(scope="module")
def written(fleet: Fleet) -> list[Series]:
    return series(fleet, np.random.default_rng(1))


@pytest.fixture(scope="module", params=sorted(ENGINES))
def server(
    request: pytest.FixtureRequest, written: list[Series], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with ENGINES[request.param](tmp_path_factory.mktemp(request.param), written) as url:
        yield url


def asked(url: str, until: float, capsys: pytest.CaptureFixture[str], days: float = DAYS, status: int = 0) -> Found:
    capsys.readouterr()
    arguments = ["doctor", "--prometheus", url, "--since", f"{days:g}d", "--until", rfc3339(until), "--format", "json"]
    assert main(arguments) == status
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, load_diagnosis_schema())
    return found


def test_every_gpu_of_every_node_is_observed_or_unobserved_with_a_reason(
    server: str, fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    found, known = asked(server, fleet.end, capsys), truth(fleet)
    counts = {one["node"]: (one["gpus_expected"], one["gpus_observed"]) for one in found["nodes"]}
    assert counts == {one.name: (one.gpu_count, len(one.observed_gpus)) for one in known.nodes}
    assert found["summary"]["gpu_count"] == known.gpu_count
    missing = sum(one.gpu_count - len(one.observed_gpus) for one in known.nodes)
    assert sum(len(one["gpus"]) for one in found["summary"]["unobserved"]) == missing
    assert all(one["reason"] for one in found["summary"]["unobserved"])
    # Instances that existed at a moment that was looked at: all but those that are gone, or not there yet.
    lasting = sum(one.begin <= known.begin and one.end >= known.end for node in known.nodes for one in node.instances)
    assert lasting <= found["summary"]["mig_instances"] <= sum(len(node.instances) for node in known.nodes)


def test_metrics_labels_fabric_and_gaps_are_those_of_the_fleet(
    server: str, fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    found, known = asked(server, fleet.end, capsys), truth(fleet)
    metrics = {one["metric"]: one for one in found["metrics"]}
    observed = sum(len(one.observed_gpus) for one in known.nodes)
    with_prof = sum(len(one.observed_gpus) for one in known.nodes if one.has_prof)
    more_prof = sum(node.machine.gpus for node in fleet.nodes if node.observed.more_prof)
    assert [metrics[name]["having"] for name in ("engine_active", "mem_used", "power", "clocks")] == [observed] * 4
    assert [metrics[name]["having"] for name in ("tensor_active", "dram_active")] == [with_prof] * 2
    assert metrics["sm_active"]["having"] == more_prof
    assert metrics["nvlink"]["having"] == 0
    assert all(one["window_share"] > 0.9 for one in metrics.values() if one["having"])
    assert metrics["power"]["resolution_seconds"] == pytest.approx(300, rel=0.1)
    infiniband = [
        node.name for node in fleet.nodes if node.machine.fabric == "infiniband" and node.observed.node_exporter
    ]
    assert metrics["infiniband"]["having"] == len(infiniband)
    assert sorted(one["node"] for one in found["nodes"] if one["fabric_ports"]) == sorted(infiniband)
    codes = {one["code"]: one for one in found["gaps"]}
    assert ("no-dram-active" in codes) == (with_prof < observed)
    assert ("gpus-unobserved" in codes) == (observed < known.gpu_count)
    _labels_are(found, codes, known)
    exporters = {one["name"] for one in found["exporters"]}
    assert exporters >= {"dcgm-exporter", "node_exporter"}
    assert ("kube-state-metrics" in exporters) == any(node.observed.kube for node in fleet.nodes)


def _labels_are(found: Found, codes: dict[str, object], known: Truth) -> None:
    labels = found["workload_labels"]
    silent = [one for one in known.workloads if not one.labeled and one.observed]
    assert ("no-workload-labels" in codes) == bool(silent)
    if not silent:
        assert labels["labeled_gpus"] == labels["busy_gpus"] > 0


def test_the_table_of_every_fleet_fits_a_terminal_and_holds_its_lines_whole(
    server: str, fleet: Fleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    capsys.readouterr()
    assert main(["doctor", "--prometheus", server, "--since", "2d", "--until", rfc3339(fleet.end)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("     gpu_hour_usd = { ") and line.endswith("= 2.10 }") for line in lines)
    # Only lines to copy may be longer.
    assert all(len(line) <= 80 or line.startswith("     ") for line in lines)


def without(written: list[Series], gone: Callable[[Series], bool]) -> list[Series]:
    return [one for one in written if not gone(one)]


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_servers_that_lack_something_say_so(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No GPU series at all; telemetry that began late; an exporter that was never there on one node."""
    fleet = FLEETS["founding"](days=DAYS, interval_s=300.0)
    whole = series(fleet, np.random.default_rng(1))
    start = ENGINES[engine]
    with start(tmp_path / "kube", without(whole, lambda one: one.name.startswith("DCGM"))) as url:
        found = asked(url, fleet.end, capsys, status=3)
        assert found["summary"]["gpu_count"] == 24
        assert found["summary"]["observed_gpu_count"] == 0
        assert {one["code"] for one in found["summary"]["unobserved"]} == {"no-exporter"}
        main(["doctor", "--prometheus", url, "--since", "2d", "--until", rfc3339(fleet.end)])
        assert "No GPU metrics observed; 24 GPUs expected on 3 nodes." in capsys.readouterr().err
    with start(tmp_path / "late", whole) as url:
        found = asked(url, fleet.end, capsys, days=14.0)
        assert found["telemetry"]["observed_hours"] == pytest.approx(48, abs=2)
        assert found["verdicts"]["waste_ready_nodes"] == 3
        assert found["metrics"][0]["window_share"] == pytest.approx(DAYS / 14, abs=0.02)
        early = asked(url, fleet.start + 3 * 3600, capsys, days=14.0)
        assert early["verdicts"]["waste_ready_nodes"] == 0
        assert early["verdicts"]["hours_until_waste"] == pytest.approx(27, abs=1)
        assert "too-little-data" in {one["code"] for one in early["gaps"]}
        assert asked(url, fleet.end + 3600 * 5, capsys)["summary"]["observed_gpu_count"] == 24
    node = fleet.nodes[0].name
    with start(tmp_path / "dark", without(whole, lambda one: node in str(one.labels.get("Hostname", "")))) as url:
        found = asked(url, fleet.end, capsys)
        (gone,) = found["summary"]["unobserved"]
        assert (gone["node"], len(gone["gpus"]), gone["code"]) == (node, 8, "no-exporter")


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_labels_of_a_server_do_nothing_to_a_terminal(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    payload = "\x1b[2J\u202e[red]x'\"`$(id)"
    fleet = FLEETS["founding"](days=0.25, interval_s=300.0)
    hostile = [
        Series(one.name, {name: payload if name in ("Hostname", "modelName", "pod") else value for name, value in
                          one.labels.items()}, one.ts, one.values)
        for one in series(fleet, np.random.default_rng(1))
    ]  # fmt: skip
    with ENGINES[engine](tmp_path, hostile) as url:
        capsys.readouterr()
        assert main(["doctor", "--prometheus", url, "--since", "6h", "--until", rfc3339(fleet.end)]) == 0
        out = capsys.readouterr().out
        assert not {"\x1b", "\u202e"} & set(out)
        assert "[red]" in out


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_node_that_is_called_by_its_exporters_pod_is_known_by_its_own_name(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = compose(
        "pods", serving("light-01", "light", hardware.G6, observed=Observed(hostname="pod")), days=0.5, interval_s=120.0
    )
    with ENGINES[engine](tmp_path, series(fleet, np.random.default_rng(1))) as url:
        found = asked(url, fleet.end, capsys, days=0.5)
    assert [(one["node"], one["gpus_observed"], one["node_sku"]) for one in found["nodes"]] == [
        ("light-01", 4, "aws/g6.12xlarge")
    ]
    (gap,) = [one for one in found["gaps"] if one["code"] == "hostname-is-a-pod"]
    assert gap["nodes"] == ["light-01"] and "spec.nodeName" in gap["add"]
