"""The advice as JSON, schema ``skuwise.advice/1``."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, get_args

from ..core.advice_json import to_dict
from ..core.advice_types import Action, Advice


def load_schema() -> dict[str, Any]:
    """The JSON Schema of the advice, as the package carries it, with the actions that there are."""
    file = files("skuwise.advisor.render").joinpath("schema", "advice-1.schema.json")
    schema = json.loads(file.read_text("utf-8"))
    schema["$defs"]["recommendation"]["properties"]["action"]["enum"] = list(get_args(Action))
    return schema


def render_json(advice: Advice) -> str:
    return json.dumps(to_dict(advice), indent=2, ensure_ascii=True, allow_nan=False) + "\n"
