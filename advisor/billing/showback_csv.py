"""Showback as CSV in FOCUS' columns, safe to open in a spreadsheet."""

from __future__ import annotations

from ..render.formats.csv import csv_text
from .focus_rows import COLUMNS, Billing, Value, focus_rows
from .showback import Showback
from .showback_json import time_text


def showback_csv(showback: Showback, billing: Billing) -> str:
    """A row under `COLUMNS` for each of the showback's; what is not known is empty."""
    rows = focus_rows(showback, billing)
    return csv_text(tuple(COLUMNS), ({name: _text(value) for name, value in row.items()} for row in rows))


def _text(value: Value) -> Value:
    if isinstance(value, bool):
        return "true" if value else "false"
    return time_text(value)
