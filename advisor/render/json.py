"""The advice as JSON, schema ``skuwise.advice/1``: RFC 3339 UTC, base units, null for what is missing, never NaN."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from ..core.advice_types import (
    Advice,
    Configuration,
    Decision,
    Finding,
    Interval,
    Recommendation,
    Summary,
    WorkloadVerdict,
)
from ..core.coded_text import CodedText
from ..core.timestamps import rfc3339

SCHEMA = "skuwise.advice/1"


def load_schema() -> dict[str, Any]:
    """The JSON Schema of the advice, as the package carries it."""
    return json.loads(files("skuwise.advisor.render").joinpath("schema", "advice-1.schema.json").read_text("utf-8"))


def render_json(advice: Advice) -> str:
    return json.dumps(_finite(to_dict(advice)), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def to_dict(advice: Advice) -> dict[str, Any]:
    """The advice as plain values, in the order of the contract."""
    return {
        "schema": SCHEMA,
        "generated_at": rfc3339(advice.generated_at),
        "window": {"start": rfc3339(advice.start), "end": rfc3339(advice.end)},
        "source": dict(advice.source),
        "nodes": list(advice.nodes),
        "summary": _summary(advice.summary),
        "fabrics": [asdict(fabric) for fabric in advice.fabrics],
        "prices": [asdict(price) for price in advice.prices],
        "workloads": [_workload(w) for w in advice.workloads],
        "findings": [_finding(f) for f in advice.findings],
        "recommendations": [_recommendation(r) for r in advice.recommendations],
        "notes": statements(advice.notes),
        **({} if advice.market is None else {"market": [_recommendation(r) for r in advice.market]}),
    }


def _summary(summary: Summary) -> dict[str, Any]:
    return {
        "gpu_count": summary.gpu_count,
        "gpu_hours": summary.gpu_hours,
        "cost_usd": summary.cost_usd,
        "wasted_usd": summary.wasted_usd,
        "recoverable_usd_per_month": summary.recoverable_usd_per_month,
        "recoverable_interval_usd_per_month": _interval(summary.recoverable_interval_usd_per_month),
        "reconciliation": asdict(summary.reconciliation),
        "unobserved": [
            {
                "node": one.node,
                "gpus": list(one.gpus),
                "reason": one.reason,
                "code": one.code,
                "gpu_hours": one.gpu_hours,
                "cost_usd": one.cost_usd,
            }
            for one in summary.unobserved
        ],
        "window_hours": summary.window_hours,
        "observed_hours": summary.observed_hours,
        "observed_gpu_hours": summary.observed_gpu_hours,
        "judged_gpu_count": summary.judged_gpu_count,
        "judged_from": rfc3339(summary.judged_from) if summary.judged_from is not None else None,
        "floor_hours": summary.floor_hours,
    }


def _workload(w: WorkloadVerdict) -> dict[str, Any]:
    return {
        "id": w.id,
        "series_id": w.series_id,
        "name": w.name,
        "owner": asdict(w.owner),
        "basis": w.basis,
        "shared": w.shared,
        "scheduler": asdict(w.scheduled),
        "nodes": list(w.nodes),
        "gpus": list(w.gpus),
        "gpu_sku": w.gpu_sku,
        "node_sku": w.node_sku,
        "start": rfc3339(w.start),
        "end": rfc3339(w.end),
        "gpu_hours": w.gpu_hours,
        "cost_usd": w.cost_usd,
        "kind": {
            "label": w.kind.label,
            "confidence": w.kind.confidence,
            "evidence": statements(w.kind.evidence),
            "alternatives": [asdict(a) for a in w.kind.alternatives],
        },
        "bottleneck": {
            "label": w.bottleneck.label,
            "confidence": w.bottleneck.confidence,
            "time_shares": dict(w.bottleneck.time_shares),
            "evidence": statements(w.bottleneck.evidence),
        },
        "phases": [
            {
                "start": rfc3339(p.start),
                "end": rfc3339(p.end),
                "kind": p.kind,
                "bottleneck": p.bottleneck,
                "evidence": statements(p.evidence),
            }
            for p in w.phases
        ],
        "coverage": {
            "fraction": w.coverage.fraction,
            "resolution_seconds": w.coverage.resolution_seconds,
            "missing": dict(w.coverage.missing),
            "missing_codes": dict(w.coverage.missing_codes),
        },
    }


def _finding(f: Finding) -> dict[str, Any]:
    return {
        "id": f.id,
        "rule": f.rule,
        "severity": f.severity,
        "workload": f.workload,
        "node": f.node,
        "nodes": list(f.nodes),
        "gpus": list(f.gpus),
        "evidence": [asdict(e) for e in f.evidence],
        "gpu_hours": f.gpu_hours,
        "cost_usd": f.cost_usd,
        "price": f.price,
        "confidence": f.confidence,
        "would_change_if": statements(f.would_change_if),
        "text": f.text,
    }


def _recommendation(r: Recommendation) -> dict[str, Any]:
    return {
        "id": r.id,
        "findings": list(r.findings),
        "workload": r.workload,
        "action": r.action,
        "from": _configuration(r.source),
        "to": _configuration(r.target),
        "time_ratio": _interval(r.time_ratio),
        "saving_usd_per_month": _interval(r.saving_usd_per_month),
        "freed_gpu_hours_per_month": r.freed_gpu_hours_per_month,
        "realisation": r.realisation,
        "available_from": r.available_from,
        "risk": r.risk,
        "blocked_by": statements(r.blocked_by),
        "rejected": [
            {"sku": x.sku, "code": x.reason.code, "reason": x.reason.text, "fields": dict(x.reason.fields)}
            for x in r.rejected
        ],
        "would_change_if": statements(r.would_change_if),
        "prices": list(r.prices),
        "break_even": r.break_even,
        "excludes": list(r.excludes),
        "decision": _decision(r.decision),
        "text": r.text,
    }


def statements(said: Iterable[CodedText]) -> list[dict[str, Any]]:
    """Statements with the codes that programs read."""
    return [{"code": one.code, "text": one.text, "fields": dict(one.fields)} for one in said]


def _decision(d: Decision | None) -> dict[str, Any] | None:
    if d is None:
        return None
    until = rfc3339(d.until) if d.until is not None else None
    return {"state": d.state, "since": rfc3339(d.since), "by": d.by, "until": until, "why": d.why}


def _configuration(c: Configuration) -> dict[str, Any]:
    return {"gpu_sku": c.gpu_sku, "node_sku": c.node_sku, "gpu_count": c.gpu_count}


def _interval(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else {"p10": interval.p10, "p50": interval.p50, "p90": interval.p90}


def _finite(value: Any) -> Any:  # noqa: ANN401
    """Plain JSON values: floats to six decimals, NaN and infinities to null, numpy scalars to Python's."""
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if value is None or isinstance(value, str | bool):
        return value
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value
