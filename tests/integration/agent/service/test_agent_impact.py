"""`skuwise agent doctor --impact`: real work, a real agent beside it, and what stands in the way of measuring."""

from __future__ import annotations

import json
import os
import random
import shlex
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from skuwise.agent.config import AgentConfig
from skuwise.agent.impact.agent_process import MODES, started_agent
from skuwise.agent.impact.measure import ImpactRequest, measure_impact, run_beside
from skuwise.agent.impact.workload import probe_work, users_work
from skuwise.rules.base.errors import SkuwiseError, SourceError, UsageError
from skuwise.tests.integration.agent.service.test_agent_run import node

SPIN = f"{shlex.quote(sys.executable)} -c 'sum(range(2_000_000))'"
ASKED = ImpactRequest(SPIN, work_prints=False, rounds=1, probe_seconds=0.1)


def measure(asked: ImpactRequest, config: AgentConfig) -> object:
    return measure_impact(asked, config, (), os.environ, say=lambda _: None, rng=random.Random(0), settle_seconds=0)


@pytest.mark.slow
def test_work_runs_beside_a_real_agent_whose_own_cost_is_measured(tmp_path: Path) -> None:
    environment, paths = node(tmp_path, "[gpu 0-7]\nname = NVIDIA H100 80GB HBM3\nsm_active = 0.5\n")
    settings = MODES[-1].settings
    assert settings is not None
    with started_agent(settings, paths, environment) as agent:
        work = users_work(SPIN, is_printed=False)
        run = run_beside(lambda: work.run(environment), agent, settle_seconds=0)
    assert run.seconds > 0 and run.gpus == 8
    assert run.cost is not None
    assert 0 <= run.cost.cpu_share < 2 and 10e6 < run.cost.rss_bytes < 200e6


def test_the_probe_works_about_as_long_as_asked_and_prints_its_time() -> None:
    work = probe_work(0.3, os.environ)
    loops = int(work.command[-2])
    assert work.is_printed and loops >= 1 and "no GPU in it" in work.meaning
    assert 0 < work.run(os.environ) < 60


def test_what_the_work_prints_counts_where_that_is_asked_for() -> None:
    code = "print('loading'); print(12.5)"
    work = users_work(f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}", is_printed=True)
    assert work.run(os.environ) == 12.5


@pytest.mark.parametrize("printed", ["", "soon", "nan", "-1", "inf"])
def test_a_last_line_that_is_no_time_is_refused(printed: str) -> None:
    work = users_work(f"echo {shlex.quote(printed)}", is_printed=True)
    with pytest.raises(SourceError, match="not a number of seconds"):
        work.run(os.environ)


def test_work_that_fails_or_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="exit status 3: it broke"):
        users_work("sh -c 'echo it broke >&2; exit 3'", is_printed=False).run(os.environ)
    with pytest.raises(SourceError, match="cannot be started"):
        users_work(str(tmp_path / "nothing"), is_printed=False).run(os.environ)
    for command in ("", "echo 'open"):
        with pytest.raises(UsageError, match="is not a command"):
            users_work(command, is_printed=False)
    with pytest.raises(UsageError, match="0 rounds"):
        measure(ImpactRequest(SPIN, work_prints=False, rounds=0, probe_seconds=0.1), AgentConfig(db=tmp_path / "n.db"))


def test_beside_an_agent_that_runs_already_nothing_can_be_compared(tmp_path: Path) -> None:
    config = AgentConfig(db=tmp_path / "n.db")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(config.control_socket))
        listener.listen(1)

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(b'{"ok": true, "pid": 4242}\n')

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(SkuwiseError, match="PID 4242"):
            measure(ASKED, config)
        thread.join(10)


def test_an_agent_that_does_not_start_is_a_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(SourceError, match=r"did not start: skuwise: .*nothing\.toml does not exist"),
        started_agent({}, ("--config", str(tmp_path / "nothing.toml")), os.environ),
    ):
        pass


def test_flags_of_the_measurement_alone_are_wrong_usage() -> None:
    command = [sys.executable, "-m", "skuwise", "agent", "doctor", "--work", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--impact" in done.stderr


@pytest.mark.slow
def test_the_command_measures_and_says_what_it_measured(tmp_path: Path) -> None:
    environment, paths = node(tmp_path, "[gpu 0]\nname = NVIDIA H100 80GB HBM3\n")
    command = [sys.executable, "-m", "skuwise", "agent", "doctor", *paths, "--impact", "--rounds", "1", "--work", SPIN]
    done = subprocess.run(
        [*command, "--format", "json"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["gpus"] == 2 and [mode["mode"] for mode in told["modes"]] == ["1 Hz", "burst"]
    assert all(mode["distinguishable"] is None for mode in told["modes"])
    assert "round 1 of 1" in done.stderr
