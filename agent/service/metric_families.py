"""Which metric families the page has, and how their names and units follow from the metrics'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..base.openmetrics import Kind, MetricFamily
from ..metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS, Metric
from .device_totals import GpuTotals, Moments, PortTotals

# How a metric in a unit is exported: the ending of its name that is dropped, the ending and the unit of its integral
# over time, the ending and the unit of its gauge ("": none, its counter's rate tells the same).
_BY_UNIT: Mapping[str, tuple[str, str, str, str]] = {
    "ratio": ("", "seconds", "seconds", "ratio"),
    "bytes": ("_bytes", "byte_seconds", "byte_seconds", "bytes"),
    "watts": ("_watts", "joules", "joules", "watts"),
    "hertz": ("_hertz", "cycles", "cycles", "hertz"),
    "celsius": ("_celsius", "celsius_seconds", "celsius_seconds", "celsius"),
    "bytes per second": ("_bytes_per_second", "bytes", "bytes", ""),
    "ticks per second": ("_per_second", "ticks", "ticks", ""),
}
# nvml.h, nvmlClocksEventReasons.
THROTTLE_BITS: Mapping[int, str] = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
DISTRIBUTIONS = {
    "gpu_util": "gpu_util",
    "sm_active": "sm_active",
    "tensor_active": "tensor_active",
    "dram_active": "dram_active",
    "nvlink": "the larger direction of NVLink traffic over its bandwidth one way",
    "mem_used": "memory used over memory installed",
}


@dataclass(frozen=True, slots=True)
class Integral:
    """How one metric is exported: its integral, the seconds behind it, and its gauge where it has one."""

    metric: str
    total: MetricFamily
    observed: MetricFamily
    gauge: MetricFamily | None


def integral_of(scope: str, metric: Metric) -> Integral | None:
    """The families of a metric of `scope` (gpu, fabric, host); None for one that is exported in its own way."""
    if metric.unit not in _BY_UNIT:
        return None
    dropped, ending, unit, gauge_unit = _BY_UNIT[metric.unit]
    stem = metric.name.removesuffix(dropped) if dropped else metric.name
    name = f"{scope}_{stem.removeprefix(f'{scope}_')}"
    return Integral(
        metric.name,
        MetricFamily(f"skuwise_{name}_{ending}", "counter", unit, f"Summed over time: {metric.meaning}."),
        seconds_family(f"{name}_observed", f"Time in which {metric.name} had a value."),
        make_family(name, "gauge", f"Now: {metric.meaning}.", gauge_unit) if gauge_unit else None,
    )


def seconds_family(name: str, text: str) -> MetricFamily:
    return make_family(name, "counter", text, "seconds")


def make_family(name: str, kind: Kind, text: str, unit: str = "") -> MetricFamily:
    return MetricFamily(f"skuwise_{name}_{unit}" if unit else f"skuwise_{name}", kind, unit, text)


GPU_INTEGRALS = tuple(one for metric in GPU_METRICS if (one := integral_of("gpu", metric)))
FABRIC_INTEGRALS = tuple(one for metric in FABRIC_METRICS if (one := integral_of("fabric", metric)))
HOST_INTEGRALS = tuple(one for metric in HOST_METRICS if (one := integral_of("host", metric)))

_NEVER = (None, None)
GPU_COUNTERS: tuple[tuple[MetricFamily, Callable[[GpuTotals], float | None]], ...] = (
    (seconds_family("gpu_observed", "Time in which the GPU was observed."), lambda t: t.observed_seconds),
    (
        make_family("gpu_energy", "counter", "Energy by the GPU's own counter.", "joules"),
        lambda t: t.energy_joules if t.energy_seconds else None,
    ),
    (seconds_family("gpu_energy_observed", "Time that the energy counter covers."), lambda t: t.energy_seconds or None),
    (
        seconds_family("gpu_busy", "Time with sm_active at 5 % or more."),
        lambda t: t.busy_seconds if "sm_active" in t.cells() else None,
    ),
    (
        seconds_family("gpu_sm_active_squared", "Square of sm_active, summed over time."),
        lambda t: t.sm_squared if "sm_active" in t.cells() else None,
    ),
    (
        seconds_family("gpu_throttled", "Time with a power, thermal or hardware slowdown reason."),
        lambda t: t.throttled_seconds if "throttle_reasons" in t.cells() else None,
    ),
    (
        seconds_family("gpu_throttle_reasons_observed", "Time in which the throttle reasons were known."),
        lambda t: t.cells().get("throttle_reasons", _NEVER)[1],
    ),
)
THROTTLE = seconds_family("gpu_throttle_reason", "Time with this reason for the GPU's clocks.")
MOMENTS = (
    ("seconds", "seconds", "time in which both are known"),
    ("first", "tensor_seconds", "tensor_active, summed over time"),
    ("second", "traffic_bytes", "traffic (the larger direction), summed over time"),
    ("first_squared", "tensor_squared_seconds", "the square of tensor_active, summed over time"),
    ("second_squared", "traffic_squared_seconds", "the square of the traffic rate, summed over time"),
    ("product", "product_bytes", "tensor_active times the traffic rate, summed over time"),
)
PAIRS: tuple[tuple[str, str, Callable[[GpuTotals], Moments]], ...] = (
    ("nvlink", "NVLink", lambda totals: totals.tensor_nvlink),
    ("fabric", "the node's compute ports", lambda totals: totals.tensor_fabric),
)
UNITS = ("squared_seconds", "seconds", "bytes")


PORT_COUNTERS: tuple[tuple[MetricFamily, Callable[[PortTotals], float | None]], ...] = (
    (
        seconds_family("fabric_state_observed", "Time in which the port's state was known."),
        lambda t: t.state_seconds or None,
    ),
    (
        seconds_family("fabric_active", "Time in which the port was ACTIVE."),
        lambda t: t.active_seconds if t.state_seconds else None,
    ),
    (
        seconds_family("fabric_util_observed", "Time in which traffic and line rate were known."),
        lambda t: t.util_seconds or None,
    ),
    (
        seconds_family("fabric_silent", "Time with less than 0.1 % of the line rate."),
        lambda t: t.silent_seconds if t.util_seconds else None,
    ),
)
