"""How punctual the ticks are while everything else runs: rollups of minutes and hours, retention, bursts.

The agent's own loop, store and jobs run in one process on the stub's eight GPUs, into a database that holds hours of
raw samples, half of them too old, so that retention has work. Each job is run again some seconds after it ended, far
more often than in truth. Every tick's lateness is kept: from when it was due to when it began.

Usage: python -m skuwise.benchmarks.performance.agent.lateness [SECONDS]: for each interval.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from skuwise.agent.base.clock import SystemClock
from skuwise.agent.base.retention_limits import Limits
from skuwise.agent.config import AgentConfig
from skuwise.agent.model import PERIOD_SECONDS, Period
from skuwise.agent.sampler import SamplingLoop
from skuwise.agent.service.exporter.process_stats import resident_bytes
from skuwise.agent.service.runtime.assembly import assemble
from skuwise.agent.service.runtime.jobs import prune, roll_all, roll_minutes, take_burst
from skuwise.agent.service.runtime.recorder import Recorder
from skuwise.agent.service.runtime.run_database import RunDatabase
from skuwise.agent.store.rollup.rollups import RollupJob
from skuwise.rules.base.heap import use_one_arena

LIMIT = "limit: p99 under 20 ms"
RAW_HOURS = 4.0  # of seconds before the run
KEPT = Limits(raw_seconds=2 * 3600)

MODULE = "skuwise.benchmarks.performance.agent.lateness"


class WatchedClock(SystemClock):
    """Remembers by how much each wait was overslept."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[float] = []

    def wait_until(self, monotonic_seconds: float) -> None:
        super().wait_until(monotonic_seconds)
        self.late.append(self.now().monotonic_seconds - monotonic_seconds)


class Beside:
    """Runs a job again and again on a thread of its own."""

    def __init__(self, name: str, job: Callable[[], object], pause_seconds: float) -> None:
        self.name, self.runs = name, 0
        self._job, self._pause, self._ended = job, pause_seconds, threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()

    def join(self) -> None:
        self._thread.join()

    def _work(self) -> None:
        while not self._ended.wait(self._pause):
            self._job()
            self.runs += 1


def live(folder: Path, interval: float, seconds: float) -> None:
    """The agent with its jobs, in a process as the agent's."""
    use_one_arena()
    db = folder / f"late-{interval:g}.db"
    clock = WatchedClock()
    config = AgentConfig(db=db, sysfs=folder / "sys", dcgm_url="", interval_seconds=interval, limits=KEPT)
    agent = assemble(config, os.environ, clock.now)
    opened = RunDatabase(db, config.limits, lambda: clock.now().wall_seconds)
    minutes = RollupJob(db)
    with opened.writing():
        recorder = Recorder(
            opened.writer,
            agent.node,
            agent.survey,
            attribution=agent.attribution,
            resurvey=agent.resurvey,
            bursts=agent.bursts,
            ts=clock.now().wall_seconds,
        )
        opened.writer.commit()
        beside = (
            Beside("minutes", lambda: roll_again(db, "minute", lambda: roll_minutes(minutes, print)), 1.0),
            Beside("hours", lambda: roll_again(db, "hour", lambda: roll_all(db, print)), 5.0),
            Beside("retention", lambda: prune(db, KEPT, print), 5.0),
            Beside("bursts", lambda: take_burst(agent.bursts, print), 0.5),
        )
        SamplingLoop(
            agent.sampler, clock, recorder.keep, recorder.report, resident_bytes, duration_seconds=seconds
        ).run()
        late = sorted(clock.late)
        for one in beside:
            one.end()
        agent.bursts.stop()
        for one in beside:
            one.join()
        agent.sampler.close()
    with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as connection:
        missed, worst = connection.execute("SELECT sum(missed_ticks), max(late_seconds) FROM agent_stats").fetchone()
    p50, p99 = (late[int(share * (len(late) - 1))] * 1e3 for share in (0.5, 0.99))
    runs = ", ".join(f"{one.runs} {one.name}" for one in beside)
    print(
        f"interval {interval:g} s, {len(late)} ticks: late p50 {p50:.2f} ms, p99 {p99:.2f} ms, "
        f"longest {late[-1] * 1e3:.1f} ms (agent_stats {worst * 1e3:.1f} ms); {missed} missed; beside: {runs}",
        flush=True,
    )


def roll_again(db: Path, period: Period, roll: Callable[[], object]) -> None:
    """Roll up the last period as if it were new."""
    with closing(sqlite3.connect(db, timeout=5)) as connection, connection:
        connection.execute(
            "UPDATE rollup_progress SET done_to = done_to - ? WHERE period = ?", (PERIOD_SECONDS[period], period)
        )
    roll()


def fill(db: Path) -> None:
    """Hours of raw samples up to now, of the node that the agent will find itself on."""
    from .storage import begin, ticks

    seconds = int(RAW_HOURS * 3600)
    writer, node = begin(db)
    node.put_ticks(ticks(time.time() - seconds, seconds - 30, 1.0))
    writer.close()
    RollupJob(db).run(time.time())


def main() -> None:
    if sys.argv[1:2] == ["--live"]:
        live(Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
        return
    from .stub_node import make_node, workers

    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as name, workers() as pids:
        folder = Path(name)
        environment, _ = make_node(folder, pids)
        for interval in (1.0, 0.1):
            fill(folder / f"late-{interval:g}.db")
            command = [sys.executable, "-m", MODULE, "--live", str(folder), str(interval), str(seconds)]
            subprocess.run(command, env=environment, check=True)
    print(f"on {os.cpu_count()} cores; {LIMIT}")


if __name__ == "__main__":
    main()
