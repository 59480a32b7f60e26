"""What is measured, in which unit and step it is kept, and the bins in which the hours count it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing that is measured; docs/metrics.md has the sources of each.

    `quantum` is the step in which the store keeps it: the stored integer times `quantum` is the value in `unit`.
    A reading below 0 or above `most` (in `unit`) is impossible: it is missing, `out-of-range`, and counted. `meaning`
    is for the metrics page; those that are not on it have none.
    """

    name: str
    unit: str
    quantum: float
    meaning: str = ""
    most: float = math.inf
    rolled_up: bool = True


_RATIO = 1e-4
_KIB = 1024.0
# 100 TB/s: no link or disk of a node comes near.
_FASTEST = 1e14
_POWER = "mean power over the interval (energy counter), else the driver's power reading"
_WAIT = "ticks in which the port had data to send but no credit (congestion)"


def _ratio(name: str, meaning: str) -> Metric:
    return Metric(name, "ratio", _RATIO, meaning, most=1.0)


def _rate(name: str, meaning: str, quantum: float = _KIB) -> Metric:
    return Metric(name, "bytes per second", quantum, meaning, most=_FASTEST)


def _served(name: str, unit: str, quantum: float, most: float = 1e9) -> Metric:
    return Metric(name, unit, quantum, most=most, rolled_up=False)


GPU_METRICS: tuple[Metric, ...] = (
    _ratio("gpu_util", "share of time at least one kernel ran, however little of the GPU it used"),
    _ratio("sm_active", "share of time an SM had a warp resident, averaged over the SMs"),
    _ratio("sm_occupancy", "resident warps over the most that fit, averaged over the SMs"),
    _ratio("tensor_active", "share of cycles the tensor pipe was active"),
    _ratio("dram_active", "HBM or GDDR bandwidth used over its peak"),
    _ratio("fp64_active", "share of cycles the FP64 pipe was active"),
    _ratio("fp32_active", "share of cycles the FP32 pipe was active"),
    _ratio("fp16_active", "share of cycles the FP16 pipe was active (tensor not included)"),
    Metric("mem_used_bytes", "bytes", _KIB, "memory allocated, the driver's reserve not included", most=1e13),
    Metric("power_watts", "watts", 0.1, _POWER, most=10_000.0),
    Metric("energy_joules", "joules", 0.1, "energy drawn in the interval"),
    Metric("sm_clock_hertz", "hertz", 1e6, "SM clock", most=1e10),
    Metric("mem_clock_hertz", "hertz", 1e6, "memory clock", most=1e10),
    Metric("temperature_celsius", "celsius", 1.0, "GPU temperature", most=150.0),
    # NVML's clocks-event-reasons bitmask at the end of the interval.
    Metric("throttle_reasons", "bitmask", 1.0, rolled_up=False),
    _rate("pcie_tx_bytes_per_second", "PCIe traffic sent by the GPU"),
    _rate("pcie_rx_bytes_per_second", "PCIe traffic received by the GPU"),
    _rate("nvlink_tx_bytes_per_second", "NVLink traffic sent, all links"),
    _rate("nvlink_rx_bytes_per_second", "NVLink traffic received, all links"),
)

FABRIC_METRICS: tuple[Metric, ...] = (
    _rate("tx_bytes_per_second", "traffic sent by the port (RDMA only on RoCE)", 64.0),
    _rate("rx_bytes_per_second", "traffic received by the port (RDMA only on RoCE)", 64.0),
    Metric("xmit_wait_per_second", "ticks per second", 1.0, _WAIT),
)

HOST_METRICS: tuple[Metric, ...] = (
    _ratio("cpu_util", "share of all CPU time not idle and not waiting for IO"),
    _ratio("io_wait", "share of all CPU time spent waiting for IO"),
    Metric("mem_used_bytes", "bytes", _KIB, "MemTotal - MemAvailable", most=1e15),
    _rate("disk_read_bytes_per_second", "read from physical disks"),
    _rate("disk_write_bytes_per_second", "written to physical disks"),
)

# What local inference servers report, each over the time between two readings of their page. The times are means over
# the requests that got their first token, and over the tokens after it (TGI: its requests).
SERVING_METRICS: tuple[Metric, ...] = (
    _served("kv_cache_usage", "ratio", _RATIO, 1.0),
    _served("requests_running", "requests", 1.0),
    _served("requests_waiting", "requests", 1.0),
    _served("prompt_tokens_per_second", "tokens per second", 0.1),
    _served("generation_tokens_per_second", "tokens per second", 0.1),
    _served("time_to_first_token_seconds", "seconds", 1e-4),
    _served("preemptions_per_second", "requests per second", 1e-3),
    _served("time_per_output_token_seconds", "seconds", 1e-5),
    _served("requests_per_second", "requests per second", 1e-3),
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

# Throttle reasons that cost speed, from nvml.h (nvmlClocksEventReasons): SW power cap 0x4, HW slowdown 0x8,
# sync boost 0x10, SW thermal 0x20, HW thermal 0x40, HW power brake 0x80. GpuIdle 0x1 and the clock settings
# 0x2 and 0x100 are choices, not slowdowns.
THROTTLE_MASK = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80
