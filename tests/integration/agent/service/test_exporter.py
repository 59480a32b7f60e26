"""The metrics page as clients reach it: good ones, slow ones, hostile ones, and a real Prometheus."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from skuwise.agent.base.address import Address
from skuwise.agent.base.openmetrics import ExpositionFormat
from skuwise.agent.service.exporter import http_server as module
from skuwise.agent.service.exporter.answers import parse_request
from skuwise.agent.service.exporter.http_server import MetricsServer
from skuwise.tests.integration.agent.service.test_agent_run import node

NEW = count().__next__  # there is always something new to tell
ALIVE = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


def page(form: ExpositionFormat, ended: Mapping[str, int]) -> str:
    return f"# {form.content_type} {json.dumps(ended)}\n" + "x" * 100_000 + "\n"


def serving(
    address: Address,
    page: Callable[[ExpositionFormat, Mapping[str, int]], str] = page,
    is_healthy: Callable[[], bool] = lambda: True,
    monotonic: Callable[[], float] = time.monotonic,
    bind_again_seconds: float = module.BIND_AGAIN_SECONDS,
) -> MetricsServer:
    """One that has something new to tell each time."""
    return MetricsServer(
        address, page=page, version=NEW, is_healthy=is_healthy, monotonic=monotonic,
        bind_again_seconds=bind_again_seconds,
    )  # fmt: skip


@pytest.fixture
def served() -> Iterator[MetricsServer]:
    exporter = serving(Address("127.0.0.1", 0), page)
    exporter.start()
    yield exporter
    exporter.stop()


def ask(exporter: MetricsServer, request: str | bytes, *, end: bool = False) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request; `end`: say that nothing more comes."""
    with socket.create_connection((exporter.address.host, exporter.address.port), timeout=60) as sock:
        sock.sendall(request if isinstance(request, bytes) else request.encode())
        if end:
            sock.shutdown(socket.SHUT_WR)
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


def test_a_request_that_is_too_long_is_refused(served: MetricsServer) -> None:
    long = "GET /metrics HTTP/1.1\r\nX: " + "x" * (module.MAX_REQUEST_BYTES * 2)
    with socket.create_connection((served.address.host, served.address.port), timeout=60) as sock:
        sock.sendall(long.encode()[: module.MAX_REQUEST_BYTES])
        assert sock.recv(12) == b"HTTP/1.1 431"
    assert ask(served, ALIVE)[0] == 200


def test_a_request_in_single_bytes_is_understood(served: MetricsServer) -> None:
    with socket.create_connection((served.address.host, served.address.port), timeout=60) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in ALIVE.encode():
            sock.sendall(bytes([byte]))
        assert sock.recv(12) == b"HTTP/1.1 200"


def test_clients_that_say_nothing_cannot_keep_others_out(served: MetricsServer) -> None:
    where = (served.address.host, served.address.port)
    idle = [socket.create_connection(where, timeout=60) for _ in range(module.MAX_CONNECTIONS + 10)]
    try:
        status, _, body = ask(served, ALIVE)
        assert status == 200
        ended = json.loads(body.decode().splitlines()[0].split("utf-8 ")[1])
        assert ended["refused"] >= 11
    finally:
        for sock in idle:
            sock.close()


def test_a_client_that_does_not_read_keeps_nobody_waiting(served: MetricsServer) -> None:
    where = (served.address.host, served.address.port)
    slow = [socket.create_connection(where, timeout=60) for _ in range(5)]
    try:
        for sock in slow:
            sock.sendall(ALIVE.encode())
        assert [ask(served, ALIVE)[0] for _ in range(5)] == [200] * 5
    finally:
        for sock in slow:
            sock.close()


def test_time_is_up_for_who_dawdles() -> None:
    now = [100.0]
    exporter = serving(Address("127.0.0.1", 0), page, monotonic=lambda: now[0])
    exporter.start()
    try:
        with socket.create_connection((exporter.address.host, exporter.address.port), timeout=60) as dawdling:
            dawdling.sendall(b"GET /met")
            assert ask(exporter, ALIVE)[0] == 200
            now[0] += module.REQUEST_SECONDS + 1
            assert ask(exporter, ALIVE)[0] == 200
            assert dawdling.recv(10) == b""
            _, _, body = ask(exporter, ALIVE)
        assert b'"timed_out": 1' in body
    finally:
        exporter.stop()


def test_a_client_that_resets_does_no_harm(served: MetricsServer) -> None:
    for _ in range(20):
        sock = socket.create_connection((served.address.host, served.address.port), timeout=60)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.sendall(ALIVE.encode())
        sock.close()
    assert ask(served, ALIVE)[0] == 200


def test_a_page_that_cannot_be_made_is_an_error_and_the_server_goes_on() -> None:
    def broken(form: ExpositionFormat, ended: Mapping[str, int]) -> str:
        raise RuntimeError("secret detail")

    exporter = serving(Address("127.0.0.1", 0), broken, is_healthy=lambda: False)
    exporter.start()
    try:
        status, _, body = ask(exporter, ALIVE)
        assert status == 500 and b"RuntimeError" in body and b"secret" not in body
        assert ask(exporter, "GET /healthz HTTP/1.1\r\n\r\n")[0] == 503
    finally:
        exporter.stop()


def test_a_port_that_is_taken_is_a_fault_and_is_tried_again() -> None:
    now = [0.0]
    with socket.create_server(("127.0.0.1", 0)) as other:
        exporter = serving(Address("127.0.0.1", other.getsockname()[1]), page, monotonic=lambda: now[0])
        exporter.start()
        assert exporter.fault is not None and exporter.fault.reason == "not-listening"
        assert str(exporter.address) in exporter.fault.detail and exporter.fault.remedy
    exporter.stop()
    exporter.stop()
    again = serving(exporter.address, page)
    again.start()
    assert again.fault is None
    again.stop()


def test_a_taken_port_is_bound_once_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        exporter = serving(Address("127.0.0.1", other.getsockname()[1]), bind_again_seconds=0.05)
        exporter.start()
        assert exporter.fault is not None
    wait_for(lambda: exporter.fault is None)
    assert ask(exporter, ALIVE)[0] == 200
    exporter.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_stopping_one_that_died_writes_nothing_into_what_was_opened_since(tmp_path: Path) -> None:
    """A thread that ended by itself let its descriptors go: their numbers are a database's by then."""
    died = Event()

    def monotonic() -> float:
        if current_thread() is main_thread():
            return 0.0
        died.set()
        raise RuntimeError("the clock is broken")

    exporter = serving(Address("127.0.0.1", 0), monotonic=monotonic)
    exporter.start()
    assert died.wait(10)
    wait_for(lambda: not any(thread.name == "skuwise-exporter" for thread in enumerate_threads()))
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((tmp_path / str(i)).open("wb")) for i in range(16)]
        exporter.stop()
        assert [Path(file.name).stat().st_size for file in files] == [0] * 16


def test_a_host_that_is_not_this_machine_is_a_fault() -> None:
    exporter = serving(Address("192.0.2.1", 9), page)
    exporter.start()
    assert exporter.fault is not None
    exporter.stop()


def test_many_at_once_are_all_served(served: MetricsServer) -> None:
    found: list[int] = []
    threads = [Thread(target=lambda: found.append(ask(served, ALIVE)[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200] * 8


def test_who_hammers_waits_in_line_and_nobody_is_refused() -> None:
    now, used = [100.0], count()  # every look at the thread's clock finds another second used
    exporter = MetricsServer(
        Address("127.0.0.1", 0), page=lambda _form, _ended: "small\n", version=lambda: 1, is_healthy=lambda: True,
        monotonic=lambda: now[0], thread_seconds=lambda: float(next(used)),
    )  # fmt: skip
    exporter.start()
    try:
        where = (exporter.address.host, exporter.address.port)
        with socket.create_connection(where, timeout=0.5) as first:
            first.sendall(ALIVE.encode())
            told = b""
            for _ in range(100):  # from the reserve; a request that comes in pieces is looked at more than once
                with contextlib.suppress(TimeoutError):
                    told = first.recv(12)
                    break
                now[0] += 1.0
            assert told == b"HTTP/1.1 200"
        waiting = [socket.create_connection(where, timeout=60) for _ in range(3)]
        for sock in waiting:
            sock.sendall(ALIVE.encode())
            sock.settimeout(0.05)
        for sock in waiting:
            with pytest.raises(TimeoutError):
                sock.recv(1)
        answered: list[int] = []
        ends = time.monotonic() + 60
        while len(answered) < len(waiting) and time.monotonic() < ends:
            now[0] += 1.0  # earns some milliseconds
            for n in [n for n in range(len(waiting)) if n not in answered]:
                with contextlib.suppress(TimeoutError):
                    waiting[n].settimeout(0.02)
                    assert waiting[n].recv(12) == b"HTTP/1.1 200"
                    answered.append(n)
        assert answered == sorted(answered) and len(answered) == len(waiting)
        for sock in waiting:
            sock.close()
    finally:
        exporter.stop()


def test_out_of_descriptors_the_page_waits_and_comes_back(served: MetricsServer) -> None:
    """Accepting fails while the connection stays in the queue: an endless loop, but for the budget."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    where = (served.address.host, served.address.port)
    with socket.create_connection(where, timeout=60) as first:
        first.sendall(ALIVE.encode())
        assert first.recv(12) == b"HTTP/1.1 200"
    sock = socket.socket()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        sock.connect(where)
        sock.sendall(ALIVE.encode())
        before = time.process_time()
        time.sleep(0.5)
        used = time.process_time() - before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with sock:
        sock.settimeout(60)
        assert sock.recv(12) == b"HTTP/1.1 200"
    assert used < 0.3, "0.1 s is the reserve"


def test_requests_are_parsed_strictly() -> None:
    parsed = parse_request(b"GET /metrics?a=b HTTP/1.1\r\nAccept: a\r\naccept: b\r\nX:")
    assert parsed == ("GET", "/metrics", {"accept": "a,b", "x": ""})
    assert parse_request(b"GET /\xff HTTP/1.1") == ("GET", "/\xff", {})


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come"
        time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def start_agent(folder: Path, scenario: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """An agent on the stub, and the address of its page."""
    environment, paths = node(folder, scenario)
    command = [sys.executable, "-m", "skuwise", "agent", "run", "--db", str(folder / "node.db"), "--interval", "0.2s"]
    process = subprocess.Popen(
        [*command, "--listen", "0", *paths, *arguments], env=environment, cwd=folder, stderr=subprocess.PIPE, text=True
    )
    return process, address_said(process)


def address_said(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if match := re.search(r"http://(\S+)/metrics", line):
            return match[1]
    raise AssertionError("the agent said no address")


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


@pytest.mark.slow
def test_the_agent_serves_what_it_keeps_tick_for_tick_over_a_reload(tmp_path: Path) -> None:
    process, address = start_agent(tmp_path, SCENARIO)
    try:
        time.sleep(1.5)
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=60) as answer:
            assert answer.read() == b"sampling\n"
        before = int(series(page_of(address), "skuwise_agent_ticks_total"))
        process.send_signal(signal.SIGHUP)  # settings are read again; the totals go on
        address = address_said(process)
        text = page_of(address, beyond_ticks=before + 3)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None
        process.stderr.close()
    ticks = int(series(text, "skuwise_agent_ticks_total"))
    with sqlite3.connect(f"file:{tmp_path / 'node.db'}?mode=ro", uri=True) as connection:
        query = """SELECT count(*), sum(interval_seconds), sum(sm_active * interval_seconds), sum(energy_joules),
            sum(nvlink_tx_bytes_per_second * interval_seconds) FROM (SELECT * FROM gpu_samples WHERE gpu_index = 0
            ORDER BY ts LIMIT ?)"""
        count, seconds, active, joules, sent = connection.execute(query, (ticks,)).fetchone()
    assert count == ticks > before
    assert series(text, "skuwise_gpu_observed_seconds_total", 'gpu_index="0"') == pytest.approx(seconds, rel=1e-3)
    assert series(text, "skuwise_gpu_sm_active_seconds_total", 'gpu_index="0"') == pytest.approx(active, rel=1e-3)
    assert series(text, "skuwise_gpu_energy_joules_total", 'gpu_index="0"') == pytest.approx(joules, rel=1e-3)
    assert series(text, "skuwise_gpu_nvlink_tx_bytes_total", 'gpu_index="0"') == pytest.approx(sent, rel=1e-3)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://{address}/metrics", timeout=2)


def page_of(address: str, beyond_ticks: int = 0) -> str:
    """The page, once it tells of more than so many ticks."""
    for _ in range(100):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        if series(text, "skuwise_agent_ticks_total") > beyond_ticks:
            return text
        time.sleep(0.1)
    raise AssertionError(f"no page with more than {beyond_ticks} ticks came")


def series(text: str, name: str, label: str = "") -> float:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name}{{") and label in line]
    return float(line.rsplit(" ", 1)[1])


def test_without_listen_nothing_listens(tmp_path: Path) -> None:
    environment, paths = node(tmp_path, SCENARIO)
    command = [sys.executable, "-m", "skuwise", "agent", "run", "--db", str(tmp_path / "node.db")]
    done = subprocess.run(
        [*command, "--interval", "0.2s", "--duration", "0.6s", *paths],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "http://" not in done.stderr


@pytest.mark.slow
def test_a_taken_port_does_not_stop_the_agent_and_is_kept_as_an_absence(tmp_path: Path) -> None:
    environment, paths = node(tmp_path, SCENARIO)
    with socket.create_server(("127.0.0.1", 0)) as other:
        command = [sys.executable, "-m", "skuwise", "agent", "run", "--db", str(tmp_path / "node.db")]
        done = subprocess.run(
            [*command, "--interval", "0.2s", "--duration", "1s", "--listen", str(other.getsockname()[1]), *paths],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 0 and "cannot listen on 127.0.0.1" in done.stderr
    with sqlite3.connect(f"file:{tmp_path / 'node.db'}?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT reason FROM absences WHERE reason = 'not-listening'").fetchall()
    assert rows == [("not-listening",)]


def test_an_address_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "skuwise", "agent", "run", "--listen", ":9500", "--db", str(tmp_path / "n.db")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "0.0.0.0:PORT" in done.stderr and "Traceback" not in done.stderr


PROMETHEUS = """
global: {{scrape_interval: 2s, scrape_timeout: 2s}}
scrape_configs:
  - job_name: skuwise
    static_configs: [{{targets: ["{address}"]}}]
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed (Debian: prometheus)")
def test_window_means_of_a_real_prometheus_equal_the_database(tmp_path: Path) -> None:
    process, address = start_agent(tmp_path, SCENARIO)
    (tmp_path / "prometheus.yml").write_text(PROMETHEUS.format(address=address))
    port = free_port()
    prometheus = subprocess.Popen(
        [
            "prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
        ],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def query(text: str) -> list[Any]:
        url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': text})}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)["data"]["result"]
        except OSError:
            return []

    def scraped(name: str, labels: str = "") -> dict[float, float]:
        """The series' values by the moment of their scrape."""
        return {float(ts): float(v) for found in query(f"{name}{{{labels}}}[1h]") for ts, v in found["values"]}

    try:
        wait_for(lambda: len(scraped("skuwise_agent_ticks_total")) >= 10, 60.0)
        assert [row["value"][1] for row in query("up")] == ["1"]
        ticks = scraped("skuwise_agent_ticks_total")
        start, end = min(ticks), max(ticks)

        def grown(name: str) -> float:
            values = scraped(f"skuwise_gpu_{name}_total", 'gpu_index="0"')
            return values[end] - values[start]

        means = {
            metric: grown(total) / grown(f"{metric.removesuffix(dropped)}_observed_seconds")
            for metric, total, dropped in (
                ("sm_active", "sm_active_seconds", ""),
                ("tensor_active", "tensor_active_seconds", ""),
                ("dram_active", "dram_active_seconds", ""),
                ("mem_used_bytes", "mem_used_byte_seconds", "_bytes"),
                ("power_watts", "power_joules", "_watts"),
                ("nvlink_tx_bytes_per_second", "nvlink_tx_bytes", "_bytes_per_second"),
            )
        }
        joules = grown("energy_joules")
        metadata = f"http://127.0.0.1:{port}/api/v1/metadata?metric=skuwise_gpu_sm_active_seconds"
        with urllib.request.urlopen(metadata, timeout=60) as answer:
            (described,) = json.load(answer)["data"].values()
    finally:
        prometheus.terminate()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None
        process.stderr.close()
        prometheus.wait(timeout=60)
    assert described[0]["unit"] == "seconds", "it was read as OpenMetrics"
    first, count = int(ticks[start]), int(ticks[end] - ticks[start])
    assert count >= 60
    inside = "(SELECT * FROM gpu_samples WHERE gpu_index = 0 ORDER BY ts LIMIT ? OFFSET ?)"
    with sqlite3.connect(f"file:{tmp_path / 'node.db'}?mode=ro", uri=True) as connection:
        for metric, mean in means.items():
            known = f"{inside} WHERE {metric} IS NOT NULL"
            sql = f"SELECT sum({metric} * interval_seconds) / sum(interval_seconds) FROM {known}"
            (kept,) = connection.execute(sql, (count, first)).fetchone()
            assert mean == pytest.approx(kept, rel=0.01), metric
        (kept,) = connection.execute(f"SELECT sum(energy_joules) FROM {inside}", (count, first)).fetchone()
        assert joules == pytest.approx(kept, rel=0.01)
