"""PromQL that says in one number which measures a device has at a moment, so that a moment costs one answer.

Bit n of the value is set where the n-th of the expressions has a value that is a reading. Everything is asked at a few
moments: an engine reads a few samples of each series for it, however long the window is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...agent.service.families import GPU_INTEGRALS
from ..telemetry.prometheus.names import AGENT_GPU_LABELS, AGENT_NODE_LABELS, NODE_LABELS
from ..telemetry.prometheus.queries import ANCHORS, DCGM_GAUGES, selector
from .facts import BUSY_LEVEL, GPU_MEASURES

# What a device's row is grouped by: copies for several pods, and two exporters under one name, are one.
DCGM_DEVICE = ("UUID", "GPU_I_ID", "GPU_I_PROFILE", "modelName", *NODE_LABELS)
AGENT_DEVICE = (*AGENT_GPU_LABELS, "sku", "kind")
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
_AGENT: Mapping[str, tuple[str, ...]] = {
    "engine_active": ("gpu_util", "sm_active"), "sm_active": ("sm_active",), "tensor_active": ("tensor_active",),
    "dram_active": ("dram_active",), "mem_used": ("mem_used_bytes",), "power": ("power_watts",),
    "clocks": ("sm_clock_hertz",), "nvlink": ("nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second"),
    "pcie": ("pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second"),
}  # fmt: skip
_BY_MEASURE = {gauge.measure: gauge for gauge in DCGM_GAUGES}
_SM_OF_INSTANCE = 8.0  # DCGM's SM activity of an instance may pass 1; beyond this lie blanks
_IB = "node_infiniband_port_data_transmitted_bytes_total"
_NETWORK = "node_network_transmit_bytes_total"
_INFINIBAND, _OTHER = 'link_layer="InfiniBand"', 'link_layer!="InfiniBand"'
NOT_WIRES = 'device!~"lo|veth.*|cali.*|docker.*|cni.*|flannel.*|br-.*|virbr.*|tunl.*|cilium.*|lxc.*|kube-.*|dummy.*"'
ONE_CORE = ('mode="idle"', 'cpu="0"')
BUSY, LABELED = len(GPU_MEASURES), len(GPU_MEASURES) + 1
# How a workload is named. A bare pod beside an exporter's container is the exporter's own.
PODS = (('exported_pod!=""',), ('pod!=""', 'pod!~".*exporter.*"', 'container!~".*exporter.*"'))
WORK = (*PODS, ('hpc_job!~"0?"',), ('exported_hpc_job!~"0?"',))
NODE_BITS = ("infiniband", "ethernet", "host")


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
    return found


def dcgm_presence(
    present: Collection[str], matches: Sequence[str], within: str, kinds: Sequence[tuple[str, ...]] = WORK
) -> str:
    """Of each device of dcgm-exporter: a bit for each of GPU_MEASURES, then `BUSY` and `LABELED`.

    `within`: how far back a sample counts as now; `kinds`: by which of `WORK` workloads are named.
    """
    chosen = selector(matches)
    parts: dict[int, list[str]] = {
        bit: [
            f"(last_over_time({name}{chosen}[{within}]) <= {most:.10g})" for name, most in dcgm_names(measure, present)
        ]
        for bit, measure in enumerate(GPU_MEASURES)
    }
    parts[BUSY] = [
        f"(last_over_time({name}{chosen}[{within}]) > {BUSY_LEVEL * (100 if most > 2 else 1):g} <= {most:.10g})"
        for name, most in dcgm_names("engine_active", present)
    ]
    parts[LABELED] = [
        f"last_over_time({name}{selector(matches, *labels)}[{within}])"
        for name in carriers(present)
        for labels in kinds
    ]
    return bits(parts, DCGM_DEVICE)


def agent_presence(matches: Sequence[str], within: str) -> str:
    """The same of each device of our agent's page. Its counters count the seconds in which a measure was told."""
    chosen = selector(matches)
    observed = {one.metric: one.observed.series for one in GPU_INTEGRALS}
    total = {one.metric: one.total.series for one in GPU_INTEGRALS}
    parts = {
        bit: [
            f"(increase({observed[metric]}{chosen}[{within}]) > 0)" for metric in _AGENT[measure] if metric in observed
        ]
        for bit, measure in enumerate(GPU_MEASURES)
    }
    parts[BUSY] = [f"(rate({total['gpu_util']}{chosen}[{within}]) > {BUSY_LEVEL:g})"]
    held = f"(increase(skuwise_workload_gpu_seconds_total{chosen}[{within}]) > 0)"
    return f"{bits(parts, AGENT_DEVICE)} or {bits({LABELED: [held]}, AGENT_GPU_LABELS)}"


def node_presence(present: Collection[str], matches: Sequence[str], within: str) -> str | None:
    """Of each node that node_exporter speaks of: a bit for each of `NODE_BITS`; None where it tells none."""
    asked = {
        0: (_IB, selector(matches)),
        1: (_NETWORK, selector(matches, NOT_WIRES)),
        2: ("node_cpu_seconds_total", selector(matches, *ONE_CORE)),
    }
    parts = {
        bit: [f"last_over_time({name}{chosen}[{within}])"] for bit, (name, chosen) in asked.items() if name in present
    }
    return bits(parts, NODE_LABELS) if parts else None


def agent_node_presence(matches: Sequence[str], within: str) -> str:
    """The same of each node with our agent, whose ports say what they are."""
    chosen = selector(matches)
    ports = {
        0: f"skuwise_fabric_port_info{selector(matches, _INFINIBAND)}",
        1: f"skuwise_fabric_port_info{selector(matches, _OTHER)}",
    }
    parts = {bit: [f"last_over_time({one}[{within}])"] for bit, one in ports.items()}
    parts[2] = [f"last_over_time(skuwise_host_observed_seconds_total{chosen}[{within}])"]
    return bits(parts, AGENT_NODE_LABELS)


def bits(parts: Mapping[int, Sequence[str]], by: Sequence[str]) -> str:
    """Bit n is set where one of the n-th expressions has a value."""
    labels = ", ".join(by)
    each = [
        f'label_replace((count by ({labels}) ({" or ".join(found)}) > bool 0) * {2**bit}, "bit", "{bit}", "", "")'
        for bit, found in parts.items()
        if found
    ]
    return f"sum by ({labels}) ({' or '.join(each)})"


def known_bits(value: float, names: Sequence[str]) -> frozenset[str]:
    """The names whose bits are set."""
    whole = int(value) if value == value and 0 <= value < 2**32 else 0  # noqa: PLR0124 - NaN
    return frozenset(name for bit, name in enumerate(names) if whole >> bit & 1)
