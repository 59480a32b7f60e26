"""The advice as JSON, schema ``skuwise.advice/1``."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from ..core.advice_json import to_dict
from ..core.advice_types import Advice


def load_schema() -> dict[str, Any]:
    """The JSON Schema of the advice, as the package carries it."""
    return json.loads(files("skuwise.advisor.render").joinpath("schema", "advice-1.schema.json").read_text("utf-8"))


def render_json(advice: Advice) -> str:
    return json.dumps(to_dict(advice), indent=2, ensure_ascii=True, allow_nan=False) + "\n"
