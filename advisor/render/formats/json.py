"""The advice as JSON, for programs."""

from __future__ import annotations

import json

from ...core.advice_json import to_dict
from ...core.advice_types import Advice
from ..format import Format


def render_json(advice: Advice) -> str:
    return json.dumps(to_dict(advice), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


FORMAT = Format("application/json", ".json", lambda advice, _: render_json(advice))
