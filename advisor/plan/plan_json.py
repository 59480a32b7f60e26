"""The plan as JSON, schema ``skuwise.fleet-plan/1``, and back."""

from __future__ import annotations

import json
from typing import Any

from ..core.advice_json import CODEC
from .result import SCHEMA, Plan


def plan_dict(plan: Plan) -> dict[str, Any]:
    """The plan as plain values, in the order of its fields."""
    values = CODEC.encode(plan)
    generated_at, start, end = (values.pop(name) for name in ("generated_at", "start", "end"))
    return {"schema": SCHEMA, "generated_at": generated_at, "window": {"start": start, "end": end}, **values}


def plan_json(plan: Plan) -> str:
    return json.dumps(plan_dict(plan), indent=2, ensure_ascii=True, allow_nan=False) + "\n"
