"""A node to measure the agent on: eight busy GPUs behind the NVML stub, eight HCAs, two storage NICs, a real /proc."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from skuwise.tests.nvmlstub import stub_env
from skuwise.tests.support.sysfs_trees import dgx_like, put

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
_SLEEP = "import sys; sys.stdin.read()"  # ends with whoever started it


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
        yield [one.pid for one in running]
    finally:
        for one in running:
            assert one.stdin is not None
            one.stdin.close()
            one.wait()


def agent_command(sysfs: Path, db: Path, interval: str, seconds: float, *more: str) -> list[str]:
    """`skuwise agent run` on that node."""
    command = [sys.executable, "-m", "skuwise", "agent", "run", "--db", str(db), "--interval", interval]
    return [*command, "--duration", f"{seconds:g}s", "--path.sysfs", str(sysfs), *more]
