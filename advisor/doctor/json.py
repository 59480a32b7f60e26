"""The diagnosis as JSON, schema ``skuwise.doctor/1``: RFC 3339 UTC, base units, null for what is unknown."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..core.timestamps import rfc3339
from ..views.coverage import judged_nodes
from .types import Diagnosis, NodeState

SCHEMA = "skuwise.doctor/1"


def diagnosis_dict(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis as plain values."""
    advice, summary = found.advice, found.advice.summary
    observed_hours, floor = summary.observed_hours or 0.0, summary.floor_hours or 0.0
    return {
        "schema": SCHEMA,
        "generated_at": rfc3339(advice.generated_at),
        "window": {"start": rfc3339(advice.start), "end": rfc3339(advice.end)},
        "source": {name: value for name, value in advice.source.items() if name != "asked"},
        "telemetry": {
            "begin": rfc3339(found.begin) if observed_hours else None,
            "observed_hours": _rounded(observed_hours),
            "window_hours": _rounded(summary.window_hours),
        },
        "summary": {
            "node_count": len(found.nodes), "gpu_count": summary.gpu_count, "observed_gpu_count": found.observed,
            "mig_instances": found.mig_instances,
            "unobserved": [
                {"node": one.node, "gpus": list(one.gpus), "reason": one.reason, "code": one.code}
                for one in summary.unobserved
            ],
        },
        "verdicts": {
            "possible": found.observed > 0,
            "waste_floor_hours": floor,
            "waste_ready_gpus": summary.judged_gpu_count,
            "waste_ready_nodes": len(judged_nodes(advice)[0]),
            "most_hours_of_a_node": _rounded(found.best_hours),
            "hours_until_waste": _rounded(max(floor - found.best_hours, 0.0) if summary.nothing_judged else 0.0),
        },
        "nodes": [_node(one) for one in found.nodes],
        "metrics": [
            {
                "metric": one.metric, "scope": one.scope, "having": one.having, "of": one.of,
                "window_share": _rounded(one.window_share), "resolution_seconds": _rounded(one.resolution_seconds),
            }
            for one in found.metrics
        ],
        "exporters": [{"name": name} for name in found.exporters],
        "workload_labels": {name: _rounded(value) for name, value in asdict(found.labels).items()},
        "kubernetes_workloads": asdict(found.kubernetes),
        "slurm_jobs": asdict(found.slurm),
        "gaps": [asdict(one) for one in found.gaps],
        "notes": [asdict(note) for note in found.notes],
    }  # fmt: skip


def _node(one: NodeState) -> dict[str, Any]:
    facts = one.facts
    return {
        "node": one.node, "gpus_expected": one.expected, "expected_from": one.counted.source,
        "gpus_named": len(one.counted.gpus), "gpus_observed": one.observed, "hours": _rounded(facts.hours_observed),
        "node_sku": facts.node_sku, "node_sku_source": facts.node_sku_source, "provider": facts.provider,
        "region": facts.region, "usd_per_hour": one.price.usd_per_hour if one.price else None,
        "price": one.price_words, "price_region_assumed": one.assumed_region, "fabric_ports": one.fabric_ports,
        "network_observed": one.network_observed, "mig_instances": one.mig_instances,
    }  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
