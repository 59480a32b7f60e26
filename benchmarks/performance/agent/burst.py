"""What a burst costs, on a node of eight GPUs behind the NVML stub and eight HCAs, and what it does to the ticks.

Two runs of the real reading half in processes of their own, of the same length: ticks at 1 Hz alone, and with a burst
all the time. The burst's CPU is the difference, by the process's own clock: its readings, its hand-overs and what is
made of them. A tick's delay is how long its reading of the driver took, with and without.

Usage: python -m skuwise.benchmarks.performance.agent.burst [SECONDS]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from skuwise.agent.base.clock import SystemClock
from skuwise.agent.config import AgentConfig
from skuwise.agent.service.runtime.assembly import assemble
from skuwise.agent.statistics.burst_stats import Burst

from .stub_node import make_node

MODULE = "skuwise.benchmarks.performance.agent.burst"


@dataclass(frozen=True)
class Cost:
    """CPU seconds, how long each tick's reading took in ms, and the readings of each GPU's burst."""

    cpu_seconds: float
    ticks_ms: list[float]
    readings: list[int]


def measure(sysfs: Path, seconds: float, *, burst: bool) -> Cost:
    clock = SystemClock()
    config = AgentConfig(sysfs=sysfs, dcgm_url="", burst_seconds=seconds)
    agent = assemble(config, {}, clock.now)
    agent.sampler.prime(clock.now())
    told: list[Burst] = []
    thread = threading.Thread(target=lambda: told.extend(agent.bursts.run()), daemon=True)
    cpu = time.process_time()
    if burst:
        thread.start()
    ticks: list[float] = []
    began = clock.now().monotonic_seconds
    for number in range(1, int(seconds) + 1):
        clock.wait_until(began + number)
        start = time.perf_counter()
        agent.sampler.sample(clock.now())
        ticks.append((time.perf_counter() - start) * 1e3)
    if burst:
        thread.join()
    spent = time.process_time() - cpu
    agent.sampler.close()
    return Cost(spent, ticks, [one.n for one in told])


def run(environment: dict[str, str], sysfs: Path, seconds: float, kind: str) -> Cost:
    command = [sys.executable, "-m", MODULE, "--measure", str(sysfs), str(seconds), kind]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return Cost(**json.loads(done.stdout))


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] == "--measure":
        print(json.dumps(asdict(measure(Path(sys.argv[2]), float(sys.argv[3]), burst=sys.argv[4] == "burst"))))
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else AgentConfig().burst_seconds
    with tempfile.TemporaryDirectory() as name:
        environment, sysfs = make_node(Path(name))
        alone = [run(environment, sysfs, seconds, "ticks") for _ in range(3)]
        beside = [run(environment, sysfs, seconds, "burst") for _ in range(3)]
    cpu, cpu_alone = (median(one.cpu_seconds for one in runs) for runs in (beside, alone))
    config = AgentConfig()
    cost = (cpu - cpu_alone) / seconds * config.burst_seconds
    print(f"a burst of {config.burst_seconds:g} s: {cost * 1e3:.0f} ms CPU; {len(beside[0].readings)} GPUs,")
    print(f"  at least {min(beside[0].readings)} readings of each in {seconds:g} s;")
    print(f"  one every {config.burst_every_seconds:g} s: {cost / config.burst_every_seconds:.3%} of a core")
    for name, runs in (("alone", alone), ("beside a burst", beside)):
        ticks = [tick for one in runs for tick in one.ticks_ms]
        print(f"  a tick's reading {name}: median {median(ticks):.1f} ms, longest {max(ticks):.1f} ms")
    print(f"on {os.cpu_count()} cores, Python {sys.version.split()[0]}; limit: 0.5 % of a core for all the agent does")


if __name__ == "__main__":
    main()
