"""A week of the agent in minutes: what memory it holds at its end, how much of that it gained, the database's size.

Every tick is made by the agent's own objects in one process, eight GPUs behind the NVML stub, on a clock that moves
only when the loop waits. The minutes are rolled up on a thread at their times; the hours, and retention once an hour
instead of every ten minutes, in processes of their own. A burst, which takes its seconds in truth, comes every
`BURST_EVERY_SECONDS` instead of every 300.

Usage: python -m skuwise.benchmarks.performance.agent.week [DAYS [INTERVAL_SECONDS]].
At 10 s a tenth of the ticks are made and of the rows kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from skuwise.agent.base.retention_limits import Limits
from skuwise.agent.config import AgentConfig
from skuwise.agent.model import Instant
from skuwise.agent.sampler import SamplingLoop
from skuwise.agent.service.exporter.process_stats import resident_bytes
from skuwise.agent.service.runtime.assembly import Agent, assemble
from skuwise.agent.service.runtime.recorder import Recorder
from skuwise.agent.service.runtime.run_database import RunDatabase
from skuwise.agent.store.file.wal import checkpoint
from skuwise.agent.store.retention.retention import RetentionJob
from skuwise.agent.store.rollup.rollups import RollupJob
from skuwise.rules.base.heap import use_one_arena
from skuwise.tests.nvmlstub import StubClock
from skuwise.tests.support.stepped_clock import SteppedClock

T0 = 1_790_002_800.0  # a full hour
BURST_EVERY_SECONDS = 6 * 3600
LIMIT = "limit: 40 MB"

MODULE = "skuwise.benchmarks.performance.agent.week"


class WeekClock(SteppedClock):
    """Moves when waited on, and in real time while `live`. `each_second` is called after every move."""

    def __init__(self, stub: StubClock) -> None:
        super().__init__(T0)
        self._stub = stub
        self._live_since: float | None = None
        self.each_second: Callable[[float], None] = lambda _wall: None

    def live(self, on: bool) -> None:
        if on:
            self._live_since = time.monotonic()
        elif self._live_since is not None:
            passed, self._live_since = time.monotonic() - self._live_since, None
            self.advance(passed)

    def now(self) -> Instant:
        at = super().now()
        if self._live_since is None:
            return at
        passed = time.monotonic() - self._live_since
        self._stub.set(at.monotonic_seconds + passed)
        return Instant(at.wall_seconds + passed, at.monotonic_seconds + passed)

    def cpu_seconds(self) -> float:
        return time.process_time()

    def wait_until(self, monotonic_seconds: float) -> None:
        super().wait_until(monotonic_seconds)
        at = self.now()
        self._stub.set(at.monotonic_seconds)
        self.each_second(at.wall_seconds)


class Jobs:
    """What runs beside the loop, at the times that `service/runtime/jobs.py` names, by the injected clock."""

    def __init__(self, db: Path, agent: Agent, clock: WeekClock) -> None:
        self._db, self._agent, self._clock = db, agent, clock
        self._minutes = RollupJob(db)
        self._thread = ThreadPoolExecutor(1)
        self._before = T0
        self.bursts = 0

    def each_second(self, wall: float) -> None:
        before, self._before = self._before, wall

        def passed(period: float, offset: float) -> bool:
            return (before - offset) // period < (wall - offset) // period

        if passed(60, 17):
            self._thread.submit(self._roll_minutes, wall).result()
        if passed(3600, 47) and wall > T0 + 60:
            subprocess.run([sys.executable, "-m", MODULE, "--jobs", str(self._db), str(wall)], check=True)
        if passed(BURST_EVERY_SECONDS, 131):
            self._clock.live(True)
            self.bursts += len(self._agent.bursts.run()) > 0
            self._clock.live(False)
        if passed(86400, T0 % 86400) or before < T0 + 600 <= wall:
            print(f"  after {(wall - T0) / 86400:.2f} days: RSS {resident_bytes() / 1e6:.1f} MB", flush=True)

    def close(self) -> None:
        self._thread.shutdown()

    def _roll_minutes(self, wall: float) -> None:
        self._minutes.run(wall, periods=("minute",))
        checkpoint(self._db)


def hourly(db: Path, wall: float) -> None:
    RollupJob(db).run(wall)
    RetentionJob(db, Limits(), sleep=lambda _: None).run(wall)


def live(folder: Path, days: float, interval_seconds: float) -> None:
    """The week, in a process that is as the agent's."""
    use_one_arena()
    db = folder / "week.db"
    clock = WeekClock(StubClock(folder / "nvml.clock"))
    config = AgentConfig(db=db, sysfs=folder / "sys", dcgm_url="", interval_seconds=interval_seconds)
    agent = assemble(config, os.environ, clock.now)
    opened = RunDatabase(db, config.limits, lambda: clock.now().wall_seconds)
    with opened.writing():
        recorder = Recorder(
            opened.writer,
            agent.node,
            agent.survey,
            attribution=agent.attribution,
            resurvey=agent.resurvey,
            bursts=agent.bursts,
            ts=T0,
        )
        jobs = Jobs(db, agent, clock)
        clock.each_second = jobs.each_second
        first: list[int] = []

        def resident() -> int:
            first.append(resident_bytes())
            return first[-1]

        began = time.perf_counter()
        loop = SamplingLoop(
            agent.sampler, clock, recorder.keep, recorder.report, resident, duration_seconds=days * 86400
        )
        loop.run()
        took = time.perf_counter() - began
        last = resident_bytes()
        agent.sampler.close()
        jobs.close()
    size = sum(path.stat().st_size for path in folder.glob("week.db*"))
    print(
        f"{days:g} days, {loop.kept} ticks and {jobs.bursts} bursts in {took:.0f} s: RSS {last / 1e6:.1f} MB, "
        f"{(last - first[0]) / 1e6:+.1f} MB since the first minute; database {size / 1e6:.0f} MB"
    )


def main() -> None:
    if sys.argv[1:2] == ["--jobs"]:
        hourly(Path(sys.argv[2]), float(sys.argv[3]))
    elif sys.argv[1:2] == ["--live"]:
        live(Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
    else:
        from .stub_node import make_node, workers  # its imports are not the agent's

        days = float(sys.argv[1]) if len(sys.argv) > 1 else 7.0
        interval = sys.argv[2] if len(sys.argv) > 2 else "1"
        with tempfile.TemporaryDirectory() as name, workers() as pids:
            folder = Path(name)
            environment, _ = make_node(folder, pids)
            environment["SKUWISE_NVML_CLOCK"] = str(StubClock(folder / "nvml.clock").path)
            command = [sys.executable, "-m", MODULE, "--live", str(folder)]
            subprocess.run([*command, "0.001", "1"], env=environment, check=True, capture_output=True)  # compiles
            (folder / "week.db").unlink()
            subprocess.run([*command, str(days), interval], env=environment, check=True)
        print(LIMIT)


if __name__ == "__main__":
    main()
