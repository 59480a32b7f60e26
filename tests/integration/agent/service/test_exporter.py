"""The metrics page as clients reach it: good ones, slow ones, hostile ones, and a real Prometheus."""

from __future__ import annotations

import contextlib
import gzip
import json
import signal
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest
from skuwise.agent.base.address import Address
from skuwise.agent.base.openmetrics import ExpositionFormat
from skuwise.agent.service import http_server as module
from skuwise.agent.service.http_server import MetricsServer
from skuwise.tests.support.running_agent import RunningAgent

NEW = count().__next__  # there is always something new to tell
ANY = Address("127.0.0.1", 0)
ALIVE = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


def page(form: ExpositionFormat, ended: Mapping[str, int]) -> str:
    return f"# {form.content_type} {json.dumps(ended)}\n" + "x" * 100_000 + "\n"


@contextlib.contextmanager
def serving(
    address: Address = ANY,
    page: Callable[[ExpositionFormat, Mapping[str, int]], str] = page,
    is_healthy: Callable[[], bool] = lambda: True,
    monotonic: Callable[[], float] = time.monotonic,
    bind_again_seconds: float = module.BIND_AGAIN_SECONDS,
) -> Iterator[MetricsServer]:
    """One that has something new to tell each time."""
    exporter = MetricsServer(
        address, page=page, version=NEW, is_healthy=is_healthy, monotonic=monotonic,
        bind_again_seconds=bind_again_seconds,
    )  # fmt: skip
    exporter.start()
    try:
        yield exporter
    finally:
        exporter.stop()


@pytest.fixture
def served() -> Iterator[MetricsServer]:
    with serving() as exporter:
        yield exporter


def ask(exporter: MetricsServer, request: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request."""
    with socket.create_connection((exporter.address.host, exporter.address.port), timeout=60) as sock:
        sock.sendall(request.encode())
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


def test_the_page_comes_in_the_format_that_was_asked_for(served: MetricsServer) -> None:
    status, headers, body = ask(served, ALIVE)
    assert status == 200
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert int(headers["content-length"]) == len(body) and headers["connection"] == "close"
    accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\nAccept-Encoding: gzip\r\n"
    status, headers, body = ask(served, f"GET /metrics?x=1 HTTP/1.1\r\n{accept}\r\n")
    assert status == 200
    assert headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert headers["content-encoding"] == "gzip" and len(body) < 5000
    assert b"openmetrics" in gzip.decompress(body)
    assert ask(served, "GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip;q=0\r\n\r\n")[1].get("content-encoding") is None


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /healthz HTTP/1.1", 200),
        ("GET / HTTP/1.1", 404),
        ("GET /metrics/../../etc/passwd HTTP/1.1", 404),
        ("GET //metrics HTTP/1.1", 404),
        ("POST /metrics HTTP/1.1", 405),
        ("HEAD /metrics HTTP/1.1", 405),
        ("DELETE /healthz HTTP/1.0", 405),
        ("GET /metrics HTTP/2.0", 400),
        ("GET http://other/metrics HTTP/1.1", 400),
        ("GET /metrics", 400),
        ("nonsense", 400),
        ("GET /metrics HTTP/1.1\r\nno colon", 400),
        ("GET /metrics HTTP/1.1\r\n folded: x", 400),
        ("", 400),
        ("\x16\x03\x01\x02", 400),
    ],
)
def test_only_get_of_two_paths_is_answered(served: MetricsServer, request_line: str, status: int) -> None:
    assert ask(served, f"{request_line}\r\n\r\n")[0] == status


def test_time_is_up_for_who_dawdles() -> None:
    now = [100.0]
    with (
        serving(monotonic=lambda: now[0]) as exporter,
        socket.create_connection((exporter.address.host, exporter.address.port), timeout=60) as dawdling,
    ):
        dawdling.sendall(b"GET /met")
        assert ask(exporter, ALIVE)[0] == 200
        now[0] += module.REQUEST_SECONDS + 1
        assert ask(exporter, ALIVE)[0] == 200
        assert dawdling.recv(10) == b""
        assert b'"timed_out": 1' in ask(exporter, ALIVE)[2]


def test_a_page_that_cannot_be_made_is_an_error_and_the_server_goes_on() -> None:
    def broken(form: ExpositionFormat, ended: Mapping[str, int]) -> str:
        raise RuntimeError("secret detail")

    with serving(page=broken, is_healthy=lambda: False) as exporter:
        status, _, body = ask(exporter, ALIVE)
        assert status == 500 and b"RuntimeError" in body and b"secret" not in body
        assert ask(exporter, "GET /healthz HTTP/1.1\r\n\r\n")[0] == 503


def test_a_taken_port_is_bound_once_it_is_free() -> None:
    other = socket.create_server(("127.0.0.1", 0))
    with serving(Address("127.0.0.1", other.getsockname()[1]), bind_again_seconds=0.05) as exporter:
        assert exporter.fault is not None
        other.close()
        wait_for(lambda: exporter.fault is None)
        assert ask(exporter, ALIVE)[0] == 200


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come"
        time.sleep(0.05)


# Busy and idle by turns, no two metrics alike.
SCENARIO = """
[gpu 0]
name = NVIDIA H100 80GB HBM3
nvlink_links = 18
gpu_util = 0.9
sm_active = 0.2 3:0.8 6:0.1 9:0.6 14:0.3
tensor_active = 0.1 4:0.5 8:0.2
dram_active = 0.3 5:nan 7:0.6
mem_used_bytes = 34359738368
power_watts = 300 5:600
nvlink_tx_bytes_per_second = 10e9 5:100e9
nvlink_rx_bytes_per_second = 5e9
[gpu 1]
name = NVIDIA H100 80GB HBM3
"""


def test_the_agent_serves_what_it_keeps_tick_for_tick_over_a_reload(tmp_path: Path) -> None:
    agent = RunningAgent(tmp_path, SCENARIO, "--listen", "0")
    try:
        page = agent.said("/metrics").split()[-1]
        before = int(series(page_of(page), "skuwise_agent_ticks_total"))
        agent.process.send_signal(signal.SIGHUP)  # settings are read again; the totals go on
        page = agent.said("/metrics").split()[-1]
        text = page_of(page, beyond_ticks=before + 3)
        assert agent.stop() == 0
    finally:
        agent.end()
    ticks = int(series(text, "skuwise_agent_ticks_total"))
    ((count, seconds, active, joules, sent),) = agent.rows(
        "SELECT count(*), sum(interval_seconds), sum(sm_active * interval_seconds), sum(energy_joules),"
        " sum(nvlink_tx_bytes_per_second * interval_seconds) FROM (SELECT * FROM gpu_samples WHERE gpu_index = 0"
        f" ORDER BY ts LIMIT {ticks})"
    )
    assert count == ticks > before
    assert series(text, "skuwise_gpu_observed_seconds_total", 'gpu_index="0"') == pytest.approx(seconds, rel=1e-3)
    assert series(text, "skuwise_gpu_sm_active_seconds_total", 'gpu_index="0"') == pytest.approx(active, rel=1e-3)
    assert series(text, "skuwise_gpu_energy_joules_total", 'gpu_index="0"') == pytest.approx(joules, rel=1e-3)
    assert series(text, "skuwise_gpu_nvlink_tx_bytes_total", 'gpu_index="0"') == pytest.approx(sent, rel=1e-3)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(page, timeout=2)


def page_of(page: str, beyond_ticks: int = 0) -> str:
    """The page, once it tells of more than so many ticks."""
    for _ in range(100):
        with urllib.request.urlopen(page, timeout=60) as answer:
            text = answer.read().decode()
        if series(text, "skuwise_agent_ticks_total") > beyond_ticks:
            return text
        time.sleep(0.1)
    raise AssertionError(f"no page with more than {beyond_ticks} ticks came")


def series(text: str, name: str, label: str = "") -> float:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name}{{") and label in line]
    return float(line.rsplit(" ", 1)[1])


def test_a_taken_port_does_not_stop_the_agent_and_is_kept_as_an_absence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        agent = RunningAgent(tmp_path, SCENARIO, "--listen", str(other.getsockname()[1]), "--duration", "1s")
        agent.said("cannot listen on 127.0.0.1")
        assert agent.process.wait(timeout=60) == 0
        agent.end()
    assert agent.rows("SELECT reason FROM absences WHERE reason = 'not-listening'") == [("not-listening",)]
