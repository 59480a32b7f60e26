"""One reading of every source, for a person or a program to look at."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from ...rules.base.text_table import columns
from ..metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS, Metric
from ..model import Node, WorkloadUse
from ..sampler import Sampled, Survey

# What the table shows of a GPU; JSON has everything.
_SHOWN = (
    ("SM", "sm_active"),
    ("TENSOR", "tensor_active"),
    ("DRAM", "dram_active"),
    ("MEMORY", "mem_used_bytes"),
    ("POWER", "power_watts"),
    ("NVLINK TX", "nvlink_tx_bytes_per_second"),
    ("NVLINK RX", "nvlink_rx_bytes_per_second"),
    ("PCIE TX", "pcie_tx_bytes_per_second"),
)
_UNITS = {metric.name: metric.unit for metric in (*GPU_METRICS, *FABRIC_METRICS, *HOST_METRICS)}
_SUFFIXES = {"bytes": "B", "bytes per second": "B/s", "hertz": "Hz", "watts": "W", "joules": "J", "celsius": "°C"}


def reading_json(node: Node, survey: Survey, sampled: Sampled, uses: Sequence[WorkloadUse]) -> dict[str, object]:
    """Everything of one tick. Every metric of every device is named; null means absent, see `absences`."""
    tick = sampled.tick
    return {
        "ts": datetime.datetime.fromtimestamp(tick.ts, datetime.UTC).isoformat().replace("+00:00", "Z"),
        "interval_seconds": tick.interval_seconds,
        "node": {"node": node.node, "cluster": node.cluster, "node_sku": node.node_sku},
        "gpus": [
            {"gpu_uuid": g.uuid, "gpu_index": g.index, "name": g.name, "sku": g.sku}
            | {"mem_total_bytes": g.mem_total_bytes}
            | _all(GPU_METRICS, tick.gpus.get(g.uuid, {}))
            for g in survey.gpus
        ],
        "fabric": [
            {"device": p.device, "port": p.port, "role": p.role, "link_layer": p.link_layer}
            | {"state": tick.port_states.get(p.key), "line_rate_bytes_per_second": p.line_rate_bytes_per_second}
            | _all(FABRIC_METRICS, tick.fabric.get(p.key, {}))
            for p in survey.ports
        ],
        "host": _all(HOST_METRICS, tick.host),
        "workload_gpus": [
            {"workload_id": u.workload_id, "gpu_uuid": u.gpu_uuid, "basis": u.basis, "shared": u.shared} for u in uses
        ],
        "absences": [
            {"scope": a.scope, "subject": a.subject, "metric": a.metric, "reason": a.reason, "detail": a.detail}
            for a in sorted(sampled.absences, key=lambda a: (a.scope, a.subject, a.metric))
        ],
    }


def _all(metrics: Sequence[Metric], values: Mapping[str, float]) -> dict[str, object]:
    return {metric.name: values.get(metric.name) for metric in metrics}


def reading_table(node: Node, survey: Survey, sampled: Sampled) -> str:
    """For a person; a dash is a value that is absent (`skuwise agent doctor` says why)."""
    tick = sampled.tick
    parts = [f"{node.node}  {node.node_sku or 'node SKU unknown'}"]
    gpus = [
        (str(gpu.index), gpu.sku or gpu.name, *(_told(tick.gpus.get(gpu.uuid, {}), name) for _, name in _SHOWN))
        for gpu in survey.gpus
    ]
    heads = ("GPU", "NAME", *(head for head, _ in _SHOWN))
    parts += ["", columns(heads, gpus) if gpus else "No GPU can be read here."]
    ports = [
        (
            port.key,
            port.role,
            tick.port_states.get(port.key) or "-",
            format_quantity(port.line_rate_bytes_per_second, "bytes per second"),
            *(_told(tick.fabric.get(port.key, {}), metric.name) for metric in FABRIC_METRICS[:2]),
        )
        for port in survey.ports
    ]
    parts += ["", columns(("PORT", "ROLE", "STATE", "LINE RATE", "TX", "RX"), ports)] if ports else []
    host = [(metric.name, _told(tick.host, metric.name)) for metric in HOST_METRICS]
    parts += ["", columns(("HOST", ""), host)]
    if sampled.absences:
        count = len(sampled.absences)
        told = "1 reading is absent" if count == 1 else f"{count} readings are absent"
        parts += ["", f"{told}; run 'skuwise agent doctor' for the reason."]
    return "\n".join(parts)


def _told(values: Mapping[str, float], name: str) -> str:
    return format_quantity(values.get(name), _UNITS[name])


def format_quantity(value: float | None, unit: str) -> str:
    """`value` in `unit` as people read it: ratios as per cent, bytes in powers of 1000 with their prefix, - if None."""
    if value is None:
        return "-"
    if unit == "ratio":
        return f"{value * 100:.1f} %"
    if unit == "bitmask":
        return f"{int(value):#x}"
    prefixes = ["T", "G", "M", "k", ""] if unit in ("bytes", "bytes per second", "hertz") else [""]
    prefix = prefixes.pop()
    while prefixes and abs(value) >= 1000:
        value /= 1000
        prefix = prefixes.pop()
    return f"{value:.4g} {prefix}{_SUFFIXES.get(unit, unit)}"
