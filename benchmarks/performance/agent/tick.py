"""What watching costs on a node of eight GPUs behind the NVML stub: a tick, everything, the start, and memory.

`skuwise agent run` is run for real, in a process that reads its own threads' clocks (`observed_run.py`):

* the tick's path: the loop's thread and the driver's, with nothing but NVML, GPM, NVLink, the HCAs, the host and the
  store; the median of several runs;
* all included: every thread, with a process on each GPU, an inference server's page read every 10 s, the own page
  scraped every 60 s, bursts and the minutes' rollups; jobs that run every hour or every ten minutes in processes of
  their own are given beside it;
* the start: from exec to the line that says it samples, the best of all runs.

Usage: python -m skuwise.benchmarks.performance.agent.tick [SECONDS], of the run that has all in it; a burst
comes every 300 s.
"""

import contextlib
import json
import os
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skuwise.tests.nvmlstub import stub_env
from skuwise.tests.support.metrics_fixtures import VLLM, serving
from skuwise.tests.support.sysfs_trees import dgx_like, put

WARM_SECONDS = 5.0  # imports and first readings are over
ALONE_SECONDS = 20.0
RUNS = 3
LIMITS = "limits: 1.0 ms a tick, 0.5 % of a core, 0.5 s to start, 40 MB"
SCENARIO = """
[gpu 0-7]
name = NVIDIA H100 80GB HBM3
nvlink_links = 18
gpu_util = 0.98 5:0.97 10:0.99 15:0.96 20:0.98
sm_active = 0.81 2:0.78 4:0.83 6:0.79 8:0.80 10:0.77
sm_occupancy = 0.31
tensor_active = 0.52 3:0.49 6:0.55 9:0.51
dram_active = 0.43 3:0.41 6:0.46
fp64_active = 0.001
fp32_active = 0.12
fp16_active = 0.013
mem_used_bytes = 68719476736
power_watts = 612 4:640 8:590
temperature_celsius = 61
throttle_reasons = 0x4
pcie_tx_bytes_per_second = 3e9
pcie_rx_bytes_per_second = 12e9
nvlink_tx_bytes_per_second = 180e9
nvlink_rx_bytes_per_second = 170e9
"""
_SLEEP = "import sys; sys.stdin.read()"  # ends with its parent


def scenario(bus_ids: Sequence[str], pids: Sequence[int] = ()) -> str:
    """The scenario with each GPU at the bus id that the sysfs tree gives it, and one of `pids` on each."""
    text = SCENARIO
    for i, bus_id in enumerate(bus_ids):
        text += f"[gpu {i}]\nbus_id = {bus_id}\n"
        if pids:
            text += f"process = {pids[i % len(pids)]} 68000000000\n"
    return text


def make_node(folder: Path, pids: Sequence[int] = ()) -> tuple[dict[str, str], Path]:
    """Build the node in `folder`: the environment that a process on it sees, and its sysfs.

    Python's compiled files go below `folder` too: an installed agent has them, a checkout may not.
    """
    _, bus_ids = dgx_like(folder / "sys")
    for i in range(8):
        put(folder / "sys" / "block" / f"nvme{i}n1" / "device" / "model", "disk")
    environment = stub_env(folder, scenario(bus_ids, pids))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "pyc")
    return environment, folder / "sys"


@contextlib.contextmanager
def workers(count: int = 8) -> Iterator[list[int]]:
    """PIDs of processes that do nothing, for GPUs to run."""
    running = [subprocess.Popen([sys.executable, "-c", _SLEEP], stdin=subprocess.PIPE) for _ in range(count)]
    try:
        yield [process.pid for process in running]
    finally:
        for process in running:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def agent_command(sysfs: Path, db: Path, interval: str, seconds: float, *more: str) -> list[str]:
    """`skuwise agent run` on that node."""
    command = [sys.executable, "-m", "skuwise", "agent", "run", "--db", str(db), "--interval", interval]
    return [*command, "--duration", f"{seconds:g}s", "--path.sysfs", str(sysfs), *more]


@dataclass(frozen=True)
class Observed:
    """One run: CPU seconds by thread between two moments, and what the database says."""

    seconds: float
    path: float
    process: float
    children: float
    rss_bytes: int
    ticks: int
    start_seconds: float


def run(command: list[str], environment: Mapping[str, str], db: Path, seconds: float) -> Observed:
    """`command` is the agent's; it samples for longer than `seconds`."""
    observer = [sys.executable, "-m", "skuwise.benchmarks.performance.agent.observed_run", str(WARM_SECONDS)]
    observer += [str(WARM_SECONDS + seconds), *command[3:]]
    began = time.perf_counter()
    process = subprocess.Popen(
        observer, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=db.parent
    )
    assert process.stderr is not None
    first = next((line for line in process.stderr if "sampling" in line), "")
    start_seconds = time.perf_counter() - began
    said, rest = process.communicate()
    assert process.returncode == 0 and "8 GPUs" in first, first + rest
    used = json.loads(said.splitlines()[-1])
    with contextlib.closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as connection:
        ticks_kept, span = connection.execute("SELECT count(*), max(ts) - min(ts) FROM host_samples").fetchone()
    kept = round((ticks_kept - 1) / span * used["at"])
    path = used["loop"] + used["driver"]
    return Observed(used["at"], path, used["process"], used["children"], int(used["rss_bytes"]), kept, start_seconds)


def alone(environment: Mapping[str, str], sysfs: Path, folder: Path, interval: str) -> list[Observed]:
    rows = []
    for number in range(RUNS):
        db = folder / f"alone-{interval}-{number}.db"
        rows.append(run(agent_command(sysfs, db, interval, ALONE_SECONDS + 7), environment, db, ALONE_SECONDS))
    return rows


@contextlib.contextmanager
def scraped(port: int, every_seconds: float) -> Iterator[list[int]]:
    """The sizes of the pages that a scraper got from the agent."""
    sizes: list[int] = []
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(every_seconds):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
                sizes.append(len(page.read()))

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield sizes
    finally:
        ended.set()
        thread.join()


def all_included(folder: Path, compiled: str, seconds: float) -> tuple[Observed, int, int]:
    """The run, how often the agent read the server's page, and how often its own was read."""
    inner = folder / "all"
    inner.mkdir()
    db = inner / "all.db"
    page = VLLM.format(running=3, preemptions=1, prompt=900, generated=800, first=7, first_sum=0.5)
    with workers() as pids, serving(page) as (url, asked):
        environment, sysfs = make_node(inner, pids)
        environment["PYTHONPYCACHEPREFIX"] = compiled
        environment["SKUWISE_SERVING_ENDPOINTS"] = url
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = agent_command(sysfs, db, "1s", seconds + 7, "--listen", f"127.0.0.1:{port}")
        with scraped(port, 60.0) as sizes:
            return run(command, environment, db, seconds), len(asked), len(sizes)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 310.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment, sysfs = make_node(folder)
        os.environ["PYTHONPYCACHEPREFIX"] = environment["PYTHONPYCACHEPREFIX"]
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        compiled = folder / "compiled.db"  # as installed: Python's files are compiled before anything is measured
        subprocess.run(
            agent_command(sysfs, compiled, "1s", 3), env=environment, check=True, capture_output=True, cwd=folder
        )
        starts: list[float] = []
        for interval in ("1s", "0.1s"):
            measured = alone(environment, sysfs, folder, interval)
            starts += [observed.start_seconds for observed in measured]
            costs = sorted(observed.path / observed.ticks * 1e3 for observed in measured)
            print(
                f"tick path alone, interval {interval}: {statistics.median(costs):.2f} ms CPU a tick "
                f"({costs[0]:.2f} to {costs[-1]:.2f}, {RUNS} runs); RSS {measured[0].rss_bytes / 1e6:.1f} MB",
                flush=True,
            )
        whole, read, scrapes = all_included(folder, environment["PYTHONPYCACHEPREFIX"], seconds)
        share = whole.process / whole.seconds
        print(
            f"all included, interval 1s: {share:.2%} of a core over {whole.seconds:.0f} s "
            f"({whole.path / whole.ticks * 1e3:.2f} ms a tick in the loop's and the driver's threads, "
            f"{(whole.process - whole.path) / whole.ticks * 1e3:.2f} ms in the others); beside it "
            f"{whole.children:.2f} s of jobs in processes of their own; "
            f"{read} pages read, {scrapes} scrapes; RSS {whole.rss_bytes / 1e6:.1f} MB"
        )
        print(f"start to sampling {min(starts):.2f} s")
    print(f"on {os.cpu_count()} cores, Python {sys.version.split()[0]}; {LIMITS}")


if __name__ == "__main__":
    main()
