"""Frames and advice from a server that answers as told: probing, splitting, warnings, hostile labels, the commands."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.telemetry.prometheus.client.cache import Cache
from skuwise.advisor.telemetry.prometheus.client.client import Client
from skuwise.advisor.telemetry.prometheus.reader import ServerReading, read_frame, read_frames
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.rules.base.errors import NothingToDo, SourceError
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.fake_prometheus import (
    GPU,
    DcgmServer,
    FakePrometheus,
    Reply,
    Request,
    error,
    matrix,
    success,
    vector,
)

NOW = 1_790_000_000.0 // 86400 * 86400  # midnight, so that a day is one piece
CATALOG = load_catalog()


def read(
    fake: FakePrometheus, *, days: float = 2.0, cache: Path | None = None, now: float = NOW, max_series: int = 1000,
    until: float | None = None,
) -> Frame:  # fmt: skip
    client = Client(fake.url, PrometheusSettings(), {}, sleep=lambda _: None)
    reading = ServerReading(client, Cache(cache, fake.url), (), now, max_series=max_series)
    return read_frame(reading, CATALOG, since_seconds=days * 86400, until=until)


def test_a_gpu_in_constant_use_gives_full_rows_with_what_is_exported_and_nan_for_the_rest() -> None:
    with FakePrometheus(DcgmServer()).running() as fake:
        frame = read(fake)
    assert len(frame.gpu) == 48 and (frame.gpu["observed_seconds"] == 3600).all()
    assert (frame.gpu["gpu_util_mean"] == 0.5).all() and (frame.gpu["power_watts_mean"] == 50).all()
    assert frame.gpu["tensor_active_mean"].isna().all() and frame.gpu["sm_active_bins"].isna().all()
    assert frame.nodes["node"].tolist() == ["n1"] and frame.gpus["sku"].tolist() == ["H100-SXM5"]
    assert frame.source["exporters"] == ["dcgm-exporter"]
    assert any("--collector.infiniband" in str(note) for note in frame.notes)
    missing = frame.absences.set_index("metric")
    assert "DCGM_FI_PROF_DRAM_ACTIVE, gauge" in str(missing.loc["dram_active", "detail"])


def test_groups_of_nodes_together_have_the_rows_of_the_whole() -> None:
    """Three nodes, of which two share a series of workloads."""
    pods = {"n1": "serve-6d4cf56db6-x7k2p", "n2": "serve-6d4cf56db6-b8z4q", "n3": "train-0"}
    series: list[Mapping[str, str]] = [
        {**GPU, "UUID": f"GPU-{node}", "Hostname": node, "exported_pod": pod, "exported_namespace": "ml"}
        for node, pod in pods.items()
    ]
    with FakePrometheus(DcgmServer(series=series)).running() as fake:
        whole = read(fake)
        client = Client(fake.url, PrometheusSettings(), {}, sleep=lambda _: None)
        reading = ServerReading(client, Cache(None, ""), (), NOW)
        groups = list(read_frames(reading, CATALOG, since_seconds=2 * 86400, rows_at_once=1))
    assert [sorted(part.nodes["node"]) for part in groups] == [["n1", "n2"], ["n3"]]
    rows = pd.concat([part.gpu for part in groups], ignore_index=True)
    pd.testing.assert_frame_equal(rows.dropna(axis=1, how="all"), whole.gpu.dropna(axis=1, how="all"))
    assert groups[-1].source["exporters"] == whole.source["exporters"] and groups[-1].notes == whole.notes
    assert all(part.telemetry_span == (whole.window.start, whole.window.end) for part in groups)


def test_without_until_the_window_ends_with_the_newest_data() -> None:
    def counts(request: Request) -> Reply:
        steps = round((float(request.params["end"]) - float(request.params["start"])) / 3600) + 1
        is_old = float(request.params["end"]) <= NOW - 86400
        return matrix(request, ({}, [60] * (steps - 3) + ["NaN"] * 3)) if is_old else matrix(request)

    with FakePrometheus(DcgmServer(by_query={"max(count_over_time": counts})).running() as fake:
        window = read(fake).window
    assert window.end % 3600 == 0 and NOW - 2 * 86400 < window.end < NOW - 86400 and window.seconds == 2 * 86400


def test_a_million_series_are_refused_with_their_count() -> None:
    with (
        FakePrometheus(DcgmServer(count=1_000_000)).running() as fake,
        pytest.raises(SourceError, match="1000000 match") as caught,
    ):
        read(fake)
    assert "--match" in caught.value.remedy
    assert not any(r.path.endswith("query_range") and "avg_over_time" in r.query for r in fake.requests)


@pytest.mark.parametrize(
    ("server", "told", "remedy"),
    [
        (DcgmServer(names=("up",)), "No GPU metrics", ""),
        (DcgmServer(names=("gpu_gfx_activity",)), "AMD GPUs only", ""),
        (DcgmServer(series=[{**GPU, "UUID": ""}]), "label UUID", "Keep that label"),
    ],
)
def test_a_server_without_our_gpus_is_said(server: DcgmServer, told: str, remedy: str) -> None:
    with FakePrometheus(server).running() as fake, pytest.raises(NothingToDo, match=told) as caught:
        read(fake)
    assert remedy in caught.value.remedy


def test_amd_gpus_are_named_as_such() -> None:
    amd = {"last_over_time((group by (hostname": lambda _: vector(({"hostname": "mi-1", "serial_number": "1"}, 1))}
    names = (*DcgmServer.names, "gpu_gfx_activity")
    with FakePrometheus(DcgmServer(names=names, by_query=amd)).running() as fake:
        (note,) = [note for note in read(fake).notes if note.code == "vendor-not-read"]
    assert note.text.startswith("1 AMD GPUs on mi-1 are not evaluated")


@pytest.mark.parametrize("missing", [("UUID",), ("Hostname", "instance")])
def test_gpus_that_no_label_tells_apart_or_places_are_said_to_be_uncounted(missing: tuple[str, ...]) -> None:
    other = {**GPU, "UUID": "GPU-b", "gpu": "1"}
    bare = {name: value for name, value in other.items() if name not in missing}
    with FakePrometheus(DcgmServer(series=[GPU, bare])).running() as fake:
        frame = read(fake)
    assert frame.gpus["gpu_uuid"].tolist() == ["GPU-a"]
    (note,) = [note for note in frame.notes if note.code == "label-missing"]
    assert f"have no label {' or '.join(missing)}." in note.text


@pytest.mark.parametrize("reply", [Reply(b"<html>hi</html>"), error(404, "x"), success([]), vector(({}, 2))])
def test_what_is_no_prometheus_is_said(reply: Reply) -> None:
    with FakePrometheus(lambda _: reply).running() as fake, pytest.raises(SourceError):
        read(fake)


def test_a_type_and_a_region_hold_though_kubernetes_no_longer_reports_them() -> None:
    labels = {
        "node": "n1", "label_node_kubernetes_io_instance_type": "p5.48xlarge",
        "label_topology_kubernetes_io_region": "us-east-1",
    }  # fmt: skip

    def for_an_hour(request: Request) -> Reply:
        return matrix(request, (labels, [1]))

    names = (*DcgmServer.names, "kube_node_labels")
    with FakePrometheus(DcgmServer(names=names, by_query={"max by (exported_node": for_an_hour})).running() as fake:
        nodes = read(fake).nodes
    assert nodes["node_sku"].tolist() == ["aws/p5.48xlarge"] and nodes["region"].tolist() == ["us-east-1"]


@pytest.mark.parametrize(("success", "reasons"), [(0, {"collector-failed"}), (1, set())])
def test_a_collector_that_failed_is_no_proof_that_there_is_no_fabric(success: int, reasons: set[str]) -> None:
    answer = {"last_over_time(node_scrape_collector": lambda _: vector(({"instance": "n1:9100"}, success))}
    names = (*DcgmServer.names, "node_scrape_collector_success")
    with FakePrometheus(DcgmServer(names=names, by_query=answer)).running() as fake:
        absences = read(fake).absences
    assert set(absences["reason"]) - {"not-exported"} == reasons
    assert not reasons or absences.set_index("reason").loc["collector-failed", "node"] == "n1"


def test_labels_with_quotes_newlines_and_markup_are_carried_harmlessly() -> None:
    pod = 'a"b\n<script>\x1b[31m{x="y"}'
    hostile = {**GPU, "exported_pod": pod, "exported_namespace": "n'; DROP", "modelName": "[bold]H100"}
    with FakePrometheus(DcgmServer(series=[hostile])).running() as fake:
        frame = read(fake)
    (name,) = frame.workloads["pod"]
    assert "\n" not in name and "\x1b" not in name and "<script>" in name and frame.gpus["sku"].isna().all()


def test_shared_gpus_and_unlabelled_time_are_told_apart() -> None:
    held = {**GPU, "exported_pod": "p-6d4cf56db6-x7k2p", "exported_namespace": "ns"}

    def counts(request: Request) -> Reply:
        start = float(request.params["start"])
        steps = round((float(request.params["end"]) - start) / 3600) + 1
        marks = [start + n * 3600 for n in range(steps)]
        own = [60 if at > NOW - 86400 else "NaN" for at in marks]
        free = ["NaN" if at > NOW - 86400 else 60 for at in marks]
        return matrix(request, (held, own), (GPU, free))

    with FakePrometheus(DcgmServer(series=[held, GPU], by_query={"count_over_time(": counts})).running() as fake:
        frame = read(fake)
    (use,) = frame.uses[frame.uses["basis"] == "allocation"].itertuples()
    assert (use.ts_start, use.ts_end) == (NOW - 86400, NOW) and np.isclose(frame.gpu["observed_seconds"], 3600).all()


def test_advise_reads_a_server_and_tells_its_progress_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKUWISE_PROMETHEUS_CACHE", str(tmp_path))
    with FakePrometheus(DcgmServer()).running() as fake:
        status = main(
            [
                "advise", "--prometheus", fake.url, "--match", 'cluster="eu"', "--since", "2d", "--until",
                "2026-09-20T00:00:00Z", "--format", "json", "--no-ledger",
            ]
        )  # fmt: skip
        queries = [r.query for r in fake.requests if r.path.endswith("query_range")]
    told = capsys.readouterr()
    assert status == 0, told.err
    assert json.loads(told.out)["source"]["kind"] == "prometheus" and "dcgm-exporter" in told.err
    assert queries and all('cluster="eu"}' in query for query in queries)
