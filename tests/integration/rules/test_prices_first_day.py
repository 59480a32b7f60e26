# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""Dollars on the first day, through the commands: exporters alone, without labels, and by dollars per GPU-hour."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.timestamps import rfc3339
from skuwise.advisor.demo import simulate
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.tests.server_metrics.exporter_metrics import exporter_series
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.prometheus_engines import prometheus, victoria
from skuwise.tests.support.schemas import advised

NOW = 1_790_000_000.0 // 3600 * 3600
DAYS = 3.25
ENGINES = {"prometheus": prometheus, "victoria-metrics": victoria}
AZURE = "azure/Standard_ND96isr_H100_v5"


@pytest.fixture(autouse=True)
def nobodys_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def founding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("first") / "day.db"
    simulate("founding", path, days=DAYS, seed=4, until=NOW, minutes_seconds=DAYS * 86400, nodes=("serve-01",))
    return path


@pytest.fixture(scope="module", params=ENGINES)
def served(
    request: pytest.FixtureRequest, founding: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """Two servers that scraped dcgm-exporter and node_exporter alone: without labels of nodes, and with the region."""
    window = read_frame([founding], since_seconds=DAYS * 86400).window
    series = list(exporter_series([founding], window))
    ts = np.arange(window.start + 60, window.end + 1, 300.0)
    labels = {"node": "serve-01", "label_topology_kubernetes_io_region": "eastus", "instance": "ksm:8080"}
    kube = Series("kube_node_labels", labels, ts, np.ones(len(ts)))
    place, engine = tmp_path_factory.mktemp(request.param), ENGINES[request.param]
    with engine(place / "bare", series) as bare, engine(place / "labelled", [*series, kube]) as labelled:
        yield bare, labelled
    shutil.rmtree(place, ignore_errors=True)


def test_the_founding_case_behind_exporters_alone_states_its_dollars(served, founding, capsys) -> None:
    bare, labelled = (
        advised(capsys, "--prometheus", url, "--since", f"{DAYS * 24:g}h", "--until", rfc3339(NOW)) for url in served
    )
    for advice, assumed in ((bare, True), (labelled, False)):
        used = {f["price"] for f in advice["findings"]}
        assert any(f["rule"] == "idle-fabric" and f["cost_usd"] > 0 for f in advice["findings"])
        prices = [p for p in advice["prices"] if p["id"] in used]
        assert [(p["sku"], p["region"], p["region_assumed"]) for p in prices] == [(AZURE, "eastus", assumed)]
    assert bare["summary"]["cost_usd"] == pytest.approx(labelled["summary"]["cost_usd"])
    cash = [advice["summary"]["recoverable_usd_per_month"] for advice in (bare, labelled)]
    assert cash[0] <= cash[1]
    assert any(note["code"] == "region-assumed" for note in bare["notes"])
    assert not any(note["code"] == "region-assumed" for note in labelled["notes"])
    theirs = advised(capsys, "--db", str(founding))["summary"]["cost_usd"]
    assert bare["summary"]["cost_usd"] == pytest.approx(theirs, rel=0.02)
