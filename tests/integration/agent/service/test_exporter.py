"""The metrics page as clients reach it: good ones, slow ones, hostile ones, and a real Prometheus."""

import contextlib
import gzip
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest
from skuwise.agent.base.settings import Address
from skuwise.agent.service.page_server import MAX_CONNECTIONS, Page, PageServer
from skuwise.tests.support.running_agent import RunningAgent, until
from skuwise.tests.unit.agent.service.test_totals import full, hostile, totals_of, value
from skuwise.tests.unit.agent.service.test_totals import page as page_text

ANY = Address("127.0.0.1", 0)
ALIVE = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


def page(ended: Mapping[str, int]) -> Page:
    made = Page({"node": "n"})
    made.add("x", "Something.", [({"number": str(number)}, number) for number in range(3000)])
    made.add("ended", "Connections.", [({"outcome": name}, amount) for name, amount in ended.items()])
    return made


@contextlib.contextmanager
def serving(
    address: Address = ANY, page: Callable[[Mapping[str, int]], Page] = page, *, healthy: bool = True
) -> Iterator[PageServer]:
    """A server whose page is another each time."""
    server = PageServer(address, page, version=count().__next__, is_healthy=lambda: healthy)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def served() -> Iterator[PageServer]:
    with serving() as exporter:
        yield exporter


def ask(exporter: PageServer, request: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request."""
    with socket.create_connection((exporter.address.host, exporter.address.port), timeout=60) as sock:
        sock.sendall(request.encode())
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


def test_the_page_comes_plain_and_compressed(served: PageServer) -> None:
    status, headers, body = ask(served, ALIVE)
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    assert int(headers["content-length"]) == len(body) and b'skuwise_x{node="n",number="7"} 7.0\n' in body
    status, headers, body = ask(served, "GET /metrics?x=1 HTTP/1.1\r\nAccept-Encoding: deflate, gzip\r\n\r\n")
    assert status == 200 and headers["content-encoding"] == "gzip"
    assert b'skuwise_ended{node="n",outcome="scraped"} 1.0\n' in gzip.decompress(body)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /healthz HTTP/1.1", 200),
        ("GET / HTTP/1.1", 404),
        ("GET /metrics/../../etc/passwd HTTP/1.1", 404),
        ("POST /metrics HTTP/1.1", 501),
        ("HEAD /metrics HTTP/1.1", 501),
        ("GET http://other/metrics HTTP/1.1", 404),
    ],
)
def test_only_get_of_two_paths_is_answered(served: PageServer, request_line: str, status: int) -> None:
    assert ask(served, f"{request_line}\r\n\r\n")[0] == status


def test_who_dawdles_makes_room_and_who_is_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skuwise.agent.service.page_server.REQUEST_SECONDS", 2.0)
    with serving() as exporter, contextlib.ExitStack() as stack:
        where = exporter.address.host, exporter.address.port
        dawdling = [stack.enter_context(socket.create_connection(where, timeout=60)) for _ in range(MAX_CONNECTIONS)]
        for client in dawdling:
            client.sendall(b"GET /met")
        until(lambda: ask_or_nothing(exporter) == 200)
        until(lambda: (exporter.ended["timed_out"], exporter.ended["scraped"]) == (MAX_CONNECTIONS, 1))
        assert {client.recv(10) for client in dawdling} == {b""}


def ask_or_nothing(exporter: PageServer) -> int:
    try:
        return ask(exporter, ALIVE)[0]
    except (OSError, IndexError):  # refused
        return 0


def test_a_server_that_is_stopped_at_once_ends() -> None:
    for _ in range(20):
        with serving() as exporter:
            assert exporter.fault is None


def test_a_page_that_cannot_be_made_is_an_error_and_the_server_goes_on() -> None:
    def broken(ended: Mapping[str, int]) -> Page:
        raise RuntimeError("secret detail")

    with serving(page=broken, healthy=False) as exporter:
        status, _, body = ask(exporter, ALIVE)
        assert status == 500 and b"RuntimeError" in body and b"secret" not in body
        assert ask(exporter, "GET /healthz HTTP/1.1\r\n\r\n")[0] == 503


def test_a_taken_port_is_bound_once_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skuwise.agent.service.page_server.BIND_AGAIN_SECONDS", 0.05)
    other = socket.create_server(("127.0.0.1", 0))
    with serving(Address("127.0.0.1", other.getsockname()[1])) as exporter:
        assert exporter.fault is not None
        other.close()
        until(lambda: exporter.fault is None)
        assert ask(exporter, ALIVE)[0] == 200


SCENARIO = """
[gpu 0]
name = NVIDIA H100 80GB HBM3
nvlink_links = 18
sm_active = 0.2 3:0.8 6:0.1 9:0.6 14:0.3
power_watts = 300 5:600
nvlink_tx_bytes_per_second = 10e9 5:100e9
[gpu 1]
name = NVIDIA H100 80GB HBM3
"""


def test_the_agent_serves_what_it_keeps_tick_for_tick(tmp_path: Path) -> None:
    agent = RunningAgent(tmp_path, SCENARIO, "--listen", "0")
    try:
        page = agent.said("/metrics").split()[-1]
        text = page_of(page, beyond_ticks=3)
        assert agent.stop() == 0
    finally:
        agent.end()
    ticks = ticks_on(text)
    ((count, seconds, active, joules, sent),) = agent.rows(
        "SELECT count(*), sum(interval_seconds), sum(sm_active * interval_seconds), sum(energy_joules),"
        " sum(nvlink_tx_bytes_per_second * interval_seconds) FROM (SELECT * FROM gpu_samples WHERE gpu_index = 0"
        f" ORDER BY ts LIMIT {ticks})"
    )
    assert count == ticks > 3
    names = "observed_seconds", "sm_active_seconds", "energy_joules", "nvlink_tx_bytes"
    served = [value(text, f"skuwise_gpu_{name}_total", gpu_index="0") for name in names]
    assert served == pytest.approx([seconds, active, joules, sent], rel=1e-3)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(page, timeout=2)


def page_of(page: str, beyond_ticks: int) -> str:
    """The page, once it has more than so many ticks."""
    text = ""

    def come() -> bool:
        nonlocal text
        with urllib.request.urlopen(page, timeout=60) as answer:
            text = answer.read().decode()
        return ticks_on(text) > beyond_ticks

    until(come)
    return text


def ticks_on(text: str) -> int:
    return int(value(text, "skuwise_agent_ticks_total") or 0)


def test_a_taken_port_does_not_stop_the_agent_and_is_kept_as_an_absence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        agent = RunningAgent(tmp_path, SCENARIO, "--listen", str(other.getsockname()[1]), "--duration", "1s")
        agent.said("cannot listen on 127.0.0.1")
        assert agent.process.wait(timeout=60) == 0
        agent.end()
    assert agent.rows("SELECT reason FROM absences WHERE reason = 'not-listening'") == [("not-listening",)]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize("kind", ["full", "hostile", "empty"])
def test_promtool_finds_nothing_wrong_with_the_page(kind: str) -> None:
    totals = {"full": full, "hostile": hostile, "empty": totals_of}[kind]()
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page_text(totals).encode(), capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr + done.stdout) == (0, b"")
