"""A real Prometheus scrapes the agent's page: what the advisor asks of the agent is on the server."""

import contextlib
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from skuwise.advisor.telemetry.prometheus import promql as queries
from skuwise.advisor.telemetry.prometheus.client.client import Client, PrometheusSettings
from skuwise.tests.support.prometheus_engines import free_port, needed, running
from skuwise.tests.support.running_agent import GPUS, RunningAgent

SCRAPE = Path(__file__).parents[4] / "deploy" / "prometheus" / "scrape.yaml"
# As the advisor forms a mean, but sooner. A rate needs two scrapes with the series in them.
TENSOR = "rate(skuwise_gpu_tensor_active_{}seconds_total[20s])"


def test_prometheus_takes_the_agents_page_and_the_advisor_finds_its_series(tmp_path: Path) -> None:
    needed("prometheus")
    agent, server = RunningAgent(tmp_path, f"{GPUS}tensor_active = 0.4\n", "--listen", "0"), f"127.0.0.1:{free_port()}"
    page = urlsplit(agent.said("/metrics").split()[-1]).netloc
    # As it is shipped, but for the addresses and how often.
    scrape = yaml.safe_load(SCRAPE.read_text())
    (job,) = [config for config in scrape["scrape_configs"] if "skuwise" in config["job_name"]]
    job |= {"static_configs": [{"targets": [page]}], "scrape_interval": "1s", "scrape_timeout": "1s"}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    engine = ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    engine += [f"--web.listen-address={server}", "--log.level=error"]
    client = Client(f"http://{server}", PrometheusSettings(), {})
    with contextlib.closing(client), running(engine, f"http://{server}/-/ready", tmp_path):
        try:
            ticks = wait_for(client, f"{queries.AGENT_ANCHOR} > 5")
            means = wait_for(client, f"{TENSOR.format('')} / {TENSOR.format('observed_')} > 0")
            names = set(client.names('{__name__=~"skuwise_.*"}', time.time() - 60, time.time() + 1))
            up = client.scalar(f'up{{job="{job["job_name"]}"}}', time.time())
        finally:
            agent.end()
        gone = wait_for(client, f"{queries.AGENT_ANCHOR}", count=0)  # by markers of staleness
        kept = wait_for(client, f"last_over_time({queries.AGENT_ANCHOR}[1h])")
    assert up == 1 and len(ticks) == 2 and gone == [] and min(kept) >= min(ticks)
    assert means == pytest.approx([0.4, 0.4], abs=0.05)
    asked = queries.agent_gpu_asks(names, (), 3600.0) + queries.agent_node_asks((), 3600.0)
    assert {name for ask in asked for name in names if name in ask.query} >= {
        queries.AGENT_ANCHOR, "skuwise_gpu_busy_seconds_total", "skuwise_node_info", "skuwise_gpu_mem_used_bytes",
    }  # fmt: skip


def wait_for(client: Client, query: str, count: int = 2) -> list[float]:
    """The values that a query gives once it gives one for each of `count` GPUs."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        values = client.instant(query, time.time()).values
        if len(values) == count:
            return values[:, 0].tolist()
        time.sleep(0.5)
    raise AssertionError(f"{query} never gave {count} values")
