"""The diagnosis as JSON, schema ``skuwise.doctor/1``: RFC 3339 UTC, base units, null for what is unknown."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from ..core.timestamps import rfc3339
from .types import Diagnosis

SCHEMA = "skuwise.doctor/1"


def load_diagnosis_schema() -> dict[str, Any]:
    """The JSON Schema of the diagnosis, as the package carries it."""
    return json.loads(files("skuwise.advisor.render").joinpath("schema", "doctor-1.schema.json").read_text("utf-8"))


def render_diagnosis_json(found: Diagnosis) -> str:
    return json.dumps(diagnosis_dict(found), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def diagnosis_dict(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis as plain values."""
    return {
        "schema": SCHEMA,
        "generated_at": rfc3339(found.generated_at),
        "window": {"start": rfc3339(found.window.start), "end": rfc3339(found.window.end)},
        "source": dict(found.source),
        "telemetry": {
            "begin": rfc3339(found.begin) if found.observed_hours else None,
            "observed_hours": _rounded(found.observed_hours),
            "window_hours": _rounded(found.window.hours),
            "sampled_moments": found.sampled,
        },
        "summary": {
            "node_count": len(found.nodes), "gpu_count": found.expected, "observed_gpu_count": found.observed,
            "mig_instances": found.mig_instances,
            "unobserved": [
                {"node": one.node, "gpus": list(one.gpus), "reason": one.reason, "code": one.code}
                for one in found.unobserved
            ],
        },
        "verdicts": {
            "possible": found.observed > 0,
            "waste_floor_hours": found.readiness.floor_hours,
            "waste_ready_nodes": found.readiness.ready_nodes,
            "most_hours_of_a_node": _rounded(found.readiness.best_hours),
            "hours_until_waste": _rounded(found.readiness.hours_left),
        },
        "nodes": [
            {
                "node": one.node, "gpus_expected": one.expected, "expected_from": one.expected_from,
                "gpus_named": one.named, "gpus_observed": one.observed, "hours": _rounded(one.hours),
                "node_sku": one.node_sku, "node_sku_source": one.node_sku_source, "provider": one.provider,
                "region": one.region, "usd_per_hour": one.usd_per_hour, "price": one.price,
                "price_region_assumed": one.assumed_region,
                "fabric_ports": one.fabric_ports, "network_observed": one.fabric_seen,
                "mig_instances": one.mig_instances,
            }
            for one in found.nodes
        ],
        "metrics": [
            {
                "metric": one.metric, "scope": one.scope, "having": one.having, "of": one.of,
                "window_share": _rounded(one.window_share), "resolution_seconds": _rounded(one.resolution_seconds),
            }
            for one in found.metrics
        ],
        "exporters": [
            {"name": one.name, "versions": list(one.versions), "nodes": one.nodes} for one in found.exporters
        ],
        "workload_labels": {name: _rounded(value) for name, value in asdict(found.labels).items()},
        "pods": (
            None if found.pods is None else {"on_gpus": found.pods.on_gpus, "owned": found.pods.owned}
        ),
        "slurm_jobs": {
            "observed": found.slurm.jobs, "named": found.slurm.named, "in_job_table": found.slurm.in_table,
        },
        "gaps": [{**asdict(one), "nodes": list(one.nodes)} for one in found.gaps],
        "notes": [asdict(note) for note in found.notes],
    }  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
