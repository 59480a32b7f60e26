"""Showback as JSON, schema ``skuwise.showback/1``: RFC 3339 UTC, US dollars, null for what is unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..core.coded_text import CodedText
from ..core.timestamps import rfc3339
from .focus_rows import VERSION, Billing, Value, focus_rows
from .showback import DIGITS, Category, Showback, ShowbackNode
from .showback_sums import By, GroupSum, NodeCheck, Sum, groups_of, node_checks, sum_rows, unowned_of, whole_check

SCHEMA = "skuwise.showback/1"


def render_showback_json(showback: Showback, by: By, billing: Billing) -> str:
    return json.dumps(showback_dict(showback, by, billing), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def showback_dict(showback: Showback, by: By, billing: Billing) -> dict[str, Any]:
    """Showback as plain values: sums by `by`, the nodes it was checked against, and every row."""
    checks = node_checks(showback)
    whole = whole_check(tuple(checks.values()))
    return {
        "schema": SCHEMA,
        "focus_version": VERSION,
        "generated_at": rfc3339(showback.generated_at),
        "window": {"start": rfc3339(showback.start), "end": rfc3339(showback.end)},
        "source": dict(showback.source),
        "by": by,
        "groups": [_group(group) for group in groups_of(showback, by)],
        "unowned": {_key(category): _sums(sums) for category, sums in unowned_of(showback).items()},
        "total": _sums(sum_rows(showback.rows)),
        "reconciliation": {
            **_check(whole),
            "unpriced_nodes": [node.node for node in showback.nodes if node.price is None],
        },
        "nodes": [_node(node, checks[node.node]) for node in showback.nodes],
        "rows": [_plain(row) for row in focus_rows(showback, billing)],
        "notes": [_coded(note) for note in showback.notes],
    }


def _group(group: GroupSum) -> dict[str, Any]:
    return {
        "name": group.name, "series_id": group.series_id, "workloads": group.workloads, **_sums(group.sums),
        "tokens_unknown": _coded(group.tokens_unknown) if group.tokens_unknown is not None else None,
    }  # fmt: skip


def _sums(sums: Sum) -> dict[str, Any]:
    return {
        "cost_usd": _rounded(sums.total_usd), "gpu_hours": _rounded(sums.total_gpu_hours),
        "unpriced_gpu_hours": _rounded(sums.unpriced_gpu_hours), "cost_usd_by_category": _by(sums.usd),
        "gpu_hours_by_category": _by(sums.gpu_hours), "tokens": _rounded(sums.tokens),
        "token_cost_usd": _rounded(sums.token_usd), "usd_per_million_tokens": _rounded(sums.usd_per_million_tokens),
    }  # fmt: skip


def _by(values: Mapping[Category, float]) -> dict[str, float | None]:
    return {_key(category): _rounded(value) for category, value in values.items()}


def _key(category: Category) -> str:
    return category.replace("-", "_")


def _node(node: ShowbackNode, check: NodeCheck) -> dict[str, Any]:
    price = node.price
    return {
        "node": node.node, "cluster": node.cluster or None, "node_sku": node.node_sku, "gpu_sku": node.gpu_sku,
        "gpu_count": node.gpu_count, "start": rfc3339(node.start), "end": rfc3339(node.end),
        "hours": _rounded(node.hours), "price": price.id if price is not None else None,
        "usd_per_hour": price.usd_per_hour if price is not None else None,
        "price_basis": price.basis if price is not None else None,
        "price_source": price.source if price is not None else None,
        "price_as_of": price.as_of if price is not None else None,
        "price_region_assumed": price.region_assumed if price is not None else None,
        "fabric_usd_per_hour": _rounded(node.fabric_usd_per_hour), "fabric_assumed": node.fabric_assumed,
        "fabric_used": node.fabric_used, **_check(check),
    }  # fmt: skip


def _check(check: NodeCheck) -> dict[str, Any]:
    return {
        "rows_usd": _rounded(check.rows_usd), "node_price_times_hours_usd": _rounded(check.node_usd),
        "difference_usd": _rounded(check.difference_usd),
    }  # fmt: skip


def _coded(one: CodedText) -> dict[str, Any]:
    return {"code": one.code, "text": one.text, "fields": dict(one.fields)}


def _plain(row: Mapping[str, Value]) -> dict[str, Any]:
    return {name: time_text(value) for name, value in row.items()}


def time_text(value: Value) -> Value:
    """A moment in RFC 3339; anything else as it is."""
    return rfc3339(value.timestamp()) if isinstance(value, datetime) else value


def _rounded(value: float | None) -> float | None:
    # Of a difference of sums -0.0 may be left.
    return None if value is None else round(value, DIGITS) + 0.0
