"""How long a pass of the watch takes on a server that scraped dcgm-exporter and node_exporter only.

Fills a real Prometheus on loopback with nodes of eight GPUs at one sample a minute, a share of which rest, runs
``skuwise watch --once --prometheus`` on it and prints wall time (the engine runs on the same cores), CPU time of both
and the memory of the watcher's process. Hours before the last are read of resting GPUs alone: their share decides.

    python -m skuwise.benchmarks.performance.advisor.watch_prometheus --nodes 125 --idle 0 0.3 1
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from skuwise.benchmarks.performance.advisor.prometheus_fleet import (
    EVERY,
    GPUS,
    VARIANTS,
    Fill,
    prometheus,
    series_of,
    values_of,
)

HOURS = 15.0  # the longest limit and its margin lie within
RESTING = {
    "DCGM_FI_DEV_GPU_UTIL": 0.0, "DCGM_FI_DEV_POWER_USAGE": 118.0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.0,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.0, "DCGM_FI_PROF_DRAM_ACTIVE": 0.0, "DCGM_FI_PROF_PCIE_TX_BYTES": 2e5,
    "DCGM_FI_PROF_PCIE_RX_BYTES": 2e5,
}  # fmt: skip


def filled(nodes: int, idle: float, ts: np.ndarray) -> list[Fill]:
    """A fleet whose first nodes rest."""
    values = values_of(ts)
    for name, level in RESTING.items():
        values[name] = [*values[name], np.full(len(ts), level)]
    resting = {f"GPU-{n:04}-{gpu}" for n in range(round(nodes * idle)) for gpu in range(GPUS)}
    series = [
        (labels, name, VARIANTS if labels.get("UUID") in resting and name in RESTING else variant)
        for labels, name, variant in series_of(nodes)
    ]
    return [(series, values, ts)]


def measure(url: str, folder: Path) -> tuple[float, float, float, dict[str, object]]:
    """Wall and CPU seconds and peak memory (MB) of one pass, and what it found."""
    command = [
        sys.executable, "-m", "skuwise", "watch", "--once", "--prometheus", url, "--format", "json",
        "--state", str(folder / "incidents.db"),
    ]  # fmt: skip
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdout=out, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, "the watch failed"
        out.seek(0)
        found = json.load(out)
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, found


def main() -> None:
    """Fill, look, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=125)
    parser.add_argument("--idle", type=float, nargs="+", default=[0.0, 0.3, 1.0], help="shares of nodes that rest")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    print("GPUs  idle    pass s   its CPU s   engine CPU s   peak MB   incidents")
    for idle in options.idle:
        end = time.time() // 60 * 60
        ts = np.arange(end - HOURS * 3600 + EVERY, end + EVERY, EVERY)
        with (
            tempfile.TemporaryDirectory() as folder,
            prometheus(Path(folder), filled(options.nodes, idle, ts)) as (url, engine),
        ):
            for n in range(options.times):
                own = Path(folder) / f"state{n}"
                own.mkdir()
                before = sum(engine.cpu_times()[:2])
                seconds, cpu, peak, found = measure(url, own)
                engines = sum(engine.cpu_times()[:2]) - before
                incidents = found["incidents"]
                assert isinstance(incidents, list)
                print(
                    f"{options.nodes * GPUS:4} {idle:5.0%} {seconds:9.1f} {cpu:11.1f} {engines:14.1f} {peak:9.0f} "
                    f"{len(incidents):11}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
