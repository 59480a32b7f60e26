"""One reading of every source, for a person or a program to look at."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from ...rules.base.text_table import columns
from ..metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS, Metric
from ..model import Node, WorkloadUse
from ..sampler import Sampled, Survey

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
    tick, rate = sampled.tick, "bytes per second"
    parts = [f"{node.node}  {node.node_sku or 'node SKU unknown'}", ""]
    if survey.gpus:
        names = ("", *(gpu.sku or gpu.name for gpu in survey.gpus))
        values = [tick.gpus.get(gpu.uuid, {}) for gpu in survey.gpus]
        heads = ("GPU", *(str(gpu.index) for gpu in survey.gpus))
        parts += [columns(heads, [names, *_rows(GPU_METRICS, values)]), ""]
    else:
        parts += ["No GPU can be read here.", ""]
    if survey.ports:
        about = [
            ("role", *(port.role for port in survey.ports)),
            ("state", *(tick.port_states.get(port.key) or "-" for port in survey.ports)),
            ("line rate", *(format_quantity(port.line_rate_bytes_per_second, rate) for port in survey.ports)),
        ]
        values = [tick.fabric.get(port.key, {}) for port in survey.ports]
        heads = ("PORT", *(port.key for port in survey.ports))
        parts += [columns(heads, [*about, *_rows(FABRIC_METRICS, values)]), ""]
    parts.append(columns(("HOST", ""), _rows(HOST_METRICS, [tick.host])))
    if sampled.absences:
        parts += ["", f"Absent readings: {len(sampled.absences)}; run 'skuwise agent doctor' for the reasons."]
    return "\n".join(parts)


def _rows(metrics: Sequence[Metric], devices: Sequence[Mapping[str, float]]) -> list[tuple[str, ...]]:
    """A row for each metric, a column for each device."""
    return [(m.name, *(format_quantity(values.get(m.name), m.unit) for values in devices)) for m in metrics]


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
