"""Run the agent while labelled work runs: the experiment behind tests."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skuwise.rules.base.errors import NothingToDo, SourceError

WORKLOADS = Path(__file__).with_name("workloads.py")
_START_SECONDS = 30.0
_EXIT_NOTHING = 3


@dataclass(frozen=True)
class Truth:
    """What a workload printed. `figures`: known without asking the GPU's counters, absent where the work has no such
    figure; `gpu_uuid`: the GPU that worked, None where none did or PyTorch does not say."""

    figures: Mapping[str, float]
    gpu_uuid: str | None

    def per_second(self, *names: str) -> float:
        """The sum of the named figures over the time the work took."""
        return sum(self.figures[name] for name in names) / self.figures["seconds"]


def run_work(name: str, seconds: float, python: str) -> Truth:
    """Run one workload to its end. Raises NothingToDo where it cannot run here, SourceError where it fails."""
    command = [python, str(WORKLOADS), name, "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 300, check=False)
    if done.returncode not in (0, _EXIT_NOTHING):
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        raise SourceError(f"The workload {name} failed: {last[0][:300]}.", f"Try it alone: {' '.join(command)}")
    line: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if "skipped" in line:
        raise NothingToDo(f"The workload {name} cannot run here: {line['skipped']}.", "Name another Python: --python")
    return Truth(line["truth"], line["gpu_uuid"])


@contextmanager
def agent(database: Path, interval_seconds: float) -> Iterator[None]:
    """An agent that samples into `database`, from its first stored tick until the block ends."""
    command = [sys.executable, "-m", "skuwise", "agent", "run", "--db", str(database)]
    command += ["--interval", f"{interval_seconds * 1000:g}ms"]
    log = database.with_suffix(".log")
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        _wait_for_ticks(database, process, log)
        yield
        time.sleep(2 * interval_seconds)  # the tick that ends after the work's last moment
        if process.poll() is not None:
            raise SourceError(f"The agent ended while it was needed: {_tail(log)}", f"Read {log}.")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_ticks(database: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up:
        if process.poll() is not None:
            raise SourceError(f"The agent did not start: {_tail(log)}", f"Read {log}.")
        if _has_ticks(database):
            return
        time.sleep(0.1)
    raise SourceError(f"The agent stored nothing in {_START_SECONDS:g} s: {_tail(log)}", f"Read {log}.")


def _has_ticks(database: Path) -> bool:
    if not database.exists():
        return False
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM host_samples)").fetchone()[0])
    except sqlite3.Error:
        return False  # no tables yet


def _tail(log: Path) -> str:
    return (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1][:300]
