"""Real engines, filled by the simulator: the same advice as from databases, and the founding case from exporters."""

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.cli.explain import queries_of
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.demo import simulate
from skuwise.advisor.telemetry.prometheus.client.client import Client, PrometheusSettings
from skuwise.advisor.telemetry.prometheus.client.response import Grid
from skuwise.advisor.telemetry.prometheus.promql import exporter_fabric_asks
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.tests.server_metrics.agent_metrics import agent_series
from skuwise.tests.server_metrics.exporter_metrics import exporter_series
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.prometheus_engines import ENGINES, read_series, read_server
from skuwise.tests.support.rulebooks import advice_of

NOW = 1_790_000_000.0 // 3600 * 3600
DAYS = 3.25  # a daily wave needs three days of hours and one more


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nodes of the founding case, with minutes all along."""
    path = tmp_path_factory.mktemp("fleet") / "nodes"
    nodes = ("serve-01", "serve-02")
    simulate("founding", path, days=DAYS, seed=4, until=NOW, minutes_seconds=DAYS * 86400, nodes=nodes)
    return path


def judged(frame: Frame) -> Advice:
    return advice_of(frame, NOW, seed=20)


@pytest.fixture(scope="module", params=ENGINES)
def filled(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that scraped our agent alone on one node and the exporters alone on the other."""
    first, second = sorted(folder.glob("*.db"))
    window = read_frame([folder], since_seconds=DAYS * 86400).window
    agent = agent_series(read_frame([first], window))
    exporters = exporter_series([second], window)
    place = tmp_path_factory.mktemp(request.param)
    with ENGINES[request.param](place, [*agent, *exporters]) as url:
        yield url
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def frame(filled: str) -> Frame:
    """What is read from each of the servers."""
    return read_server(filled, NOW + 600, DAYS * 86400)


@pytest.fixture(scope="module")
def advice(frame: Frame) -> Advice:
    return judged(frame)


def of_node(advice: Advice, node: str) -> list[tuple[str, str]]:
    return sorted((w.id, w.kind.label) for w in advice.workloads if w.nodes == (node,))


def test_our_agents_series_give_the_advice_that_its_database_gives(frame: Frame, folder: Path) -> None:
    node = sorted(folder.glob("*.db"))[0].stem
    tables = {name: getattr(frame, name) for name in ("gpu", "gpus", "nodes", "fabric", "host", "uses", "absences")}
    part = {name: table[table["node"] == node].reset_index(drop=True) for name, table in tables.items()}
    measured = replace(frame, **part)
    theirs = read_frame([folder / f"{node}.db"], frame.window)
    advice, two = judged(theirs), judged(measured)
    for column in ("gpu_util", "sm_active", "dram_active", "tensor_active", "mem_used_bytes", "power_watts"):
        gpus = (measured.gpu, theirs.gpu)
        mean, stored = (np.average(gpu[f"{column}_mean"], weights=gpu["observed_seconds"]) for gpu in gpus)
        assert mean == pytest.approx(stored, rel=0.01), column
    seconds = measured.gpu["observed_seconds"].sum()
    bins = np.nansum(measured.gpu["dram_active_bins"].array.matrix, axis=0)  # type: ignore[attr-defined]
    assert bins.sum() == pytest.approx(seconds, rel=0.01)
    assert seconds == pytest.approx(theirs.gpu["observed_seconds"].sum(), rel=0.01)
    assert measured.window == theirs.window and of_node(advice, node) == of_node(two, node)
    assert {f.id: f.rule for f in advice.findings} == {f.id: f.rule for f in two.findings}
    assert {r.id: r.action for r in advice.recommendations} == {r.id: r.action for r in two.recommendations}
    assert two.summary.gpu_hours == pytest.approx(advice.summary.gpu_hours)
    for cash in ("cost_usd", "wasted_usd", "recoverable_usd_per_month"):
        assert getattr(two.summary, cash) == pytest.approx(getattr(advice.summary, cash), rel=0.02), cash


def test_exporters_alone_price_the_founding_case_as_its_databases_do(tmp_path: Path) -> None:
    """Case 1 of the surfaces: four nodes behind dcgm-exporter and node_exporter, without SM activity, NVLink fields and
    kube-state-metrics."""
    simulate("founding", tmp_path / "nodes", days=DAYS, seed=4, until=NOW, minutes_seconds=DAYS * 86400)
    paths = sorted((tmp_path / "nodes").glob("*.db"))
    stored = read_frame(paths, since_seconds=DAYS * 86400)
    series = exporter_series(paths, stored.window)
    scraped = judged(read_series("victoria-metrics", tmp_path / "engine", series, NOW + 600, DAYS * 86400))
    theirs = judged(stored)
    for advice in (theirs, scraped):
        (silent,) = [f for f in advice.findings if f.rule == "idle-fabric"]
        assert silent.nodes == tuple(path.stem for path in paths) and len(paths) == 4
        (move,) = [r for r in advice.recommendations if r.target.node_sku == "azure/Standard_ND96is_H100_v5"]
        assert not move.blocked_by
        assert {j.rule: (j.flagged, j.not_judged) for j in advice.judged}["idle-fabric"] == (4, 0)
    for cash in ("wasted_usd", "recoverable_usd_per_month"):
        assert getattr(scraped.summary, cash) == pytest.approx(getattr(theirs.summary, cash), rel=0.02), cash


def test_the_queries_behind_the_numbers_read_samples(filled: str, advice: Advice) -> None:
    lines = [line for f in advice.findings for line in queries_of(advice, f, width=100).splitlines()]
    queries = [f"count(last_over_time({line}))" for line in lines if line and not line.startswith("#")]
    with contextlib.closing(Client(filled, PrometheusSettings(), {})) as client:
        assert sum(len(client.instant(query, NOW, ()).labels) for query in queries) > len(advice.findings)


def test_the_server_and_its_exporters_are_named_and_no_answer_was_missing(frame: Frame, folder: Path) -> None:
    table, node = frame.nodes.set_index("node"), sorted(folder.glob("*.db"))[1].stem
    assert table.loc[node, "node_sku"] == "azure/Standard_ND96isr_H100_v5"
    assert table.loc[node, "node_sku_source"] == "shape"
    assert set(frame.source["exporters"]) >= {"dcgm-exporter", "skuwise agent", "node_exporter"}  # type: ignore[arg-type]
    assert str(frame.source["server"]).startswith(("Prometheus 2", "Prometheus 3", "VictoriaMetrics"))
    assert not [note for note in frame.notes if note.code in ("measure-missing-for-a-time", "server-warns")]
    json.dumps(dict(frame.source))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_port_whose_counters_begin_anew_carried_no_more_than_it_did(engine: str, tmp_path: Path) -> None:
    ts = np.arange(NOW - 6 * 3600, NOW + 60, 60.0)
    sent = (ts - ts[0]) * 1e6
    sent[200:] -= sent[200]  # the node was started again
    sent[100:110] = np.nan  # and was away for some minutes before
    expected = ~np.isnan(sent)
    labels = {"instance": "n1:9100", "device": "mlx5_0", "port": "1"}
    name = "node_infiniband_port_data_transmitted_bytes_total"
    asks = {ask.name: ask for ask in exporter_fabric_asks({name}, (), 3600.0)}
    grid = Grid(NOW - 5 * 3600, NOW, 3600.0)
    with (
        ENGINES[engine](tmp_path, [Series(name, labels, ts[expected], sent[expected])]) as url,
        contextlib.closing(Client(url, PrometheusSettings(), {})) as client,
    ):
        mean, most = (client.range(asks[f"fabric tx_{how}"].query, grid).values for how in ("mean", "max"))
    assert mean.shape == (1, 6) and np.allclose(mean, 1e6, rtol=0.1) and np.nanmax(most) <= 1.1e6


SECONDS = 15 * 3600.0
COUNTER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
RESET = NOW - 6.5 * 3600


def by_gpu(advice: Advice) -> dict[str, tuple[float | None, float | None]]:
    return {gpu.gpu: (gpu.kwh, gpu.counted_kwh) for node in advice.node_energy for gpu in node.gpus}


def spoiled(series: Iterable[Series], gpus: list[str]) -> Iterator[Series]:
    """The counter of the first GPU restarts, that of the second goes back for one scrape, that of the third wraps at
    a fixed count; the fourth has none, and the fifth has no power either."""
    for sample in series:
        values, name, uuid = sample.values, sample.name, sample.labels.get("UUID")
        if name == COUNTER and uuid == gpus[0] and (after := sample.ts >= RESET).any():
            values = np.where(after, values - values[after][0], values)
        elif name == COUNTER and uuid == gpus[1]:
            values = np.where(np.abs(sample.ts - RESET) <= 30, values - 2e8, values)
        elif name == COUNTER and uuid == gpus[2]:
            values = values % 3.1e8
        elif (name == COUNTER and uuid in gpus[3:5]) or (name == "DCGM_FI_DEV_POWER_USAGE" and uuid == gpus[4]):
            continue
        yield replace(sample, values=values)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_counter_of_exporters_tells_the_energy_and_its_faults_are_gaps(folder, engine, tmp_path):
    database = min(folder.glob("*.db"))
    stored = read_frame([database], since_seconds=SECONDS)
    truth = by_gpu(judged(stored))
    gpus = sorted(truth)
    series = exporter_series([database], stored.window)

    def read(series: Iterable[Series]) -> Advice:
        return judged(read_series(engine, tmp_path / "engine", series, NOW + 600, SECONDS))

    sound = read(series)
    e = sound.summary.energy
    assert e is not None and e.basis == "counter"
    for gpu, (kwh, counted) in by_gpu(sound).items():
        assert kwh == pytest.approx(truth[gpu][0], rel=0.01) and counted == pytest.approx(kwh)
    for workload in sound.workloads:
        assert workload.energy is not None and workload.energy.basis == "counter"

    advice = read(spoiled(series, gpus))
    results = by_gpu(advice)
    for gpu in gpus[:4]:
        assert results[gpu][0] == pytest.approx(truth[gpu][0], rel=0.01), gpus.index(gpu)
    # One hour of the first two is power times time, all of the fourth; of the fifth nothing is known.
    for gpu in gpus[:2]:
        kwh, counted = results[gpu]
        assert kwh is not None and counted is not None and counted == pytest.approx(14 / 15 * kwh, rel=0.03)
    assert results[gpus[3]][1] == 0 and results[gpus[4]] == (None, None)
    e = advice.summary.energy
    assert e is not None and e.basis == "both" and e.unmeasured_gpu_hours >= 14.9
    assert e.by_use is not None and sum(n.kwh or 0.0 for n in advice.node_energy) == pytest.approx(e.by_use["total"])
