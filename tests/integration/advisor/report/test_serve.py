"""`skuwise serve` as a program: its children, its page, and how it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from skuwise.advisor.cli.serve_page import ServedPage
from skuwise.advisor.metrics_page import PageLimits
from skuwise.agent.base.address import Address
from skuwise.benchmarks.generators.first import simulate


def served(folder: Path, said: list[str], port: int = 0) -> ServedPage:
    return ServedPage(
        Address("127.0.0.1", port), advice=folder / "advice.json", incidents=folder / "incidents.db",
        limits=PageLimits(), watch=lambda: None, say=said.append,
    )  # fmt: skip


def test_the_page_is_served_or_says_why_not(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "advice.json").write_text('{"schema": "skuwise.advice/1", ')
    page = served(tmp_path, said)
    page.start()
    try:
        with urllib.request.urlopen(f"http://{page.server.address}/metrics", timeout=10) as answer:
            assert "skuwise_advice_readable 0.0\n" in answer.read().decode()
    finally:
        page.stop()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        page = served(tmp_path, said, taken.getsockname()[1])
        page.start()
        page.stop()
    assert "cannot listen" in said[-1] and "serve.listen" in said[-1]


def test_it_runs_the_watch_where_a_source_is_configured_until_it_is_asked_to_stop(tmp_path: Path) -> None:
    simulate("idle", tmp_path / "fleet", days=1, until=time.time() // 3600 * 3600, minutes_seconds=86400)
    config = tmp_path / "skuwise/skuwise.toml"
    config.parent.mkdir()
    config.write_text(f"[report]\ndb = ['{tmp_path / 'fleet'}']\n[serve]\nreport = false\n")
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    state = tmp_path / "state/skuwise/incidents.db"
    with subprocess.Popen([sys.executable, "-m", "skuwise", "serve"], env=environ, stderr=subprocess.PIPE) as process:
        ends = time.monotonic() + 120
        while not state.exists() and time.monotonic() < ends:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 0 and state.exists(), told
    assert b"watch: watch --once\n" in told and told.endswith(b"stopping\n") and b"Traceback" not in told
    assert state.stat().st_mode & 0o777 == 0o600
