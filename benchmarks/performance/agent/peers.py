"""What a reading of eight GPUs costs others: nvitop's and gpustat's own collectors beside our tick, on the same stub.

Both are installed into a virtual environment of their own, which is thrown away. All read the same eight GPUs, each
with a process on it, in a process of their own at the same pace. They do not read the same: nvitop and gpustat ask what
their screens show (utilisation, memory, clocks, power, processes with their owners); we ask GPM, NVLink, energy and
throttling too, but list processes every ten seconds only. So ours is shown twice: the GPUs alone, and the whole tick
with the fabric, the host, the processes when they are due, and the store.

Usage: python -m skuwise.benchmarks.performance.agent.peers [READINGS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path

LOCK = Path(__file__).resolve().parents[3] / "requirements/peers.lock"
GPUS = 8
PACE_SECONDS = 0.5
RUNS = 3


def nvitop() -> Callable[[], object]:
    from nvitop import Device, ResourceMetricCollector  # pyright: ignore[reportMissingImports]

    devices = Device.all()
    assert len(devices) == GPUS and all(device.gpu_utilization() for device in devices)
    collector = ResourceMetricCollector(devices, interval=PACE_SECONDS)
    collector.activate(tag="reading")
    return collector.collect


def gpustat() -> Callable[[], object]:
    from gpustat import GPUStatCollection  # pyright: ignore[reportMissingImports]

    found = list(GPUStatCollection.new_query())
    assert len(found) == GPUS and all(gpu.utilization and gpu.processes for gpu in found)
    return GPUStatCollection.new_query


def ours(*, gpus_alone: bool) -> Callable[[], object]:
    from skuwise.agent.base.clock import SystemClock
    from skuwise.agent.config import AgentConfig
    from skuwise.agent.service.runtime.assembly import assemble
    from skuwise.agent.service.runtime.recorder import Recorder
    from skuwise.agent.service.runtime.run_database import RunDatabase

    folder = Path.cwd()
    config = AgentConfig(db=folder / f"ours-{os.getpid()}.db", sysfs=folder / "sys", dcgm_url="")
    clock = SystemClock()
    agent = assemble(config, os.environ, clock.now)
    if gpus_alone:
        return lambda: agent.drivers.guards[0].read(clock.now())
    opened = RunDatabase(config.db, config.limits, lambda: clock.now().wall_seconds)
    recorder = Recorder(
        opened.writer,
        agent.node,
        agent.survey,
        attribution=agent.attribution,
        resurvey=agent.resurvey,
        bursts=agent.bursts,
        ts=clock.now().wall_seconds,
    )
    agent.sampler.prime(clock.now())
    return lambda: recorder.keep(agent.sampler.sample(clock.now()))


READERS: dict[str, Callable[[], Callable[[], object]]] = {
    "nvitop": nvitop,
    "gpustat": gpustat,
    "skuwise, GPUs alone": lambda: ours(gpus_alone=True),
    "skuwise, whole tick": lambda: ours(gpus_alone=False),
}


def read(name: str, readings: int) -> None:
    """CPU milliseconds of this process for each reading, printed."""
    reading = READERS[name]()
    for _ in range(3):  # imports on first use, caches of devices' names
        reading()
        time.sleep(PACE_SECONDS)
    began = time.process_time()
    for _ in range(readings):
        reading()
        time.sleep(PACE_SECONDS)
    print((time.process_time() - began) / readings * 1e3, flush=True)
    os._exit(0)  # what they left running is not ours to end


def make_venv(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    # The same binding for all: make lock holds it at the version of ours.
    subprocess.run([*install, "-r", str(LOCK)], check=True)
    return python


def main() -> None:
    if sys.argv[1:2] == ["--read"]:
        read(sys.argv[2], int(sys.argv[3]))
        return
    from .stub_node import make_node, workers

    readings = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as name, workers() as pids:
        folder = Path(name)
        environment, _ = make_node(folder, pids)
        peers = make_venv(folder / "peers")
        freeze = subprocess.run(
            [peers, "-m", "pip", "--disable-pip-version-check", "freeze"], check=True, capture_output=True, text=True
        )
        print(", ".join(sorted(freeze.stdout.split())))
        for reader in READERS:
            python = sys.executable if reader.startswith("skuwise") else str(peers)
            costs: list[float] = []
            for _ in range(RUNS):
                done = subprocess.run(
                    [python, __file__, "--read", reader, str(readings)],
                    env=environment, cwd=folder, check=True, capture_output=True, text=True,
                )  # fmt: skip
                costs.append(float(done.stdout.splitlines()[-1]))
            print(
                f"{reader}: {statistics.median(costs):.2f} ms CPU a reading ({min(costs):.2f} to {max(costs):.2f}, "
                f"{RUNS} runs of {readings}, {PACE_SECONDS:g} s apart)",
                flush=True,
            )


if __name__ == "__main__":
    main()
