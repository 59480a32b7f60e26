"""PromQL that says which devices had which measure at some moments of a window.

One query over all moments for each series' name: an engine reads a series' blocks once however many moments are asked,
and samples only around them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...agent.service.exporter.metric_families import GPU_INTEGRALS
from ..telemetry.prometheus.client.response import Floats
from ..telemetry.prometheus.promql.labels import AGENT_GPU_LABELS, AGENT_NODE_LABELS, NODE_LABELS
from ..telemetry.prometheus.promql.promql import ANCHORS, DCGM_GAUGES, selector
from .facts import BUSY_LEVEL, GPU_MEASURES

BUSY, LABELED = "busy", "labeled"
# What a device's row is grouped by: copies for several pods, and two exporters under one name, are one.
DCGM_DEVICE = ("UUID", "GPU_I_ID", "modelName")
AGENT_DEVICE = (*AGENT_GPU_LABELS, "sku")
# How a workload is named. A bare pod beside an exporter's container is the exporter's own.
PODS = (('exported_pod!=""',), ('pod!=""', 'pod!~".*exporter.*"', 'container!~".*exporter.*"'))
WORK = (*PODS, ('hpc_job!~"0?"',), ('exported_hpc_job!~"0?"',))
ONE_CORE = ('mode="idle"', 'cpu="0"')
NOT_WIRES = 'device!~"lo|veth.*|cali.*|docker.*|cni.*|flannel.*|br-.*|virbr.*|tunl.*|cilium.*|lxc.*|kube-.*|dummy.*"'
# Measure -> the gauges of dcgm-exporter, or the metrics of our agent, of which one is enough to tell it.
_GAUGES: Mapping[str, tuple[str, ...]] = {
    "engine_active": ("gpu_util", "engine"),
    "sm_active": ("sm_active",),
    "tensor_active": ("tensor_active",),
    "dram_active": ("dram_active",),
    "mem_used": ("mem_used_bytes",),
    "power": ("power_watts",),
    "clocks": ("sm_clock_hertz",),
    "nvlink": ("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second"),
    "pcie": ("pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second"),
}
_AGENT = {**_GAUGES, "engine_active": ("gpu_util", "sm_active")}
_BY_MEASURE = {gauge.measure: gauge for gauge in DCGM_GAUGES}
_SM_OF_INSTANCE = 8.0  # DCGM's SM activity of an instance may pass 1; beyond this lie blanks
_INFINIBAND, _OTHER = 'link_layer="InfiniBand"', 'link_layer!="InfiniBand"'
NODE_SERIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "infiniband": ("node_infiniband_port_data_transmitted_bytes_total", ()),
    "ethernet": ("node_network_transmit_bytes_total", (NOT_WIRES,)),
    "host": ("node_cpu_seconds_total", ONE_CORE),
}


@dataclass(frozen=True, slots=True)
class Look:
    """One query over all moments. `bit`: what a value of it says of a device: a measure, `BUSY` or `LABELED`; a value
    above `above` and up to `most` says so. `busy_above`: above this it says `BUSY` as well."""

    query: str
    kept: tuple[str, ...]
    bit: str
    above: float = -1e-9
    most: float = float("inf")
    busy_above: float = float("inf")

    def told(self, values: Floats) -> dict[str, npt.NDArray[np.bool_]]:
        """Bit -> at which moments of a row it is set."""
        with np.errstate(invalid="ignore"):
            known = (values > self.above) & (values <= self.most)
            found = {self.bit: known}
            if self.busy_above < float("inf"):
                found[BUSY] = known & (values > self.busy_above)
        return found


@dataclass(frozen=True, slots=True)
class Spelling:
    """By which of NODE_LABELS dcgm-exporter names nodes, and by which of `WORK` workloads: what a server has not is
    not asked for."""

    nodes: tuple[str, ...] = NODE_LABELS
    work: tuple[tuple[str, ...], ...] = WORK

    @property
    def device(self) -> tuple[str, ...]:
        return (*DCGM_DEVICE, *self.nodes)


def carriers(present: Collection[str]) -> list[str]:
    """The series whose labels say whose work it is: one of those that an exporter has of every device, and one more."""
    wanted = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE", *ANCHORS)
    return [name for name in dict.fromkeys(wanted) if name in present][:2]


def dcgm_names(measure: str, present: Collection[str]) -> list[tuple[str, float]]:
    """The series of dcgm-exporter that tell a measure, each with the most that is a reading, in its own unit."""
    found = []
    for one in _GAUGES[measure]:
        gauge = _BY_MEASURE[one]
        most = _SM_OF_INSTANCE if one == "sm_active" else gauge.most / gauge.scale
        found += [(name, most) for name in gauge.names if name in present]
        if found and one.endswith("_per_second"):
            break  # who tells one direction of a link tells the other
    return found


def dcgm_looks(present: Collection[str], matches: Sequence[str], within: str, spelling: Spelling) -> list[Look]:
    """At each device of dcgm-exporter. `within`: how far back a sample counts as now."""
    chosen, kept = selector(matches), spelling.device
    by = ", ".join(kept)
    found = []
    for measure in GPU_MEASURES:
        for name, most in dcgm_names(measure, present):
            busy = BUSY_LEVEL * (100 if most > 2 else 1) if measure == "engine_active" else float("inf")
            query = f"max by ({by}) (last_over_time({name}{chosen}[{within}]))"
            found.append(Look(query, kept, measure, most=most, busy_above=busy))
    for name in carriers(present):
        for labels in spelling.work:
            query = f"count by ({by}) (last_over_time({name}{selector(matches, *labels)}[{within}]))"
            found.append(Look(query, kept, LABELED))
    return found


def agent_looks(matches: Sequence[str], within: str) -> list[Look]:
    """At each device of our agent's page, whose counters count the seconds in which a measure was told."""
    chosen, by = selector(matches), ", ".join(AGENT_DEVICE)
    observed = {one.metric: one.observed.series for one in GPU_INTEGRALS}
    total = {one.metric: one.total.series for one in GPU_INTEGRALS}
    found = [
        Look(f"max by ({by}) (increase({observed[metric]}{chosen}[{within}]))", AGENT_DEVICE, measure, above=0.0)
        for measure in GPU_MEASURES
        for metric in _AGENT[measure]
        if metric in observed
    ]
    used = f"max by ({by}) (rate({total['gpu_util']}{chosen}[{within}]))"
    held = f"max by ({by}) (increase(skuwise_workload_gpu_seconds_total{chosen}[{within}]))"
    return [*found, Look(used, AGENT_DEVICE, BUSY, above=BUSY_LEVEL), Look(held, AGENT_DEVICE, LABELED, above=0.0)]


def node_looks(present: Collection[str], matches: Sequence[str], within: str) -> list[Look]:
    """At each node that node_exporter speaks of."""
    by = ", ".join(NODE_LABELS)
    return [
        Look(f"count by ({by}) (last_over_time({name}{selector(matches, *own)}[{within}]))", NODE_LABELS, bit)
        for bit, (name, own) in NODE_SERIES.items()
        if name in present
    ]


def agent_node_looks(matches: Sequence[str], within: str) -> list[Look]:
    """At each node with our agent, whose ports say what they are."""
    series = {
        "infiniband": f"skuwise_fabric_port_info{selector(matches, _INFINIBAND)}",
        "ethernet": f"skuwise_fabric_port_info{selector(matches, _OTHER)}",
        "host": f"skuwise_host_observed_seconds_total{selector(matches)}",
    }
    by = ", ".join(AGENT_NODE_LABELS)
    return [
        Look(f"count by ({by}) (last_over_time({one}[{within}]))", AGENT_NODE_LABELS, bit)
        for bit, one in series.items()
    ]
