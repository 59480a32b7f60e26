"""Energy from real servers: the counter of exporters, the totals of agents, and counters that go back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.demo import simulate
from skuwise.advisor.pipeline import AdviseOptions, advise
from skuwise.advisor.telemetry.prometheus.client.cache import Cache
from skuwise.advisor.telemetry.prometheus.client.client import Client
from skuwise.advisor.telemetry.prometheus.reader import ServerReading
from skuwise.advisor.telemetry.prometheus.reader import read_frame as read_server
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.server_metrics.exporter_metrics import exporter_series
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.prometheus_engines import prometheus, victoria
from skuwise.tests.support.rulebooks import rulebook

NOW = 1_790_000_000.0 // 3600 * 3600
SECONDS = 15 * 3600.0
CATALOG = load_catalog()
ENGINES = {"prometheus": prometheus, "victoria-metrics": victoria}
COUNTER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
RESET = NOW - 6.5 * 3600


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fleet") / "nodes"
    simulate("founding", path, days=SECONDS / 86400, seed=4, until=NOW, minutes_seconds=SECONDS, nodes=("serve-01",))
    return next(path.glob("*.db"))


def judged(frame: Frame) -> Advice:
    return advise(frame, rulebook(), AdviseOptions(NOW), np.random.default_rng(20))


def told(series: Iterable[Series], engine: str, folder: Path) -> Advice:
    with ENGINES[engine](folder, series) as url, contextlib.closing(Client(url, PrometheusSettings(), {})) as client:
        reading = ServerReading(client, Cache(None, ""), (), NOW + 600)
        return judged(read_server(reading, CATALOG, since_seconds=SECONDS))


def by_gpu(advice: Advice) -> dict[str, tuple[float | None, float | None]]:
    return {gpu.gpu: (gpu.kwh, gpu.counted_kwh) for node in advice.node_energy for gpu in node.gpus}


def spoiled(series: Iterable[Series], gpus: list[str]) -> Iterator[Series]:
    """The counter of the first GPU begins anew, that of the second goes back for one scrape, that of the third wraps at
    a fixed count; the fourth has none, and the fifth has no power either."""
    for one in series:
        values, name, uuid = one.values, one.name, one.labels.get("UUID")
        if name == COUNTER and uuid == gpus[0]:
            at = int(np.searchsorted(one.ts, RESET))
            values = np.where(one.ts >= one.ts[at], values - values[at], values) if at < len(values) else values
        elif name == COUNTER and uuid == gpus[1]:
            values = np.where(np.abs(one.ts - RESET) <= 30, values - 2e8, values)
        elif name == COUNTER and uuid == gpus[2]:
            values = values % 3.1e8
        elif (name == COUNTER and uuid in gpus[3:5]) or (name == "DCGM_FI_DEV_POWER_USAGE" and uuid == gpus[4]):
            continue
        yield replace(one, values=values)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_counter_of_exporters_tells_the_energy_and_its_faults_are_gaps(database, engine, tmp_path):
    stored = read_frame([database], since_seconds=SECONDS)
    truth = by_gpu(judged(stored))
    gpus = sorted(truth)
    series = list(exporter_series([database], stored.window))
    sound = told(series, engine, tmp_path / "sound")
    e = sound.summary.energy
    assert e is not None and e.basis == "counter"
    for gpu, (kwh, counted) in by_gpu(sound).items():
        assert kwh == pytest.approx(truth[gpu][0], rel=0.01) and counted == pytest.approx(kwh)
    for workload in sound.workloads:
        assert workload.energy is not None and workload.energy.basis == "counter"

    advice = told(spoiled(series, gpus), engine, tmp_path / "spoiled")
    found = by_gpu(advice)
    for gpu in gpus[:4]:
        assert found[gpu][0] == pytest.approx(truth[gpu][0], rel=0.01), gpus.index(gpu)
    # One hour of the first two is power times time, all of the fourth; of the fifth nothing is known.
    for gpu in gpus[:2]:
        kwh, counted = found[gpu]
        assert kwh is not None and counted is not None and counted == pytest.approx(14 / 15 * kwh, rel=0.03)
    assert found[gpus[3]][1] == 0 and found[gpus[4]] == (None, None)
    e = advice.summary.energy
    assert e is not None and e.basis == "both" and e.unmeasured_gpu_hours >= 14.9
    assert e.by_use is not None and sum(n.kwh or 0.0 for n in advice.node_energy) == pytest.approx(e.by_use.total)
