"""How long an engine's requests waited, by its histograms' buckets behind real Prometheus servers."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.verdict_types import Latency
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
FIRST_NAME, TOKEN_NAME = "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"
FIRST = {"0.04": 0.2, "0.06": 0.5, "0.08": 0.8, "0.1": 0.95, "0.25": 0.995, "0.5": 1.0, "2.5": 1.0, "+Inf": 1.0}
TOKENS = {"0.01": 0.0, "0.025": 0.5, "0.05": 0.95, "0.075": 1.0, "2.5": 1.0, "+Inf": 1.0}


def histogram(
    pod: Served, name: str, shares: Mapping[str, float], *, per_second: float, reset_at: int | None = None
) -> list[Series]:
    """The buckets of one histogram that counts so many a second; it begins anew at reading `reset_at`."""
    counted = per_second * (pod.ts - pod.ts[0])
    if reset_at is not None:
        counted = np.where(np.arange(len(counted)) >= reset_at, counted - counted[reset_at], counted)
    labels = {"model_name": "m", "engine": "0", "namespace": "studio", "pod": pod.pod}
    return [
        Series(f"{name}_bucket", {**labels, "le": le}, pod.ts, np.floor(share * counted))
        for le, share in shares.items()
    ]  # fmt: skip


def latencies(engine: str, folder: Path, extra: Sequence[Series]) -> dict[str, Latency | None]:
    """By node, what is said of the latency of its pod."""
    told = [series for pod in served() for series in (*pod.gauges(), *pod.owned_by_deployment())]
    ordered = sorted([*told, *replica_sets(), *extra], key=lambda one: one.name)
    with ENGINES[engine](folder, ordered) as url, contextlib.closing(Client(url, PrometheusSettings(), {})) as client:
        reading = ServerReading(client, Cache(None, ""), (), END)
        frame = read_frame(reading, load_catalog(), since_seconds=26 * 3600, until=END)
    return {one.nodes[0]: one.latency for one in judge(frame, rulebook()).workloads}


@pytest.mark.parametrize("engine", ENGINES)
def test_buckets_behind_a_server_give_the_class_that_a_service_keeps(engine: str, tmp_path: Path) -> None:
    chat, whole_only, odd, *_ = served()
    extra = [
        *histogram(chat, FIRST_NAME, FIRST, per_second=2.0, reset_at=len(chat.ts) // 2),
        *histogram(chat, TOKEN_NAME, TOKENS, per_second=100.0),
        # Of the same series, and nothing to be learnt from: the whole alone, and edges that are none.
        *histogram(whole_only, FIRST_NAME, {"+Inf": 1.0}, per_second=2.0),
        *histogram(odd, FIRST_NAME, {"often": 0.5, "-1": 0.1, "NaN": 0.2, "+Inf": 1.0}, per_second=2.0),
    ]
    kept = latencies(engine, tmp_path, extra)["node-0"]
    assert kept is not None and kept.first_token is not None and kept.output_token is not None
    assert (kept.label, kept.basis) == ("interactive", "measured")
    assert kept.first_token.p90 == pytest.approx(0.0933, rel=0.03)
    assert kept.output_token.p90 == pytest.approx(0.0472, rel=0.03)
    assert kept.first_token.p99 == pytest.approx(0.233, rel=0.05)


def test_a_service_that_is_too_slow_for_every_class_is_said_to_keep_none(tmp_path: Path) -> None:
    slow = served()[0]
    shares = {"0.5": 0.0, "2.5": 0.1, "10.0": 1.0, "+Inf": 1.0}
    none = latencies("victoria-metrics", tmp_path, histogram(slow, FIRST_NAME, shares, per_second=2.0))["node-0"]
    assert none is not None and (none.label, none.basis, none.limits) == (None, "measured", {})
    assert [one.code for one in none.evidence] == ["latency-class-none"]
