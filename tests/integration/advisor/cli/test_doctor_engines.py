"""`skuwise doctor` on real engines: what is there is counted, and what is missing has a reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.timestamps import rfc3339
from skuwise.tests.server_metrics.exposition import BUSY, gpu, host, kube, moments
from skuwise.tests.server_metrics.prometheus_series import Series, merged
from skuwise.tests.support.prometheus_engines import prometheus, victoria
from skuwise.tests.support.schemas import validate

HOUR = 3600.0
END = 1_790_000_000.0 // HOUR * HOUR
DAYS = 2.0
ENGINES = {"prometheus": prometheus, "victoria-metrics": victoria}
NODES = ("ib-01", "ib-02")
PARTLY = "DCGM_FI_PROF_DRAM_ACTIVE"
Found = dict


def fleet() -> Iterator[Series]:
    """Two nodes of eight GPUs with InfiniBand: the second without DRAM activity, and its last two GPUs in no series."""
    ts = moments(END - DAYS * 86400, END, 300.0)
    for node in NODES:
        yield from host(node, ts, ports=8)
        yield kube("kube_node_status_capacity", 8, ts, node=node, resource="nvidia_com_gpu", unit="integer")
        whole = node == NODES[0]
        values = BUSY if whole else {name: value for name, value in BUSY.items() if name != PARTLY}
        for index in range(8 if whole else 6):
            pod = {"exported_pod": f"{node}-pod", "exported_namespace": "ml", "exported_container": "main"}
            for one in gpu(node, f"GPU-{node}-{index}", ts, values, gpu=str(index), **(pod if whole else {})):
                # What repeats to the last digit was not measured.
                yield replace(one, values=one.values * (1 - 0.01 * np.sin(ts / 977.0) ** 2))


@pytest.fixture(scope="module", params=sorted(ENGINES))
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Found]]:
    engine = ENGINES[request.param]

    def ask(capsys: pytest.CaptureFixture[str], gone: Callable[[Series], bool], status: int = 0) -> Found:
        written = merged(one for one in fleet() if not gone(one))
        with engine(tmp_path_factory.mktemp(request.param), written) as url:
            capsys.readouterr()
            asked = ["doctor", "--prometheus", url, "--since", "14d", "--until", rfc3339(END), "--format", "json"]
            assert main(asked) == status
        out, err = capsys.readouterr()
        if status:
            return {"error": err}
        told = json.loads(out)
        validate(told, "doctor")
        return told

    yield ask


def test_gpus_metrics_and_gaps_are_those_of_the_fleet(
    found: Callable[..., Found], capsys: pytest.CaptureFixture[str]
) -> None:
    told = found(capsys, lambda _: False)
    counts = {one["node"]: (one["gpus_expected"], one["gpus_observed"]) for one in told["nodes"]}
    assert counts == {"ib-01": (8, 8), "ib-02": (8, 6)}
    assert sum(len(one["gpus"]) for one in told["summary"]["unobserved"]) == 2
    assert all(one["reason"] for one in told["summary"]["unobserved"])
    metrics = {one["metric"]: one for one in told["metrics"]}
    having = {name: metrics[name]["having"] for name in ("power", "sm_active", "dram_active", "nvlink", "infiniband")}
    assert having == {"power": 14, "sm_active": 14, "dram_active": 8, "nvlink": 0, "infiniband": 2}
    assert metrics["power"]["resolution_seconds"] == pytest.approx(300, rel=0.1)
    assert metrics["power"]["window_share"] == pytest.approx(DAYS / 14, abs=0.02)
    codes = {one["code"] for one in told["gaps"]}
    assert codes >= {"no-dram-active", "gpus-unobserved", "no-workload-labels"}
    assert {one["name"] for one in told["exporters"]} >= {"dcgm-exporter", "node_exporter", "kube-state-metrics"}


def test_a_server_without_gpu_metrics_is_nothing_to_work_on(
    found: Callable[..., Found], capsys: pytest.CaptureFixture[str]
) -> None:
    told = found(capsys, lambda one: one.name.startswith("DCGM"), status=3)
    assert "No GPU metrics on" in told["error"] and "dcgm-exporter" in told["error"]
