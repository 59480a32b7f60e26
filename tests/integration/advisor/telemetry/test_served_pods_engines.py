"""What a cluster's own facts say of production pods, behind a real engine: owners first, and engines' series by pod."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.telemetry.prometheus.client.cache import Cache
from skuwise.advisor.telemetry.prometheus.client.client import Client
from skuwise.advisor.telemetry.prometheus.reader import ServerReading, read_frame
from skuwise.advisor.telemetry.prometheus.settings import PrometheusSettings
from skuwise.advisor.verdicts.judge import judge
from skuwise.rules.catalog.loader import load_catalog
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.prometheus_engines import prometheus, victoria
from skuwise.tests.support.rulebooks import rulebook
from skuwise.tests.support.served_pods import END, Served, replica_sets, served

pytestmark = pytest.mark.slow
ENGINES = {"prometheus": prometheus, "victoria-metrics": victoria}


def _frame(engine: str, folder: Path, series: Sequence[Series]) -> Frame:
    ordered = sorted(series, key=lambda one: one.name)
    with ENGINES[engine](folder, ordered) as url, contextlib.closing(Client(url, PrometheusSettings(), {})) as client:
        reading = ServerReading(client, Cache(None, ""), (), END)
        return read_frame(reading, load_catalog(), since_seconds=26 * 3600, until=END)


def _verdicts(frame: Frame) -> Mapping[str, WorkloadVerdict]:
    """By the last two parts of the node's name: each pod has a node of its own."""
    return {one.nodes[0]: one for one in judge(frame, rulebook()).workloads}


def vllm(
    pod: Served, labels: Mapping[str, str], *, tokens_per_second: float = 50.0, running: float = 2.0
) -> list[Series]:
    """An engine's page as scraped beside the GPU, from the first reading to the last."""
    engine, since = {"model_name": "m", "engine": "0", **labels}, pod.ts - pod.ts[0]
    one = np.ones(len(pod.ts))
    return [
        Series("vllm:num_requests_running", engine, pod.ts, running * one),
        Series("vllm:num_requests_waiting", engine, pod.ts, 0.5 * running * one),
        Series("vllm:kv_cache_usage_perc", engine, pod.ts, 0.25 * one),
        Series("vllm:prompt_tokens_total", engine, pod.ts, 4 * tokens_per_second * since),
        Series("vllm:generation_tokens_total", engine, pod.ts, tokens_per_second * since),
        Series(
            "vllm:request_success_total", {**engine, "finished_reason": "stop"}, pod.ts, tokens_per_second / 100 * since
        ),
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_light_production_pods_of_a_deployment_are_neither_interactive_nor_idle(engine: str, tmp_path: Path) -> None:
    told = [series for pod in served() for series in (*pod.gauges(), *pod.owned_by_deployment())]
    told += replica_sets()
    found = _verdicts(_frame(engine, tmp_path, told))
    assert len(found) == 6
    kinds = {node: one.kind.label for node, one in found.items()}
    assert not {"interactive", "idle"} & set(kinds.values()), kinds
    assert list(kinds.values()).count("online-inference") >= 5, kinds
    assert all(one.scheduled.controller_kind == "Deployment" for one in found.values())
    # Those that are too short to tell by themselves may be told by their series instead.
    assert all("run-by-kubernetes" in [said.code for said in found[f"node-{n}"].kind.evidence] for n in range(4))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engines_series_are_its_pods_and_of_nobody_else(engine: str, tmp_path: Path) -> None:
    by_pod, by_address, silent, gone, routed, plain = served()
    told = [series for pod in served() for series in pod.gauges()]
    for pod in (by_pod, by_address, silent, plain):
        told += list(pod.owned_by_deployment())[:1]  # kube_pod_info alone: an owner would decide as well
    told += vllm(by_pod, {"namespace": "studio", "pod": by_pod.pod, "instance": "10.1.0.0:8000"})
    # A target of a static configuration: the address alone tells whose it is.
    told += vllm(by_address, {"instance": "10.1.0.1:8000"}, tokens_per_second=20.0)
    told += vllm(silent, {"namespace": "studio", "pod": silent.pod}, tokens_per_second=0.0, running=0.0)
    # A pod that is gone: its series go on for the rest of the day. And a gateway, which holds no GPU.
    late = Served(9, gone.ts[-1] + 7200 + 57.0 * np.arange(400), np.zeros(400), np.zeros(400))
    told += vllm(late, {"namespace": "studio", "pod": gone.pod, "instance": "10.1.0.9:8000"})
    told += vllm(routed, {"namespace": "studio", "pod": "gateway-0", "instance": "10.1.0.8:8000"})
    frame = _frame(engine, tmp_path, told)
    found = _verdicts(frame)
    assert set(frame.serving["node"]) == {"node-0", "node-1", "node-2"}
    for node, tokens in (("node-0", 50.0), ("node-1", 20.0)):
        said = next(one for one in found[node].kind.evidence if one.code == "engine-serves")
        assert found[node].kind.label == "online-inference"
        assert said.fields["generated_tokens_per_second"] == pytest.approx(tokens, rel=0.05)
        assert said.fields["prompt_tokens_per_second"] == pytest.approx(4 * tokens, rel=0.05)
        assert said.fields["requests_running"] == pytest.approx(2.0)
        assert said.fields["requests_waiting"] == pytest.approx(1.0)
        assert said.fields["kv_cache_usage"] == pytest.approx(0.25)
        assert "vllm" in said.text
        assert "tokens/s generated" in said.text
    assert "engine-counted-none" in [one.code for one in found["node-2"].kind.evidence]
    for node in ("node-3", "node-4", "node-5"):
        assert not [one for one in found[node].kind.evidence if one.code.startswith("engine")]
