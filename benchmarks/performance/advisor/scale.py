"""Advice over 14 days of 64 nodes of eight GPUs, as a whole process, and whether its cost is linear in the data.

The fleet is simulated once into FOLDER/nodes, a database for each node, and kept there. Its nodes are those of the
scenario `fleet` that have eight GPUs, twice over with different seeds, in an order that keeps jobs of several nodes
together and mixes the kinds. Then the first 8, 16, 32 and 64 nodes are judged.

Usage: python -m skuwise.benchmarks.performance.advisor.scale FOLDER [RUNS]
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from skuwise.advisor.demo import MINUTES_SECONDS
from skuwise.advisor.demo.builder import FleetPlan, PlannedNode
from skuwise.advisor.demo.simulator import node_skus
from skuwise.agent.store.writer import Writer
from skuwise.benchmarks.generators.first import plan
from skuwise.benchmarks.generators.first.builder import Builder
from skuwise.benchmarks.generators.first.writer import write_node

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
DAYS = 14
NODES, GPUS = 64, 8
SIZES = (8, 16, 32, 64)
SEED = 1
# Cost is called linear where a node of the largest fleet costs no more than this over one of half its size, the
# start of Python and its imports left out.
LINEAR_WITHIN = 1.15
LIMIT = "limit for 64 nodes: 15 s on 2 cores, 1 GB"


def make_fleet(start: float, end: float, *, nodes: int = NODES, times: int = 2) -> tuple[FleetPlan, list[PlannedNode]]:
    """The plan and the nodes chosen from it. `times`: how often the scenario is planned, each with its own seed."""
    builder = Builder(node_skus(), SEED, start, end)
    fleet = plan("fleet", builder)
    for more in range(1, times):
        builder.seed = SEED + more
        fleet = plan("fleet", builder)
    groups = together(fleet)
    np.random.default_rng(SEED).shuffle(groups)  # pyright: ignore[reportArgumentType]
    chosen = [node for group in groups for node in group if len(node.sim.gpus) == GPUS]
    assert len(chosen) >= nodes
    return fleet, chosen[:nodes]


def together(fleet: FleetPlan) -> list[list[PlannedNode]]:
    """The nodes in groups that share no workload."""
    group = {node.sim.node.node: {node.sim.node.node} for node in fleet.nodes}
    for placed in fleet.placed:
        joined = set().union(*(group[name] for name in placed.nodes))
        for name in joined:
            group[name] = joined
    by_name = {node.sim.node.node: node for node in fleet.nodes}
    unique = {id(names): sorted(names) for names in group.values()}
    return [[by_name[name] for name in names] for names in sorted(unique.values())]


def write(folder: Path) -> None:
    """A database for each node."""
    start = UNTIL - DAYS * 86400.0
    fleet, nodes = make_fleet(start, UNTIL)
    span = {"seed": SEED, "start": start, "end": UNTIL, "minutes_from": UNTIL - MINUTES_SECONDS}
    for number, node in enumerate(nodes):
        name = node.sim.node.node
        with Writer.open(folder / f"{number:02d}-{name}.db", now=lambda: UNTIL) as writer:
            write_node(writer.for_node(node.sim.node, start), node, fleet.on(name), **span)  # type: ignore[arg-type]


def simulated(folder: Path) -> None:
    """Make the databases, unless a run before did."""
    done = folder / "done"
    if done.exists():
        return
    (folder / "nodes").mkdir(parents=True)
    began = time.perf_counter()
    write(folder / "nodes")
    done.touch()
    print(f"simulated in {time.perf_counter() - began:.0f} s")


def advise(databases: list[Path]) -> tuple[float, float, float, int]:
    """CPU seconds and wall seconds of one run with its children, the most memory they held together (MiB), and bytes
    printed."""
    command = [sys.executable, "-m", "skuwise", "advise", "--format", "json"]
    for path in databases:
        command += ["--db", str(path)]
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        most, ended, status, usage = 0.0, 0, 0, None
        while not ended:
            most = max(most, resident(child.pid))
            ended, status, usage = os.wait4(child.pid, os.WNOHANG)
            time.sleep(0 if ended else 0.02)
        wall = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, command
        out.seek(0)
        text = out.read()
    assert usage is not None
    assert b'"schema": "skuwise.advice/1"' in text
    return usage.ru_utime + usage.ru_stime, wall, most, len(text)


def resident(pid: int) -> float:
    """MiB that a process and its children hold; pages that two share count twice."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20 + sum(resident(int(child)) for child in children)


def measured(databases: list[Path], runs: int) -> tuple[float, float, float, int]:
    taken = [advise(databases) for _ in range(runs)]
    cpu, wall, memory, size = zip(*taken, strict=True)
    return statistics.median(cpu), statistics.median(wall), max(memory), size[0]


def main() -> None:
    folder = Path(sys.argv[1])
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    simulated(folder)
    files = sorted((folder / "nodes").glob("*.db"))
    assert len(files) == NODES
    print(f"{runs} runs each, medians; {sum(f.stat().st_size for f in files) / 1e6:.0f} MB in {NODES} files")
    cost = {}
    for size in SIZES:
        cpu, wall, memory, printed = measured(files[:size], runs)
        cost[size] = cpu
        print(
            f"{size:3d} nodes, a file each: {cpu:6.2f} s of CPU, {wall:6.2f} s, peak {memory:4.0f} MiB, "
            f"{printed / 1e6:.1f} MB of JSON"
        )
    # Two sizes give the cost of a start and of a node; the largest is compared with that line.
    small, half, whole = SIZES[0], SIZES[-2], SIZES[-1]
    a_node = (cost[half] - cost[small]) / (half - small)
    growth = (cost[whole] - cost[half]) / (whole - half) / a_node
    print(
        f"a node: {a_node:.3f} s of CPU from {small} to {half} nodes, {a_node * growth:.3f} s from {half} to {whole}: "
        f"{'linear' if growth <= LINEAR_WITHIN else 'NOT linear'} ({growth:.2f} times, {LINEAR_WITHIN} allowed)"
    )
    print(LIMIT)


if __name__ == "__main__":
    main()
