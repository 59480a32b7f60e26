"""How long ``skuwise doctor --prometheus`` takes on a server that scraped a fleet through exporters, and what it asks.

Fills a real engine as `prometheus_fleet` does, with kube-state-metrics' capacity of
each node beside, and runs the command a few times: the first run finds the engine cold.

    python -m skuwise.benchmarks.performance.advisor.doctor --engine prometheus --nodes 100 --days 7
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

from . import prometheus_fleet as fleet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("prometheus", "victoria-metrics"), default="prometheus")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    engine = fleet.prometheus if options.engine == "prometheus" else fleet.victoria
    end = time.time() // 3600 * 3600
    ts = np.arange(end - options.days * 86400 + fleet.EVERY, end + fleet.EVERY, fleet.EVERY)
    written = fleet.fills(options.nodes, ts, rules=False)
    written[0][0].extend(
        (
            {"__name__": "node_cpu_seconds_total", "cpu": "0", "mode": "idle", "instance": f"gpu-{n:04}:9100"},
            "octets",
            0,
        )
        for n in range(options.nodes)
    )
    command = [sys.executable, "-m", "skuwise", "doctor", "--prometheus"]
    with tempfile.TemporaryDirectory() as folder, engine(Path(folder), written) as (url, process):
        print(
            "engine            nodes  days  by the clock, s  doctor CPU s  engine CPU s  peak MB  queries  answers MB"
        )
        for _ in range(options.runs):
            before, began = sum(process.cpu_times()[:2]), time.monotonic()
            with tempfile.TemporaryFile() as out:
                child = subprocess.Popen(
                    [*command, url, "--since", f"{options.days:g}d", "--format", "json"], stdout=out, env=os.environ
                )
                _, status, usage = os.wait4(child.pid, 0)
                seconds = time.monotonic() - began
                child.returncode = os.waitstatus_to_exitcode(status)
                assert child.returncode == 0, "doctor failed"
                out.seek(0)
                found = json.load(out)
            assert found["summary"]["observed_gpu_count"] == options.nodes * fleet.GPUS
            print(
                f"{options.engine:17} {options.nodes:5} {options.days:5g} {seconds:16.1f} "
                f"{usage.ru_utime + usage.ru_stime:13.1f} {sum(process.cpu_times()[:2]) - before:13.1f} "
                f"{usage.ru_maxrss / 1024:8.0f} {found['source']['queries']:8} "
                f"{found['source']['answer_bytes'] / 1e6:11.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
