"""The advice as JSON, for programs."""

from __future__ import annotations

from ..format import Format
from ..json import render_json

FORMAT = Format("application/json", ".json", lambda advice, _: render_json(advice))
