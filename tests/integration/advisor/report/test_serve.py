"""`skuwise serve` as a program: its children, its page, and how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger
from skuwise.advisor.cli.serve import Job, Schedule, serve_page
from skuwise.advisor.metrics_page import SitePage
from skuwise.agent.base.settings import Address
from skuwise.benchmarks.generators.first import simulate
from skuwise.tests.support.schemas import validate


def test_a_page_whose_address_is_in_use_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = SitePage(tmp_path / "advice.json", list, lambda: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        serve_page(Address("127.0.0.1", taken.getsockname()[1]), page).stop()
    line = capsys.readouterr().err.splitlines()[-1]
    assert "cannot listen" in line and "serve.listen" in line


def test_a_stop_ends_what_runs_and_starts_nothing_more(tmp_path: Path) -> None:
    scheduler, ran = BackgroundScheduler(), tmp_path / "ran"
    schedule = Schedule(scheduler, lambda *_: ["/bin/sh", "-c", f"touch {ran}; exec sleep 600"])
    job = Job("watch", (), IntervalTrigger(hours=1))
    scheduler.start()
    schedule.add(job)
    ends = time.monotonic() + 60
    while not ran.exists() and time.monotonic() < ends:
        time.sleep(0.05)
    schedule.stop()
    assert ran.exists() and not scheduler.running and schedule.watch is not None and schedule.watch.passes == 1
    ran.unlink()
    schedule.work(job)
    assert not ran.exists()


def test_it_answers_over_http_and_a_failing_command_s_sentence_is_passed_on(tmp_path: Path) -> None:
    simulate("idle", tmp_path / "fleet", days=1, until=time.time() // 60 * 60, minutes_seconds=86400)
    (tmp_path / "skuwise").mkdir()
    config = f"[report]\ndb = ['{tmp_path / 'fleet'}']\nsend = false\n[serve]\nreport = false\nwatch = false\n"
    (tmp_path / "skuwise/skuwise.toml").write_text(config)
    (tmp_path / "token").write_text("0123456789abcdef")
    (tmp_path / "token").chmod(0o600)
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    environ["TMPDIR"] = str(tmp_path)
    command = [sys.executable, "-m", "skuwise", "serve", "--listen", "0", "--token-file", str(tmp_path / "token")]
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "metrics at" in line)
        server = line.split()[-1].removesuffix("/metrics")

        def get(path: str, **headers: str) -> tuple[int, dict[str, Any], str]:
            headers = {"Authorization": "Bearer 0123456789abcdef", **headers}
            for _ in range(60):  # the first answer is computed
                try:
                    with urllib.request.urlopen(urllib.request.Request(server + path, headers=headers)) as answer:
                        return answer.status, json.load(answer), answer.headers["ETag"]
                except urllib.error.HTTPError as error:
                    if error.code != 503:
                        return error.code, json.loads(error.read() or b"{}"), ""
                    time.sleep(0.5)
            raise AssertionError(f"{path} is never answered")

        try:
            status, summary, etag = get("/v1/advice")
            assert status == 200 and summary["sections"]["workloads"] > 0
            assert get("/v1/advice", **{"If-None-Match": etag})[0] == 304
            assert get("/v1/advice", Authorization="Bearer 0123456789abcdeX")[0] == 401
            job = get("/v1/advice?section=workloads&limit=1")[1]["workloads"][0]["id"]
            status, card, _ = get(f"/v1/jobs/{job}")
            assert status == 200 and card["id"] == job
            validate(card, "card")
            node = card["nodes"][0]
            status, idle, _ = get(f"/v1/idle/{node}?longer_than=1h")
            assert (status, idle["target"], idle["longer_than_seconds"]) == (200, node, 3600.0)
            validate(idle, "idle")
            (tmp_path / "fleet").rename(tmp_path / "gone")
            status, error, _ = get(f"/v1/idle/{node}?longer_than=2h")
            assert status == 500 and str(tmp_path / "fleet") in error["error"]["message"]
            assert get("/v1/advice")[1]["generated_at"] >= summary["generated_at"]  # the older advice answers
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in errors, errors
    assert not list(tmp_path.glob("skuwise-answers-*"))


def test_it_runs_watch_and_advice_where_a_source_is_configured_until_it_is_asked_to_stop(tmp_path: Path) -> None:
    simulate("idle", tmp_path / "fleet", days=1, until=time.time() // 3600 * 3600, minutes_seconds=86400)
    config = tmp_path / "skuwise/skuwise.toml"
    config.parent.mkdir()
    source, listen = f"[report]\ndb = ['{tmp_path / 'fleet'}']\n", 'listen = "127.0.0.1:0"\n'
    config.write_text(f"{source}[serve]\nreport = false\n{listen}")
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    folder = tmp_path / "state/skuwise"
    with subprocess.Popen([sys.executable, "-m", "skuwise", "serve"], env=environ, stderr=subprocess.PIPE) as process:
        ends = time.monotonic() + 120
        while not (list(folder.glob("*.db")) and (folder / "serve-advice.json").exists()) and time.monotonic() < ends:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    (state,) = folder.glob("*.db")
    assert process.returncode == 0, errors
    assert b"watch: watch --once\n" in errors and b"metrics at" in errors, errors
    assert (folder / "serve-advice.json").exists()
    # A pass that runs as the stop is asked may still say its last words after it.
    assert b"stopping\n" in errors and b"Traceback" not in errors
    assert state.stat().st_mode & 0o777 == 0o600
