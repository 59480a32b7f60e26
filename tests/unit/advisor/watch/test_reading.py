"""The last hours of databases and of a server as the watch reads them: GPUs, their holders and what they did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.incident_types import Recent
from skuwise.advisor.demo import simulate
from skuwise.advisor.telemetry.source import Databases, PrometheusServer
from skuwise.advisor.watch.holders import holder_of
from skuwise.advisor.watch.reading import read_recent
from skuwise.rules.base.errors import NothingToDo
from skuwise.tests.support.fake_prometheus import GPU, DcgmServer, FakePrometheus
from skuwise.tests.support.rulebooks import rulebook

HOUR = 3600.0
UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
BOOK = rulebook()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nodes")
    simulate("founding", path, days=0.5, seed=4, until=UNTIL, minutes_seconds=12 * HOUR, nodes=("serve-01", "serve-02"))
    return path


@pytest.fixture(scope="module")
def recent(folder: Path) -> Recent:
    return read_recent(Databases((folder,)), BOOK, lookback_seconds=6 * HOUR, now=UNTIL + 60)


def test_the_last_hours_of_databases_are_told_by_gpu_and_holder(recent: Recent) -> None:
    assert recent.spans.end == UNTIL and not recent.notes
    assert [node.node for node in recent.nodes] == ["serve-01", "serve-02"]
    assert {gpu.sku for gpu in recent.gpus} == {"H100-SXM5"} and len(recent.gpus) == 16
    held = sorted(place for hold in recent.holds for place in hold.gpus)
    assert held == list(range(16)) and len({hold.series_id for hold in recent.holds}) == 1
    engine = recent.gpu["engine"]
    assert engine.shape == (16, len(recent.spans.ends)) and np.nanmax(engine) <= 1.0
    # GPUs that work are read by the minute alone.
    fine = recent.spans.seconds == 60
    assert (recent.gpu["observed"][:, fine] > 0.9).all() and np.isnan(recent.gpu["observed"][:, ~fine]).any()
    carried, line = (recent.node[f"fabric_{name}bytes_per_second"] for name in ("", "line_"))
    assert (carried < 0.01 * line).all()


@pytest.mark.parametrize(
    ("about", "has_engine", "holder"),
    [
        ({"controller_kind": "Notebook"}, False, "notebook"), ({"controller_kind": "PyTorchJob"}, False, "job"),
        ({"controller_kind": "StatefulSet"}, False, "service"), ({"controller_kind": "ReplicaSet"}, False, "service"),
        ({"controller_kind": "StatefulSet", "image": "jupyter/base-notebook:1"}, False, "notebook"),
        ({"controller_kind": "Job"}, True, "job"), ({"controller_kind": "Pod"}, True, "service"),
        ({}, False, "process"),
        ({"scheduler": "slurm", "name": "train"}, False, "job"), ({"scheduler": "slurm"}, True, "service"),
    ],
)  # fmt: skip
def test_what_holds_a_gpu_is_known_by_owner_names_and_engine(about: dict, has_engine: bool, holder: str) -> None:
    workload = {"scheduler": "kubernetes", "name": "x", "command": None, "framework": None, "namespace": None, **about}
    assert holder_of(workload, BOOK.kind_priors, has_engine=has_engine) == holder


def test_a_moment_of_the_past_is_read_and_files_without_one_are_nothing_to_do(folder: Path) -> None:
    past = read_recent(Databases((folder,)), BOOK, lookback_seconds=2 * HOUR, now=UNTIL, until=UNTIL - 3 * HOUR)
    assert past.spans.end == UNTIL - 3 * HOUR
    with pytest.raises(NothingToDo):
        read_recent(Databases((folder,)), BOOK, lookback_seconds=HOUR, now=UNTIL - 100 * HOUR)


def test_the_last_hours_of_a_server() -> None:
    with FakePrometheus(DcgmServer(series=[GPU, {**GPU, "UUID": "GPU-b", "gpu": "1"}])).running() as fake:
        source = PrometheusServer(fake.url, environ={}, cached=False)
        read = read_recent(source, BOOK, lookback_seconds=6 * HOUR, now=UNTIL)
    assert [(gpu.node, gpu.uuid, gpu.sku) for gpu in read.gpus] == [
        ("n1", "GPU-a", "H100-SXM5"), ("n1", "GPU-b", "H100-SXM5"),
    ]  # fmt: skip
    assert np.nanmax(read.gpu["util"]) == pytest.approx(0.5)
    assert [hold.basis for hold in read.holds] == []
