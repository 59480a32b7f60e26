"""Trainings that wait for their network and work that waits for launches, behind exporters alone at 60 s."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.telemetry.prometheus.client.cache import Cache
from skuwise.advisor.telemetry.prometheus.client.client import Client
from skuwise.advisor.telemetry.prometheus.reader import ServerReading, read_frame
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.advisor.verdicts.judge import judge
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.fleets import hardware as hw
from skuwise.tests.fleets.blocks import compose, training
from skuwise.tests.fleets.description import Fleet, Observed
from skuwise.tests.fleets.generate import series
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.prometheus_engines import prometheus, victoria
from skuwise.tests.support.rulebooks import rulebook

pytestmark = pytest.mark.slow
CATALOG = load_catalog()
ENGINES = {"prometheus": prometheus, "victoria-metrics": victoria}
PODS = Observed(more_prof=True, node_labels=True, pods="exported")
JOBS = Observed(kube=False, pods="none", hpc_job=True, more_prof=True)


def fleet() -> Fleet:
    """Network-bound over InfiniBand and over Ethernet of known, absent and unknown speed; launch-bound where links can
    be seen (one GPU, PCIe) and where they cannot (NVLink)."""
    return compose(
        "network",
        training("ib", "train_network", hw.ND_H100, 2, observed=PODS),
        training("eth", "train_network", hw.SUPERMICRO_L40S, 2, observed=JOBS, job="31"),
        training("absent", "train_network", hw.P5, 2, count=2, observed=PODS),
        training("unknown", "train_network", hw.A2, 2, count=2, observed=PODS),
        training("one", "train_launch", hw.XE9680, count=1, observed=PODS),
        training("pcie", "train_launch", hw.SUPERMICRO_L40S, count=4, observed=JOBS, job="32"),
        training("nvlink", "train_launch", hw.ND_H100, count=4, observed=PODS),
        days=0.5, interval_s=60.0,
    )  # fmt: skip


def cut(found: Sequence[Series], *without: str) -> list[Series]:
    return [one for one in found if not one.name.startswith(without)]


@pytest.fixture(scope="module")
def told() -> list[Series]:
    return series(fleet(), np.random.default_rng(3))


@pytest.fixture(scope="module", params=sorted(ENGINES))
def frame(
    request: pytest.FixtureRequest, told: list[Series], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Frame]:
    with ENGINES[request.param](tmp_path_factory.mktemp("engine"), told) as url:
        yield read(url)


def read(url: str) -> Frame:
    client = Client(url, PrometheusSettings(), {})
    reading = ServerReading(client, Cache(None, ""), (), fleet().end + 600)
    return read_frame(reading, CATALOG, since_seconds=11 * 3600.0, until=fleet().end)


def labels(frame: Frame) -> dict[str, set[str]]:
    out: dict[str, set[str]] = {}
    for one in judge(frame, rulebook(CATALOG)).workloads:
        name = one.name.replace("job 31", "eth").replace("job 32", "pcie").split("-", maxsplit=1)[0]
        out.setdefault(name, set()).add(one.bottleneck.label)
    return out


def test_the_network_is_never_taken_for_launches(frame: Frame) -> None:
    found = labels(frame)
    assert {label for name in ("ib", "eth", "absent", "unknown") for label in found[name]} == {"network"}
    assert found["one"] == found["pcie"] == {"latency"}
    assert found["nvlink"] == {"unknown"}
    ports = frame.fabric[frame.fabric["link_layer"] == "Ethernet"]
    assert set(ports["role"]) == {"unknown"}
    assert set(ports["device"]) == {"eth0", "ens1f0np0", "ens1f1np1", "ens33", "ens4", "eno12399np0"}
    rates = ports.groupby("device")["line_rate_bytes_per_second"].max()
    assert rates["ens1f0np0"] == pytest.approx(100e9 / 8)
    assert np.isnan(rates["ens33"])
    assert np.isnan(rates["ens4"])


@pytest.mark.parametrize(
    "without", [("node_infiniband",), ("node_network",), ("node_network_speed", "node_network_info"), ("node_",)]
)
def test_taking_the_network_away_makes_nobody_launch_bound(
    told: list[Series], without: tuple[str, ...], tmp_path: Path
) -> None:
    with prometheus(tmp_path, cut(told, *without)) as url:
        found = labels(read(url))
    for name in ("ib", "eth", "absent", "unknown", "nvlink"):
        assert "latency" not in found[name]
    assert found["one"] == {"latency"}
