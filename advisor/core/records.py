"""Rows of a table as plain records, and the text in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pandas as pd

Record = Mapping[str, Any]


def records(table: pd.DataFrame) -> list[Record]:
    """One mapping a row, by column name."""
    return cast("list[Record]", table.to_dict("records"))


def text(value: object) -> str | None:
    """A text, or None where it is missing or empty."""
    return value if isinstance(value, str) and value else None
