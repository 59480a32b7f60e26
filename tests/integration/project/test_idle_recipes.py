"""The scripts of deploy/recipes, with stand-ins on the PATH: only an idle answer ever lets one act."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from skuwise.advisor.core.timestamps import rfc3339
from skuwise.advisor.simulate.simulator import simulate
from skuwise.tests.support.pasted_commands import launcher

RECIPES = Path(__file__).parents[3] / "deploy/recipes"
SCRIPTS = sorted(RECIPES.glob("*.sh"))
SOURCE = ("--prometheus", "http://127.0.0.1:9090")
IDLE = "idle: job 4711. 8 GPUs not used for 3.0 h."
BUSY = "busy: job 4711. GPU activity at 2026-11-24 09:00 UTC."
UNKNOWN = "not known: job 4711. No fresh data from one of its nodes."
# What skuwise answers, with its status; the last two are no answers.
NOT_IDLE = [(4, BUSY), (5, UNKNOWN), (3, ""), (1, ""), (0, ""), (0, BUSY)]


class Bench:
    """Stand-ins for programs that note how they were called. `answers`: what skuwise prints and its status, by target;
    an empty name is any other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.calls = folder / "calls"
        self.calls.touch()

    def program(self, name: str, body: str) -> None:
        file = self.bin / name
        file.write_text(f'#!/bin/sh\necho "{name} $*" >>"{self.calls}"\n{body}\n')
        file.chmod(0o755)

    def skuwise(self, status: int, text: str, name: str = "skuwise") -> None:
        self.program(name, f"printf '%s\\n' '{text}'\nexit {status}" if text else f"exit {status}")

    def run(self, script: str, *arguments: str, shell: str = "sh") -> subprocess.CompletedProcess[str]:
        environ = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder)}
        command = [shell, str(RECIPES / script), *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)

    def called(self, name: str) -> list[str]:
        return [line for line in self.calls.read_text().splitlines() if line.split()[0] == name]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def when_idle(bench: Bench, shell: str = "sh") -> subprocess.CompletedProcess[str]:
    bench.program("scancel", "exit 0")
    return bench.run("when-idle.sh", "4711", "2h", *SOURCE, "--", "scancel", "-v", "a b", shell=shell)


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_command_is_run_when_the_workload_is_idle(bench: Bench, shell: str) -> None:
    bench.skuwise(0, IDLE)
    done = when_idle(bench, shell)
    assert (done.returncode, done.stdout) == (0, f"{IDLE}\n")
    assert bench.called("skuwise") == [f"skuwise idle 4711 --longer-than 2h {' '.join(SOURCE)}"]
    assert bench.called("scancel") == ["scancel -v a b"]


@pytest.mark.parametrize(("status", "text"), NOT_IDLE)
def test_nothing_but_an_idle_answer_runs_the_command(bench: Bench, status: int, text: str) -> None:
    bench.skuwise(status, text)
    done = when_idle(bench)
    assert done.returncode == {4: 4, 5: 5, 3: 5}.get(status, 1)
    assert bench.called("skuwise") and not bench.called("scancel")


def by_target(bench: Bench, answers: dict[str, tuple[int, str]]) -> None:
    cases = "\n".join(f"{target}) echo '{text}'; exit {status} ;;" for target, (status, text) in answers.items())
    bench.program("skuwise", f"cat >/dev/null\ncase $2 in\n{cases}\nesac\nexit 3")


JOBS = "1 ann\n2 bob\n3 cy\n4 dee\n; reboot\n5 eve"


def test_the_report_of_slurm_lists_idle_jobs_and_cancels_nothing(bench: Bench) -> None:
    bench.program("squeue", f"printf '%s\\n' '{JOBS}'")
    bench.program("scancel", "exit 0")
    by_target(bench, {"1": (0, IDLE), "2": (4, BUSY), "3": (5, UNKNOWN), "5": (0, IDLE)})
    done = bench.run("slurm-idle-report.sh", "2h", *SOURCE)
    assert done.returncode == 0
    assert done.stdout == f"1\tann\t{IDLE}\n5\teve\t{IDLE}\n"
    assert "not known: 2 jobs" in done.stderr
    assert len(bench.called("skuwise")) == 5 and not bench.called("scancel")


NOTEBOOKS = "team-a nb\nteam-b idle-one\nteam-c gone\n-n all\nteam-d $(reboot)"


def kubectl(bench: Bench) -> None:
    bench.program("kubectl", f"[ \"$1\" != get ] || cat <<'END'\n{NOTEBOOKS}\nEND")


@pytest.mark.parametrize("stop", [False, True])
def test_idle_notebooks_are_stopped_where_that_is_asked_for(bench: Bench, stop: bool) -> None:
    kubectl(bench)
    by_target(bench, {"nb-0": (4, BUSY), "idle-one-0": (0, IDLE)})
    done = bench.run("notebook-culler.sh", *(("--stop",) if stop else ()), "4h", *SOURCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{'stopped' if stop else 'would stop'} team-b/idle-one: {IDLE}\n"
    annotated = [line for line in bench.called("kubectl") if " annotate " in line]
    assert len(annotated) == stop
    for line in annotated:
        assert "notebooks.kubeflow.org idle-one --namespace=team-b kubeflow-resource-stopped=20" in line
    assert [line.split()[2] for line in bench.called("skuwise")] == ["nb-0", "idle-one-0", "gone-0"]
    assert "--selector=skuwise-keep!=true" in bench.called("kubectl")[0]


@pytest.fixture(scope="module")
def idle_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("fleet")
    end = time.time() // 3600 * 3600
    simulate("idle", folder / "fleet", days=1, until=end, minutes_seconds=86400)
    yield folder, rfc3339(end)


def test_the_real_skuwise_is_understood(idle_fleet: tuple[Path, str]) -> None:
    """A node at rest, another that is not there, and wrong usage, each by the program itself."""
    folder, end = idle_fleet
    environ = {**os.environ, "PATH": f"{launcher(folder)}:{os.environ['PATH']}", "HOME": str(folder)}

    def ask(target: str, *more: str) -> tuple[int, bool]:
        ran = folder / "ran"
        ran.unlink(missing_ok=True)
        source = ("--db", str(folder / "fleet"), "--until", end, *more)
        command = ["sh", str(RECIPES / "when-idle.sh"), target, "2h", *source, "--", "touch", str(ran)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
        assert "Traceback" not in done.stderr
        return done.returncode, ran.exists()

    assert ask("spare-01") == (0, True)
    assert ask("no-such-node") == (5, False)
    assert ask("spare-01", "--no-such-option") == (1, False)
