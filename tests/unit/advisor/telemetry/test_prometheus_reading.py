"""Frames and advice from a server with given answers, and one of exporters, an engine and our agent."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from prometheus_client.exposition import generate_latest
from skuwise.__main__ import main
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.core.timestamps import rfc3339
from skuwise.advisor.telemetry.prometheus.client.client import Client, PrometheusSettings
from skuwise.advisor.telemetry.prometheus.client.range_planner import Cache
from skuwise.advisor.telemetry.prometheus.reader import ServerReading, read_frames
from skuwise.advisor.telemetry.source import PrometheusServer
from skuwise.advisor.watch.reading import read_recent
from skuwise.agent.metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS
from skuwise.agent.model import FabricPort, Gpu, Node, Probe, Tick
from skuwise.agent.service.metrics_page import make_page
from skuwise.agent.service.totals import Totals
from skuwise.rules.base.errors import NothingToDo, SourceError
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.support.fake_prometheus import (
    GPU,
    Answer,
    DcgmServer,
    FakePrometheus,
    Reply,
    Request,
    SeriesServer,
    error,
    matrix,
    of_page,
    success,
    vector,
)
from skuwise.tests.support.rulebooks import rulebook

HOUR, DAY = 3600.0, 86400.0
NOW = 1_790_000_000.0 // DAY * DAY  # midnight, so that a day is one piece
CATALOG, BOOK = load_catalog(), rulebook()


def read(answer: Answer) -> Frame:
    """Two days of a server that answers so."""
    return groups_of(answer)[0]


def groups_of(answer: Answer, rows_at_once: int | None = None) -> list[Frame]:
    with FakePrometheus(answer).running() as fake:
        client = Client(fake.url, PrometheusSettings(), {}, sleep=lambda _: None)
        reading = ServerReading(client, Cache(None, fake.url), (), NOW)
        return list(read_frames(reading, CATALOG, since_seconds=2 * DAY, rows_at_once=rows_at_once))


def test_a_gpu_in_constant_use_gives_full_rows_with_what_is_exported_and_nan_for_the_rest() -> None:
    frame = read(DcgmServer())
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
    whole, groups = read(DcgmServer(series=series)), groups_of(DcgmServer(series=series), rows_at_once=1)
    assert [sorted(part.nodes["node"]) for part in groups] == [["n1", "n2"], ["n3"]]
    rows = pd.concat([part.gpu for part in groups], ignore_index=True)
    pd.testing.assert_frame_equal(rows.dropna(axis=1, how="all"), whole.gpu.dropna(axis=1, how="all"))
    assert groups[-1].source["exporters"] == whole.source["exporters"] and groups[-1].notes == whole.notes
    assert all(part.telemetry_span == (whole.window.start, whole.window.end) for part in groups)


def test_without_until_the_window_ends_with_the_newest_data() -> None:
    def counts(request: Request) -> Reply:
        end = float(request.params["end"])
        steps = round((end - float(request.params["start"])) / HOUR) + 1
        return matrix(request, ({}, [60] * (steps - 3) + ["NaN"] * 3)) if end <= NOW - DAY else matrix(request)

    window = read(DcgmServer(by_query={"max(count_over_time": counts})).window
    assert window.end % HOUR == 0 and NOW - 2 * DAY < window.end < NOW - DAY and window.seconds == 2 * DAY


def test_a_million_series_are_refused_with_their_count() -> None:
    queries: list[str] = []

    def answer(request: Request) -> Reply:
        queries.append(request.query)
        return DcgmServer(count=1_000_000)(request)

    with pytest.raises(SourceError, match="1000000 match") as caught:
        read(answer)
    assert "--match" in caught.value.remedy and not any("avg_over_time" in query for query in queries)


@pytest.mark.parametrize(
    ("server", "reported", "remedy"),
    [
        (DcgmServer(names=("up",)), "No GPU metrics", ""),
        (DcgmServer(names=("gpu_gfx_activity",)), "AMD GPUs only", ""),
        (DcgmServer(series=[{**GPU, "UUID": ""}]), "label UUID", "Keep that label"),
    ],
)
def test_a_server_without_our_gpus_is_said(server: DcgmServer, reported: str, remedy: str) -> None:
    with pytest.raises(NothingToDo, match=reported) as caught:
        read(server)
    assert remedy in caught.value.remedy


def test_amd_gpus_are_named_as_such() -> None:
    amd = {"last_over_time((group by (hostname": lambda _: vector(({"hostname": "mi-1", "serial_number": "1"}, 1))}
    names = (*DcgmServer.names, "gpu_gfx_activity")
    notes = read(DcgmServer(names=names, by_query=amd)).notes
    (note,) = [note for note in notes if note.code == "vendor-not-read"]
    assert note.text.startswith("1 AMD GPUs on mi-1 are not evaluated")


@pytest.mark.parametrize("missing", [("UUID",), ("Hostname", "instance")])
def test_gpus_that_no_label_tells_apart_or_places_are_said_to_be_uncounted(missing: tuple[str, ...]) -> None:
    other = {**GPU, "UUID": "GPU-b", "gpu": "1"}
    bare = {name: value for name, value in other.items() if name not in missing}
    frame = read(DcgmServer(series=[GPU, bare]))
    assert frame.gpus["gpu_uuid"].tolist() == ["GPU-a"]
    (note,) = [note for note in frame.notes if note.code == "label-missing"]
    assert f"have no label {' or '.join(missing)}." in note.text


@pytest.mark.parametrize("reply", [Reply(b"<html>hi</html>"), error(404, "x"), success([]), vector(({}, 2))])
def test_what_is_no_prometheus_is_said(reply: Reply) -> None:
    with pytest.raises(SourceError):
        read(lambda _: reply)


def test_a_type_and_a_region_hold_though_kubernetes_no_longer_reports_them() -> None:
    labels = {
        "node": "n1", "label_node_kubernetes_io_instance_type": "p5.48xlarge",
        "label_topology_kubernetes_io_region": "us-east-1",
    }  # fmt: skip
    for_an_hour = {"max by (exported_node": lambda request: matrix(request, (labels, [1]))}
    nodes = read(DcgmServer(names=(*DcgmServer.names, "kube_node_labels"), by_query=for_an_hour)).nodes
    assert nodes["node_sku"].tolist() == ["aws/p5.48xlarge"] and nodes["region"].tolist() == ["us-east-1"]


@pytest.mark.parametrize(("success", "reasons"), [(0, {"collector-failed"}), (1, set())])
def test_a_collector_that_failed_is_no_proof_that_there_is_no_fabric(success: int, reasons: set[str]) -> None:
    answer = {"last_over_time(node_scrape_collector": lambda _: vector(({"instance": "n1:9100"}, success))}
    names = (*DcgmServer.names, "node_scrape_collector_success")
    absences = read(DcgmServer(names=names, by_query=answer)).absences
    assert set(absences["reason"]) - {"not-exported"} == reasons
    assert not reasons or absences.set_index("reason").loc["collector-failed", "node"] == "n1"


def test_labels_with_quotes_newlines_and_markup_are_carried_harmlessly() -> None:
    pod = 'a"b\n<script>\x1b[31m{x="y"}'
    hostile = {**GPU, "exported_pod": pod, "exported_namespace": "n'; DROP", "modelName": "[bold]H100"}
    frame = read(DcgmServer(series=[hostile]))
    (name,) = frame.workloads["pod"]
    assert "\n" not in name and "\x1b" not in name and "<script>" in name and frame.gpus["sku"].isna().all()


def test_shared_gpus_and_unlabelled_time_are_told_apart() -> None:
    held = {**GPU, "exported_pod": "p-6d4cf56db6-x7k2p", "exported_namespace": "ns"}

    def counts(request: Request) -> Reply:
        marks = np.arange(float(request.params["start"]), float(request.params["end"]) + 1, HOUR)
        late = marks > NOW - DAY
        return matrix(request, (held, [*np.where(late, 60, np.nan)]), (GPU, [*np.where(late, np.nan, 60)]))

    frame = read(DcgmServer(series=[held, GPU], by_query={"count_over_time(": counts}))
    (use,) = frame.uses[frame.uses["basis"] == "allocation"].itertuples()
    assert (use.ts_start, use.ts_end) == (NOW - DAY, NOW) and np.isclose(frame.gpu["observed_seconds"], 3600).all()


def test_advise_reads_a_server_and_tells_its_progress_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKUWISE_PROMETHEUS_CACHE", str(tmp_path))
    with FakePrometheus(DcgmServer()).running() as fake:
        asked = ["advise", "--prometheus", fake.url, "--match", 'cluster="eu"', "--since", "2d", "--no-ledger"]
        status = main([*asked, "--until", "2026-09-20T00:00:00Z", "--format", "json"])
        queries = [r.query for r in fake.requests if r.path.endswith("query_range")]
    reported = capsys.readouterr()
    assert status == 0, reported.err
    assert json.loads(reported.out)["source"]["kind"] == "prometheus" and "dcgm-exporter" in reported.err
    assert queries and all('cluster="eu"}' in query for query in queries)


Series = dict[str, list[tuple[Mapping[str, str], float]]]


def agent_page() -> Series:
    """The page of an agent on a node with one GPU and one InfiniBand port."""
    gpu = Gpu("GPU-agent", 0, "NVIDIA H100 80GB HBM3", "H100-SXM5", mem_total_bytes=80 << 30, power_limit_watts=700.0)
    port = FabricPort("mlx5_0", 1, "compute", "InfiniBand", 50e9)
    totals = Totals(Node("agent-1", "c", gpu_count=1), 1.0)
    totals.set_survey(Probe((gpu,), (port,), ()))
    values = {metric.name: 0.25 for metric in GPU_METRICS} | {"mem_used_bytes": 40e9, "power_watts": 300.0}
    fabric = {metric.name: 1e9 for metric in FABRIC_METRICS}
    host = {metric.name: 0.1 for metric in HOST_METRICS}
    for second in range(1, 601):
        port_values, states = {port.key: fabric}, {port.key: "ACTIVE"}
        totals.add_tick(Tick(float(second), 1.0, {"GPU-agent": values}, port_values, states, host))
    text = generate_latest(make_page(totals, {})).decode()
    return of_page(text, 600.0, instance="agent-1:9409", job="skuwise")


def exporters() -> Series:
    """Eight GPUs of a Deployment that vLLM serves, on a node with a silent InfiniBand port."""
    results: Series = {}

    def tell(name: str, value: float, **labels: str) -> None:
        results.setdefault(name, []).append((labels, value))

    pod = {"namespace": "ml", "pod": "llm-7d9f8b6c5-x2x4z", "uid": "u-1"}
    for index in range(8):
        labels = {
            **GPU, "UUID": f"GPU-{index}", "gpu": str(index), "Hostname": "serve-1", "instance": "10.0.0.9:9400",
            "exported_namespace": "ml", "exported_pod": pod["pod"], "exported_container": "main",
        }  # fmt: skip
        for name, value in {
            "DCGM_FI_DEV_GPU_UTIL": 99, "DCGM_FI_DEV_FB_USED": 73000, "DCGM_FI_DEV_FB_FREE": 8000,
            "DCGM_FI_DEV_POWER_USAGE": 281.5 + index / 7, "DCGM_FI_PROF_DRAM_ACTIVE": 0.62 + index / 700,
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.08, "DCGM_FI_PROF_SM_ACTIVE": 0.85,
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 281.5e3,
        }.items():  # fmt: skip
            tell(name, value, **labels)
    host = {"instance": "10.0.0.9:9100", "job": "node"}
    tell("node_uname_info", 1, nodename="serve-1", **host)
    tell("node_cpu_seconds_total", 0.9, cpu="0", mode="idle", **host)
    tell("node_disk_read_bytes_total", 1e5, device="nvme0n1", **host)
    of_port = {"port_data_transmitted_bytes_total": 50.0, "port_data_received_bytes_total": 50.0,
               "rate_bytes_per_second": 50e9, "state_id": 4}  # fmt: skip
    for name, value in of_port.items():
        tell(f"node_infiniband_{name}", value, device="mlx5_0", port="1", **host)
    tell("kube_node_spec_unschedulable", 1, node="serve-1", job="kube-state-metrics")
    for direction in ("transmit", "receive"):
        tell(f"node_network_{direction}_bytes_total", 1e6, device="eth0", **host)
    asked = {"resource": "nvidia_com_gpu", "unit": "integer", "node": "serve-1"}
    tell("kube_node_status_capacity", 8, **asked)
    tell("kube_node_labels", 1, node="serve-1", label_node_kubernetes_io_instance_type="Standard_ND96isr_H100_v5",
         label_topology_kubernetes_io_region="eastus")  # fmt: skip
    tell("kube_pod_container_resource_requests", 8, container="main", **asked, **pod)
    tell("kube_pod_status_phase", 1, phase="Running", **pod)
    tell("kube_pod_info", 1, node="serve-1", pod_ip="10.0.0.77", created_by_kind="ReplicaSet", **pod)
    tell("kube_pod_owner", 1, owner_kind="ReplicaSet", owner_name="llm-7d9f8b6c5", owner_is_controller="true", **pod)
    tell("kube_replicaset_owner", 1, namespace="ml", replicaset="llm-7d9f8b6c5", owner_kind="Deployment",
         owner_name="llm", owner_is_controller="true")  # fmt: skip
    tell("kube_pod_created", NOW - 9 * DAY, **pod)
    page = {"instance": "10.0.0.77:8000", "job": "vllm", "model_name": "llama", "namespace": "ml", "pod": pod["pod"]}
    engine = {"num_requests_running": 12, "num_requests_waiting": 0, "gpu_cache_usage_perc": 0.4,
              "generation_tokens_total": 900, "prompt_tokens_total": 4000}  # fmt: skip
    for name, value in engine.items():
        tell(f"vllm:{name}", value, **page)
    for edge, share in {"0.1": 0.5, "0.25": 0.95, "0.5": 1.0, "+Inf": 1.0}.items():
        tell("vllm:time_to_first_token_seconds_bucket", 2 * share, le=edge, **page)
    return results


@pytest.fixture(scope="module")
def server():
    with FakePrometheus(SeriesServer(exporters() | agent_page())).running() as fake:
        yield fake


@pytest.fixture(scope="module")
def frame(server: FakePrometheus) -> Frame:
    return PrometheusServer(server.url, environ={}, cached=False).read(BOOK.catalog, since=2 * DAY, until=NOW, now=NOW)


def test_gpus_of_exporters_and_of_the_agent_are_rows_of_one_frame(frame: Frame) -> None:
    assert sorted(frame.gpus["node"]) == ["agent-1", *["serve-1"] * 8]
    means = frame.gpu.groupby("node")[["gpu_util_mean", "dram_active_mean", "mem_used_bytes_mean"]].mean()
    assert list(means.loc["agent-1"]) == pytest.approx([0.25, 0.25, 40e9], rel=0.02)
    assert means.loc["serve-1", "gpu_util_mean"] == pytest.approx(0.99)
    assert set(frame.gpu["gpu_uuid"].value_counts()) == {48}
    assert frame.nodes.set_index("node").loc["serve-1", "node_sku"] == "azure/Standard_ND96isr_H100_v5"


def test_a_pod_is_known_by_its_deployment_and_its_engine_tells_tokens(frame: Frame) -> None:
    (about,) = frame.workloads[frame.workloads["name"] == "llm"].to_dict("records")
    assert (about["namespace"], about["scheduler"]) == ("ml", "kubernetes")
    held = frame.uses[frame.uses["node"] == "serve-1"]
    assert len(held) == 8 and set(held["workload_id"]) == {about["workload_id"]}
    (tokens,) = frame.tokens.groupby("workload_id")["generated_tokens"].sum().items()
    assert tokens == (about["workload_id"], pytest.approx(900 * 2 * DAY)) and frame.serving["engine"].eq("vllm").all()
    assert frame.requests["count"].tolist() == [8.0]


def test_ports_hosts_and_verdicts_follow(frame: Frame) -> None:
    ports = frame.fabric.groupby(["node", "device"])["tx_bytes_per_second_mean"].mean()
    assert ports["agent-1", "mlx5_0"] == pytest.approx(1e9) and ports["serve-1", "mlx5_0"] == pytest.approx(50.0)
    assert {"agent-1", "serve-1"} <= set(frame.host["node"])
    (served,) = [workload for workload in judge(frame, BOOK).workloads if workload.name == "llm"]
    assert served.kind.label == "online-inference"


def test_the_last_hours_name_the_same_holders(server: FakePrometheus) -> None:
    source = PrometheusServer(server.url, environ={}, cached=False)
    recent = read_recent(source, BOOK, lookback_seconds=6 * HOUR, now=NOW)
    (hold,) = [hold for hold in recent.holds if hold.name == "llm"]
    assert (hold.holder, len(hold.gpus), hold.engine) == ("service", 8, True)
    assert np.nanmax(recent.gpu["util"]) == pytest.approx(0.99)
    assert {node.node: node.drained for node in recent.nodes} == {"agent-1": False, "serve-1": True}


def test_doctor_counts_what_the_server_has(server: FakePrometheus, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["doctor", "--prometheus", server.url, "--since", "2d", "--until", rfc3339(NOW), "--format", "json"]
    assert main(asked) == 0
    results = json.loads(capsys.readouterr().out)
    assert (results["summary"]["gpu_count"], results["summary"]["observed_gpu_count"]) == (9, 9)
    metrics = {entry["metric"]: entry for entry in results["metrics"]}
    having = {name: element["having"] for name, element in metrics.items()}
    # Eight GPUs by the minute and one by the second.
    assert metrics["dram_active"]["resolution_seconds"] == pytest.approx(9 / (8 / 60 + 1), abs=1e-3)
    assert metrics["dram_active"]["window_share"] == 1.0
    # The ports of the other node cannot be judged, as the advice says.
    assert (having["power"], having["clocks"], having["infiniband"]) == (0, 1, 1)
    # Made of values that never change, as no measurement is.
    (power,) = [gap for gap in results["gaps"] if gap["code"] == "no-power"]
    assert "Readings not believed" in power["what"]
    exporters = {exporter["name"] for exporter in results["exporters"]}
    assert exporters >= {"dcgm-exporter", "node_exporter", "kube-state-metrics"}
