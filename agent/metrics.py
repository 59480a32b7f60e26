"""What is measured, in which unit and step it is kept, and the bins in which the hours count it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing that is measured.

    `quantum` is the step in which the store keeps it: the stored integer times `quantum` is the value in `unit`.
    `sources` are the fields it may come from, best first. A reading below 0 or above `most` (in `unit`) is impossible:
    it is missing, `out-of-range`, and counted.
    """

    name: str
    unit: str
    quantum: float
    meaning: str
    sources: tuple[str, ...]
    rolled_up: bool = True
    most: float = math.inf


_RATIO = 1e-4
_KIB = 1024.0
# 100 TB/s: no link or disk of a node comes near.
_FASTEST = 1e14


def _ratio(name: str, meaning: str, *sources: str) -> Metric:
    return Metric(name, "ratio", _RATIO, meaning, sources, most=1.0)


def _rate(name: str, meaning: str, *sources: str) -> Metric:
    return Metric(name, "bytes per second", _KIB, meaning, sources, most=_FASTEST)


def _port(name: str, meaning: str, counter: str) -> Metric:
    sources = (f"{counter} x 4 (Omni-Path x 8)", "EFA hw_counters")
    return Metric(name, "bytes per second", 64.0, meaning, sources, most=_FASTEST)


def _served(name: str, unit: str, quantum: float, meaning: str, most: float = 1e9) -> Metric:
    return Metric(name, unit, quantum, meaning, ("the server's page",), rolled_up=False, most=most)


GPU_METRICS: tuple[Metric, ...] = (
    _ratio(
        "gpu_util",
        "share of time at least one kernel ran, however little of the GPU it used",
        "nvmlDeviceGetUtilizationRates.gpu",
    ),
    _ratio("sm_active", "share of time an SM had a warp resident, averaged over the SMs", "GPM SM_UTIL", "DCGM 1002"),
    _ratio(
        "sm_occupancy", "resident warps over the most that fit, averaged over the SMs", "GPM SM_OCCUPANCY", "DCGM 1003"
    ),
    _ratio("tensor_active", "share of cycles the tensor pipe was active", "GPM ANY_TENSOR", "DCGM 1004"),
    _ratio("dram_active", "HBM or GDDR bandwidth used over its peak", "GPM DRAM_BW_UTIL", "DCGM 1005"),
    _ratio("fp64_active", "share of cycles the FP64 pipe was active", "GPM FP64", "DCGM 1006"),
    _ratio("fp32_active", "share of cycles the FP32 pipe was active", "GPM FP32", "DCGM 1007"),
    _ratio("fp16_active", "share of cycles the FP16 pipe was active (tensor not included)", "GPM FP16", "DCGM 1008"),
    Metric(
        "mem_used_bytes",
        "bytes",
        _KIB,
        "memory allocated, the driver's reserve not included",
        ("nvmlDeviceGetMemoryInfo_v2.used",),
        most=1e13,
    ),
    Metric(
        "power_watts",
        "watts",
        0.1,
        "mean power over the interval (energy counter), else the driver's power reading",
        ("NVML field 83", "nvmlDeviceGetPowerUsage"),
        most=10_000.0,
    ),
    Metric("energy_joules", "joules", 0.1, "energy drawn in the interval", ("NVML field 83",)),
    Metric("sm_clock_hertz", "hertz", 1e6, "SM clock", ("nvmlDeviceGetClockInfo SM",), most=1e10),
    Metric("mem_clock_hertz", "hertz", 1e6, "memory clock", ("nvmlDeviceGetClockInfo MEM",), most=1e10),
    Metric("temperature_celsius", "celsius", 1.0, "GPU temperature", ("nvmlDeviceGetTemperature",), most=150.0),
    Metric(
        "throttle_reasons",
        "bitmask",
        1.0,
        "NVML's clocks-event-reasons bitmask at the end of the interval",
        ("nvmlDeviceGetCurrentClocksEventReasons",),
        rolled_up=False,
    ),
    _rate("pcie_tx_bytes_per_second", "PCIe traffic sent by the GPU", "GPM PCIE_TX", "NVML field 197", "DCGM 1009"),
    _rate("pcie_rx_bytes_per_second", "PCIe traffic received by the GPU", "GPM PCIE_RX", "NVML field 198", "DCGM 1010"),
    _rate(
        "nvlink_tx_bytes_per_second",
        "NVLink traffic sent, all links",
        "GPM NVLINK_TOTAL_TX",
        "NVML field 138",
        "DCGM 1011",
    ),
    _rate(
        "nvlink_rx_bytes_per_second",
        "NVLink traffic received, all links",
        "GPM NVLINK_TOTAL_RX",
        "NVML field 139",
        "DCGM 1012",
    ),
)

FABRIC_METRICS: tuple[Metric, ...] = (
    _port("tx_bytes_per_second", "traffic sent by the port (RDMA only on RoCE)", "port_xmit_data"),
    _port("rx_bytes_per_second", "traffic received by the port (RDMA only on RoCE)", "port_rcv_data"),
    Metric(
        "xmit_wait_per_second",
        "ticks per second",
        1.0,
        "ticks in which the port had data to send but no credit (congestion)",
        ("port_xmit_wait",),
    ),
)

HOST_METRICS: tuple[Metric, ...] = (
    _ratio("cpu_util", "share of all CPU time not idle and not waiting for IO", "/proc/stat"),
    _ratio("io_wait", "share of all CPU time spent waiting for IO", "/proc/stat"),
    Metric("mem_used_bytes", "bytes", _KIB, "MemTotal - MemAvailable", ("/proc/meminfo",), most=1e15),
    _rate("disk_read_bytes_per_second", "read from physical disks", "/proc/diskstats"),
    _rate("disk_write_bytes_per_second", "written to physical disks", "/proc/diskstats"),
)

# What local inference servers report, each over the time between two readings of their page.
SERVING_METRICS: tuple[Metric, ...] = (
    _served("kv_cache_usage", "ratio", _RATIO, "share of the KV cache's blocks in use", 1.0),
    _served("requests_running", "requests", 1.0, "requests being worked on"),
    _served("requests_waiting", "requests", 1.0, "requests waiting to be taken up"),
    _served("prompt_tokens_per_second", "tokens per second", 0.1, "prompt tokens taken in"),
    _served("generation_tokens_per_second", "tokens per second", 0.1, "tokens generated"),
    _served(
        "time_to_first_token_seconds",
        "seconds",
        1e-4,
        "mean over the requests that got their first token in the interval",
    ),
    _served(
        "preemptions_per_second", "requests per second", 1e-3, "requests evicted from the KV cache because it was full"
    ),
    _served(
        "time_per_output_token_seconds",
        "seconds",
        1e-5,
        "mean over the tokens after the first that were given out in the interval (TGI: over its requests)",
    ),
    _served("requests_per_second", "requests per second", 1e-3, "requests answered"),
)


@dataclass(frozen=True, slots=True)
class Integral:
    """How the metrics page has one metric: its integral over time, in `unit` (`total`), the seconds behind it
    (`observed`), and what it is now, in `gauge_unit` (`gauge`; both empty: its counter's rate shows the same).

    Names are those of the series, as PromQL has them.
    """

    metric: str
    meaning: str
    total: str
    unit: str
    observed: str
    gauge: str
    gauge_unit: str


# Of a metric in a unit: the ending that is dropped, the unit of its integral over time, the unit of its gauge.
_INTEGRALS: Mapping[str, tuple[str, str, str]] = {
    "ratio": ("", "seconds", "ratio"),
    "bytes": ("_bytes", "byte_seconds", "bytes"),
    "watts": ("_watts", "joules", "watts"),
    "hertz": ("_hertz", "cycles", "hertz"),
    "celsius": ("_celsius", "celsius_seconds", "celsius"),
    "bytes per second": ("_bytes_per_second", "bytes", ""),
    "ticks per second": ("_per_second", "ticks", ""),
}


def _integrals(scope: str, metrics: tuple[Metric, ...]) -> tuple[Integral, ...]:
    integrals: list[Integral] = []
    for metric in metrics:
        if metric.unit in _INTEGRALS:
            dropped, unit, gauge = _INTEGRALS[metric.unit]
            stem = f"skuwise_{scope}_{metric.name.removesuffix(dropped).removeprefix(f'{scope}_')}"
            names = f"{stem}_{unit}_total", unit, f"{stem}_observed_seconds_total", f"{stem}_{gauge}" if gauge else ""
            integrals.append(Integral(metric.name, metric.meaning, *names, gauge))
    return tuple(integrals)


GPU_INTEGRALS = _integrals("gpu", GPU_METRICS)
FABRIC_INTEGRALS = _integrals("fabric", FABRIC_METRICS)
HOST_INTEGRALS = _integrals("host", HOST_METRICS)

# Lower edges of the fixed bins in which the hours count seconds per ratio; the last bin is [1, inf).
# Fine near zero, where the silence of a link is judged; 5 % steps above.
_NEAR_ZERO = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05)
BIN_EDGES: tuple[float, ...] = (*_NEAR_ZERO, *(step / 20 for step in range(2, 21)))

# What the hours keep in bins: name -> how the ratio is formed.
GPU_BINS: Mapping[str, str] = {
    "gpu_util": "gpu_util",
    "sm_active": "sm_active",
    "sm_occupancy": "sm_occupancy",
    "tensor_active": "tensor_active",
    "dram_active": "dram_active",
    "mem_used": "mem_used_bytes / mem_total_bytes",
    "power": "power_watts / power_limit_watts",
    "nvlink": "max(nvlink_tx, nvlink_rx) / nvlink_bytes_per_second (one way)",
}
FABRIC_BINS: Mapping[str, str] = {"util": "max(tx, rx) / line_rate_bytes_per_second"}
HOST_BINS: Mapping[str, str] = {"cpu_util": "cpu_util"}

# Throttle reasons that cost speed, from nvml.h (nvmlClocksEventReasons): SW power cap 0x4, HW slowdown 0x8,
# sync boost 0x10, SW thermal 0x20, HW thermal 0x40, HW power brake 0x80. GpuIdle 0x1 and the clock settings
# 0x2 and 0x100 are choices, not slowdowns.
THROTTLE_MASK = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80
