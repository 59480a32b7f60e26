"""A node to measure the agent on: eight busy GPUs behind the NVML stub, eight HCAs, two storage NICs, a real /proc."""

from __future__ import annotations

from pathlib import Path

from skuwise.tests.nvmlstub import stub_env
from skuwise.tests.trees import dgx_like, put

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


def bus_ids_in_scenario(bus_ids: list[str]) -> str:
    """The scenario with each GPU at the bus id that the sysfs tree gives it."""
    return SCENARIO + "".join(f"[gpu {i}]\nbus_id = {bus_id}\n" for i, bus_id in enumerate(bus_ids))


def make_node(folder: Path) -> tuple[dict[str, str], Path]:
    """Build the node in `folder`: the environment that a process on it sees, and its sysfs."""
    tree, bus_ids = dgx_like(folder / "sys")
    for i in range(8):
        put(folder / "sys" / "block" / f"nvme{i}n1" / "device" / "model", "disk")
    del tree
    return stub_env(folder, bus_ids_in_scenario(bus_ids)), folder / "sys"
