"""How long a pass of the watch takes over node databases, as a whole process.

Simulates nodes of eight GPUs (the scenario ``fleet`` as often as it takes, each time with its own seed) into FOLDER,
where they are kept for another run, then runs ``skuwise watch --once`` on them. Prints wall time, CPU time with that of
the reading processes, and the most memory they held together.

    python -m skuwise.benchmarks.performance.advisor.watch_databases FOLDER --nodes 125
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

from skuwise.advisor.core.timestamps import rfc3339
from skuwise.advisor.demo.writer import write_node
from skuwise.agent.store.writing.writer import Writer
from skuwise.benchmarks.performance.advisor.scale import SEED, UNTIL, make_fleet, resident, yardstick

DAYS, MINUTES_HOURS = 2, 16


def simulated(folder: Path, nodes: int) -> list[Path]:
    """A database for each node; those of a run before are used again."""
    made = folder / f"nodes-{nodes}"
    if not made.exists():
        partial = folder / f"partial-{nodes}"
        partial.mkdir(parents=True)
        start = UNTIL - DAYS * 86400.0
        fleet, chosen = make_fleet(start, UNTIL, nodes=nodes, times=-(-nodes // 30))
        for number, node in enumerate(chosen):
            writer = Writer.open(partial / f"{number:03d}.db", now=lambda: UNTIL)
            write_node(
                writer.for_node(node.sim.node, start), node, fleet.on(node.sim.node.node), seed=SEED, start=start,
                end=UNTIL, minutes_from=UNTIL - MINUTES_HOURS * 3600.0, samples_from=UNTIL,
            )  # fmt: skip
            writer.close()
        partial.rename(made)
    return sorted(made.glob("*.db"))


def look(databases: Path) -> tuple[float, float, float, dict[str, object]]:
    """Wall and CPU seconds of one pass, the most memory (MiB), and what it printed."""
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryFile() as out:
        command = [
            sys.executable, "-m", "skuwise", "watch", "--once", "--db", str(databases), "--format", "json",
            "--state", f"{state}/incidents.db", "--until", rfc3339(UNTIL),
        ]  # fmt: skip
        began = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        most, ended, status, usage = 0.0, 0, 0, None
        while not ended:
            most = max(most, resident(child.pid))
            ended, status, usage = os.wait4(child.pid, os.WNOHANG)
            time.sleep(0 if ended else 0.02)
        wall = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, "the watch failed"
        assert usage is not None
        out.seek(0)
        return wall, usage.ru_utime + usage.ru_stime, most, json.load(out)


def main() -> None:
    """Simulate, look, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=125)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    files = simulated(options.folder, options.nodes)
    size = sum(file.stat().st_size for file in files) / 1e6
    print(f"{len(files)} nodes of 8 GPUs, {size:.0f} MB; ten million additions: {yardstick():.2f} s of CPU")
    for _ in range(options.times):
        wall, cpu, most, found = look(files[0].parent)
        incidents = found["incidents"]
        assert isinstance(incidents, list)
        print(
            f"{wall:6.2f} s, {cpu:6.2f} s of CPU, peak {most:4.0f} MiB, {found['workloads']} workloads, "
            f"{len(incidents)} incidents",
            flush=True,
        )


if __name__ == "__main__":
    main()
