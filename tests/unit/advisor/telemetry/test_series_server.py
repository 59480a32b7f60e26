"""A whole server in one reading: exporters with pods and their owners, a serving engine, and a node of our agent."""

import json
from collections.abc import Mapping

import numpy as np
import pytest
from skuwise.__main__ import main
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.core.timestamps import rfc3339
from skuwise.advisor.telemetry.source import PrometheusServer
from skuwise.advisor.watch.reading import read_recent
from skuwise.agent.base.openmetrics import PLAIN
from skuwise.agent.metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS
from skuwise.agent.model import FabricPort, Gpu, Node, Tick
from skuwise.agent.sampler import Survey
from skuwise.agent.service.exporter.accumulators import Totals
from skuwise.agent.service.exporter.exporter_service import ProcessCost, render_metrics
from skuwise.tests.support.fake_prometheus import FakePrometheus, SeriesServer, of_page
from skuwise.tests.support.rulebooks import rulebook

HOUR = 3600.0
DAY = 86400.0
NOW = 1_790_000_000.0 // DAY * DAY
BOOK = rulebook()
Series = dict[str, list[tuple[Mapping[str, str], float]]]


def agent_page() -> Series:
    """The page of an agent on a node with one GPU and one InfiniBand port."""
    gpu = Gpu("GPU-agent", 0, "NVIDIA H100 80GB HBM3", "H100-SXM5", mem_total_bytes=80 << 30, power_limit_watts=700.0)
    port = FabricPort("mlx5_0", 1, "compute", "InfiniBand", 50e9)
    totals = Totals(Node("agent-1", "c", gpu_count=1), 1.0)
    totals.set_survey(Survey((gpu,), (port,), ()))
    values = {metric.name: 0.25 for metric in GPU_METRICS} | {"mem_used_bytes": 40e9, "power_watts": 300.0}
    fabric = {metric.name: 1e9 for metric in FABRIC_METRICS}
    host = {metric.name: 0.1 for metric in HOST_METRICS}
    for second in range(1, 601):
        totals.add_tick(
            Tick(float(second), 1.0, {"GPU-agent": values}, {"mlx5_0/1": fabric}, {"mlx5_0/1": "ACTIVE"}, host)
        )
    text = render_metrics(totals.read(), ProcessCost(0.0, 0.0, 0, 0.0), {}, PLAIN)
    return of_page(text, 600.0, instance="agent-1:9409", job="skuwise")


def exporters() -> Series:
    """Eight GPUs of a Deployment that vLLM serves, on a node with a silent InfiniBand port."""
    found: Series = {}

    def tell(name: str, value: float, **labels: str) -> None:
        found.setdefault(name, []).append((labels, value))

    pod = {"namespace": "ml", "pod": "llm-7d9f8b6c5-x2x4z", "uid": "u-1"}
    for index in range(8):
        gpu = {
            "UUID": f"GPU-{index}", "gpu": str(index), "Hostname": "serve-1", "modelName": "NVIDIA H100 80GB HBM3",
            "instance": "10.0.0.9:9400", "job": "dcgm", "exported_namespace": "ml", "exported_pod": pod["pod"],
            "exported_container": "main",
        }  # fmt: skip
        for name, value in {
            "DCGM_FI_DEV_GPU_UTIL": 99, "DCGM_FI_DEV_FB_USED": 73000, "DCGM_FI_DEV_FB_FREE": 8000,
            "DCGM_FI_DEV_POWER_USAGE": 281.5 + index / 7, "DCGM_FI_PROF_DRAM_ACTIVE": 0.62 + index / 700,
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.08, "DCGM_FI_PROF_SM_ACTIVE": 0.85,
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 281.5e3,
        }.items():  # fmt: skip
            tell(name, value, **gpu)
    host = {"instance": "10.0.0.9:9100", "job": "node"}
    tell("node_uname_info", 1, nodename="serve-1", **host)
    tell("node_cpu_seconds_total", 0.9, cpu="0", mode="idle", **host)
    tell("node_disk_read_bytes_total", 1e5, device="nvme0n1", **host)
    port = {**host, "device": "mlx5_0", "port": "1"}
    tell("node_infiniband_port_data_transmitted_bytes_total", 50.0, **port)
    tell("node_infiniband_port_data_received_bytes_total", 50.0, **port)
    tell("node_infiniband_rate_bytes_per_second", 50e9, **port)
    tell("node_infiniband_state_id", 4, **port)
    tell("kube_node_spec_unschedulable", 1, node="serve-1", job="kube-state-metrics")
    tell("node_network_transmit_bytes_total", 1e6, device="eth0", **host)
    tell("node_network_receive_bytes_total", 1e6, device="eth0", **host)
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
    tell("vllm:num_requests_running", 12, **page)
    tell("vllm:num_requests_waiting", 0, **page)
    tell("vllm:gpu_cache_usage_perc", 0.4, **page)
    tell("vllm:generation_tokens_total", 900, **page)
    tell("vllm:prompt_tokens_total", 4000, **page)
    for edge, share in {"0.1": 0.5, "0.25": 0.95, "0.5": 1.0, "+Inf": 1.0}.items():
        tell("vllm:time_to_first_token_seconds_bucket", 2 * share, le=edge, **page)
    return found


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
    (served,) = [one for one in judge(frame, BOOK).workloads if one.name == "llm"]
    assert served.kind.label == "online-inference"


def test_the_last_hours_name_the_same_holders(server: FakePrometheus) -> None:
    source = PrometheusServer(server.url, environ={}, cached=False)
    recent = read_recent(source, BOOK, lookback_seconds=6 * HOUR, now=NOW)
    (hold,) = [one for one in recent.holds if one.name == "llm"]
    assert (hold.holder, len(hold.gpus), hold.engine) == ("service", 8, True)
    assert np.nanmax(recent.gpu.fine.values["util"]) == pytest.approx(0.99)
    assert {node.node: node.drained for node in recent.nodes} == {"agent-1": False, "serve-1": True}


def test_doctor_counts_what_the_server_has(server: FakePrometheus, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["doctor", "--prometheus", server.url, "--since", "2d", "--until", rfc3339(NOW), "--format", "json"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["summary"]["gpu_count"], found["summary"]["observed_gpu_count"]) == (9, 9)
    metrics = {one["metric"]: one for one in found["metrics"]}
    having = {name: one["having"] for name, one in metrics.items()}
    # Eight GPUs by the minute and one by the second.
    assert metrics["dram_active"]["resolution_seconds"] == pytest.approx(9 / (8 / 60 + 1), abs=1e-3)
    assert metrics["dram_active"]["window_share"] == 1.0
    assert (having["power"], having["clocks"], having["infiniband"]) == (0, 1, 2)
    # Made of values that never change, as no measurement is.
    (power,) = [gap for gap in found["gaps"] if gap["code"] == "no-power"]
    assert "Readings not believed" in power["what"]
    assert {one["name"] for one in found["exporters"]} >= {"dcgm-exporter", "node_exporter", "kube-state-metrics"}
