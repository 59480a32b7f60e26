"""What clients that hammer the metrics page cost the agent, and what an honest Prometheus beside them gets.

`skuwise agent run` on the stub's eight GPUs at 1 Hz serves its page; another process asks for it with many clients at
once, as fast as it is answered, in one of several styles:

* quiet: nobody but Prometheus asks;
* connect: a connection for each request, a new one as soon as the answer is there;
* keep-alive: the connection is used again for as long as the server leaves it open, 20 requests in a piece;
* silent: connections that ask nothing, opened anew as soon as they are closed;
* unread: a request for the whole page, of which nothing is read;
* rude: what is no HTTP, and a reset.

Beside each a real Prometheus scrapes every 5 s, three jobs, where it is installed. CPU is of the agent's process
and its children, between two moments; lateness is the agent's own (`agent_stats`), the start included.

Usage: python -m skuwise.benchmarks.performance.agent.metrics_page [SECONDS [CLIENTS [STYLE ...]]], seconds for each.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .stub_node import agent_command, make_node, workers

STYLES = ("quiet", "connect", "keep-alive", "silent", "unread", "rude")
WARM_SECONDS = 5.0
SCRAPE_SECONDS, JOBS = 5, 3
LIMITS = "limits: 3 % of a core, no tick late by more than 100 ms"
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

MODULE = "skuwise.benchmarks.performance.agent.metrics_page"


def ask(style: str, where: tuple[str, int], counted: Counter[str]) -> None:
    """One connection."""
    with socket.create_connection(where, timeout=30) as sock:
        if style == "silent":
            sock.recv(1)
        elif style == "unread":
            sock.sendall(REQUEST)
            time.sleep(0.05)
        elif style == "rude":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
            return
        else:
            while True:
                sock.sendall(REQUEST * (20 if style == "keep-alive" else 1))
                first = sock.recv(65536)
                counted[first[9:12].decode("ascii", "replace") if first else "closed"] += 1
                while piece := sock.recv(1 << 20):
                    pass
                if not piece:
                    return


def hammer(style: str, where: tuple[str, int], seconds: float, clients: int) -> None:
    """Ask until the time is over; prints what came back, as JSON."""
    ends = time.monotonic() + seconds
    counted: Counter[str] = Counter()

    def client() -> None:
        while time.monotonic() < ends:
            counted["connections"] += 1
            try:
                ask(style, where, counted)
            except OSError as error:
                counted[type(error).__name__] += 1

    threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, ends + 5 - time.monotonic()))
    print(json.dumps(counted))


def cpu_seconds(pid: int) -> float:
    """Of a process and its children that ended."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:15])) / _TICKS_PER_SECOND


@contextlib.contextmanager
def prometheus(folder: Path, address: str) -> Iterator[str | None]:
    """The address of a Prometheus that scrapes the page; None where it is not installed."""
    if shutil.which("prometheus") is None:
        yield None
        return
    jobs = [{"job_name": f"job-{n}", "static_configs": [{"targets": [address]}]} for n in range(JOBS)]
    scraping = {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": f"{SCRAPE_SECONDS}s"}
    (folder / "prometheus.yml").write_text(json.dumps({"global": scraping, "scrape_configs": jobs}))
    with socket.create_server(("127.0.0.1", 0)) as sock:
        own = f"127.0.0.1:{sock.getsockname()[1]}"
    command = [
        "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={own}", "--log.level=error",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield own
        finally:
            process.terminate()


def scrapes(own: str) -> str:
    """How the scrapes so far went."""

    def values(name: str) -> list[float]:
        url = f"http://{own}/api/v1/query?{urllib.parse.urlencode({'query': f'{name}[1h]'})}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            rows = json.load(answer)["data"]["result"]
        return [float(value) for row in rows for _, value in row["values"]]

    up, took = values("up"), sorted(values("scrape_duration_seconds"))
    if not up:
        return "no scrape"
    return f"{sum(up):.0f} of {len(up)} scrapes, median {took[len(took) // 2]:.2f} s, longest {took[-1]:.2f} s"


def run(style: str, folder: Path, seconds: float, clients: int, pids: list[int]) -> None:
    environment, sysfs = make_node(folder, pids)
    db = folder / "node.db"
    command = agent_command(sysfs, db, "1s", 3600.0, "--listen", "0")
    agent = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert agent.stderr is not None
    address = next(m[1] for line in agent.stderr if (m := re.search(r"http://(\S+)/metrics", line)))
    host, _, port = address.rpartition(":")
    time.sleep(WARM_SECONDS)
    with prometheus(folder, address) as own:
        time.sleep(WARM_SECONDS)
        before, began = cpu_seconds(agent.pid), time.monotonic()
        came = "{}"
        if style == "quiet":
            time.sleep(seconds)
        else:
            hammering = [sys.executable, "-m", MODULE, "--hammer", style, host, port, str(seconds), str(clients)]
            came = subprocess.run(hammering, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        share = (cpu_seconds(agent.pid) - before) / (time.monotonic() - began)
        rss = int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{agent.pid}/status").read_text())[0]) / 1e3
        scraped = scrapes(own) if own else "prometheus is not installed"
    agent.terminate()
    agent.stderr.read()
    assert agent.wait() == 0
    agent.stderr.close()
    with contextlib.closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as connection:
        worst, missed = connection.execute("SELECT max(late_seconds), sum(missed_ticks) FROM agent_stats").fetchone()
        (ticks,) = connection.execute("SELECT count(*) FROM host_samples").fetchone()
    print(
        f"{style:10} {clients if style != 'quiet' else 0:4} clients: {share:6.2%} of a core, {ticks} ticks, latest "
        f"{worst * 1e3:.0f} ms, {missed} missed, at most {rss:.0f} MB; Prometheus: {scraped}; clients: {came}",
        flush=True,
    )


def main() -> None:
    if sys.argv[1:2] == ["--hammer"]:
        style, host, port, seconds, clients = sys.argv[2:]
        hammer(style, (host, int(port)), float(seconds), int(clients))
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 45.0
    clients = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    for style in sys.argv[3:] or STYLES:
        with tempfile.TemporaryDirectory() as name, workers() as pids:
            run(style, Path(name), seconds, clients, pids)
    print(f"on {os.cpu_count()} cores; {LIMITS}")


if __name__ == "__main__":
    main()
